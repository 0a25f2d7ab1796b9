use super::super::statement::Dialect;
use super::super::words::Word;

/// SQLite's SQL.
pub(super) struct Sqlite;

impl Dialect for Sqlite {
    fn parameter(&self, number: usize) -> String {
        format!("?{number}")
    }

    fn has_host(&self, name: &str) -> String {
        format!("number IN (SELECT host.job FROM host WHERE host.name = {name})")
    }

    fn has_tag(&self, tag: &str) -> String {
        format!("number IN (SELECT tag.job FROM tag WHERE tag.name = {tag})")
    }

    fn has_words(&self, words: &str) -> String {
        format!("number IN (SELECT rowid FROM word WHERE word MATCH {words})")
    }

    /// Words are letters and digits, so no quote ends one. Words side by side must all be there.
    fn words(&self, words: &mut dyn Iterator<Item = &Word>) -> String {
        let quoted = words.map(|word| {
            let star = if word.is_beginning { " *" } else { "" };
            format!("\"{}\"{star}", word.text)
        });
        quoted.collect::<Vec<_>>().join(" ")
    }

    fn amount(&self, column: &str, name: &str) -> String {
        format!("({column} ->> {name})")
    }

    fn documents(&self) -> &'static str {
        "document"
    }
}

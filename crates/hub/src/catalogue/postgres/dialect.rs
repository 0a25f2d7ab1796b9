use skopos_store::jobs::catalogue::{Dialect, Word};

/// PostgreSQL's SQL.
pub(super) struct Postgres;

impl Dialect for Postgres {
    fn parameter(&self, number: usize) -> String {
        format!("${number}")
    }

    fn has_host(&self, name: &str) -> String {
        format!("hosts @> ARRAY[{name}::text]")
    }

    fn has_tag(&self, tag: &str) -> String {
        format!("tags @> ARRAY[{tag}::text]")
    }

    fn has_words(&self, words: &str) -> String {
        format!("words @@ {words}::text::tsquery")
    }

    /// Words are letters and digits, so no quote ends one.
    fn words(&self, words: &mut dyn Iterator<Item = &Word>) -> String {
        let quoted = words.map(|word| {
            let star = if word.is_beginning { ":*" } else { "" };
            format!("'{}'{star}", word.text)
        });
        quoted.collect::<Vec<_>>().join(" & ")
    }

    fn amount(&self, column: &str, name: &str) -> String {
        format!("({column} ->> {name}::text)::float8")
    }

    fn documents(&self) -> &'static str {
        "job"
    }
}

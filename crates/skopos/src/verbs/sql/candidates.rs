//! Names that complete a statement: tables after FROM, columns and functions in expressions, topics in
//! quotes.

use std::collections::BTreeSet;

/// Functions of the dialect that completion offers.
const FUNCTIONS: [&str; 24] = [
    "abs",
    "avg",
    "coalesce",
    "count",
    "delta",
    "first",
    "greatest",
    "interpolate",
    "last",
    "least",
    "locf",
    "max",
    "median",
    "min",
    "now",
    "quantile",
    "rate",
    "round",
    "stddev",
    "sum",
    "time_bucket",
    "time_bucket_gapfill",
    "topic_like",
    "var",
];

/// Keywords that begin a statement.
const BEGINNINGS: [&str; 5] = ["DESCRIBE", "EXPLAIN", "SELECT", "SHOW TABLES", "WITH"];

/// Keywords after which a table is expected.
const BEFORE_TABLES: [&str; 3] = ["FROM", "JOIN", "DESCRIBE"];

/// Keywords after which an expression is expected.
const BEFORE_COLUMNS: [&str; 10] =
    ["SELECT", "WHERE", "BY", "ON", "HAVING", "AND", "OR", "NOT", "WHEN", "DISTINCT"];

/// Keywords inside a statement.
const KEYWORDS: [&str; 18] = [
    "AND", "AS", "ASC", "BETWEEN", "DESC", "FROM", "GROUP BY", "HAVING", "IN", "JOIN", "LIKE",
    "LIMIT", "NOT", "ON", "OR", "ORDER BY", "UNION", "WHERE",
];

/// The names of the database.
#[derive(Default)]
pub(super) struct Names {
    pub(super) topics: BTreeSet<String>,
    /// Each column with its table.
    pub(super) columns: BTreeSet<(String, String)>,
}

/// The place in a statement where a word begins.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// The first word.
    Beginning,
    /// A name of a table.
    Table,
    /// A column or a call of a function.
    Expression,
    /// In single or double quotes.
    Quotes,
    /// After a complete name: a keyword.
    Keyword,
}

impl Names {
    /// Returns the names that may continue `text`, and the byte at which the word that they replace begins.
    pub(super) fn candidates(&self, text: &str) -> (usize, Vec<String>) {
        let (start, place) = place(text);
        let typed = text[start..].to_lowercase();
        let names: BTreeSet<&str> = match place {
            Place::Beginning => BEGINNINGS.into(),
            Place::Keyword => KEYWORDS.into(),
            Place::Quotes => self.topics.iter().map(String::as_str).collect(),
            Place::Table => self.tables().collect(),
            Place::Expression => self.columns_of(text).into_iter().chain(FUNCTIONS).collect(),
        };
        let is_fitting = |name: &&str| name.to_lowercase().starts_with(&typed);
        (start, names.into_iter().filter(is_fitting).map(str::to_owned).collect())
    }

    fn tables(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|(table, _)| table.as_str())
    }

    /// Columns of the tables that the statement names; of every table if it names no table.
    fn columns_of(&self, text: &str) -> BTreeSet<&str> {
        let words: BTreeSet<&str> = text.split(|c| !is_word(c)).collect();
        let named: BTreeSet<&str> = self.tables().filter(|table| words.contains(table)).collect();
        let is_wanted = |table: &str| named.is_empty() || named.contains(table);
        let wanted = self.columns.iter().filter(|(table, _)| is_wanted(table));
        wanted.map(|(_, column)| column.as_str()).collect()
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The start of the word at the end of `text`, and the place where it stands.
fn place(text: &str) -> (usize, Place) {
    let mut quote = None;
    for (at, c) in text.char_indices().filter(|(_, c)| matches!(c, '"' | '\'')) {
        quote = match quote {
            None => Some((at, c)),
            Some((_, open)) if open == c => None,
            open => open,
        };
    }
    if let Some((at, _)) = quote {
        return (at + 1, Place::Quotes);
    }
    let start = text.rfind(|c| !is_word(c)).map_or(0, |at| at + 1);
    let before = text[..start].trim_end();
    let statement = before.rsplit(';').next().unwrap_or_default();
    let last = statement.rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
    let is_one_of =
        |keywords: &[&str], word: &str| keywords.iter().any(|k| k.eq_ignore_ascii_case(word));
    let place = if statement.trim().is_empty() || last.eq_ignore_ascii_case("EXPLAIN") {
        Place::Beginning
    } else if is_one_of(&BEFORE_TABLES, last) {
        Place::Table
    } else if is_one_of(&BEFORE_COLUMNS, last)
        || before.ends_with(['(', '=', '<', '>', '+', '-', '*', '/'])
    {
        Place::Expression
    } else if before.ends_with(',') {
        // A comma continues the list of tables or of expressions in which it stands.
        let mut words = statement.split(|c| !is_word(c)).rev();
        let is_keyword =
            |word: &&str| is_one_of(&BEFORE_TABLES, word) || is_one_of(&BEFORE_COLUMNS, word);
        match words.find(is_keyword) {
            Some(word) if is_one_of(&BEFORE_TABLES, word) => Place::Table,
            _ => Place::Expression,
        }
    } else {
        Place::Keyword
    };
    (start, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let pair = |(table, column): (&str, &str)| (table.to_owned(), column.to_owned());
        Names {
            topics: ["n01/load/load_1m".to_owned()].into(),
            columns: [("latest", "value"), ("latest", "age"), ("fs", "total_bytes")]
                .map(pair)
                .into(),
        }
    }

    #[test]
    fn the_place_decides_which_names_are_offered() {
        for (text, expected) in [
            ("sel", &["SELECT"][..]),
            ("SELECT * FROM la", &["latest"]),
            ("SELECT * FROM latest JOIN f", &["fs"]),
            ("SELECT * FROM latest WHERE va", &["value", "var"]),
            ("SELECT * FROM fs WHERE va", &["var"]),
            ("SELECT * FROM latest wh", &["WHERE"]),
            ("SELECT time_bucket_", &["time_bucket_gapfill"]),
            ("SELECT value, ag", &["age"]),
            ("SELECT * FROM latest ORDER BY ag", &["age"]),
            ("SELECT * FROM \"n01/", &["n01/load/load_1m"]),
            ("SELECT * FROM latest WHERE topic = 'n01/", &["n01/load/load_1m"]),
            ("SELECT 1; sh", &["SHOW TABLES"]),
            ("SELECT avg(va", &["value", "var"]),
        ] {
            assert_eq!(names().candidates(text).1, expected, "{text}");
        }
    }

    #[test]
    fn the_word_at_the_end_is_replaced() {
        assert_eq!(names().candidates("SELECT * FROM la").0, 14);
        assert_eq!(names().candidates("SELECT * FROM \"n0").0, 15);
    }
}

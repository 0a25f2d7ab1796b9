//! Which tasks: `resident_bytes_max>1GiB,host=n01`.

use rusqlite::types::Value;
use skopos_model::duration;
use skopos_model::task::{RESOURCES, parse_bytes, resource};

/// What a condition may ask for beside resources.
pub const FIELDS: [&str; 6] = ["name", "host", "monitor", "set", "exit", "status"];

/// How a task may end, as `exit` has it.
const EXITS: [&str; 5] = ["normal", "signal", "limit", "running", "unknown"];

/// The most conditions of one text. Three for each resource are more than anybody means.
const MAX_CONDITIONS: usize = 3 * RESOURCES.len();

/// Conditions that all hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions(Vec<Condition>);

#[derive(Clone, Debug, PartialEq)]
struct Condition {
    what: What,
    /// Of SQL.
    operator: &'static str,
    value: Value,
}

#[derive(Clone, Debug, PartialEq)]
enum What {
    Column(&'static str),
    Resource(&'static str),
}

/// Why a text is no condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// Not `NAME OPERATOR VALUE`.
    #[error("`{0}` is no condition; one looks like `memory>1GiB` or `host=n01`")]
    Form(String),
    /// There is nothing of this name.
    #[error("there is nothing called `{0}` to ask for")]
    Unknown(String),
    /// The operator does not fit.
    #[error("`{text}`: a text is compared with `=` or `!=`, and `*` stands for anything")]
    Text {
        /// The condition.
        text: String,
    },
    /// The value does not fit.
    #[error("`{text}`: {expected}")]
    Value {
        /// The condition.
        text: String,
        /// What would be right.
        expected: &'static str,
    },
    /// More than there can be.
    #[error("more than {MAX_CONDITIONS} conditions")]
    Many,
}

/// Longer ones first: `>=` begins with `>`.
const OPERATORS: [&str; 6] = [">=", "<=", "!=", ">", "<", "="];

impl Conditions {
    /// Reads `NAME OPERATOR VALUE,…`. A name is one of [`FIELDS`] or a resource with its short name; the
    /// operators are `= != < <= > >=`. Values have units as in limits; `*` in a text stands for anything.
    /// A task of which a resource is unknown fulfils no condition on it.
    ///
    /// # Errors
    /// What is wrong with the first part that is wrong.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        let mut conditions = Self::default();
        conditions.and(text)?;
        Ok(conditions)
    }

    /// Adds those of another text.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn and(&mut self, text: &str) -> Result<(), ConditionError> {
        for part in text.split(',').map(str::trim) {
            if self.0.len() == MAX_CONDITIONS {
                return Err(ConditionError::Many);
            }
            self.0.push(condition(part)?);
        }
        Ok(())
    }

    /// A boolean expression of SQL over `task`, and its values.
    pub(super) fn sql(&self) -> (String, Vec<Value>) {
        let mut clause = "1".to_owned();
        let mut values = Vec::new();
        for Condition { what, operator, value } in &self.0 {
            match what {
                What::Column(column) => clause += &format!(" AND {column} {operator} ?"),
                What::Resource(name) => {
                    clause += &format!(
                        " AND EXISTS (SELECT 1 FROM reading AS r JOIN resource AS n ON n.id = r.resource
                         WHERE r.task = task.id AND n.name = ? AND r.value {operator} ?)"
                    );
                    values.push((*name).to_owned().into());
                }
            }
            values.push(value.clone());
        }
        (clause, values)
    }
}

fn condition(text: &str) -> Result<Condition, ConditionError> {
    let form = || ConditionError::Form(text.to_owned());
    let at = text.find(['<', '>', '=', '!']).ok_or_else(form)?;
    let (name, rest) = text.split_at(at);
    let operator = OPERATORS.into_iter().find(|o| rest.starts_with(o)).ok_or_else(form)?;
    let (name, value) = (name.trim(), rest[operator.len()..].trim());
    if name.is_empty() || value.is_empty() {
        return Err(form());
    }
    let column = match name {
        "name" | "class" => Some("class"),
        "host" => Some("host"),
        "monitor" => Some("monitor"),
        "set" => Some("collection"),
        "exit" => Some("exit_type"),
        _ => None,
    };
    let wrong = |expected| ConditionError::Value { text: text.to_owned(), expected };
    if let Some(column) = column {
        if column == "exit_type" && !EXITS.contains(&value) {
            return Err(wrong("a task ends as `normal`, `signal`, `limit` or is `running`"));
        }
        let operator = match operator {
            "=" => "GLOB",
            "!=" => "NOT GLOB",
            _ => return Err(ConditionError::Text { text: text.to_owned() }),
        };
        return Ok(Condition { what: What::Column(column), operator, value: glob(value).into() });
    }
    if name == "status" {
        let status: i64 = value.parse().map_err(|_| wrong("a status looks like `0`"))?;
        return Ok(Condition { what: What::Column("status"), operator, value: status.into() });
    }
    let resource = resource(name).ok_or_else(|| ConditionError::Unknown(name.to_owned()))?;
    let (number, expected) = match resource.unit {
        "bytes" => (parse_bytes(value), "a size looks like `4GiB`, `500MB` or `1048576`"),
        "seconds" => (
            duration::parse(value).ok().map(|d| d.as_secs_f64()),
            "a time looks like `30s`, `1h30m` or `2h`",
        ),
        _ => (value.parse().ok(), "a number looks like `100`"),
    };
    let number =
        number.filter(|n: &f64| n.is_finite() && *n >= 0.0).ok_or_else(|| wrong(expected))?;
    Ok(Condition { what: What::Resource(resource.name), operator, value: number.into() })
}

/// A pattern of SQLite in which only `*` stands for something else.
fn glob(text: &str) -> String {
    text.replace('[', "[[]").replace('?', "[?]")
}

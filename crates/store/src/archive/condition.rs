//! Conditions that select tasks: `resident_bytes_max>1GiB,host=n01`.

use rusqlite::types::Value;
use skopos_model::duration;
use skopos_model::task::{RESOURCES, parse_bytes, resource};

/// Names that a condition may compare, beside those of resources.
pub const FIELDS: [&str; 6] = ["name", "host", "monitor", "set", "exit", "status"];

/// The values of `exit`: the ends of a task.
const EXITS: [&str; 5] = ["normal", "signal", "limit", "running", "unknown"];

/// The most conditions of one text. Three for each resource are more than a meaningful text has.
const MAX_CONDITIONS: usize = 3 * RESOURCES.len();

/// Conditions on a task, which must meet all of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions(Vec<Condition>);

#[derive(Clone, Debug, PartialEq)]
struct Condition {
    target: Target,
    /// Operator of SQL.
    operator: &'static str,
    value: Value,
}

#[derive(Clone, Debug, PartialEq)]
enum Target {
    Column(&'static str),
    Resource(&'static str),
}

/// Reasons for which a text is not a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// The text does not have the form `NAME OPERATOR VALUE`.
    #[error("`{0}` is not a condition; a condition looks like `memory>1GiB` or `host=n01`")]
    Form(String),
    /// The name is neither a field nor a resource.
    #[error("there is no field or resource `{0}`")]
    Unknown(String),
    /// The operator does not fit a text.
    #[error("`{text}`: a text is compared with `=` or `!=`, and `*` stands for anything")]
    Text {
        /// The condition.
        text: String,
    },
    /// The value does not fit its name.
    #[error("`{text}`: {expected}")]
    Value {
        /// The condition.
        text: String,
        /// Form of a correct value.
        expected: &'static str,
    },
    /// There are too many conditions.
    #[error("more than {MAX_CONDITIONS} conditions")]
    Many,
}

/// The operators, the longer ones first: `>=` begins with `>`.
const OPERATORS: [&str; 6] = [">=", "<=", "!=", ">", "<", "="];

impl Conditions {
    /// Reads `NAME OPERATOR VALUE,…`. A name is one of [`FIELDS`] or a resource with its short name; the
    /// operators are `= != < <= > >=`. Values have units as in limits; `*` in a text stands for anything.
    /// A task with an unknown value of a resource does not meet any condition on that resource.
    ///
    /// # Errors
    /// The first part that is not a condition, with the reason.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        let mut conditions = Self::default();
        conditions.and(text)?;
        Ok(conditions)
    }

    /// Adds the conditions of another text.
    ///
    /// # Errors
    /// The same as for [`Self::parse`].
    pub fn and(&mut self, text: &str) -> Result<(), ConditionError> {
        for part in text.split(',').map(str::trim) {
            if self.0.len() == MAX_CONDITIONS {
                return Err(ConditionError::Many);
            }
            self.0.push(condition(part)?);
        }
        Ok(())
    }

    /// Returns a boolean SQL expression over the table `task`, and its parameters.
    pub(super) fn sql(&self) -> (String, Vec<Value>) {
        let mut clause = "1".to_owned();
        let mut values = Vec::new();
        for Condition { target, operator, value } in &self.0 {
            match target {
                Target::Column(column) => clause += &format!(" AND {column} {operator} ?"),
                Target::Resource(name) => {
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
        return Ok(Condition {
            target: Target::Column(column),
            operator,
            value: glob(value).into(),
        });
    }
    if name == "status" {
        let status: i64 = value.parse().map_err(|_| wrong("a status looks like `0`"))?;
        return Ok(Condition { target: Target::Column("status"), operator, value: status.into() });
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
    Ok(Condition { target: Target::Resource(resource.name), operator, value: number.into() })
}

/// Returns a pattern of SQLite's `GLOB` in which only `*` is special.
fn glob(text: &str) -> String {
    text.replace('[', "[[]").replace('?', "[?]")
}

//! The names of a vector of measurements.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The most metrics of one vector: those of a node with some hundred processors. Longer vectors are split by subject.
pub const MAX_METRICS: usize = 4096;

/// The longest name of a metric or of a vector: the longest topic.
const MAX_NAME_BYTES: usize = crate::MAX_TOPIC_BYTES;

/// The names of the values in the measurements of a job, in their order.
///
/// Measurements travel as the name of this schema and a vector of values. A job has any number of schemas. A list names the
/// measurements that come after it: see [`NamesInForce`](super::NamesInForce). A producer that measures something else
/// sends another list, best with another name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Metrics {
    /// The name of the schema, such as `node-1`.
    pub schema: String,
    /// The names of the metrics, such as `cpu/busy_ratio`.
    pub names: Vec<String>,
    /// The units of the metrics; empty if they are not known.
    #[serde(default)]
    pub units: Vec<String>,
}

/// The reason why a schema is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MetricsError {
    /// A name is empty, too long, or has a control character.
    #[error("the name {0:?} is empty, too long, or has a control character")]
    Name(String),
    /// A name stands twice.
    #[error("the metric `{0}` stands twice")]
    Twice(String),
    /// There are too many metrics or none.
    #[error("a schema has 1 to {MAX_METRICS} metrics, and this one has {0}")]
    Count(usize),
    /// There is not one unit for each metric.
    #[error("there are {units} units for {names} metrics")]
    Units {
        /// Number of units.
        units: usize,
        /// Number of metrics.
        names: usize,
    },
}

impl Metrics {
    /// Checks the names and their number.
    ///
    /// # Errors
    /// A name is not valid or stands twice, or a number of entries is wrong.
    pub fn check(&self) -> Result<(), MetricsError> {
        let (names, units) = (self.names.len(), self.units.len());
        if names == 0 || names > MAX_METRICS {
            return Err(MetricsError::Count(names));
        }
        if units != 0 && units != names {
            return Err(MetricsError::Units { units, names });
        }
        let mut sorted: Vec<&str> = self.names.iter().map(String::as_str).collect();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(MetricsError::Twice(pair[0].to_owned()));
        }
        let mut texts = sorted.into_iter().chain([self.schema.as_str()]);
        match texts.find(|name| !is_name(name)) {
            Some(name) => Err(MetricsError::Name(name.chars().take(MAX_NAME_BYTES).collect())),
            None if self.units.iter().all(|unit| unit.is_empty() || is_name(unit)) => Ok(()),
            None => Err(MetricsError::Name("a unit".to_owned())),
        }
    }
}

/// Returns true if a text can be the name of a schema or metric.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_out_of_bounds_are_refused() {
        let metrics = |names: &[&str], units: &[&str]| Metrics {
            schema: "node".to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            units: units.iter().map(|unit| (*unit).to_owned()).collect(),
        };
        assert_eq!(metrics(&["a", "b/c"], &[]).check(), Ok(()));
        assert_eq!(metrics(&["a", "b"], &["bytes", ""]).check(), Ok(()));
        assert_eq!(metrics(&[], &[]).check(), Err(MetricsError::Count(0)));
        assert_eq!(
            metrics(&["b", "a", "b"], &[]).check(),
            Err(MetricsError::Twice("b".to_owned()))
        );
        let units = MetricsError::Units { units: 1, names: 2 };
        assert_eq!(metrics(&["a", "b"], &["bytes"]).check(), Err(units));
        assert_eq!(metrics(&["a\n"], &[]).check(), Err(MetricsError::Name("a\n".to_owned())));
        let unnamed = Metrics { schema: String::new(), ..metrics(&["a"], &[]) };
        assert_eq!(unnamed.check(), Err(MetricsError::Name(String::new())));
    }
}

//! The limits of a task: `memory=4GiB,wall=2h,processes=100`.

use std::fmt;

use super::resource::{RESOURCES, Resource, resource};
use crate::duration;

/// The most limits of one task: one for each resource.
const MAX_LIMITS: usize = RESOURCES.len();

/// One limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// The limited resource.
    pub resource: &'static Resource,
    /// The most that is allowed, in the resource's unit.
    pub most: f64,
}

/// The limits of a task, at most one for each resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits(Vec<Limit>);

/// A limit and the measured value that crossed it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crossing {
    /// The limit.
    pub limit: Limit,
    /// The measured value, in the resource's unit.
    pub value: f64,
}

/// The reasons for which a text is not a list of limits.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LimitError {
    /// The text is not `NAME=VALUE`.
    #[error("`{0}` is not a limit; a limit looks like `memory=4GiB`")]
    Form(String),
    /// There is no such resource.
    #[error("there is no resource `{0}`")]
    Unknown(String),
    /// The value is not a number with a unit that fits.
    #[error("`{name}={value}`: {expected}")]
    Value {
        /// The resource as it was written.
        name: String,
        /// The value as it was written.
        value: String,
        /// The form of a valid value.
        expected: &'static str,
    },
    /// The text has two limits on one resource.
    #[error("`{0}` is limited twice")]
    Twice(&'static str),
}

impl Limits {
    /// Reads `NAME=VALUE,…`. Bytes take `kB MB GB TB` (powers of 1000) and `KiB MiB GiB TiB`
    /// (powers of 1024), times `ms s m h d`.
    ///
    /// # Errors
    /// The error of the first part that is wrong.
    pub fn parse(text: &str) -> Result<Self, LimitError> {
        let mut limits = Self::default();
        for part in text.split(',').map(str::trim) {
            let (name, value) =
                part.split_once('=').ok_or_else(|| LimitError::Form(part.to_owned()))?;
            let (name, value) = (name.trim(), value.trim());
            let resource = resource(name).ok_or_else(|| LimitError::Unknown(name.to_owned()))?;
            let most = parse_value(resource, value).map_err(|expected| LimitError::Value {
                name: name.to_owned(),
                value: value.to_owned(),
                expected,
            })?;
            limits.add(Limit { resource, most })?;
        }
        Ok(limits)
    }

    /// Adds a limit.
    ///
    /// # Errors
    /// [`LimitError::Twice`] if the resource has a limit already.
    pub fn add(&mut self, limit: Limit) -> Result<(), LimitError> {
        if self.of(limit.resource.name).is_some() || self.0.len() == MAX_LIMITS {
            return Err(LimitError::Twice(limit.resource.short()));
        }
        self.0.push(limit);
        Ok(())
    }

    /// Returns the limit on the resource of this name.
    pub fn of(&self, name: &str) -> Option<f64> {
        self.iter().find(|limit| limit.resource.name == name).map(|limit| limit.most)
    }

    /// Returns all limits in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = Limit> {
        self.0.iter().copied()
    }

    /// Returns true if nothing is limited.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.resource.short(), amount(self.most, self.resource.unit))
    }
}

/// Formats `memory: 5.1 GiB > 4 GiB`, like the field `limits` of the paper.
impl fmt::Display for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limit { resource, most } = self.limit;
        let (short, unit) = (resource.short(), resource.unit);
        let (value, limit) = (amount(self.value, unit), amount(most, unit));
        if self.value <= most {
            // The kernel refused more than the limit.
            return write!(f, "{short}: {limit} reached, and more was asked for");
        }
        if value == limit {
            return match unit {
                // Only more digits tell the two apart.
                "seconds" => {
                    let (value, limit) = apart(self.value, most);
                    write!(f, "{short}: {value} s > {limit} s")
                }
                _ => write!(f, "{short}: {} {unit} > {limit}", self.value),
            };
        }
        write!(f, "{short}: {value} > {limit}")
    }
}

/// Formats two numbers with as many digits as tell them apart, at least three.
fn apart(a: f64, b: f64) -> (String, String) {
    let with = |digits: usize| (format!("{a:.digits$}"), format!("{b:.digits$}"));
    // A clock has at most nine.
    (3..9).map(with).find(|(a, b)| a != b).unwrap_or_else(|| with(9))
}

/// Formats an amount for people: `5.1 GiB`, `2 h 00 m`, `17`.
pub fn amount(value: f64, unit: &str) -> String {
    match unit {
        "bytes" => human_bytes(value),
        "seconds" => {
            duration::human(std::time::Duration::try_from_secs_f64(value).unwrap_or_default())
        }
        "" => trimmed(value),
        other => format!("{} {other}", trimmed(value)),
    }
}

fn human_bytes(value: f64) -> String {
    let steps = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut value, mut step) = (value, 0);
    while value >= 1024.0 && step + 1 < steps.len() {
        value /= 1024.0;
        step += 1;
    }
    format!("{} {}", trimmed(value), steps[step])
}

/// Formats a number with at most two decimals and no trailing zeros; below a tenth with two significant
/// digits.
fn trimmed(value: f64) -> String {
    let small = value > 0.0 && value < 0.1;
    // No useful limit is less than a millionth.
    let digits = if small { (1.0 - value.log10().floor()).min(7.0) as usize } else { 2 };
    let text = format!("{value:.digits$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn parse_value(resource: &Resource, text: &str) -> Result<f64, &'static str> {
    let (value, expected) = match resource.unit {
        "bytes" => (parse_bytes(text), "a size looks like `4GiB`, `500MB` or `1048576`"),
        "seconds" => (
            duration::parse(text).ok().map(|d| d.as_secs_f64()),
            "a time looks like `30s`, `1h30m` or `2h`",
        ),
        _ => (text.parse().ok(), "a number looks like `100`"),
    };
    value.filter(|v: &f64| v.is_finite() && *v > 0.0).ok_or(match resource.unit {
        "bytes" | "seconds" => expected,
        _ => "a limit is a number above zero",
    })
}

/// Reads bytes: `1048576`, `4kB` or `4KB` (4,000), `4KiB` or `4K` (4,096), and so on up to `T`. A letter
/// alone is a power of 1024, as in `ulimit`, `dd` and Slurm; with `B` it is a power of 1000, as in the
/// standards; with `iB` it is a power of 1024. Lower case means the same: no limit is in bits.
pub fn parse_bytes(text: &str) -> Option<f64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().ok()?;
    let unit = unit.trim_start();
    let (letter, rest) = match unit.chars().next() {
        None => return Some(number),
        Some(letter) => (letter.to_ascii_uppercase(), &unit[letter.len_utf8()..]),
    };
    if letter == 'B' && rest.is_empty() {
        return Some(number);
    }
    let power = "KMGT".find(letter)? as i32 + 1;
    match rest.to_ascii_lowercase().as_str() {
        "" | "ib" => Some(number * 1024f64.powi(power)),
        "b" => Some(number * 1000f64.powi(power)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_as_typed() {
        let limits = Limits::parse("memory=4GiB, wall=2h,processes=100").expect("limits");
        assert_eq!(limits.of("resident_bytes_max"), Some(4.0 * 1024.0 * 1024.0 * 1024.0));
        assert_eq!(limits.of("wall_seconds"), Some(7200.0));
        assert_eq!(limits.of("processes_max"), Some(100.0));
        assert_eq!(limits.of("cpu_seconds"), None);
        let texts: Vec<String> = limits.iter().map(|l| l.to_string()).collect();
        assert_eq!(texts, ["memory=4 GiB", "wall=2 h 00 m", "processes=100"]);
    }

    #[test]
    fn gb_and_gib_are_two_things() {
        let bytes = ["4GB", "4GiB", "4G", "4kB", "4KB", "4KiB", "1.5 MiB", "17", "17B"];
        let expected = [4e9, 4294967296.0, 4294967296.0, 4e3, 4e3, 4096.0, 1572864.0, 17.0, 17.0];
        for (text, expected) in bytes.into_iter().zip(expected) {
            for text in [text, &text.to_ascii_lowercase()] {
                assert_eq!(parse_bytes(text), Some(expected), "{text}");
            }
        }
        for text in ["", "B", "GiB", "4GBs", "4Q", "-1", "1e400G", "∞"] {
            assert!(parse_bytes(text).is_none_or(f64::is_infinite), "{text}");
        }
    }

    #[test]
    fn an_error_names_the_wrong_part() {
        for (text, said) in [
            ("memory", "`memory` is not a limit; a limit looks like `memory=4GiB`"),
            ("memroy=1", "there is no resource `memroy`"),
            ("memory=-1", "`memory=-1`: a size looks like `4GiB`, `500MB` or `1048576`"),
            ("wall=soon", "`wall=soon`: a time looks like `30s`, `1h30m` or `2h`"),
            ("processes=0", "`processes=0`: a limit is a number above zero"),
            ("processes=inf", "`processes=inf`: a limit is a number above zero"),
            ("wall=1s,wall_seconds=2s", "`wall` is limited twice"),
            ("", "`` is not a limit; a limit looks like `memory=4GiB`"),
        ] {
            assert_eq!(Limits::parse(text).expect_err(text).to_string(), said);
        }
    }

    #[test]
    fn a_crossing_reads_as_in_the_paper() {
        let resource = resource("memory").expect("it exists");
        let gib = 1024.0 * 1024.0 * 1024.0;
        let crossing = |value| Crossing { limit: Limit { resource, most: 4.0 * gib }, value };
        assert_eq!(crossing(5.1 * gib).to_string(), "memory: 5.1 GiB > 4 GiB");
        assert_eq!(crossing(4.0 * gib + 1.0).to_string(), "memory: 4294967297 bytes > 4 GiB");
        for (limit, value, expected) in [
            ("wall=1s", 1.001114746, "wall: 1.001 s > 1.000 s"),
            ("wall=1s", 1.0000004, "wall: 1.0000004 s > 1.0000000 s"),
            ("cores=0.004", 0.3, "cores: 0.3 > 0.004"),
            ("cores=0.25", 0.3, "cores: 0.3 > 0.25"),
        ] {
            let limits = Limits::parse(limit).expect("a limit");
            let limit = limits.iter().next().expect("one");
            assert_eq!(Crossing { limit, value }.to_string(), expected);
        }
    }
}

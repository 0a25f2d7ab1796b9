//! The `max_age` of a request: a value that is too old is measured again, or refused with the reason.
//!
//! `skopos get` and the listeners of a hub share these rules. They differ in the source that they read and in
//! the agent that measures.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use skopos_model::{Timestamp, Topic, duration};

use crate::control::{self, MIN_REFRESH, Request};

/// The freshness of a value.
#[derive(Clone, Copy, Debug)]
pub struct Freshness {
    /// Time since the last poll of its source.
    pub age: Duration,
    /// The time of the last poll of its source, by the clock of its node.
    pub checked_at: Timestamp,
}

/// The reason why a topic was not measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The topic cannot be measured, for example because a user published it.
    Topic(String),
    /// The agent or node does not answer, so it cannot measure other topics either.
    Source(String),
}

/// The largest age that a client allows.
pub struct MaxAge {
    most: Duration,
    /// The client's name of the option, for messages.
    option: &'static str,
    /// Agents and nodes that do not answer, with the reason: they are not asked again.
    silent: BTreeMap<String, String>,
}

impl MaxAge {
    /// Allows at most `most`. `option` is the client's name of the option.
    pub fn new(most: Duration, option: &'static str) -> Self {
        Self { most, option, silent: BTreeMap::new() }
    }

    /// Returns true if the value is young enough.
    pub fn allows(&self, freshness: Freshness) -> bool {
        freshness.age <= self.most
    }

    /// Reads a value with `look`. If it is too old, has `source` measure it with `measure`, and reads it again.
    ///
    /// # Errors
    /// The reason why there is no value that is young enough.
    pub fn read<T>(
        &mut self,
        source: &str,
        look: impl Fn() -> Result<(T, Freshness), String>,
        measure: impl FnOnce() -> Result<(), Refusal>,
    ) -> Result<T, String> {
        let (value, before) = look()?;
        if before.age <= self.most {
            return Ok(value);
        }
        let refused = match self.silent.get(source) {
            Some(reason) => Some(reason.clone()),
            None => match measure() {
                Ok(()) => None,
                Err(Refusal::Topic(reason)) => Some(reason),
                Err(Refusal::Source(reason)) => {
                    self.silent.insert(source.to_owned(), reason.clone());
                    Some(reason)
                }
            },
        };
        let (value, now) = look()?;
        // A value that was polled meanwhile is fresh, even if the clock of its node is wrong. An agent does not
        // poll a sensor twice within `MIN_REFRESH`, so its answer may be that old.
        let is_fresh =
            refused.is_none() && (now.checked_at > before.checked_at || now.age <= MIN_REFRESH);
        if is_fresh || now.age <= self.most {
            return Ok(value);
        }
        let (age, most) = (duration::human(now.age), duration::human(self.most));
        let because = refused.map(|reason| format!("; {reason}")).unwrap_or_default();
        Err(format!("last polled {age} ago, longer than {} {most}{because}", self.option))
    }
}

/// Has the agent of a runtime directory measure a topic, either its own or a mirrored one.
///
/// # Errors
/// The agent refuses, or does not answer.
pub fn by_agent(dir: &Path, topic: &Topic) -> Result<(), Refusal> {
    match control::ask(dir, &Request::Refresh { topic: topic.to_string() }) {
        Ok(_) => Ok(()),
        Err(e) if e.is_refusal() => Err(Refusal::Topic(e.message().to_owned())),
        Err(e) => Err(Refusal::Source(e.message().to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Reads a value of this age. `measured` is its age and poll time after a measurement, or the refusal.
    fn read(age_ms: u64, measured: Result<(u64, i64), Refusal>) -> Result<u64, String> {
        let at = Cell::new((age_ms, 1));
        let look = || {
            let (age_ms, checked_at) = at.get();
            let age = Duration::from_millis(age_ms);
            Ok((age_ms, Freshness { age, checked_at: Timestamp::from_nanos(checked_at) }))
        };
        let measure = || measured.map(|now| at.set(now));
        MaxAge::new(Duration::from_secs(1), "--max-age").read("it", look, measure)
    }

    #[test]
    fn an_old_value_is_measured_or_refused_with_the_reason() {
        let refused = || Err(Refusal::Topic("no sensor".to_owned()));
        let old = "last polled 2.0 s ago, longer than --max-age 1.0 s";
        assert_eq!(read(500, refused()), Ok(500), "the value is young enough");
        assert_eq!(read(2000, Ok((3, 2))), Ok(3));
        assert_eq!(read(2000, refused()), Err(format!("{old}; no sensor")));
        assert_eq!(read(2000, Ok((2000, 1))), Err(old.to_owned()), "nothing was measured");
        let ahead = 7_200_000;
        assert_eq!(read(ahead, Ok((ahead, 2))), Ok(ahead), "the node's clock is two hours behind");
    }

    #[test]
    fn a_source_that_does_not_answer_is_asked_once() {
        let (mut max_age, asked) = (MaxAge::new(Duration::ZERO, "max_age"), Cell::new(0));
        let look = || {
            let age = Duration::from_secs(9);
            Ok(((), Freshness { age, checked_at: Timestamp::default() }))
        };
        let mut ask = |source: &str| {
            let measure = || {
                asked.set(asked.get() + 1);
                Err(Refusal::Source("it is gone".to_owned()))
            };
            max_age.read(source, look, measure)
        };
        for source in ["a", "a", "b"] {
            let refused = ask(source).expect_err("it is old");
            assert!(refused.ends_with("; it is gone"), "{refused}");
        }
        assert_eq!(asked.get(), 2);
    }
}

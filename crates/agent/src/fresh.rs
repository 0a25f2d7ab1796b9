//! How old a value may be: one that is too old is measured anew, and refused with the reason if it cannot
//! be.
//!
//! One judgement for whoever is asked for `max_age`: `skopos get`, and a hub through its doors. They differ
//! in where they look and in whom they ask.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use skopos_model::{Timestamp, Topic, duration};

use crate::agent::MIN_REFRESH;
use crate::control::{self, Request};

/// How fresh a value is.
#[derive(Clone, Copy, Debug)]
pub struct Looked {
    pub age: Duration,
    /// When its source was last looked at, by the clock of its node.
    pub checked_at: Timestamp,
}

/// Why a topic was not measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// This one cannot be, for example because a user published it.
    This(String),
    /// Nobody answers: others need not be asked for either.
    All(String),
}

/// What age is allowed.
pub struct MaxAge {
    most: Duration,
    /// As whoever asks calls it.
    option: &'static str,
    /// Who does not answer, and why: it is not asked again.
    silent: BTreeMap<String, String>,
}

impl MaxAge {
    /// At most this, which whoever asks calls `option`.
    pub fn new(most: Duration, option: &'static str) -> Self {
        Self { most, option, silent: BTreeMap::new() }
    }

    /// Whether a value may be shown as it is.
    pub fn allows(&self, looked: Looked) -> bool {
        looked.age <= self.most
    }

    /// What `look` shows; if that is too old, what it shows after `whom` has measured it.
    ///
    /// # Errors
    /// Why there is none that may be shown.
    pub fn read<T>(
        &mut self,
        whom: &str,
        look: impl Fn() -> Result<(T, Looked), String>,
        measure: impl FnOnce() -> Result<(), Denied>,
    ) -> Result<T, String> {
        let (value, before) = look()?;
        if before.age <= self.most {
            return Ok(value);
        }
        let denied = match self.silent.get(whom) {
            Some(why) => Some(why.clone()),
            None => match measure() {
                Ok(()) => None,
                Err(Denied::This(why)) => Some(why),
                Err(Denied::All(why)) => {
                    self.silent.insert(whom.to_owned(), why.clone());
                    Some(why)
                }
            },
        };
        let (value, now) = look()?;
        // What was looked at since is fresh whatever another node's clock says; an agent polls nothing
        // twice within a moment, so what it answered with may be that old.
        let is_fresh =
            denied.is_none() && (now.checked_at > before.checked_at || now.age <= MIN_REFRESH);
        if is_fresh || now.age <= self.most {
            return Ok(value);
        }
        let (age, most) = (duration::human(now.age), duration::human(self.most));
        let because = denied.map(|why| format!("; {why}")).unwrap_or_default();
        Err(format!("last looked at {age} ago, longer than {} {most}{because}", self.option))
    }
}

/// Has the agent of a runtime directory measure a topic, its own or one that it mirrors.
pub fn by_agent(dir: &Path, topic: &Topic) -> Result<(), Denied> {
    match control::ask(dir, &Request::Refresh { topic: topic.to_string() }) {
        Ok(_) => Ok(()),
        Err(e) if e.is_refusal() => Err(Denied::This(e.message().to_owned())),
        Err(e) => Err(Denied::All(e.message().to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// What becomes of a value of this age, which is of this other age after it was measured, or of an
    /// agent that says so.
    fn read(age_ms: u64, measured: Result<(u64, i64), Denied>) -> Result<u64, String> {
        let at = Cell::new((age_ms, 1));
        let look = || {
            let (age_ms, checked_at) = at.get();
            let age = Duration::from_millis(age_ms);
            Ok((age_ms, Looked { age, checked_at: Timestamp::from_nanos(checked_at) }))
        };
        let measure = || measured.map(|now| at.set(now));
        MaxAge::new(Duration::from_secs(1), "--max-age").read("it", look, measure)
    }

    #[test]
    fn what_is_too_old_is_measured_or_refused_with_the_reason() {
        let denied = || Err(Denied::This("no sensor".to_owned()));
        let old = "last looked at 2.0 s ago, longer than --max-age 1.0 s";
        assert_eq!(read(500, denied()), Ok(500), "nobody is asked");
        assert_eq!(read(2000, Ok((3, 2))), Ok(3));
        assert_eq!(read(2000, denied()), Err(format!("{old}; no sensor")));
        assert_eq!(read(2000, Ok((2000, 1))), Err(old.to_owned()), "nothing was measured");
        let ahead = 7_200_000;
        assert_eq!(read(ahead, Ok((ahead, 2))), Ok(ahead), "a clock that is wrong refuses nothing");
    }

    #[test]
    fn who_does_not_answer_is_asked_once() {
        let (mut max_age, asked) = (MaxAge::new(Duration::ZERO, "max_age"), Cell::new(0));
        let look = || {
            let looked = Looked { age: Duration::from_secs(9), checked_at: Timestamp::default() };
            Ok(((), looked))
        };
        let mut ask = |whom: &str| {
            let measure = || {
                asked.set(asked.get() + 1);
                Err(Denied::All("it is gone".to_owned()))
            };
            max_age.read(whom, look, measure)
        };
        for whom in ["a", "a", "b"] {
            let refused = ask(whom).expect_err("it is old");
            assert!(refused.ends_with("; it is gone"), "{refused}");
        }
        assert_eq!(asked.get(), 2);
    }
}

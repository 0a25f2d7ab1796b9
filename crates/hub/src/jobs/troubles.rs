//! The troubles of the storage's work: for the facts of the hub, for its owner's errors, and as warnings.

use std::time::{Duration, Instant};

/// Pause between two warnings about one kind of work: an error whose text changes with each attempt must not fill the
/// hub's standard error.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Number of the kinds of work.
const KINDS: usize = 5;

/// A kind of work on stored jobs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// Records are written to the log.
    Committing,
    /// Parts of jobs are written to segments.
    Sealing,
    /// The catalogue is told about jobs.
    Telling,
    /// Segments are merged and removed.
    Chores,
    /// Records are sent to the replica. Its task prints why a stream ended.
    Replicating,
}

impl Work {
    /// The beginning of a warning.
    fn failure(self) -> &'static str {
        match self {
            Self::Committing => "records of jobs cannot be written to the log",
            Self::Sealing => "jobs cannot be sealed",
            Self::Telling => "the catalogue of jobs cannot be written, so jobs are not found",
            Self::Chores => "segments of jobs cannot be merged or removed",
            Self::Replicating => "some records of jobs have no copy",
        }
    }
}

/// The last error of each kind of work, if it is not mended.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    now: [Option<String>; KINDS],
    /// The last warning about each kind of work, until it is mended, and its time.
    warned: [Option<(Option<String>, Instant)>; KINDS],
}

impl Troubles {
    /// Notes the error of a kind of work, or that it succeeded.
    pub(super) fn set(&mut self, work: Work, trouble: Option<String>) {
        self.now[work as usize] = trouble;
    }

    /// Notes the error of a kind of work, or that it succeeded. Returns a warning unless it is the last one, or the last one
    /// was less than a minute ago.
    pub(super) fn note(
        &mut self,
        work: Work,
        trouble: Option<String>,
        now: Instant,
    ) -> Option<String> {
        let warned = &mut self.warned[work as usize];
        let mut warning = None;
        match &trouble {
            None => {
                if let Some((last, _)) = warned {
                    *last = None;
                }
            }
            Some(why) => {
                let is_due = warned.as_ref().is_none_or(|(last, at)| {
                    last.as_ref() != Some(why) && now.duration_since(*at) >= WARN_EVERY
                });
                if is_due {
                    *warned = Some((Some(why.clone()), now));
                    warning = Some(format!("warning: {}: {why}", work.failure()));
                }
            }
        }
        self.set(work, trouble);
        warning
    }

    /// Returns true if a kind of work fails now.
    pub(super) fn has(&self, work: Work) -> bool {
        self.now[work as usize].is_some()
    }

    /// Returns the errors that are not mended.
    pub(super) fn all(&self) -> impl Iterator<Item = &String> {
        self.now.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_warned_of_once_and_another_one_after_a_minute() {
        let (mut troubles, begun) = (Troubles::default(), Instant::now());
        let mut note = |why: Option<&str>, seconds| {
            let at = begun + Duration::from_secs(seconds);
            troubles.note(Work::Telling, why.map(str::to_owned), at)
        };
        let first = note(Some("the disk is full"), 0).expect("a warning");
        assert!(first.starts_with("warning: the catalogue of jobs"), "{first}");
        assert!(first.ends_with(": the disk is full"), "{first}");
        assert_eq!(note(Some("the disk is full"), 300), None, "the same");
        assert!(note(Some("another"), 301).is_some(), "the last warning is old");
        assert_eq!(note(Some("a third one"), 302), None, "too soon");
        assert_eq!(note(None, 303), None, "it is mended");
        assert_eq!(note(Some("another"), 304), None, "too soon");
        assert!(note(Some("another"), 361).is_some(), "it came back");
        assert!(troubles.has(Work::Telling) && !troubles.has(Work::Sealing));
        assert_eq!(troubles.all().count(), 1);
        troubles.set(Work::Telling, None);
        assert_eq!(troubles.all().count(), 0);
    }
}

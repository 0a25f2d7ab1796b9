//! Ranks of candidates: the agent reads the facts of each `[[rank]]`, ranks, and publishes the ranks as facts.
//!
//! Read in this order: `source` finds and reads the values of a metric, `profile` ranks and publishes with the facts of
//! `rank` and `rank_profile`, `recording` keeps outcomes (in a `record_file`, which a `background` thread writes),
//! `learned_file` keeps learned weights, and `view` shows a ranking to clients of the control socket.
//!
//! # Invariants
//! - Vertices are found when a segment changes; a ranking makes no system call, except to look for new segments.
//! - The agent's thread writes no file. Texts that wait for theirs are bounded, and those left out are counted. The end of the
//!   agent waits for all of them together, and reports those that are not written then.
//! - All ranks of a profile are published in one tick.

mod counts;
mod refusal;
mod source;
mod rank;
mod rank_profile;
mod background;
mod record_file;
mod recording;
mod learned_file;
mod profile;
mod view;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use skopos_model::nearest_name;
use skopos_shm::{Host, Publisher, Segment, SegmentVersions};
use skopos_term::Failure;

use crate::beat::nearest_beat;
use crate::clock::Clock;
use crate::config::{RankConfig, check_ranks};
use crate::control::{Answer, MAX_OUTCOMES, OutcomeReport};
use crate::event::Event;
use crate::sink::Counts;

use background::end_timeout;
use profile::RankedProfile;
use refusal::refused;
use source::Vertices;

/// Time between two searches for new publishers, and between two lists of vertices: a list of a large mirror takes tenths
/// of a second.
const SEARCH_EVERY: Duration = Duration::from_secs(5);

/// The rankings of an agent.
pub(crate) struct Ranks {
    node: Arc<str>,
    /// The segments of the agent's directory, also its own; `None` without a ranking.
    host: Option<Host>,
    /// The versions of the segments at the latest list of their vertices.
    versions: SegmentVersions,
    search_at: Duration,
    profiles: Vec<RankedProfile>,
    is_ended: bool,
}

impl Ranks {
    /// Makes the rankings of the configuration, with facts of the runtime directory `dir` and learned weights in the folder
    /// `state`. A directory that cannot be trusted counts as empty; other verbs report it.
    ///
    /// # Errors
    /// A ranking is not valid, or the segment has no room for its group.
    pub(crate) fn new(
        node: &Arc<str>,
        dir: &Path,
        config: &[RankConfig],
        state: Option<&Path>,
        publisher: &Publisher,
    ) -> Result<Self, Failure> {
        check_ranks(config)?;
        let profiles = config.iter().map(|rank| RankedProfile::new(rank, state, publisher));
        let host = match config.is_empty() {
            true => None,
            false => Host::open_dirs(vec![dir.into()]).ok(),
        };
        Ok(Self {
            node: Arc::clone(node),
            host,
            versions: SegmentVersions::default(),
            search_at: Duration::ZERO,
            profiles: profiles.collect::<Result<_, _>>()?,
            is_ended: false,
        })
    }

    /// Returns the events of the start.
    pub(crate) fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.profiles.iter().filter_map(|profile| {
            let (profile, reason) =
                (profile.name().to_owned(), profile.unread_weights()?.to_owned());
            Some(Event::WeightsLost { profile, reason })
        })
    }

    /// Ends all files, and waits for what they still write: a second for each profile, and five in all at most. Returns an event
    /// for each profile of which something is not written then. A further call does nothing.
    pub(crate) fn end(&mut self) -> Vec<Event> {
        if std::mem::replace(&mut self.is_ended, true) {
            return Vec::new();
        }
        // All of them write side by side.
        self.profiles.iter_mut().for_each(RankedProfile::close);
        let until = Instant::now() + end_timeout(self.profiles.len());
        self.profiles.iter().filter_map(|profile| profile.end(until)).collect()
    }

    /// Returns the time of the next ranking, on the monotonic clock.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.profiles.iter().map(RankedProfile::due).min()
    }

    /// Ranks and publishes every profile that is due.
    pub(crate) fn run(&mut self, clock: Clock, counts: &mut Counts) {
        let now = clock.monotonic;
        if self.due().is_none_or(|due| due > now) {
            return;
        }
        self.search(now);
        for profile in self.profiles.iter_mut().filter(|profile| profile.due() <= now) {
            profile.rank(&self.node, clock.wall, counts);
            profile.save_when_due(now);
            let every = profile.config().every();
            profile.set_due(nearest_beat(now + every, every));
        }
    }

    /// Looks for new publishers and new facts.
    fn search(&mut self, now: Duration) {
        let Some(host) = &mut self.host else { return };
        // A publisher that died is noticed at once, not at the next search.
        if self.search_at > now && host.segments().iter().all(Segment::is_alive) {
            return;
        }
        self.search_at = now + SEARCH_EVERY;
        let _ = host.refresh();
        let Some(versions) = host.changes(&self.versions) else { return };
        let vertices = Vertices::of(&self.node, host.segments());
        for profile in &mut self.profiles {
            profile.find_sources(&self.node, &vertices);
        }
        self.versions = versions;
    }

    /// Returns a page of the ranking of a profile, of these candidates, after the place `after`. Without a name, the only
    /// profile is meant.
    pub(crate) fn page(
        &self,
        profile: Option<&str>,
        candidates: &[String],
        after: usize,
    ) -> Result<Answer, Answer> {
        let at = self.find(profile)?;
        view::page(&self.node, &self.profiles[at], candidates, after)
    }

    /// Takes outcomes of requests.
    pub(crate) fn learn(
        &mut self,
        profile: Option<&str>,
        outcomes: &[OutcomeReport],
    ) -> Result<Answer, Answer> {
        let at = self.find(profile)?;
        if outcomes.len() > MAX_OUTCOMES {
            return Err(refused(
                format!("the request has {} outcomes", outcomes.len()),
                format!("send at most {MAX_OUTCOMES} in a request"),
            ));
        }
        let learned = outcomes.iter().map(|outcome| self.profiles[at].learn(outcome));
        let refusals: Vec<String> = learned.filter_map(Result::err).collect();
        Ok(Answer::Outcomes {
            taken: outcomes.len() - refusals.len(),
            refused: refusals.len(),
            first_refusal: refusals.into_iter().next(),
        })
    }

    fn find(&self, name: Option<&str>) -> Result<usize, Answer> {
        let names = || self.profiles.iter().map(RankedProfile::name);
        let Some(name) = name else {
            return match self.profiles.len() {
                1 => Ok(0),
                0 => Err(refused(
                    "this agent ranks nothing".to_owned(),
                    "add a table [[rank]] to its configuration".to_owned(),
                )),
                _ => Err(refused(
                    "several profiles are ranked".to_owned(),
                    format!("name one of {}", names().collect::<Vec<_>>().join(", ")),
                )),
            };
        };
        names().position(|known| known == name).ok_or_else(|| {
            let hint = match nearest_name(name, names()) {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None if self.profiles.is_empty() => {
                    "add a table [[rank]] to its configuration".to_owned()
                }
                None => format!("the profiles are {}", names().collect::<Vec<_>>().join(", ")),
            };
            refused(format!("this agent ranks no profile `{name}`"), hint)
        })
    }
}

impl Drop for Ranks {
    /// Ends the files of an agent that did not run to its end.
    fn drop(&mut self) {
        self.end();
    }
}

//! The memory of a ranker about each candidate: hysteresis, flapping, and reports that peers contradicted.

use std::collections::HashMap;
use std::time::Duration;

use skopos_model::Timestamp;

use crate::rank::limits::MAX_CANDIDATES;

/// Time in which changes between good and bad are counted: a node that changed three times within a minute will again.
pub const FLAP_WINDOW: Duration = Duration::from_secs(60);
/// Changes of direction in [`FLAP_WINDOW`] from which a candidate flaps.
pub const FLAP_CHANGES: f64 = 3.0;
/// Ratio of `1 + score` that is a change between good and bad.
const FLAP_RATIO: f64 = 1.5;
/// Time in which the remembered worst score of a flapping candidate falls by half.
const PEAK_HALF_LIFE: Duration = Duration::from_secs(20);
/// Time in which the discredit of a contradicted candidate falls by half.
const DISCREDIT_HALF_LIFE: Duration = Duration::from_secs(60);
/// Penalty of a candidate that is contradicted all the time: it counts as three times worse. Its other reports cannot be
/// checked, and may be wrong too.
const MAX_DISCREDIT: f64 = 2.0;
/// Share of the discredit that one contradicted ranking adds: one reading can be an accident.
const DISCREDIT_SHARE: f64 = 0.25;

/// The state of a candidate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Past {
    /// Row in the last ranking.
    pub(crate) row: u32,
    /// Number of the last ranking that had the candidate.
    pub(crate) seen: u64,
    at: Timestamp,
    score: f64,
    rising: bool,
    changes: f64,
    peak: f64,
    discredit: f64,
    /// Score at the last turn.
    turn: f64,
}

/// The changes that history makes to a score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) discredit: f64,
    pub(crate) held: f64,
    pub(crate) flapping: bool,
}

/// All candidates of a ranker.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pasts: HashMap<Box<str>, Past>,
}

impl History {
    pub(crate) fn get(&self, name: &str) -> Option<&Past> {
        self.pasts.get(name)
    }

    /// Takes the score of a candidate before history, and returns what history adds. Returns `None` if the candidate
    /// occurred in this ranking before.
    pub(crate) fn judge(
        &mut self,
        name: &str,
        now: Now,
        score: f64,
        lied: bool,
    ) -> Option<Verdict> {
        let Some(past) = self.pasts.get_mut(name) else {
            self.pasts.insert(name.into(), Past::new(now, score, lied));
            let discredit = if lied { DISCREDIT_SHARE * MAX_DISCREDIT } else { 0.0 };
            return Some(Verdict { discredit, held: 0.0, flapping: false });
        };
        if past.seen == now.ranking {
            return None;
        }
        Some(past.judge(now, score, lied))
    }

    /// Drops candidates that are not in the present ranking, if there are too many.
    pub(crate) fn evict(&mut self, ranking: u64) {
        if self.pasts.len() > MAX_CANDIDATES {
            self.pasts.retain(|_, past| past.seen == ranking);
        }
    }
}

/// The present ranking.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) at: Timestamp,
    pub(crate) ranking: u64,
    pub(crate) row: u32,
    pub(crate) hysteresis: f64,
}

impl Past {
    fn new(now: Now, score: f64, lied: bool) -> Self {
        Self {
            row: now.row,
            seen: now.ranking,
            at: now.at,
            score,
            rising: false,
            changes: 0.0,
            peak: score,
            discredit: if lied { DISCREDIT_SHARE } else { 0.0 },
            turn: score,
        }
    }

    fn judge(&mut self, now: Now, fresh: f64, lied: bool) -> Verdict {
        let passed = now.at.since(self.at).as_secs_f64();
        let fades = |half_life: Duration| (-passed / half_life.as_secs_f64()).exp2();
        self.at = now.at;
        self.row = now.row;
        self.seen = now.ranking;
        self.discredit *= fades(DISCREDIT_HALF_LIFE);
        if lied {
            self.discredit += (1.0 - self.discredit) * DISCREDIT_SHARE;
        }
        self.changes *= fades(FLAP_WINDOW);
        self.turns(fresh);
        self.peak = (self.peak * fades(PEAK_HALF_LIFE)).max(fresh);
        let flapping = self.changes >= FLAP_CHANGES;
        let target = if flapping { self.peak } else { fresh };
        let ratio = (1.0 + target) / (1.0 + self.score);
        let within = (ratio - 1.0).abs() <= now.hysteresis;
        if !within {
            self.score = target;
        }
        let discredit = self.discredit * MAX_DISCREDIT;
        Verdict { discredit, held: self.score - fresh, flapping }
    }

    /// Counts the changes of direction between good and bad.
    fn turns(&mut self, fresh: f64) {
        let ratio = (1.0 + fresh) / (1.0 + self.turn);
        let further = if self.rising { ratio >= 1.0 } else { ratio <= 1.0 };
        if further {
            self.turn = fresh;
        } else if !(FLAP_RATIO.recip()..=FLAP_RATIO).contains(&ratio) {
            self.rising = !self.rising;
            self.turn = fresh;
            self.changes += 1.0;
        }
    }
}

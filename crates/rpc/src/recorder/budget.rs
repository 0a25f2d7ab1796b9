//! The budget of recording: its cost in each second, and the stage that it allows.

use crate::recorder::stage::Stage;

/// Seconds over the budget after which a stage is switched off: a burst is not a habit.
const PATIENCE: u32 = 3;
/// Seconds until a stage that was switched off is tried again; doubled each time that it fails.
const FIRST_PAUSE: u32 = 60;
/// Longest such time: an hour.
const LONGEST_PAUSE: u32 = 3600;
/// Cost of a record beside its two readings of the clock, ns: ids, callpath, eight stores. An estimate from above.
const RECORD_NS: f64 = 25.0;
const SECOND_NS: f64 = 1e9;

/// The cost of recording, and what it allows.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Share of processor time; `None` without a bound.
    share: Option<f64>,
    /// Estimated cost of a record for its thread, ns.
    record_ns: f64,
    overhead_ns: f64,
    thread_ns: u64,
    process_ns: u64,
    over: u32,
    pause: u32,
    waited: u32,
    /// The last change was that of a stage that was tried again.
    was_raised: bool,
}

impl Budget {
    /// Allows `share` of processor time; a reading of the clock takes `clock_ns`.
    pub(crate) fn new(share: Option<f64>, clock_ns: f64) -> Self {
        let share = share.filter(|share| share.is_finite());
        Self {
            share,
            record_ns: 2.0 * clock_ns + RECORD_NS,
            overhead_ns: 0.0,
            thread_ns: 0,
            process_ns: 0,
            over: 0,
            pause: FIRST_PAUSE,
            waited: 0,
            was_raised: false,
        }
    }

    /// Returns the cost so far, in ns of a core.
    pub(crate) fn overhead_ns(&self) -> u64 {
        self.overhead_ns as u64
    }

    /// Accounts for a second in which `records` were drained, with the processor time so far of the recorder's thread and
    /// of the process, in ns. `stage` is the stage now, `allowed` the greatest allowed one; returns the next.
    pub(crate) fn second(
        &mut self,
        records: u64,
        thread_ns: u64,
        process_ns: u64,
        stage: u32,
        allowed: u32,
    ) -> u32 {
        let cost =
            records as f64 * self.record_ns + thread_ns.saturating_sub(self.thread_ns) as f64;
        let process = process_ns.saturating_sub(self.process_ns) as f64;
        (self.thread_ns, self.process_ns) = (thread_ns, process_ns);
        self.overhead_ns += cost;
        let Some(share) = self.share else { return Stage::Full as u32 };
        if cost > share * process.max(SECOND_NS) && stage > Stage::Context as u32 {
            self.over += 1;
            if self.over < PATIENCE {
                return allowed;
            }
            if self.was_raised {
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            }
            (self.over, self.waited, self.was_raised) = (0, 0, false);
            return stage.min(allowed).saturating_sub(1).max(Stage::Context as u32);
        }
        self.over = 0;
        if allowed < Stage::Full as u32 {
            self.waited += 1;
            if self.waited >= self.pause {
                (self.waited, self.was_raised) = (0, true);
                return allowed + 1;
            }
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: u32 = Stage::Full as u32;

    /// Runs seconds of `records` each, and returns the stages after them.
    fn run(budget: &mut Budget, seconds: u32, records: u64, stage: &mut u32) -> Vec<u32> {
        let stages = (0..seconds).map(|_| {
            *stage = budget.second(records, 0, 0, *stage, *stage);
            *stage
        });
        stages.collect()
    }

    #[test]
    fn details_are_switched_off_first_and_the_context_stays() {
        let mut budget = Budget::new(Some(0.01), 12.5);
        let mut stage = FULL;
        // 50 ns a record: 200,000 a second are a hundredth of a core.
        assert_eq!(run(&mut budget, 10, 190_000, &mut stage), [3; 10]);
        assert_eq!(run(&mut budget, 9, 300_000, &mut stage), [3, 3, 2, 2, 2, 1, 1, 1, 1]);
        assert_eq!(budget.overhead_ns(), 50 * (10 * 190_000 + 9 * 300_000));
    }

    #[test]
    fn a_stage_is_tried_again_later_and_later() {
        let mut budget = Budget::new(Some(0.01), 12.5);
        let mut stage = FULL;
        let mut raised = Vec::new();
        for second in 0..3000 {
            let records = if stage > 1 { 300_000 } else { 0 };
            let next = budget.second(records, 0, 0, stage, stage);
            if next > stage {
                raised.push(second);
            }
            stage = next;
        }
        let gaps: Vec<u32> = raised.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.windows(2).all(|pair| pair[0] < pair[1]), "{gaps:?}");
        assert!(gaps.len() >= 3, "{gaps:?}");
    }

    #[test]
    fn a_busy_process_may_spend_more_and_no_bound_allows_all() {
        let mut stage = FULL;
        let mut budget = Budget::new(Some(0.01), 12.5);
        for second in 1..=10u64 {
            // Eight cores.
            stage = budget.second(1_000_000, 0, second * 8_000_000_000, stage, stage);
        }
        assert_eq!(stage, FULL);
        assert_eq!(run(&mut Budget::new(None, 12.5), 9, u64::MAX / 1000, &mut stage), [3; 9]);
    }
}

//! The statistics of all runs.

use super::runs::{Choice, Middleware, Run, Scene};
use crate::report::{Better, Figure, Goal, Row};
use crate::stats::{interval, median};

/// The gain over round robin that the paper reports, in per cent.
const PAPER: [(Middleware, f64); 3] = [
    (Middleware::Placement, 18.0),
    (Middleware::Prefetching, 16.0),
    (Middleware::Replication, 12.0),
];
/// The most that asking may cost, in per cent of the time of input and output.
const MOST_ASKING: f64 = 1.0;
/// The choices beside Skopos.
const PEERS: [Choice; 3] = [Choice::Direct, Choice::RoundRobin, Choice::Blind];

/// A run with its place in the plan.
#[derive(Clone, Copy)]
struct Entry {
    middleware: Middleware,
    scene: Scene,
    round: usize,
    choice: Choice,
    run: Run,
}

/// All runs.
#[derive(Default)]
pub(super) struct Results(Vec<Entry>);

impl Results {
    pub(super) fn add(
        &mut self,
        (middleware, scene, round): (Middleware, Scene, usize),
        choice: Choice,
        run: Run,
    ) {
        self.0.push(Entry { middleware, scene, round, choice, run });
    }

    /// The rows of the report; `agent` is the agent's share of a core in per cent.
    pub(super) fn rows(&self, skews: &[f64], agent: Result<f64, String>) -> Vec<Row> {
        let mut rows = Vec::new();
        for (middleware, paper) in PAPER {
            for skew in skews {
                let is_it =
                    |scene: Scene| matches!(scene, Scene::Loaded { skew: s, .. } if s == *skew);
                let case = format!("{}, skew {skew}", middleware.as_str());
                rows.extend(self.group(&case, middleware, is_it));
            }
            let is_loaded = |scene: Scene| matches!(scene, Scene::Loaded { .. });
            let case = format!("{}, all skews", middleware.as_str());
            let gains = self.gains(middleware, is_loaded, Choice::RoundRobin);
            let mut all = gain_rows(&case, "less time than round robin", &gains);
            if let Some(first) = all.first_mut() {
                *first =
                    first.clone().beside("paper", Figure::Known(paper)).goal(Goal::AtLeast(paper));
            }
            rows.append(&mut all);
            let gains = self.gains(middleware, is_loaded, Choice::Blind);
            rows.extend(gain_rows(&case, "less time than without telemetry", &gains));
            rows.extend(self.asking(&case, middleware));
        }
        for (middleware, _) in PAPER {
            let is_equal = |scene: Scene| matches!(scene, Scene::Equal { .. });
            let case = format!("{}, equal tiers", middleware.as_str());
            rows.extend(self.group(&case, middleware, is_equal));
        }
        let agent = agent.map_or_else(Figure::Unknown, Figure::Known);
        rows.push(Row::of("agent", "processor time, of one core", "%", agent, Better::Lower));
        rows
    }

    /// The rows of one middleware in one kind of scene.
    fn group(
        &self,
        case: &str,
        middleware: Middleware,
        is_it: impl Fn(Scene) -> bool + Copy,
    ) -> Vec<Row> {
        let of =
            |choice, number: &dyn Fn(&Run) -> f64| self.values(middleware, is_it, choice, number);
        let row = |metric: &str, unit, number: &dyn Fn(&Run) -> f64| {
            let ours = of(Choice::Skopos, number);
            let mut row = Row::new(case, metric, unit, median(&ours), Better::Lower);
            row = row.rounds(Choice::Skopos.as_str(), &ours);
            for peer in PEERS {
                let theirs = of(peer, number);
                if !theirs.is_empty() {
                    row = row.peer(peer.as_str(), Figure::Known(median(&theirs)));
                    row = row.rounds(peer.as_str(), &theirs);
                }
            }
            row
        };
        let mut rows = vec![row("time of input and output", "s", &Run::seconds)];
        if middleware == Middleware::Replication {
            rows.push(row("time of writes", "s", &|run| run.write));
            rows.push(row("time of reads", "s", &|run| run.read));
        }
        rows.push(row("stalls", "", &|run| run.stats.stalls as f64));
        rows.push(row("time of stalls", "s", &|run| run.stats.stalled.as_secs_f64()));
        let gains = self.gains(middleware, is_it, Choice::RoundRobin);
        let mut gains = gain_rows(case, "less time than round robin", &gains);
        if case.ends_with("equal tiers")
            && let Some(most) = gains.get_mut(2)
        {
            // Equal tiers leave nothing to gain; an interval below zero would be a loss.
            *most = most.clone().goal(Goal::AtLeast(0.0));
        }
        rows.append(&mut gains);
        rows
    }

    /// The numbers of the runs with a choice, by seed and round.
    fn values(
        &self,
        middleware: Middleware,
        is_it: impl Fn(Scene) -> bool,
        choice: Choice,
        number: &dyn Fn(&Run) -> f64,
    ) -> Vec<f64> {
        let own =
            self.0.iter().filter(|entry| entry.middleware == middleware && is_it(entry.scene));
        own.filter(|entry| entry.choice == choice).map(|entry| number(&entry.run)).collect()
    }

    /// The share of time that Skopos saves against a peer with the same seed, skew and round, in per cent.
    fn gains(
        &self,
        middleware: Middleware,
        is_it: impl Fn(Scene) -> bool,
        peer: Choice,
    ) -> Vec<f64> {
        let of = |choice| {
            let own = self.0.iter().filter(move |entry| entry.middleware == middleware);
            own.filter(move |entry| entry.choice == choice)
        };
        let pairs = of(Choice::Skopos).filter(|ours| is_it(ours.scene)).filter_map(|ours| {
            let same = |theirs: &&Entry| theirs.scene == ours.scene && theirs.round == ours.round;
            let theirs = of(peer).find(same)?;
            Some((1.0 - ours.run.seconds() / theirs.run.seconds()) * 100.0)
        });
        pairs.collect()
    }

    /// The cost of asking: decisions with their reads of shared memory, beside the time of input and output.
    fn asking(&self, case: &str, middleware: Middleware) -> Vec<Row> {
        let is_loaded = |scene: Scene| matches!(scene, Scene::Loaded { .. });
        let of = |number: &dyn Fn(&Run) -> f64| {
            self.values(middleware, is_loaded, Choice::Skopos, number)
        };
        let shares = of(&|run| run.stats.asking.as_secs_f64() / run.seconds() * 100.0);
        let each =
            of(&|run| run.stats.asking.as_secs_f64() * 1e6 / run.stats.decisions.max(1) as f64);
        let most = shares.iter().copied().fold(0.0, f64::max);
        vec![
            Row::new(case, "asking, part of the time, most of all runs", "%", most, Better::Lower)
                .goal(Goal::AtMost(MOST_ASKING))
                .rounds(Choice::Skopos.as_str(), &shares),
            Row::new(case, "asking, a decision", "µs", median(&each), Better::Lower),
        ]
    }
}

/// The median of gains, and the interval that holds the true median 95 times in 100.
fn gain_rows(case: &str, metric: &str, gains: &[f64]) -> Vec<Row> {
    let row = |what: &str, figure| {
        Row::of(case, format!("{metric}, {what}"), "%", figure, Better::Higher)
    };
    let few = || Figure::Unknown(format!("{} pairs are too few for an interval", gains.len()));
    let (low, high) = interval(gains)
        .map_or_else(|| (few(), few()), |(low, high)| (Figure::Known(low), Figure::Known(high)));
    vec![
        row("median", Figure::Known(median(gains))).rounds("pairs", gains),
        row("at least (95 %)", low),
        row("at most (95 %)", high),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use skopos_steer::tiers::Stats;

    #[test]
    fn gains_compare_runs_of_one_seed_and_round() {
        let mut results = Results::default();
        let mut add = |seed, round, choice, write| {
            let scene = Scene::Loaded { seed, skew: 0.0 };
            let run = Run { write, read: 0.0, stats: Stats::default() };
            results.add((Middleware::Placement, scene, round), choice, run);
        };
        add(1, 0, Choice::RoundRobin, 2.0);
        add(1, 0, Choice::Skopos, 1.0);
        add(1, 1, Choice::Skopos, 3.0);
        add(1, 1, Choice::RoundRobin, 4.0);
        add(2, 0, Choice::RoundRobin, 9.0);
        let gains = results.gains(Middleware::Placement, |_| true, Choice::RoundRobin);
        assert_eq!(gains, [50.0, 25.0]);
        let rows = gain_rows("c", "m", &gains);
        let json = serde_json::to_value(&rows).expect("rows are plain");
        assert_eq!(json[0]["value"], 37.5);
        assert!(json[1]["value"].as_str().is_some_and(|text| text.contains("too few")));
    }
}

//! The result of a benchmark: rows with goals, Skopos beside its peers, for people and as JSON.
//!
//! `{bench, date, quick, rounds, machine, notes, rows: [{case, metric, unit, value, peers: {name:
//! value}, ratio, goal, met, rounds}]}`. The text `unknown: reason` takes the place of a number that
//! could not be measured. `ratio` is the factor by which Skopos is better than the best peer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Serialize, Serializer};

use super::machine::Machine;
use skopos_term::Failure;
use skopos_term::{Out, Style};

/// The result of a benchmark.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    bench: &'static str,
    date: String,
    /// True for a short run.
    quick: bool,
    /// Number of rounds, if all rows have the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    rounds: Option<usize>,
    machine: Machine,
    /// The method of the measurement, and its limits.
    notes: Vec<String>,
    rows: Vec<Row>,
}

/// A number with its peers and its goal.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    case: String,
    metric: String,
    unit: &'static str,
    value: Figure,
    peers: BTreeMap<&'static str, Figure>,
    ratio: Option<f64>,
    goal: Option<String>,
    met: Option<bool>,
    /// The results of each round, where `value` is their median.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    rounds: BTreeMap<&'static str, Vec<f64>>,
    #[serde(skip)]
    better: Better,
}

/// A number, or the reason why it is unknown.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Figure {
    Known(f64),
    Unknown(String),
}

/// The direction in which a number is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Lower,
    Higher,
    /// The number only helps to judge the others.
    Neither,
}

/// A promise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl Row {
    pub(crate) fn new(
        case: impl Into<String>,
        metric: impl Into<String>,
        unit: &'static str,
        value: f64,
        better: Better,
    ) -> Self {
        Self::of(case, metric, unit, Figure::Known(value), better)
    }

    /// A row whose number may be unknown.
    pub(crate) fn of(
        case: impl Into<String>,
        metric: impl Into<String>,
        unit: &'static str,
        value: Figure,
        better: Better,
    ) -> Self {
        Self {
            case: case.into(),
            metric: metric.into(),
            unit,
            value: value.short(),
            peers: BTreeMap::new(),
            ratio: None,
            goal: None,
            met: None,
            rounds: BTreeMap::new(),
            better,
        }
    }

    /// Adds the number of the peer `name`.
    #[must_use]
    pub(crate) fn peer(mut self, name: &'static str, figure: Figure) -> Self {
        if let (Figure::Known(ours), Figure::Known(theirs)) = (&self.value, &figure)
            && let Some(ratio) = self.better.ratio(*ours, *theirs)
        {
            self.ratio = Some(short(self.ratio.map_or(ratio, |best| best.min(ratio))));
        }
        self.peers.insert(name, figure.short());
        self
    }

    /// Adds the goal, which is met or not unless the number is unknown.
    #[must_use]
    pub(crate) fn goal(mut self, goal: Goal) -> Self {
        self.met = match self.value {
            Figure::Known(number) => Some(goal.met(number)),
            Figure::Unknown(_) => None,
        };
        self.goal = Some(goal.to_string());
        self
    }

    /// Adds a goal that another program judged; `None` where it could not.
    #[must_use]
    pub(crate) fn judged_goal(mut self, goal: String, is_met: Option<bool>) -> Self {
        (self.goal, self.met) = (Some(goal), is_met);
        self
    }

    /// Adds a number that is no peer's: a bound, a prediction, or the number of another machine. It has no ratio.
    #[must_use]
    pub(crate) fn beside(mut self, name: &'static str, figure: Figure) -> Self {
        self.peers.insert(name, figure.short());
        self
    }

    /// Adds the result of each round of `name`.
    #[must_use]
    pub(crate) fn rounds(mut self, name: &'static str, values: &[f64]) -> Self {
        self.rounds.insert(name, values.iter().copied().map(short).collect());
        self
    }
}

impl Figure {
    fn short(self) -> Self {
        match self {
            Self::Known(number) => Self::Known(short(number)),
            unknown => unknown,
        }
    }

    /// The text in tables.
    fn cell(&self) -> String {
        match self {
            Self::Known(number) => figure(*number),
            Self::Unknown(_) => "unknown".to_owned(),
        }
    }
}

impl Better {
    fn ratio(self, ours: f64, theirs: f64) -> Option<f64> {
        let ratio = match self {
            Self::Lower => theirs / ours,
            Self::Higher => ours / theirs,
            Self::Neither => return None,
        };
        ratio.is_finite().then_some(ratio)
    }
}

impl Goal {
    fn met(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "≤ {most}"),
            Self::AtLeast(least) => write!(f, "≥ {least}"),
        }
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Known(number) => serializer.serialize_f64(*number),
            Self::Unknown(reason) => serializer.collect_str(&format_args!("unknown: {reason}")),
        }
    }
}

impl Report {
    pub(crate) fn new(bench: &'static str, machine: Machine) -> Self {
        let mut notes = Vec::new();
        if cfg!(debug_assertions) {
            notes.push("a debug build: these numbers say nothing about a release".to_owned());
        }
        let date = skopos_shm::now().to_string();
        Self { bench, date, quick: false, rounds: None, machine, notes, rows: Vec::new() }
    }

    /// Records whether the run is a short one, and the number of rounds of all rows.
    pub(crate) fn record_plan(&mut self, quick: bool, rounds: Option<usize>) {
        (self.quick, self.rounds) = (quick, rounds);
    }

    pub(crate) fn add(&mut self, rows: impl IntoIterator<Item = Row>) {
        self.rows.extend(rows);
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// The day of the run, `2026-11-21`.
    pub(crate) fn day(&self) -> &str {
        self.date.get(..10).unwrap_or(&self.date)
    }

    pub(crate) fn host(&self) -> &str {
        &self.machine.host
    }

    /// Number of goals that were not met.
    pub(crate) fn missed(&self) -> usize {
        self.rows.iter().filter(|row| row.met == Some(false)).count()
    }

    /// Prints it in the style of `out`.
    pub(crate) fn print(&self, out: &mut Out) -> Result<(), Failure> {
        match out.style {
            Style::Json => out.json(self)?,
            Style::Plain => self.print_plain(out)?,
            Style::Human => self.print_human(out)?,
        }
        Ok(out.flush()?)
    }

    fn print_plain(&self, out: &mut Out) -> Result<(), Failure> {
        for row in self.cells() {
            out.line(row.join("\t"))?;
        }
        Ok(())
    }

    fn print_human(&self, out: &mut Out) -> Result<(), Failure> {
        out.line(self.machine.to_string())?;
        out.line("")?;
        let cells = self.cells();
        let right: Vec<usize> = (2..cells[0].len()).collect();
        out.table(&cells, &right)?;
        let figures = self.rows.iter().flat_map(|row| {
            let peers = row.peers.iter().map(|(name, figure)| (*name, figure));
            peers.chain([(row.case.as_str(), &row.value)])
        });
        let reasons: BTreeSet<(&str, &str)> = figures
            .filter_map(|(name, figure)| match figure {
                Figure::Unknown(reason) => Some((name, reason.as_str())),
                Figure::Known(_) => None,
            })
            .collect();
        out.line("")?;
        for (name, reason) in reasons {
            out.line(format!("{name}: unknown: {reason}"))?;
        }
        for note in &self.notes {
            out.line(out.dim(note))?;
        }
        let goals = self.rows.iter().filter(|row| row.goal.is_some()).count();
        let met = self.rows.iter().filter(|row| row.met == Some(true)).count();
        out.line(out.bold(&format!("{met} of {goals} goals met")))?;
        Ok(())
    }

    /// The table: a heading and a line for each row, with a column for each peer.
    fn cells(&self) -> Vec<Vec<String>> {
        let mut peers: Vec<&str> = Vec::new();
        for name in self.rows.iter().flat_map(|row| row.peers.keys()) {
            if !peers.contains(name) {
                peers.push(name);
            }
        }
        let head = ["case", "metric", "skopos"].into_iter().chain(peers.iter().copied());
        let head = head.chain(["unit", "ratio", "goal", "met"]).map(str::to_owned).collect();
        let mut cells = vec![head];
        for row in &self.rows {
            let mut line = vec![row.case.clone(), row.metric.clone(), row.value.cell()];
            let cell = |name: &&str| row.peers.get(name).map_or_else(String::new, Figure::cell);
            line.extend(peers.iter().map(cell));
            line.push(row.unit.to_owned());
            line.push(row.ratio.map_or_else(String::new, |r| format!("{}x", figure(r))));
            line.push(row.goal.clone().unwrap_or_default());
            line.push(match row.met {
                Some(true) => "yes".to_owned(),
                Some(false) => "NO".to_owned(),
                None => String::new(),
            });
            cells.push(line);
        }
        cells
    }
}

/// Rounds to four significant digits: more would only be noise in the files.
fn short(number: f64) -> f64 {
    if number == 0.0 || !number.is_finite() {
        return number;
    }
    let digits = 3 - number.abs().log10().floor() as i32;
    let scale = 10f64.powi(digits.abs());
    if digits >= 0 { (number * scale).round() / scale } else { (number / scale).round() * scale }
}

/// Formats a number with three significant digits, or all digits of an integer.
fn figure(number: f64) -> String {
    match number.abs() {
        a if a >= 100.0 || a == 0.0 => format!("{number:.0}"),
        a if a >= 10.0 => format!("{number:.1}"),
        a if a >= 1.0 => format!("{number:.2}"),
        a if a >= 0.01 => format!("{number:.3}"),
        _ => format!("{number:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_compares_with_the_best_peer() {
        let row = |better| Row::new("c", "m", "u", 10.0, better);
        let both =
            |row: Row| row.peer("a", Figure::Known(100.0)).peer("b", Figure::Known(20.0)).ratio;
        assert_eq!(both(row(Better::Lower)), Some(2.0));
        assert_eq!(both(row(Better::Higher)), Some(0.1));
        assert_eq!(both(row(Better::Neither)), None);
        assert_eq!(row(Better::Lower).peer("a", Figure::Unknown("none".into())).ratio, None);
    }

    #[test]
    fn goals_include_their_bound() {
        for (goal, value, met) in [
            (Goal::AtMost(50.0), 50.0, true),
            (Goal::AtMost(50.0), 50.1, false),
            (Goal::AtLeast(5.0), 5.0, true),
            (Goal::AtLeast(5.0), 4.9, false),
        ] {
            assert_eq!(Row::new("c", "m", "u", value, Better::Lower).goal(goal).met, Some(met));
        }
    }

    #[test]
    fn rounding_keeps_significant_digits() {
        for (number, expected) in
            [(0.0, 0.0), (123_456.0, 123_500.0), (0.012_345_6, 0.012_35), (-9.87654, -9.877)]
        {
            assert!((short(number) - expected).abs() <= expected.abs() * 1e-12, "{number}");
        }
        for (number, expected) in [(0.0, "0"), (1234.5, "1234"), (9.876, "9.88"), (0.012, "0.012")]
        {
            assert_eq!(figure(number), expected);
        }
    }

    #[test]
    fn an_unknown_peer_keeps_its_reason_in_the_json() {
        let row = Row::new("c", "m", "ns", 1.0, Better::Lower)
            .peer("redis", Figure::Unknown("not installed".into()))
            .goal(Goal::AtMost(2.0));
        let json = serde_json::to_value(&row).expect("rows are plain");
        assert_eq!(json["peers"]["redis"], "unknown: not installed");
        assert_eq!((&json["goal"], &json["met"]), (&"≤ 2".into(), &true.into()));
        assert!(json["ratio"].is_null());
    }

    #[test]
    fn a_goal_of_an_unknown_number_is_neither_met_nor_missed() {
        let unknown = Figure::Unknown("not installed".into());
        let row = Row::of("c", "m", "ns", unknown, Better::Lower)
            .peer("redis", Figure::Known(1.0))
            .goal(Goal::AtMost(2.0));
        let json = serde_json::to_value(&row).expect("rows are plain");
        assert_eq!(json["value"], "unknown: not installed");
        assert_eq!(json["goal"], "≤ 2");
        assert!(json["met"].is_null() && json["ratio"].is_null());
    }
}

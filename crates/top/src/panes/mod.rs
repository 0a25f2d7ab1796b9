//! The panes, one file each: what stands above the table, and the table.

mod overview;
mod cpu;
mod memory;
mod disks;
mod files;
mod network;
mod cgroups;
mod system;
mod topics;
mod insights;
mod findings;

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::data::{Data, Fact, Instance};
use super::draw::fitting;
use super::table::{Cell, Row, Table};
use super::text::{self, fit};
use super::theme::Theme;

pub(crate) use findings::marker as findings_marker;
pub(crate) use overview::{draw as draw_overview, histories as overview_histories};

/// How many panes there are.
pub(crate) const COUNT: usize = 11;
/// The pane that the UI starts with.
pub(crate) const OVERVIEW: usize = 0;
/// The pane that lists every topic.
pub(crate) const TOPICS: usize = 8;

/// One pane.
pub(crate) struct Pane {
    /// The key that goes there.
    pub key: char,
    /// Its name in the line of panes.
    pub name: &'static str,
    /// Where there is no room for all names, those with the greatest number go first.
    pub rank: u8,
    /// The lines above the table, for this many columns.
    pub summary: fn(&Data, Theme, usize) -> Vec<Line<'static>>,
    /// The rows, in their own order.
    pub table: fn(&Data) -> Table,
    /// What stands there if there are no rows.
    pub empty: &'static str,
    /// Whether the agent is to be asked for what it shows.
    pub asks: bool,
}

/// A pane of facts: `key`, `name`, `rank`, and how to make its table.
const fn facts(key: char, name: &'static str, rank: u8, table: fn(&Data) -> Table) -> Pane {
    let empty = "Not measured here: `skopos doctor` says why.";
    Pane { key, name, rank, summary: no_summary, table, empty, asks: false }
}

/// Every pane, in the order of `Tab`.
pub(crate) static PANES: [Pane; COUNT] = [
    facts('1', "overview", 0, |_| Table::default()),
    Pane { summary: cpu::summary, ..facts('2', "cpu", 0, cpu::table) },
    Pane { summary: memory::summary, ..facts('3', "memory", 0, memory::table) },
    facts('4', "disks", 0, disks::table),
    facts('5', "files", 2, files::table),
    Pane { summary: network::summary, ..facts('6', "net", 0, network::table) },
    facts('7', "cgroups", 4, cgroups::table),
    Pane { summary: system::summary, ..facts('8', "system", 3, system::table) },
    facts('9', "topics", 1, topics::table),
    Pane { summary: insights::summary, asks: true, ..facts('i', "insights", 0, insights::table) },
    Pane {
        summary: findings::summary,
        empty: findings::EMPTY,
        asks: true,
        ..facts('f', "findings", 0, findings::table)
    },
];

fn no_summary(_: &Data, _: Theme, _: usize) -> Vec<Line<'static>> {
    Vec::new()
}

/// Columns that a label takes, its sign of staleness and a blank included.
const LABEL: usize = 10;

/// A line that begins with what it is about.
fn labelled(
    theme: Theme,
    label: &str,
    stale: bool,
    spans: impl IntoIterator<Item = Span<'static>>,
) -> Line<'static> {
    let sign = if stale { "!" } else { " " };
    let label = fit(label, LABEL - 2, false, "");
    let mut line = Line::from(Span::styled(format!("{sign}{label} "), theme.title()));
    line.extend(spans);
    if stale { line.style(theme.quiet()) } else { line }
}

/// Numbers with what they are behind them, as many as fit a line that wide whole:
/// `12 established  0 listening`.
fn items(theme: Theme, width: usize, items: &[(String, &str)]) -> Vec<Span<'static>> {
    let known = items.iter().filter(|(value, _)| value != text::UNKNOWN);
    let groups = known.map(|(value, what)| {
        let value = Span::styled(value.clone(), theme.strong());
        vec![value, Span::styled(format!(" {what}  "), theme.quiet())]
    });
    // The blanks after the last one may be cut.
    fitting(groups, width.saturating_sub(LABEL) + 2)
}

/// The value as people read it, `~` before a predicted one.
fn value(fact: &Fact) -> String {
    let sign = if fact.bound.is_some() { "~" } else { "" };
    match &fact.value {
        Some(value) => format!("{sign}{}", text::value(value, fact.unit)),
        None => text::UNKNOWN.to_owned(),
    }
}

fn rate(fact: &Fact) -> String {
    fact.rate.map_or_else(String::new, |rate| text::rate(rate, fact.unit))
}

/// A row of a table of instances.
fn row(instance: &Instance<'_>, name: String, history: Option<&Fact>, cells: Vec<Cell>) -> Row {
    let mut row = Row::new(name, cells);
    row.topic = history.map(|f| f.topic.clone());
    row.stale = instance.is_stale();
    row
}

/// A fact's name where its node is clear.
fn name(data: &Data, fact: &Fact) -> String {
    if fact.topic.node() == data.node {
        fact.below_node().to_owned()
    } else {
        fact.topic.to_string()
    }
}

/// The style of a line that says that something is not there.
fn absent(theme: Theme) -> Style {
    theme.quiet()
}

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

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::data::{Data, Fact, Instance};
use super::draw::fitting;
use super::table::{Cell, Row, Table};
use super::text::{self, fit};
use super::theme::Theme;

pub(crate) use overview::{draw as draw_overview, histories as overview_histories};

/// How many panes there are: as many as keys `1` to `9`.
pub(crate) const COUNT: usize = 9;
/// The pane that the UI starts with.
pub(crate) const OVERVIEW: usize = 0;
/// The pane that lists every topic.
pub(crate) const TOPICS: usize = 8;

/// One pane.
pub(crate) struct Pane {
    /// Its name in the line of panes.
    pub(crate) name: &'static str,
    /// The lines above the table, for this many columns.
    pub(crate) summary: fn(&Data, Theme, usize) -> Vec<Line<'static>>,
    /// The rows, in their own order.
    pub(crate) table: fn(&Data) -> Table,
}

/// Every pane, in the order of its keys.
pub(crate) static PANES: [Pane; COUNT] = [
    Pane { name: "overview", summary: no_summary, table: |_| Table::default() },
    Pane { name: "cpu", summary: cpu::summary, table: cpu::table },
    Pane { name: "memory", summary: memory::summary, table: memory::table },
    Pane { name: "disks", summary: no_summary, table: disks::table },
    Pane { name: "files", summary: no_summary, table: files::table },
    Pane { name: "net", summary: network::summary, table: network::table },
    Pane { name: "cgroups", summary: no_summary, table: cgroups::table },
    Pane { name: "system", summary: system::summary, table: system::table },
    Pane { name: "topics", summary: no_summary, table: topics::table },
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
    let topic = history.map(|f| f.topic.clone());
    Row { key: name, cells, topic, stale: instance.is_stale() }
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

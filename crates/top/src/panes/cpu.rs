//! Processors, and the use of their time.

use ratatui::text::{Line, Span};
use skopos_model::schema::Metric;
use skopos_model::schema::cpu::*;
use skopos_model::schema::load::{self, LOAD_1M, LOAD_5M, LOAD_15M};
use skopos_model::schema::psi::{self, FULL_AVG10_RATIO, SOME_AVG10_RATIO};

use super::parts::{LABEL, items, labelled, row};
use crate::data::{Data, Instance};
use crate::draw::{bars, fitting, parts_meter};
use crate::table::{Cell, Column, Table, fill, number};
use crate::text::{self, fit, percent};
use crate::theme::Theme;

/// The most lines for the cores, if they do not fit beside the meter.
const MAX_CORE_LINES: usize = 4;

/// Below this width, fewer words are shown.
const NARROW: usize = 76;

/// The instance of all cores together.
const TOTAL: &str = "total";

/// All columns of time; their sum is all of the time.
static ALL: [&Metric; 8] = [
    &USER_SECONDS_TOTAL,
    &NICE_SECONDS_TOTAL,
    &SYSTEM_SECONDS_TOTAL,
    &IDLE_SECONDS_TOTAL,
    &IOWAIT_SECONDS_TOTAL,
    &IRQ_SECONDS_TOTAL,
    &SOFTIRQ_SECONDS_TOTAL,
    &STEAL_SECONDS_TOTAL,
];

/// The parts of a meter.
const PARTS: [(&str, &[&Metric]); 4] = [
    ("user", &[&USER_SECONDS_TOTAL, &NICE_SECONDS_TOTAL]),
    ("system", &[&SYSTEM_SECONDS_TOTAL, &IRQ_SECONDS_TOTAL, &SOFTIRQ_SECONDS_TOTAL]),
    ("iowait", &[&IOWAIT_SECONDS_TOTAL]),
    ("steal", &[&STEAL_SECONDS_TOTAL]),
];

const COLUMNS: [Column; 8] = [
    number("busy %", 8, 0),
    fill("", 8, 3),
    number("user", 6, 1),
    number("system", 8, 1),
    number("iowait", 8, 2),
    number("steal", 7, 2),
    number("irq", 6, 4),
    number("softirq", 9, 4),
];

/// The share of some columns of a core's time.
fn share(core: &Instance<'_>, metrics: &[&Metric]) -> Option<f64> {
    let all = core.rates(&ALL).filter(|all| *all > 0.0)?;
    Some(core.rates(metrics)? / all)
}

/// The use of the node, its parts, and the use of each core.
pub(super) fn summary(data: &Data, theme: Theme, width: usize) -> Vec<Line<'static>> {
    let mut lines = meters(data, theme, width);
    lines.extend(load(data, theme, width));
    lines.extend(pressure(data, theme, width));
    lines
}

pub(super) fn meters(data: &Data, theme: Theme, width: usize) -> Vec<Line<'static>> {
    let Some(total) = data.instance(&FAMILY, TOTAL) else { return Vec::new() };
    let cores: Vec<_> = data.instances(&FAMILY).filter(|core| core.name != TOTAL).collect();
    let shares = PARTS.map(|(_, metrics)| share(&total, metrics));
    let stale = total.is_stale();
    let busy = fit(&text::share(total.value(&BUSY_RATIO)), 7, true, "");
    let mut head = vec![Span::styled(busy, theme.strong()), Span::raw(" ")];
    // Few cores stand beside the meter, many below it.
    let beside = if cores.len() * 4 <= width { cores.len() + 2 } else { 0 };
    let room = width.saturating_sub(LABEL + 8 + 1 + beside);
    head.extend(parts_meter(theme, room, &shares.map(|s| s.unwrap_or(0.0))));
    let ratios = cores.iter().map(|core| core.value(&BUSY_RATIO));
    if beside > 0 {
        head.push(Span::raw("  "));
        head.extend(bars(theme, ratios.clone()));
    }
    let mut lines = vec![labelled(theme, "cpu", stale, head)];
    lines.push(legend(theme, width, &shares));
    if beside == 0 {
        lines.extend(core_lines(theme, width, stale, &ratios.collect::<Vec<_>>()));
    }
    lines
}

/// A character for each core on a few lines; with more cores, one for the busiest of a group.
fn core_lines(
    theme: Theme,
    width: usize,
    stale: bool,
    ratios: &[Option<f64>],
) -> Vec<Line<'static>> {
    let a_line = width.saturating_sub(LABEL + 1).max(1);
    let group = ratios.len().div_ceil(a_line * MAX_CORE_LINES).max(1);
    let busiest = |cores: &[Option<f64>]| cores.iter().flatten().copied().reduce(f64::max);
    let bars = bars(theme, ratios.chunks(group).map(busiest));
    let grouped = if group > 1 { format!("by {group}") } else { String::new() };
    let labels = ["cores".to_owned(), ratios.len().to_string(), grouped];
    let labels = labels.iter().map(String::as_str).chain(std::iter::repeat(""));
    let lines = bars.chunks(a_line).zip(labels);
    lines.map(|(bars, label)| labelled(theme, label, stale, bars.to_vec())).collect()
}

pub(super) fn load(data: &Data, theme: Theme, width: usize) -> Option<Line<'static>> {
    let node = data.instance(&load::FAMILY, "")?;
    let number = |metric| text::number(node.value(metric));
    let averages = [&LOAD_1M, &LOAD_5M, &LOAD_15M].map(number).join("  ");
    let runnable = match node.value(&load::RUNNABLE_TASKS) {
        Some(_) => format!("{} of {}", number(&load::RUNNABLE_TASKS), number(&load::TASKS)),
        None => text::UNKNOWN.to_owned(),
    };
    let shown = [(averages, "over 1, 5, 15 min"), (runnable, "tasks runnable")];
    Some(labelled(theme, "load", node.is_stale(), items(theme, width, &shown)))
}

/// The meaning of the glyphs of the meter, and the shares in percent.
fn legend(theme: Theme, width: usize, shares: &[Option<f64>]) -> Line<'static> {
    // On a narrow screen the numbers matter more than their alignment.
    let indent = if width < NARROW { 1 } else { LABEL };
    let parts = PARTS.iter().enumerate().map(|(index, (name, _))| {
        let glyph = theme.part_glyphs()[index];
        vec![
            Span::styled(glyph.to_string(), theme.part(index)),
            Span::styled(format!(" {name} "), theme.quiet()),
            Span::raw(format!("{:<6}", percent(shares[index]))),
        ]
    });
    let mut spans = vec![Span::raw(" ".repeat(indent))];
    spans.extend(fitting(parts, width.saturating_sub(indent)));
    spans.push(Span::styled("%", theme.quiet()));
    Line::from(spans)
}

/// The share of time in which tasks wait for a resource.
pub(super) fn pressure(data: &Data, theme: Theme, width: usize) -> Option<Line<'static>> {
    let resources: Vec<_> = data.instances(&psi::FAMILY).collect();
    if resources.is_empty() {
        return None;
    }
    let stale = resources.iter().any(Instance::is_stale);
    let mut spans = Vec::new();
    for resource in &resources {
        let some = text::share(resource.value(&SOME_AVG10_RATIO));
        spans.push(Span::styled(format!("{} ", resource.name), theme.quiet()));
        spans.push(Span::styled(fit(&some, 7, false, ""), theme.strong()));
        if let Some(full) = resource.value(&FULL_AVG10_RATIO).filter(|_| width >= NARROW) {
            spans.push(Span::styled("full ", theme.quiet()));
            spans.push(Span::raw(fit(&text::share(Some(full)), 7, false, "")));
        }
        spans.push(Span::raw(" "));
    }
    Some(labelled(theme, "pressure", stale, spans))
}

/// The cores; all of them together come last.
pub(super) fn table(data: &Data) -> Table {
    let rows = data.instances(&FAMILY).map(|core| {
        let part = |metrics: &[&Metric]| Cell::number(share(&core, metrics), percent);
        let busy = core.value(&BUSY_RATIO);
        let cells = vec![
            Cell::number(busy, percent),
            Cell::Meter(busy),
            part(PARTS[0].1),
            part(&[&SYSTEM_SECONDS_TOTAL]),
            part(PARTS[2].1),
            part(PARTS[3].1),
            part(&[&IRQ_SECONDS_TOTAL]),
            part(&[&SOFTIRQ_SECONDS_TOTAL]),
        ];
        row(&core, core.name.to_owned(), core.fact(&BUSY_RATIO), cells)
    });
    Table::new("core", &COLUMNS, rows.collect())
}

/// The topic whose history the overview shows.
pub(super) fn history(data: &Data) -> Option<skopos_model::Topic> {
    data.instance(&FAMILY, TOTAL)?.topic(&BUSY_RATIO)
}

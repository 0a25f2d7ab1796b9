//! Memory: its use, swap, and the work of the kernel to reclaim it.

use ratatui::text::{Line, Span};
use skopos_model::schema::mem::{self, AVAILABLE_BYTES, TOTAL_BYTES, USED_RATIO};
use skopos_model::schema::{numa, swap, vmstat};
use skopos_model::{Kind, Topic, Unit};

use super::cpu;
use super::parts::{LABEL, labelled, name, rate, value};
use crate::data::Data;
use crate::draw::meter;
use crate::table::{Cell, Column, Row, Table, fill, number};
use crate::text::{self, fit, percent};
use crate::theme::Theme;

/// Columns for the words behind a meter, on a wide and on a narrow screen.
const WORDS: usize = 41;
const FEWER_WORDS: usize = 22;
/// Below this width, fewer words are shown.
const NARROW: usize = 76;

const COLUMNS: [Column; 4] =
    [number("value", 10, 0), number("of all %", 8, 0), number("growth", 11, 0), fill("", 20, 2)];

pub(super) fn summary(data: &Data, theme: Theme, width: usize) -> Vec<Line<'static>> {
    let mut lines = meters(data, theme, width);
    lines.extend(cpu::pressure(data, theme, width));
    lines
}

/// Memory and swap.
pub(super) fn meters(data: &Data, theme: Theme, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if let Some(node) = data.instance(&mem::FAMILY, "") {
        let (total, available) = (node.value(&TOTAL_BYTES), node.value(&AVAILABLE_BYTES));
        let used = total.zip(available).map(|(total, available)| total - available);
        let mut words = format!("{} of {}", text::bytes(used), text::bytes(total));
        if width >= NARROW {
            words += &format!(", {} available", text::bytes(available));
        }
        let ratio = node.value(&USED_RATIO);
        lines.push(line(theme, width, ("memory", node.is_stale()), ratio, &words));
    }
    if let Some(node) = data.instance(&swap::FAMILY, "total") {
        let (size, stale) = (node.value(&swap::SIZE_BYTES), node.is_stale());
        if size == Some(0.0) {
            lines.push(labelled(theme, "swap", stale, [Span::styled("   none", theme.quiet())]));
            return lines;
        }
        let used = text::bytes(node.value(&swap::USED_BYTES));
        let mut words = format!("{used} of {}", text::bytes(size));
        let moved = node.rates(&[&swap::IN_BYTES_TOTAL, &swap::OUT_BYTES_TOTAL]);
        if let Some(moved) = moved.filter(|_| width >= NARROW) {
            words += &format!(", {}/s moved", text::bytes(Some(moved)));
        }
        lines.push(line(theme, width, ("swap", stale), node.value(&swap::USED_RATIO), &words));
    }
    lines
}

fn line(
    theme: Theme,
    width: usize,
    (label, stale): (&str, bool),
    ratio: Option<f64>,
    words: &str,
) -> Line<'static> {
    let share = fit(&text::share(ratio), 7, true, "");
    let mut spans = vec![Span::styled(share, theme.strong()), Span::raw(" ")];
    let words_width = if width < NARROW { FEWER_WORDS } else { WORDS };
    let room = width.saturating_sub(LABEL + 8 + words_width + 3);
    spans.extend(meter(theme, room, ratio.unwrap_or(0.0)));
    let gap = if room > 0 { "  " } else { "" };
    spans.push(Span::raw(format!("{gap}{words}")));
    labelled(theme, label, stale, spans)
}

/// Every fact about memory.
pub(super) fn table(data: &Data) -> Table {
    let total = data.instance(&mem::FAMILY, "").and_then(|node| node.value(&TOTAL_BYTES));
    let total = total.filter(|total| *total > 0.0);
    let families = [&mem::FAMILY, &swap::FAMILY, &vmstat::FAMILY, &numa::FAMILY];
    let instances = families.into_iter().flat_map(|family| data.instances(family));
    let facts = instances.flat_map(|instance| instance.facts().collect::<Vec<_>>());
    let rows = facts.filter(|fact| fact.value.is_some()).map(|fact| {
        let is_amount = fact.unit == Unit::BYTES && fact.kind != Kind::Counter;
        let of_total = total.zip(fact.number()).filter(|_| is_amount).map(|(all, n)| n / all);
        let cells = vec![
            Cell::Text(value(fact), fact.number()),
            Cell::Text(of_total.map_or_else(String::new, |r| percent(Some(r))), of_total),
            Cell::Text(rate(fact), fact.rate),
            Cell::words(fact.known.map_or("", |(_, metric)| metric.help)),
        ];
        let mut row = Row::new(name(data, fact), cells);
        (row.topic, row.stale) = (Some(fact.topic.clone()), fact.stale);
        row
    });
    Table::new("memory", &COLUMNS, rows.collect())
}

/// The topic whose history the overview shows.
pub(super) fn history(data: &Data) -> Option<Topic> {
    data.instance(&mem::FAMILY, "")?.topic(&USED_RATIO)
}

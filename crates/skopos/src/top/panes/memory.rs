//! Memory: what it is used for, swap, and what the kernel does to find more.

use ratatui::text::{Line, Span};
use skopos_model::schema::mem::{self, AVAILABLE_BYTES, TOTAL_BYTES, USED_RATIO};
use skopos_model::schema::{numa, swap, vmstat};

use super::{LABEL, cpu, labelled};
use crate::top::data::Data;
use crate::top::draw::meter;
use crate::top::table::Table;
use crate::top::text::{self, fit};
use crate::top::theme::Theme;

/// Columns for the words behind a meter.
const WORDS: usize = 38;

pub(super) fn summary(data: &Data, theme: Theme, width: usize) -> Vec<Line<'static>> {
    let mut lines = meters(data, theme, width);
    lines.extend(cpu::pressure(data, theme));
    lines
}

/// Memory and swap.
pub(super) fn meters(data: &Data, theme: Theme, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if let Some(node) = data.instance(&mem::FAMILY, "") {
        let (total, available) = (node.value(&TOTAL_BYTES), node.value(&AVAILABLE_BYTES));
        let used = total.zip(available).map(|(total, available)| total - available);
        let words = format!(
            "{} of {}, {} free to use",
            text::bytes(used),
            text::bytes(total),
            text::bytes(available)
        );
        let ratio = node.value(&USED_RATIO);
        lines.push(line(theme, width, ("memory", node.is_stale()), ratio, &words));
    }
    if let Some(node) = data.instance(&swap::FAMILY, "total") {
        let size = node.value(&swap::SIZE_BYTES);
        let words = match size {
            Some(0.0) => "no swap".to_owned(),
            _ => {
                let moved = [&swap::IN_BYTES_TOTAL, &swap::OUT_BYTES_TOTAL];
                let used = text::bytes(node.value(&swap::USED_BYTES));
                let moved = text::bytes(node.rates(&moved));
                format!("{used} of {}, {moved}/s moved", text::bytes(size))
            }
        };
        let ratio = node.value(&swap::USED_RATIO);
        lines.push(line(theme, width, ("swap", node.is_stale()), ratio, &words));
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
    let room = width.saturating_sub(LABEL + 8 + WORDS + 1);
    spans.extend(meter(theme, room, ratio.unwrap_or(0.0)));
    spans.push(Span::raw(format!("  {words}")));
    labelled(theme, label, stale, spans)
}

/// Every fact about memory.
pub(super) fn table(data: &Data) -> Table {
    let families = [&mem::FAMILY, &swap::FAMILY, &vmstat::FAMILY, &numa::FAMILY];
    let instances = families.into_iter().flat_map(|family| data.instances(family));
    let facts: Vec<_> = instances.flat_map(|i| i.facts().collect::<Vec<_>>()).collect();
    super::facts(data, "memory", facts.into_iter())
}

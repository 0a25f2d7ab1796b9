//! Number of processes, hardware sensors, publishers, and the cost of Skopos itself.

use ratatui::text::{Line, Span};
use skopos_model::schema::{hwmon, load, process, self_ as own, self_sensor};

use super::parts::{LABEL, absent, items, labelled, row, value};
use crate::data::{Data, Instance, Publisher};
use crate::table::{Cell, Column, Table, number};
use crate::text::{self, bytes, seconds, share};
use crate::theme::Theme;

/// The most lines for publishers and for hardware sensors; the topics list all of them.
const MAX_PUBLISHERS: usize = 4;
const MAX_HARDWARE: usize = 4;

const COLUMNS: [Column; 7] = [
    number("cpu %", 8, 0),
    number("poll", 9, 0),
    number("interval", 9, 0),
    number("stretch", 7, 3),
    number("facts", 6, 2),
    number("polls", 8, 1),
    number("errors", 7, 1),
];

pub(super) fn summary(data: &Data, theme: Theme, width: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = processes(data, theme, width).into_iter().collect();
    lines.extend(states(data, theme, width));
    lines.extend(hardware(data, theme, width));
    lines.extend(cost(data, theme, width));
    lines.extend(stretched(data, theme, width));
    for (index, publisher) in data.publishers.iter().enumerate() {
        if index == MAX_PUBLISHERS && data.publishers.len() > MAX_PUBLISHERS {
            let more = data.publishers.len() - index;
            lines.push(Line::styled(format!("          and {more} more"), absent(theme)));
            break;
        }
        lines.push(publisher_line(data, theme, index, publisher));
    }
    lines
}

pub(super) fn processes(data: &Data, theme: Theme, width: usize) -> Option<Line<'static>> {
    let node = data.instance(&process::FAMILY, "")?;
    let number = |metric| text::number(node.value(metric));
    let shown = [
        (number(&process::RUNNING_PROCESSES), "running"),
        (number(&process::BLOCKED_PROCESSES), "blocked"),
        (number(&process::ZOMBIE_PROCESSES), "zombies"),
        (number(&process::PROCESSES), "processes"),
        (number(&load::TASKS), "threads"),
    ];
    Some(labelled(theme, "tasks", node.is_stale(), items(theme, width, &shown)))
}

fn states(data: &Data, theme: Theme, width: usize) -> Option<Line<'static>> {
    let node = data.instance(&process::FAMILY, "")?;
    let number = |metric| text::number(node.value(metric));
    let shown = [
        (number(&process::SLEEPING_PROCESSES), "sleeping"),
        (number(&process::IDLE_PROCESSES), "idle kernel threads"),
        (number(&process::STOPPED_PROCESSES), "stopped"),
    ];
    Some(labelled(theme, "", node.is_stale(), items(theme, width, &shown)))
}

/// Temperatures, fans and the like that fit into a few lines.
fn hardware(data: &Data, theme: Theme, width: usize) -> Vec<Line<'static>> {
    const ITEM: usize = 34;
    let mut shown = Vec::new();
    for channel in data.instances(&hwmon::FAMILY) {
        for fact in channel.facts().filter(|f| f.value.is_some()) {
            let name = text::fit(&text::unescape(channel.name), 22, false, theme.ellipsis());
            let value = text::fit(&value(fact), 10, true, "");
            let sign = if fact.stale { "!" } else { " " };
            shown.push(vec![
                Span::styled(format!("{sign}{name}"), theme.quiet()),
                Span::styled(value, theme.strong()),
                Span::raw(" "),
            ]);
        }
    }
    let a_line = (width.saturating_sub(LABEL) / ITEM).max(1);
    let lines = shown.chunks(a_line).take(MAX_HARDWARE).enumerate();
    lines
        .map(|(index, chunk)| {
            let label = if index == 0 { "hardware" } else { "" };
            labelled(theme, label, false, chunk.concat())
        })
        .collect()
}

/// Sensors whose interval is stretched to keep the budget, with the factor; the most stretched
/// first.
pub(super) fn stretched(data: &Data, theme: Theme, width: usize) -> Option<Line<'static>> {
    let mut sensors: Vec<(f64, &str)> =
        data.instances(&self_sensor::FAMILY).filter_map(|s| Some((stretch(&s)?, s.name))).collect();
    if sensors.is_empty() {
        return None;
    }
    sensors.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    let count = sensors.len();
    let mut shown = vec![(count.to_string(), if count == 1 { "sensor" } else { "sensors" })];
    shown.extend(sensors.iter().map(|(times, name)| (format!("{times:.1}x"), *name)));
    Some(labelled(theme, "stretch", false, items(theme, width, &shown)))
}

/// The factor by which a sensor's interval is stretched.
fn stretch(sensor: &Instance<'_>) -> Option<f64> {
    // A factor that rounds to 1.0 is left out.
    sensor.value(&self_sensor::STRETCH).filter(|times| *times >= 1.05)
}

/// The cost of the agent.
fn cost(data: &Data, theme: Theme, width: usize) -> Option<Line<'static>> {
    let agent = data.instance(&own::FAMILY, "")?;
    let cpu = agent.rate(&own::CPU_SECONDS_TOTAL);
    let shown = [
        (
            cpu.map_or_else(|| text::UNKNOWN.to_owned(), |c| format!("{:.3} %", c * 100.0)),
            "of a core",
        ),
        (bytes(agent.value(&own::RESIDENT_BYTES)), "resident"),
        (bytes(agent.value(&own::SEGMENT_BYTES)), "shared"),
        (text::number(agent.rate(&own::SAMPLES_STORED_TOTAL)), "samples/s"),
    ];
    Some(labelled(theme, "skopos", agent.is_stale(), items(theme, width, &shown)))
}

fn publisher_line(data: &Data, theme: Theme, index: usize, publisher: &Publisher) -> Line<'static> {
    let facts = data.facts.iter().filter(|f| f.publisher == index).count();
    let state = match publisher.gone_at {
        Some(_) => "gone",
        None if data.is_lost(publisher) => "silent",
        None => "alive",
    };
    let label = if index == 0 { "segments" } else { "" };
    let words = format!("  pid {}, {facts} facts, {state}", publisher.pid);
    let spans =
        [Span::styled(publisher.name.clone(), theme.strong()), Span::styled(words, theme.quiet())];
    labelled(theme, label, data.is_lost(publisher), spans)
}

/// The agent's sensors and their cost.
pub(super) fn table(data: &Data) -> Table {
    let rows = data.instances(&self_sensor::FAMILY).map(|sensor| {
        let facts =
            data.facts.iter().filter(|f| f.known.is_some_and(|(x, _)| x.name == sensor.name));
        let facts = Some(facts.count() as f64).filter(|n| *n > 0.0);
        let cpu = sensor.rate(&self_sensor::POLL_CPU_SECONDS_TOTAL);
        let stretch = stretch(&sensor);
        let cells = vec![
            Cell::Text(cpu.map_or_else(|| share(None), |c| format!("{:.3}", c * 100.0)), cpu),
            Cell::number(sensor.value(&self_sensor::POLL_SECONDS), seconds),
            Cell::number(sensor.value(&self_sensor::INTERVAL_SECONDS), seconds),
            Cell::Text(stretch.map_or_else(String::new, |s| format!("{s:.1}x")), stretch),
            Cell::number(facts, text::number),
            Cell::number(sensor.value(&self_sensor::POLLS_TOTAL), text::number),
            Cell::number(sensor.value(&self_sensor::POLL_ERRORS_TOTAL), text::number),
        ];
        row(&sensor, sensor.name.to_owned(), sensor.fact(&self_sensor::POLL_SECONDS), cells)
    });
    Table::new("sensor", &COLUMNS, rows.collect())
}

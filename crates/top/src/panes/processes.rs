//! Processes: which of them use the processors, memory and storage.

use ratatui::text::{Line, Span};

use super::parts::{items, labelled};
use crate::data::Data;
use crate::processes::Usage;
use crate::table::{Cell, Column, Row, Table, fill, number, words};
use crate::text::{self, bytes, percent};
use crate::theme::Theme;

const COLUMNS: [Column; 9] = [
    number("cpu %", 7, 0),
    number("memory", 10, 0),
    number("io/s", 10, 0),
    number("pid", 7, 1),
    words("task", 11, 2),
    number("read/s", 10, 4),
    number("write/s", 10, 4),
    number("threads", 7, 5),
    fill("state", 7, 6),
];

/// The orders that a key chooses: by processor time, by memory, by input and output.
pub(super) const SORT_KEYS: &[(char, usize)] = &[('c', BY_CPU), ('m', 2), ('i', 3)];
/// The order by processor time.
pub(super) const BY_CPU: usize = 1;

/// The text for the empty table.
pub(super) const EMPTY: &str = "No process was found in /proc.";

/// Number of processes, of tasks of `skopos run`, and the error of the last scan.
pub(super) fn summary(data: &Data, theme: Theme, width: usize) -> Vec<Line<'static>> {
    let processes = &data.processes;
    let cpu = processes.list.iter().filter_map(|usage| usage.cpu_ratio).reduce(|a, b| a + b);
    let mut monitors: Vec<u32> = processes.list.iter().filter_map(|usage| usage.monitor).collect();
    monitors.sort_unstable();
    monitors.dedup();
    let count = |number: usize| match number {
        0 => text::UNKNOWN.to_owned(),
        number => number.to_string(),
    };
    let shown = [
        (processes.list.len().to_string(), "processes"),
        (text::share(cpu), "of a core"),
        (count(monitors.len()), "tasks of `skopos run`"),
        (count(processes.left_out), "left out"),
    ];
    let mut lines = vec![labelled(theme, "procs", false, items(theme, width, &shown))];
    if let Some(trouble) = &processes.trouble {
        let text = text::cut(&format!("! {trouble}"), width, theme.ellipsis());
        lines.push(Line::from(Span::styled(text, theme.warning())));
    }
    lines
}

/// Every process, by process id.
pub(super) fn table(data: &Data) -> Table {
    let rows = data.processes.list.iter().map(row).collect();
    Table::with_all_columns("process", &COLUMNS, rows)
}

fn row(usage: &Usage) -> Row {
    let (process, stat) = (&usage.process, &usage.process.stat);
    let memory = Some(stat.resident_bytes as f64).filter(|_| !stat.is_kernel_thread);
    let task = usage.monitor.map_or_else(String::new, |pid| format!("run {pid}"));
    let cells = vec![
        Cell::number(usage.cpu_ratio, percent),
        Cell::number(memory, bytes),
        Cell::number(usage.io_bytes_per_second(), bytes),
        Cell::Text(process.pid.to_string(), Some(process.pid.into())),
        Cell::words(task),
        Cell::number(usage.read_bytes_per_second, bytes),
        Cell::number(usage.written_bytes_per_second, bytes),
        Cell::number(Some(stat.threads as f64), text::number),
        Cell::words(state(stat.state)),
    ];
    let mut row = Row::new(process.command.short(&stat.name), cells);
    row.id = format!("{} {}", process.pid, stat.started_ticks);
    row.note = Some(note(usage));
    row
}

/// The states of proc(5) in words.
fn state(letter: char) -> &'static str {
    match letter {
        'R' => "running",
        'S' => "sleeps",
        'D' => "blocked",
        'Z' | 'X' | 'x' => "zombie",
        'T' | 't' => "stopped",
        'I' => "idle",
        _ => "",
    }
}

/// The process in words, with its whole command line.
fn note(usage: &Usage) -> String {
    let (process, stat) = (&usage.process, &usage.process.stat);
    let mut text = format!(
        "{} of {}: {}, {} of processor time since its start.",
        stat.name,
        stat.parent,
        state(stat.state),
        text::seconds(Some(stat.cpu_seconds)),
    );
    if let Some(monitor) = usage.monitor {
        text += &format!(" It belongs to a task of `skopos run`, process {monitor}.");
    }
    if process.io.is_none() && !stat.is_kernel_thread {
        text += " Its I/O is known to its user and to root alone.";
    }
    if stat.is_kernel_thread {
        text += " It is a kernel thread.";
    } else {
        text += &format!(" {}", process.command.whole());
    }
    text
}

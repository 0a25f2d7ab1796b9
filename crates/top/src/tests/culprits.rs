//! The parts of the screen that name a culprit: the pane of processes, and full file systems.

use super::*;
use skopos_model::Structured;
use skopos_model::schema::self_history;

use crate::processes::{CommandLine, Io, Process, Stat, Usage};

/// A process with this use of processor (a share), memory and storage (bytes).
fn process(pid: u32, line: &str, (cpu, memory, io): (f64, u64, f64)) -> Usage {
    let stat = Stat {
        name: "name".to_owned(),
        state: 'S',
        parent: 1,
        cpu_seconds: 12.0,
        threads: 2,
        started_ticks: 100,
        resident_bytes: memory,
        is_kernel_thread: false,
    };
    let command = CommandLine::parse(line.replace(' ', "\0").as_bytes());
    Usage {
        process: Process { pid, stat, io: Some(Io { read_bytes: 0, written_bytes: 0 }), command },
        cpu_ratio: Some(cpu),
        read_bytes_per_second: Some(io),
        written_bytes_per_second: Some(0.0),
        monitor: None,
    }
}

#[test]
fn processes_are_sorted_by_processor_memory_and_io() {
    let mut data = data();
    data.processes.list = vec![
        process(7, "/usr/bin/idle", (0.0, 1 << 20, 0.0)),
        process(8, "/opt/solver --mesh fine", (1.5, 2 << 20, 0.0)),
        process(9, "cache\u{1b}[2J", (0.1, 4 << 30, 0.0)),
        process(10, "cp a b", (0.2, 3 << 20, 2e6)),
    ];
    data.processes.list[1].monitor = Some(6);
    data.processes.left_out = 3;
    let mut app = App::new(None);
    assert!(!app.scans());
    press(&mut app, &data, &[Key::Char('0')]);
    assert!(app.scans());
    let shown = screen(&mut app, &data, (120, 40), THEME);
    has(
        &shown,
        &[
            "procs 4 processes 180.0 % of a core 1 tasks of `skopos run` 3 left out",
            "process cpu % v memory io/s",
            "solver --mesh fine 150.0 2.0 MiB 0 B 8 run 6",
            "It belongs to a task of `skopos run`, process 6. /opt/solver --mesh fine",
            "sort: cpu %",
        ],
    );
    assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
    let first = |app: &App| app.table.rows[0].key.clone();
    for (key, expected) in [('m', "cache"), ('i', "cp"), ('c', "solver")] {
        press(&mut app, &data, &[Key::Char(key)]);
        assert!(first(&app).starts_with(expected), "{key}: {}", first(&app));
    }
    // The chosen process stays chosen when the order changes.
    assert_eq!(app.chosen().map(|row| row.id.as_str()), Some("8 100"));
    type_text(&mut app, &data, "/mesh");
    assert_eq!(app.table.rows.len(), 1);
    // In other panes the keys keep their meaning.
    press(&mut app, &data, &[Key::Enter, Key::Char('4'), Key::Char('c'), Key::Char('i')]);
    assert_eq!(PANES[app.pane()].name, "insights");
}

#[test]
fn a_full_disk_is_named_on_the_overview() {
    let lacks = |data: &Data| {
        let shown = screen(&mut App::new(None), data, (80, 24), THEME);
        assert!(!shown.lines().any(|line| line.starts_with(" full")), "{shown}");
    };
    lacks(&data());
    let with = |ratio: f64, readonly: f64| {
        let mut facts = facts();
        facts.extend([
            of(&fs::USED_RATIO, "scratch", ratio),
            of(&fs::AVAILABLE_BYTES, "scratch", 1e9),
            of(&fs::READONLY, "scratch", readonly),
        ]);
        data_of(facts)
    };
    // An image that can only be read is always full.
    lacks(&with(1.0, 1.0));
    for size in [(40, 12), (80, 24), (120, 40)] {
        let shown = screen(&mut App::new(None), &with(0.934, 0.0), size, THEME);
        has(&shown, &["full ! /scr", "93.4 %", "cpu 37.5 %"]);
    }
    // Half full, but the rest lasts for an hour.
    let mut data = with(0.5, 0.0);
    let topic = fs::AVAILABLE_BYTES.topic(NODE, "scratch").expect("a topic");
    let second = |s: i64, value| (NOW.as_nanos() - s * 1_000_000_000, value);
    let samples = vec![second(360, 1.1e9), second(0, 1e9)];
    data.histories.insert(topic.clone(), History { samples });
    let mut app = App::new(None);
    has(
        &screen(&mut app, &data, (80, 24), THEME),
        &["! /scratch 50.0 %, 953.7 MiB left, full in 60m"],
    );
    assert!(app.histories(&data).contains(&topic));
}

#[test]
fn damaged_files_of_history_are_named_on_the_overview() {
    let shown = |files: f64| {
        let mut facts = facts();
        let mut damage = of(&self_history::DAMAGE, "", 0.0);
        damage.value = Some(Structured::text("log-00000007 is damaged: lost frames: 1").into());
        facts.extend([of(&self_history::QUARANTINED, "", files), damage]);
        screen(&mut App::new(None), &data_of(facts), (120, 40), THEME)
    };
    assert!(!shown(0.0).contains("damaged"), "{}", shown(0.0));
    has(&shown(2.0), &["history ! 2 damaged", "log-00000007 is damaged"]);
}

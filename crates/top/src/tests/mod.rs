//! The UI without a terminal: made-up data, keys, and the screen that results.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use skopos_model::schema::{
    Metric, block, cgroup, cpu, fs, insight, load, mem, netdev, process, psi, remote_fs, self_,
    self_sensor, swap, tcp,
};
use skopos_model::{Kind, Timestamp, Topic, Unit, Value, schema};

use crate::app::{App, Effect, Mode};
use crate::data::{Data, Fact, History, Publisher, natural};
use crate::findings::{Finding, Findings};
use crate::input::Key;
use crate::keys::BINDINGS;
use crate::panes::{COUNT, PANES, TOPICS};
use crate::theme::Theme;
use crate::view;

mod culprits;
mod lists;
mod paths;
mod slow_device;

const NODE: &str = "n01";
const THEME: Theme = Theme { colour: true, unicode: true };
const NOW: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);

fn fact(topic: &str, unit: Unit, kind: Kind, value: Value) -> Fact {
    let topic: Topic = topic.parse().expect("a topic");
    Fact {
        known: schema::lookup_in_family(&topic),
        topic,
        unit,
        kind,
        value: Some(value),
        bound: None,
        unknown: None,
        since: NOW,
        checked_at: NOW,
        age: Duration::ZERO,
        rate: None,
        publisher: 0,
        stale: false,
    }
}

/// A fact of a family: a gauge's value, or a counter's growth per second.
fn of(metric: &Metric, instance: &str, number: f64) -> Fact {
    let topic = metric.topic(NODE, instance).expect("a topic");
    let mut fact = fact(topic.as_str(), metric.unit, metric.kind, Value::F64(number));
    if metric.kind == Kind::Counter {
        (fact.rate, fact.value) = (Some(number), Some(Value::U64(1000)));
    }
    fact
}

fn publisher() -> Publisher {
    Publisher {
        name: "agent".to_owned(),
        node: NODE.to_owned(),
        pid: 4711,
        gone_at: None,
        silent_for: Duration::from_millis(300),
    }
}

fn facts() -> Vec<Fact> {
    let mut facts = Vec::new();
    for core in ["0", "1", "2", "3", "10", "total"] {
        facts.extend([
            of(&cpu::BUSY_RATIO, core, 0.375),
            of(&cpu::USER_SECONDS_TOTAL, core, 0.25),
            of(&cpu::SYSTEM_SECONDS_TOTAL, core, 0.125),
            of(&cpu::IOWAIT_SECONDS_TOTAL, core, 0.0625),
            of(&cpu::STEAL_SECONDS_TOTAL, core, 0.0),
            of(&cpu::IDLE_SECONDS_TOTAL, core, 0.5625),
        ]);
    }
    for (device, rate) in [("sda", 1e6), ("sda1", 1e6), ("nvme0n1", 5e6), ("nvme1n1", 0.0)] {
        facts.extend([
            of(&block::READ_BYTES_TOTAL, device, rate),
            of(&block::WRITTEN_BYTES_TOTAL, device, rate / 2.0),
            of(&block::READ_REQUESTS_TOTAL, device, rate / 4096.0),
            of(&block::BUSY_RATIO, device, 0.12),
            of(&block::READ_LATENCY_SECONDS, device, 0.0002),
            of(&block::WRITE_LATENCY_SECONDS, device, 0.0011),
            of(&block::QUEUE_DEPTH_MEAN, device, 0.4),
        ]);
    }
    for file_system in ["-", "sda1", "mnt:%44ata"] {
        facts.extend([
            of(&fs::USED_RATIO, file_system, 0.41),
            of(&fs::AVAILABLE_BYTES, file_system, 1e11),
        ]);
    }
    facts.extend([
        of(&remote_fs::USED_RATIO, "lustre", 0.87),
        of(&remote_fs::AVAILABLE_BYTES, "lustre", 3e15),
        of(&remote_fs::READONLY, "lustre", 0.0),
        of(&remote_fs::RESPONDING, "lustre", 0.0),
    ]);
    for interface in ["eth0", "lo"] {
        facts.extend([
            of(&netdev::RECEIVE_BYTES_TOTAL, interface, 12_288.0),
            of(&netdev::TRANSMIT_BYTES_TOTAL, interface, 2048.0),
            of(&netdev::RECEIVE_DROPS_TOTAL, interface, 3.0),
            of(&netdev::RECEIVE_ERRORS_TOTAL, interface, 0.0),
        ]);
    }
    for resource in ["cpu", "io", "memory"] {
        facts.push(of(&psi::SOME_AVG10_RATIO, resource, 0.031));
    }
    facts.extend([
        of(&mem::TOTAL_BYTES, "", 8e9),
        of(&mem::AVAILABLE_BYTES, "", 6e9),
        of(&mem::USED_RATIO, "", 0.25),
        of(&swap::SIZE_BYTES, "total", 2e9),
        of(&swap::USED_BYTES, "total", 1e9),
        of(&swap::USED_RATIO, "total", 0.5),
        of(&load::LOAD_1M, "", 0.41),
        of(&load::LOAD_5M, "", 0.75),
        of(&load::LOAD_15M, "", 0.42),
        of(&tcp::ESTABLISHED, "", 12.0),
        of(&tcp::RETRANSMITTED_SEGMENTS_TOTAL, "", 7.0),
        of(&process::PROCESSES, "", 87.0),
        of(&process::RUNNING_PROCESSES, "", 1.0),
        of(&process::BLOCKED_PROCESSES, "", 0.0),
        of(&cgroup::MEMORY_BYTES, "user.slice", 1e9),
        of(&self_::RESIDENT_BYTES, "", 6e6),
        of(&self_sensor::INTERVAL_SECONDS, "mem", 1.0),
        of(&self_sensor::POLL_SECONDS, "mem", 25e-6),
        fact("n01/my-app/queue/depth", Unit::NONE, Kind::Gauge, Value::U64(17)),
    ]);
    facts
}

/// Makes it `time` after the last poll.
fn later(data: &mut Data, time: Duration) {
    data.now = NOW.saturating_add(time);
    data.facts.iter_mut().for_each(|fact| fact.age = time);
}

fn data_of(mut facts: Vec<Fact>) -> Data {
    facts.sort_by(|a, b| a.topic.cmp(&b.topic));
    let mut data = Data::new(vec![publisher()], facts);
    later(&mut data, Duration::from_millis(400));
    for fact in &data.facts {
        let samples = (0..60).map(|s| (NOW.as_nanos() - s * 1_000_000_000, s as f64 / 60.0));
        let samples: Vec<_> = samples.rev().collect();
        data.histories.insert(fact.topic.clone(), History { samples });
    }
    data
}

fn data() -> Data {
    data_of(facts())
}

/// The text on a screen of that size.
fn screen(app: &mut App, data: &Data, (width, height): (u16, u16), theme: Theme) -> String {
    app.update(data);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("in memory");
    let drawn = terminal.draw(|frame| view::draw(app, data, theme, frame.buffer_mut()));
    let buffer = drawn.expect("in memory").buffer;
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| row(y).trim_end().to_owned() + "\n").collect()
}

fn press(app: &mut App, data: &Data, keys: &[Key]) -> Effect {
    let mut effect = Effect::Stay;
    for key in keys {
        effect = app.handle(*key);
        app.update(data);
    }
    effect
}

fn type_text(app: &mut App, data: &Data, text: &str) {
    let keys: Vec<Key> = text.chars().map(Key::Char).collect();
    press(app, data, &keys);
}

#[track_caller]
fn has(screen: &str, parts: &[&str]) {
    // Blanks depend on the layout.
    let squeezed = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in parts {
        assert!(squeezed.contains(part), "no `{part}` in\n{screen}");
    }
}

#[test]
fn the_overview_has_everything_at_80x24() {
    let shown = screen(&mut App::new(None), &data(), (80, 24), THEME);
    has(
        &shown,
        &[
            "n01 · agent 4711 · 0.4s old · ",
            "22:13:20 UTC",
            "1 overview 2 cpu 3 memory",
            "cpu 37.5 %",
            "user 25.0",
            "system 12.5",
            "iowait 6.2",
            "steal 0.0",
            "load 0.41 0.75 0.42",
            "pressure cpu 3.1 %",
            "memory 25.0 %",
            "1.9 GiB of 7.5 GiB, 5.6 GiB available",
            "swap 50.0 %",
            "tcp 12 established 7 retransmits/s",
            "tasks 1 running 0 blocked 87 processes",
            "disk read/s write/s busy %",
            "nvme0n1 4.8 MiB 2.4 MiB 12.0",
            "200.0 µs 1.1 ms 0.40",
            "file system used %",
            "/mnt/Data 41.0 93.1 GiB",
            "network rx/s tx/s drop err",
            "eth0 12.0 KiB 2.0 KiB 3 0",
            "published",
            "my-app/queue/depth 17",
            "? help",
        ],
    );
    // The traffic of a partition is part of its device's.
    assert!(!shown.lines().any(|line| line.starts_with(" sda1") && line.contains("KiB")));
}

#[test]
fn a_published_fact_is_visible_on_every_size() {
    for size in [(80, 24), (60, 20), (40, 16), (120, 40)] {
        has(&screen(&mut App::new(None), &data(), size, THEME), &["my-app/queue/depth"]);
    }
}

#[test]
fn facts_that_are_not_measured_do_not_appear() {
    let data = data_of(vec![of(&load::LOAD_1M, "", 1.0)]);
    let mut app = App::new(None);
    let shown = screen(&mut app, &data, (80, 24), THEME);
    has(&shown, &["load 1"]);
    for part in ["cpu   ", "network", "swap", "disk  ", "published"] {
        assert!(!shown.contains(part), "`{part}` in\n{shown}");
    }
    press(&mut app, &data, &[Key::Char('4')]);
    has(&screen(&mut app, &data, (80, 24), THEME), &["Not measured here", "skopos doctor"]);
}

#[test]
fn no_size_of_the_screen_breaks_a_pane() {
    let themes = [THEME, Theme { colour: false, unicode: false }];
    let empty = data_of(Vec::new());
    let full = with_all();
    for pane in &PANES {
        for (index, data) in [&full, &empty].into_iter().enumerate() {
            let mut app = App::new(None);
            press(&mut app, data, &[Key::Char(pane.key)]);
            // Every size where things are tight, some beyond.
            let heights = (1..=26).chain([30, 37, 44, 60]).step_by(1 + 6 * index);
            for height in heights {
                for width in (1..=200).filter(|w| *w <= 45 || (w + height) % 9 == 0) {
                    let theme = themes[usize::from((width + height) % 2)];
                    app.mode = if height % 3 == 0 { Mode::Help(2) } else { Mode::Normal };
                    screen(&mut app, data, (width, height), theme);
                }
            }
        }
    }
}

#[test]
fn a_tiny_screen_says_so() {
    let shown = screen(&mut App::new(None), &data(), (39, 24), THEME);
    has(&shown, &["too small", "needs 40x10"]);
    has(&screen(&mut App::new(None), &data(), (80, 9), THEME), &["too small"]);
    let shown = screen(&mut App::new(None), &data(), (40, 10), THEME);
    has(&shown, &["cpu 37.5 %", "memory"]);
}

#[test]
fn every_pane_shows_its_table() {
    let data = data();
    let parts: [&[&str]; COUNT] = [
        &["cpu"],
        &["core busy % user", "0 37.5", "10 37.5", "total 37.5", "n01/cpu/0/busy_ratio"],
        &["mem/available_bytes 5.6 GiB 75.0", "/proc/meminfo"],
        &["nvme0n1 4.8 MiB", "sda1", "/proc/diskstats"],
        &["file system used %", "/mnt/Data 41.0", "/lustre 87.0", "hung"],
        &["tcp 12 established", "eth0 12.0 KiB"],
        &["/user.slice 953.7 MiB"],
        &["tasks 1 running", "skopos", "5.7 MiB resident", "agent pid 4711", "mem 25.0 µs"],
        &["topic value", "block/nvme0n1/busy_ratio 12.0 %", "4.8 MiB/s", "0.4s"],
        &["procs 0 processes", "No process was found in /proc"],
        &[
            "0 known 0 unknown 20 without vertex",
            "insight value",
            "msca unknown: waiting for the agent's answer",
        ],
        &["Nothing unusual was found", "docs/reference/anomalies.md"],
    ];
    for (pane, parts) in parts.into_iter().enumerate() {
        let mut app = App::new(None);
        press(&mut app, &data, &[Key::Char(PANES[pane].key)]);
        has(&screen(&mut app, &data, (100, 40), THEME), parts);
        assert_eq!(app.pane(), pane, "{}", PANES[pane].name);
    }
}

#[test]
fn the_filter_is_live_kept_and_cleared() {
    let data = data();
    let mut app = App::new(None);
    // On the overview `/` searches all topics.
    press(&mut app, &data, &[Key::Char('/')]);
    assert_eq!(app.pane(), TOPICS);
    type_text(&mut app, &data, "QUEUE/d");
    assert_eq!(app.table.rows.len(), 1);
    let shown = screen(&mut app, &data, (80, 24), THEME);
    has(&shown, &["my-app/queue/depth 17", "/QUEUE/d", "1 of ", "Enter keep"]);
    press(&mut app, &data, &[Key::Enter]);
    assert_eq!((app.mode, app.table.rows.len()), (Mode::Normal, 1));
    press(&mut app, &data, &[Key::Escape]);
    assert_eq!(app.table.rows.len(), data.facts.len());

    type_text(&mut app, &data, "/nothing of this name");
    has(&screen(&mut app, &data, (80, 24), THEME), &["No row contains"]);
    press(&mut app, &data, &[Key::Backspace, Key::Control('u')]);
    type_text(&mut app, &data, "sq");
    assert_eq!(app.cursor().filter, "sq", "letters are text while the filter is typed");
    press(&mut app, &data, &[Key::Escape]);
    assert_eq!(app.cursor().filter, "");
}

#[test]
fn a_filter_on_the_command_line_starts_at_the_topics() {
    let data = data();
    let mut app = App::new(Some("n01/mem"));
    app.update(&data);
    assert_eq!((app.pane(), app.table.rows.len()), (TOPICS, 3));
}

#[test]
fn keys_move_through_panes_and_rows() {
    let data = data();
    let mut app = App::new(None);
    press(&mut app, &data, &[Key::BackTab]);
    assert_eq!(app.pane(), COUNT - 1);
    press(&mut app, &data, &[Key::Tab, Key::Right]);
    assert_eq!(app.pane(), 1);
    press(&mut app, &data, &[Key::Char('9'), Key::Down, Key::Down, Key::Up]);
    assert_eq!(app.cursor().index, 1);
    screen(&mut app, &data, (80, 24), THEME);
    press(&mut app, &data, &[Key::PageDown]);
    let page = app.cursor().page;
    assert_eq!(app.cursor().index, 1 + page);
    press(&mut app, &data, &[Key::End, Key::Down]);
    assert_eq!(app.cursor().index, data.facts.len() - 1);
    screen(&mut app, &data, (80, 24), THEME);
    assert_eq!(app.cursor().offset, data.facts.len() - page);
    press(&mut app, &data, &[Key::Home, Key::PageUp]);
    assert_eq!(app.cursor().index, 0);
}

#[test]
fn the_choice_stays_with_its_row() {
    let mut app = App::new(None);
    let before = data();
    press(&mut app, &before, &[Key::Char('9'), Key::End]);
    let chosen = app.chosen().expect("a row").key.clone();
    let mut more = facts();
    more.push(fact("n01/a-new/first", Unit::NONE, Kind::Gauge, Value::U64(1)));
    app.update(&data_of(more));
    assert_eq!(app.chosen().expect("a row").key, chosen);
}

#[test]
fn sorting_goes_round_the_columns() {
    let data = data();
    let mut app = App::new(None);
    let first = |app: &App| app.table.rows[0].key.clone();
    press(&mut app, &data, &[Key::Char('4')]);
    assert_eq!(first(&app), "nvme0n1");
    press(&mut app, &data, &[Key::Char('s')]);
    assert_eq!((first(&app).as_str(), app.table.sorted_by()), ("nvme0n1", "read/s"));
    press(&mut app, &data, &[Key::Char('r')]);
    assert_eq!(first(&app), "nvme1n1");
    let ways = app.table.sorts();
    let keys = vec![Key::Char('s'); ways - 1];
    press(&mut app, &data, &keys);
    assert_eq!(app.table.sorted_by(), "disk");
}

#[test]
fn pause_help_suspend_and_quit() {
    let data = data();
    let mut app = App::new(None);
    press(&mut app, &data, &[Key::Char('p')]);
    has(&screen(&mut app, &data, (80, 24), THEME), &["PAUSED"]);
    press(&mut app, &data, &[Key::Char('p')]);
    assert!(!app.paused);
    assert_eq!(press(&mut app, &data, &[Key::Control('z')]), Effect::Suspend);
    assert_eq!(press(&mut app, &data, &[Key::Char('q')]), Effect::Quit);
    for start in ['/', '?'] {
        let mut app = App::new(None);
        press(&mut app, &data, &[Key::Char(start)]);
        assert_eq!(press(&mut app, &data, &[Key::Control('c')]), Effect::Quit, "from {start}");
    }
    press(&mut app, &data, &[Key::Char('?'), Key::Char('q')]);
    assert_eq!(app.mode, Mode::Normal, "a key closes the help and does nothing else");
}

#[test]
fn the_help_lists_every_key() {
    let data = data();
    let mut app = App::new(None);
    press(&mut app, &data, &[Key::Char('?')]);
    let shown = screen(&mut app, &data, (80, 24), THEME);
    for binding in BINDINGS {
        has(&shown, &[binding.label, binding.help]);
    }
    // On the smallest screen it scrolls to its end.
    press(&mut app, &data, &[Key::Down; 40]);
    has(&screen(&mut app, &data, (40, 10), THEME), &["`~` marks"]);
}

#[test]
fn stale_facts_are_marked_by_a_sign() {
    let mut data = data();
    later(&mut data, Duration::from_secs(60));
    data.mark_stale();
    let mut app = App::new(Some("mem/total"));
    let plain = Theme { colour: false, unicode: false };
    has(&screen(&mut app, &data, (80, 24), plain), &["!mem/total_bytes"]);
    // Facts of a family without an interval are never late.
    let fact = |name: &str| data.facts.iter().find(|f| f.topic.metric() == name).expect("there");
    assert!(!fact("depth").stale && !fact("load_1m").stale);
    has(&screen(&mut App::new(None), &data, (80, 24), plain), &["!memory", " load"]);
}

#[test]
fn facts_of_control_groups_are_stale_only_after_the_rounds_of_their_sensor() {
    let check = |groups: u32, seconds: u64, stale: &[&str]| {
        let mut facts = vec![of(&self_sensor::INTERVAL_SECONDS, "cgroup", 1.0)];
        for n in 0..groups {
            let metrics =
                [&cgroup::MEMORY_BYTES, &cgroup::MEMORY_LIMIT_BYTES, &cgroup::TASKS_LIMIT];
            facts.extend(metrics.map(|metric| of(metric, &format!("job{n}"), 1.0)));
        }
        let mut data = data_of(facts);
        later(&mut data, Duration::from_secs(seconds));
        data.mark_stale();
        let group = data.instance(&cgroup::FAMILY, "job0").expect("there");
        let found: Vec<_> = group.facts().filter(|f| f.stale).map(|f| f.topic.metric()).collect();
        assert_eq!(found, stale, "{groups} groups after {seconds} s");
    };
    let all = ["memory_bytes", "memory_limit_bytes", "tasks_limit"];
    // Few groups: all of them at each tick, but limits and peaks in half a minute.
    check(3, 3, &[]);
    check(3, 4, &all[..1]);
    check(3, 32 * 3, &all[..1]);
    check(3, 32 * 3 + 1, &all);
    // The most groups of the sensor: both kinds of files wait for their turn.
    check(256, 24 * 3, &[]);
    check(256, 24 * 3 + 1, &all[..1]);
    check(256, 256 * 3 + 1, &all);
}

#[test]
fn a_dead_or_silent_agent_is_named() {
    let mut data = data();
    data.publishers[0].silent_for = Duration::from_secs(30);
    data.mark_stale();
    has(&screen(&mut App::new(None), &data, (80, 24), THEME), &["agent 4711 ! silent for 30s"]);
    data.publishers[0].gone_at = Some(NOW);
    data.mark_stale();
    assert!(data.facts.iter().all(|f| f.stale));
    let shown = screen(&mut App::new(None), &data, (80, 24), THEME);
    has(&shown, &["agent 4711 ! gone since 22:13:20, looking", "!cpu"]);
}

#[test]
fn without_colour_only_bold_and_reverse_are_used() {
    use ratatui::style::{Color, Modifier};
    let theme = Theme { colour: false, unicode: false };
    let data = with_all();
    for pane in &PANES {
        let mut app = App::new(None);
        press(&mut app, &data, &[Key::Char(pane.key)]);
        let mut terminal = Terminal::new(TestBackend::new(120, 40)).expect("in memory");
        let drawn = terminal.draw(|frame| view::draw(&mut app, &data, theme, frame.buffer_mut()));
        for cell in &drawn.expect("in memory").buffer.content {
            assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
            assert!((Modifier::BOLD | Modifier::REVERSED).contains(cell.modifier));
            assert!(cell.symbol().is_ascii(), "{}", cell.symbol());
        }
    }
}

#[test]
fn a_large_node_fits_too() {
    let mut facts = facts();
    let cores: Vec<String> = (20..276).map(|core| core.to_string()).collect();
    facts.extend(cores.iter().map(|core| of(&cpu::BUSY_RATIO, core, 1.0)));
    for at in 0..40 {
        let name = format!("sd{}{}", (b'a' + at / 26) as char, (b'b' + at % 25) as char);
        facts.push(of(&block::READ_BYTES_TOTAL, &name, f64::from(at)));
        facts.push(of(&block::READ_REQUESTS_TOTAL, &name, f64::from(at)));
        let topic = format!("n01/app/{name}/load");
        facts.push(fact(&topic, Unit::NONE, Kind::Gauge, Value::U64(1)));
    }
    let shown = screen(&mut App::new(None), &data_of(facts), (80, 24), THEME);
    has(
        &shown,
        &[
            "cores ▃▃▃▃▃██",
            "261 ",
            "memory 25.0 %",
            "network",
            "more",
            "nvme0n1 4.8 MiB",
            "published",
        ],
    );
}

#[test]
fn with_very_many_cores_the_busiest_of_a_group_is_shown() {
    let cores = (0..2048).map(|core| of(&cpu::BUSY_RATIO, &core.to_string(), 0.0));
    let mut facts: Vec<Fact> = cores.collect();
    facts[2047].value = Some(Value::F64(1.0));
    facts.push(of(&cpu::BUSY_RATIO, "total", 0.01));
    let shown = screen(&mut App::new(None), &data_of(facts), (80, 24), THEME);
    has(&shown, &["2048", "by 8", "▁█"]);
}

#[test]
fn an_application_with_names_of_the_schema_is_not_the_agent() {
    let app = Publisher { name: "app".to_owned(), node: "a00".to_owned(), ..publisher() };
    let mut facts = facts();
    let mut like_ours = fact("a00/mem/total_bytes", Unit::BYTES, Kind::Gauge, Value::U64(1));
    like_ours.publisher = 1;
    facts.push(like_ours);
    facts.sort_by(|a, b| a.topic.cmp(&b.topic));
    let data = Data::new(vec![publisher(), app], facts);
    assert_eq!((data.node.as_str(), data.agent().map(|a| a.name.as_str())), (NODE, Some("agent")));
    assert!(data.published().any(|f| f.topic.as_str() == "a00/mem/total_bytes"));
}

#[test]
fn names_are_in_natural_order() {
    let mut names = ["total", "10", "9", "sda10", "sda2", "sda", "01", "1"];
    names.sort_by(|a, b| natural(a, b));
    assert_eq!(names, ["01", "1", "9", "10", "sda", "sda2", "sda10", "total"]);
}

#[test]
fn a_text_of_a_user_cannot_steer_the_terminal() {
    let evil = serde_json::json!("a\u{9b}31m\u{1b}[2Jz");
    let text = skopos_model::Structured::new(evil).expect("a text");
    let evil = fact("n01/evil/text", Unit::NONE, Kind::State, Value::Structured(text));
    let shown = screen(&mut App::new(None), &data_of(vec![evil]), (80, 24), THEME);
    assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
}

/// An unknown number, whose reason the agent has.
fn unknown(topic: &str) -> Fact {
    let mut fact = fact(topic, Unit::NONE, Kind::Gauge, Value::F64(0.0));
    (fact.value, fact.unknown) = (None, Some(String::new()));
    fact
}

fn event(rule: &str, topic: &str, seconds_ago: i64, state: &str) -> Finding {
    let at = NOW.as_nanos() - seconds_ago * 1_000_000_000;
    let record = serde_json::json!({
        "rule": rule, "detector": "threshold", "topic": topic, "state": state, "at_ns": at,
        "since_ns": at - 2_000_000_000, "came": 0.975, "score": 1.5, "suppressed": 3,
        "expected": {"value": 0.25, "low": null, "high": 0.95},
    });
    Finding::parse(&record).expect("an event")
}

/// Memory is unusual now, and a file system was.
fn with_findings(mut data: Data) -> Data {
    let events = vec![
        event("memory-low", "n01/mem/used_ratio", 60, "raised"),
        event("file-system-full", "n01/fs/-/used_ratio", 50, "raised"),
        event("file-system-full", "n01/fs/-/used_ratio", 20, "cleared"),
    ];
    data.findings = Findings::new(events, &[], |_| true);
    data
}

/// Findings, insights and stretched sensors beside the facts.
fn with_all() -> Data {
    let mut facts = facts();
    facts.push(of(&insight::MSCA, "nvme0n1", 0.25));
    facts.push(unknown("n01/insight/nvme2n1/msca"));
    facts.push(of(&self_sensor::STRETCH, "mem", 4.0));
    with_findings(data_of(facts))
}

#[test]
fn insights_show_a_value_or_the_reason_by_name() {
    let mut facts = facts();
    facts.push(of(&insight::MSCA, "nvme0n1", 0.25));
    facts.push(of(&insight::MSCA, "nvme10n1", 0.5));
    facts.push(unknown("n01/insight/nvme2n1/msca"));
    facts.push(fact("n01/insight/queues", Unit::NONE, Kind::Gauge, Value::U64(7)));
    let mut record = unknown("n01/insight/node/node_availability");
    record.unknown = Some("no peers are configured".to_owned());
    facts.push(record);
    let mut data = data_of(facts);
    let why = "smartctl is not installed";
    data.answers.unknown.insert("n01/insight/nvme2n1/msca".to_owned(), "no such device".to_owned());
    data.answers.absent.insert("device_health_ratio".to_owned(), why.to_owned());
    data.answers.refused.push(("n01/insight/a/b".to_owned(), "no room".to_owned()));
    data.answers.refused_total = 70;
    let mut app = App::new(None);
    press(&mut app, &data, &[Key::Char('i')]);
    assert!(app.asks());
    let shown = screen(&mut app, &data, (110, 40), THEME);
    has(
        &shown,
        &[
            "insights 3 known 2 unknown 18 without vertex 70 refused",
            "insight of value age",
            "b a refused: no room",
            "device_health_ratio unknown: smartctl is not installed",
            // Numbers of names as numbers: 2 before 10.
            "msca nvme0n1 0.25 0.4s msca nvme2n1 unknown: no such device msca nvme10n1 0.5 0.4s",
            "node_availability node unknown: no peers are configured",
            "queues 7 0.4s",
        ],
    );
    // The chosen row with its history, or with the whole reason.
    type_text(&mut app, &data, "/nvme10n1");
    has(&screen(&mut app, &data, (80, 24), THEME), &["n01/insight/nvme10n1/msca", "last 61 s"]);
    press(&mut app, &data, &[Key::Control('u')]);
    type_text(&mut app, &data, "device_health");
    let shown = screen(&mut app, &data, (80, 24), THEME);
    has(&shown, &["unknown: smartctl is not installed. Share of", "= 1 - "]);
    // Insights are not facts of users.
    let overview = screen(&mut App::new(None), &data, (80, 24), THEME);
    assert!(!overview.contains("queues"), "{overview}");
    data.answers.trouble = Some("no agent answers".to_owned());
    has(&screen(&mut app, &data, (80, 24), THEME), &["! no agent answers"]);
}

#[test]
fn the_findings_pane_shows_that_the_agent_does_not_answer() {
    let mut data = with_all();
    let mut app = App::new(None);
    press(&mut app, &data, &[Key::Char('f')]);
    assert!(!screen(&mut app, &data, (80, 24), THEME).contains("no agent answers"));
    data.answers.trouble = Some("no agent answers".to_owned());
    has(&screen(&mut app, &data, (80, 24), THEME), &["! 1 raised", "! no agent answers"]);
}

#[test]
fn a_history_with_gaps_shows_the_reason_of_the_missing_value() {
    let mut data = data_of(vec![unknown("n01/insight/vda/msca"), of(&load::LOAD_1M, "", 1.0)]);
    let topic = data.facts[0].topic.clone();
    data.answers.unknown.insert(topic.to_string(), "the device was taken away".to_owned());
    let second = |s: i64, value| (NOW.as_nanos() - s * 1_000_000_000, value);
    let samples = vec![second(30, 0.5), second(10, f64::NAN)];
    data.histories.insert(topic, History { samples });
    let mut app = App::new(None);
    press(&mut app, &data, &[Key::Char('i'), Key::Char('/')]);
    type_text(&mut app, &data, "vda");
    has(
        &screen(&mut app, &data, (80, 30), THEME),
        &["least 0.5 most 0.5", "unknown: the device was taken away", "█"],
    );
}

#[test]
fn unusual_values_come_first_and_on_every_pane() {
    let plain = Theme { colour: false, unicode: false };
    let data = with_findings(data());
    for size in [(80, 24), (60, 20), (120, 40)] {
        let shown = screen(&mut App::new(None), &data, size, plain);
        has(&shown, &["agent 4711 | ! 1 finding", "findings ! 1 raised memory-low", "cpu 37.5 %"]);
    }
    let mut app = App::new(None);
    press(&mut app, &data, &[Key::Char('f')]);
    assert!(app.asks());
    let shown = screen(&mut app, &data, (100, 30), plain);
    has(
        &shown,
        &[
            "findings ! 1 raised memory-low 3 events",
            "rule state time topic value expected",
            "memory-low ! RAISED 22:12:20 mem/used_ratio 97.5 % at most 95.0 % file-system-full \
             cleared 22:13:00 fs/-/used_ratio 97.5 % at most 95.0 % file-system-full raised",
            "- n01/mem/used_ratio",
            "unusual since 22:12:18 (62s ago): value 97.5 %, expected at most 95.0 %; by threshold, \
             score 1.50, 3 changes before it suppressed",
        ],
    );
    // Events of one rule and topic are rows of their own.
    press(&mut app, &data, &[Key::End]);
    assert_eq!(app.cursor().index, 2);
}

#[test]
fn stretched_sensors_and_the_number_of_findings_are_on_the_overview() {
    let mut facts = facts();
    for (sensor, times) in [("smart", 4.0), ("cgroup", 2.5), ("mem", 1.0)] {
        facts.push(of(&self_sensor::STRETCH, sensor, times));
    }
    let mut events = of(&self_::ANOMALY_EVENTS_TOTAL, "", 0.0);
    events.value = Some(Value::U64(12));
    facts.push(events);
    let data = data_of(facts);
    let parts = ["stretch 2 sensors 4.0x smart 2.5x cgroup", "findings 0 raised 12 events"];
    has(&screen(&mut App::new(None), &data, (120, 40), THEME), &parts);
    let mut app = App::new(None);
    press(&mut app, &data, &[Key::Char('8')]);
    has(&screen(&mut app, &data, (120, 40), THEME), &parts[..1]);
}

#[test]
fn names_of_panes_go_before_their_keys_do() {
    let check = |width, parts: &[&str]| {
        let shown = screen(&mut App::new(None), &data(), (width, 24), THEME);
        let line = shown.lines().nth(1).expect("a line of panes").to_owned();
        assert!(line.chars().count() <= usize::from(width));
        has(&line, parts);
    };
    check(
        120,
        &["1 overview 2 cpu 3 memory 4 disks 5 files 6 net 7 cgroups 8 system 9 topics 0 procs"],
    );
    check(80, &["1 overview 2 cpu 3 memory 4 disks", "7 8 9 0 procs i insights f findings"]);
    check(40, &["1 overview 2 3 4 5 6 7 8 9 0 i f"]);
}

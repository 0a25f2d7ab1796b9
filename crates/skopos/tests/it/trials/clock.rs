//! A clock that is set back an hour while an agent runs: ages, `--max-age`, history and `top` stay right.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value as Json;

use super::program;
use crate::support::{Ran, Running, eventually, runtime_dir, signal, skopos};
use crate::top::Screen;

const HOUR: i64 = 3600;

/// The most seconds by which a test may be late: far less than the step of the clock.
const LATE: f64 = 600.0;

/// A clock that can be set for the programs of one test.
struct SetClock {
    library: String,
    file: tempfile::NamedTempFile,
}

impl SetClock {
    fn new() -> Self {
        let library = program("set_clock", &["-shared", "-fPIC"]).display().to_string();
        let file = tempfile::NamedTempFile::new().expect("a file");
        let clock = Self { library, file };
        clock.set(0);
        clock
    }

    /// Sets the clock off by these seconds.
    fn set(&self, seconds: i64) {
        use std::os::unix::fs::FileExt as _;
        self.file.as_file().write_all_at(&seconds.to_ne_bytes(), 0).expect("written");
    }

    fn environment(&self) -> [(&str, String); 2] {
        let path = self.file.path().display().to_string();
        [("LD_PRELOAD", self.library.clone()), ("SET_CLOCK", path)]
    }

    fn command(&self, dir: &Path, args: &[&str]) -> Command {
        let mut command = skopos(dir, args);
        command.envs(self.environment());
        command
    }

    fn run(&self, dir: &Path, args: &[&str]) -> Ran {
        let output = self.command(dir, args).output().expect("it starts");
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    /// Starts an agent with a history.
    fn agent(&self, history: &Path) -> Running {
        let dir = runtime_dir();
        let folder = history.to_str().expect("UTF-8");
        let args = ["agent", "--json", "--node", "n01", "--interval", "200ms", "--budget", "100%"];
        let more = ["--policy", "fixed", "--history", folder];
        let mut command = self.command(dir.path(), &[&args[..], &more].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let is_start = out.by_ref().lines().map_while(Result::ok).any(|line| {
            let line: Json = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
            line["event"] == "started"
        });
        assert!(is_start, "the agent exited");
        Running { dir, child, _stdout: Some(out) }
    }
}

#[test]
fn ages_are_right_after_the_clock_was_set_back_an_hour() {
    let clock = SetClock::new();
    let history = tempfile::tempdir().expect("a folder");
    let mut agent = clock.agent(history.path());
    let dir = agent.path().to_owned();
    let run = |args: &[&str]| clock.run(&dir, args);
    let reading = || {
        let ran = run(&["get", "mem/free_bytes", "--json"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.json()["readings"][0].clone()
    };
    let age = || reading()["age_seconds"].as_f64().expect("an age");
    let time = || reading()["time_ns"].as_i64().expect("a time");
    eventually("the memory was polled", || age() < LATE);
    let before = time();
    clock.set(-HOUR);
    // The agent polls on. Times of one topic do not go back.
    eventually("samples go on", || time() > before);
    assert!(age() < LATE, "{}", age());
    assert_eq!(run(&["get", "mem/free_bytes", "--max-age", "5m"]).code, 0);
    let steps = || -> f64 {
        let ran = run(&["get", "self/clock_steps_total", "--plain"]);
        ran.stdout.split('\t').nth(1).and_then(|v| v.parse().ok()).unwrap_or(-1.0)
    };
    eventually("the step is counted", || steps() > 0.0);
    let there = history.path().to_str().expect("UTF-8").to_owned();
    let polls = || {
        run(&["get", "self/sensor/mem/polls_total", "--json"]).json()["readings"][0]["value"]
            .as_f64()
    };
    let at_step = polls();
    let kept = || {
        let sql = "SELECT value FROM samples WHERE topic = 'n01/self/sensor/mem/polls_total' ORDER BY time";
        let ran = run(&["sql", "--json", "--history", &there, sql]);
        let rows = if ran.code == 0 { ran.json()["rows"].clone() } else { Json::Null };
        let rows = rows.as_array().cloned().unwrap_or_default();
        rows.iter().filter_map(|row| row["value"].as_f64()).collect::<Vec<_>>()
    };
    eventually("samples after the step are kept", || kept().last().copied() > at_step);
    // A source that hangs does not look fresh for the hour.
    signal(&agent.child, "STOP");
    eventually("all ages grow", || {
        let ran = run(&["get", "mem/*", "block/**", "cpu/**", "--json"]);
        let readings = ran.json()["readings"].as_array().expect("a list").clone();
        readings.len() > 10 && readings.iter().all(|r| r["age_seconds"].as_f64() > Some(2.0))
    });
    assert_ne!(run(&["get", "mem/free_bytes", "--max-age", "1s"]).code, 0);
    agent.kill();
    // Every sample was kept, in the order in which it was made.
    let polls = kept();
    assert!(polls.len() > 1 && polls.is_sorted(), "{polls:?}");
}

#[test]
fn the_screen_shows_a_dead_agent_as_old_after_the_clock_was_set_back() {
    let clock = SetClock::new();
    let history = tempfile::tempdir().expect("a folder");
    let mut agent = clock.agent(history.path());
    let Some(screen) = Screen::open(agent.path(), (120, 40)) else { return };
    clock.set(-HOUR);
    let dir = agent.path().to_owned();
    let polls = || {
        let ran = clock.run(&dir, &["get", "self/sensor/mem/polls_total", "--plain"]);
        ran.stdout.split('\t').nth(1).and_then(|v| v.parse::<f64>().ok()).unwrap_or(0.0)
    };
    let before = polls();
    eventually("polls after the step", || polls() > before + 2.0);
    let [library, file] = clock.environment().map(|(name, value)| format!("{name}={value}"));
    screen.line(&format!("env {library} {file} {} top", env!("CARGO_BIN_EXE_skopos")));
    screen.until("the agent's data", |text| text.contains(" old") && text.contains("n01"));
    signal(&agent.child, "STOP");
    // Its values are an hour ahead of the clock, and old nevertheless.
    let seconds = |text: &str| {
        let (before, _) = text.split_once(" old")?;
        let word = before.split_whitespace().last()?;
        word.strip_suffix('s')?.parse::<f64>().ok()
    };
    screen.until("the age grows", |text| seconds(text).is_some_and(|age| age >= 2.0));
    let text = screen.text();
    assert!(!text.contains("PiB/s"), "a rate over no time: {text}");
    screen.keys(&["q"]);
    agent.kill();
}

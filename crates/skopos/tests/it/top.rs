//! `skopos top` in a real terminal: tmux types the keys and returns the text on the screen.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::{PATIENCE, Running, eventually, program, run, runtime_dir, skopos};

/// The text that the shell shows before and after the UI: it proves that the screen was restored.
const BEFORE: &str = "the screen before";

/// A terminal of a given size, on a tmux server of its own.
pub(crate) struct Screen {
    /// Holds the server's socket, so that nothing is left behind.
    dir: TempDir,
}

impl Screen {
    /// Opens a shell whose programs use the agent in `dir`; says so and returns `None` without tmux.
    pub(crate) fn open(dir: &Path, (width, height): (u16, u16)) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            eprintln!("SKIPPED: no tmux on this machine, so `skopos top` is untested");
            return None;
        }
        let screen = Self { dir: tempfile::tempdir().expect("a temporary directory") };
        let (width, height) = (width.to_string(), height.to_string());
        // The server has no configuration of the user's, and UTF-8 whatever the locale.
        let started = screen
            .command()
            .args(["-f", "/dev/null", "-u", "new-session", "-d"])
            .args(["-x", &width, "-y", &height, "env", "-u", "NO_COLOR", "PS1=$ ", "sh"])
            .env("SKOPOS_DIR", dir)
            .env("LC_ALL", "C.UTF-8")
            .output()
            .expect("tmux starts");
        assert!(started.status.success(), "{started:?}");
        screen.clear();
        Some(screen)
    }

    fn command(&self) -> Command {
        let mut command = program("tmux");
        command.arg("-S").arg(self.dir.path().join("socket"));
        command.env_remove("TMUX").stdin(Stdio::null());
        command
    }

    fn tmux(&self, args: &[&str]) -> Output {
        self.command().args(args).output().expect("tmux answers")
    }

    /// Types keys one after the other, by their names in tmux.
    pub(crate) fn keys(&self, keys: &[&str]) {
        let typed = self.tmux(&[&["send-keys"], keys].concat());
        assert!(typed.status.success(), "{typed:?}");
    }

    /// Types a line of shell.
    pub(crate) fn line(&self, text: &str) {
        assert!(self.tmux(&["send-keys", "-l", text]).status.success());
        self.keys(&["Enter"]);
    }

    /// Leaves one line on the screen. Text that is typed before the shell is ready lands anywhere, so
    /// this waits for the prompt.
    fn clear(&self) {
        self.line(&format!("clear; echo '{BEFORE}'"));
        self.until("a clear screen", |text| text.trim_end() == format!("{BEFORE}\n$"));
    }

    /// Starts the UI. The shell prints the exit code once the UI is over.
    fn start_top(&self, options: &str) {
        let binary = env!("CARGO_BIN_EXE_skopos");
        self.line(&format!("'{binary}' top {options}; echo \"ended with $?\""));
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p"]).stdout).into_owned()
    }

    fn format(&self, format: &str) -> String {
        let answer = self.tmux(&["display-message", "-p", format]);
        String::from_utf8_lossy(&answer.stdout).trim().to_owned()
    }

    /// Waits until the text on the screen is as wanted; panics with the text otherwise.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) {
        let started = Instant::now();
        loop {
            let text = self.text();
            if wanted(&text) {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "gave up waiting for {what} on\n{text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until all of `parts` are on the screen.
    #[track_caller]
    fn shows(&self, parts: &[&str]) {
        self.until(&format!("{parts:?}"), |text| parts.iter().all(|part| text.contains(part)));
    }

    /// Waits until `part` is no longer on the screen.
    #[track_caller]
    fn lacks(&self, part: &str) {
        self.until(&format!("no {part:?}"), |text| !text.contains(part));
    }

    /// Checks that the terminal is restored: the old screen, a cursor, echo and line editing.
    #[track_caller]
    fn is_restored(&self, exit_code: i32) {
        self.shows(&[BEFORE, &format!("ended with {exit_code}")]);
        assert_eq!(self.format("#{alternate_on} #{cursor_flag}"), "0 1");
        self.line("stty -a | tr ' ;' '\\n\\n' | grep -xE -- '-?(icanon|echo|isig|opost)' | xargs");
        self.until("terminal modes as they were", |text| {
            // This line is the output of the command, not the line that was typed.
            let modes =
                text.lines().rfind(|line| line.contains("icanon") && !line.contains("stty"));
            modes.is_some_and(|line| !line.contains('-'))
        });
    }

    /// Returns the process id of the UI: the child of the shell in the terminal.
    fn top_pid(&self) -> String {
        let shell = self.format("#{pane_pid}");
        let children = format!("/proc/{shell}/task/{shell}/children");
        let mut found = String::new();
        eventually("the UI's process", || {
            found = std::fs::read_to_string(&children).unwrap_or_default().trim().to_owned();
            !found.is_empty() && !found.contains(' ')
        });
        found
    }
}

impl Drop for Screen {
    /// Stops this test's tmux server and everything in it, and no other.
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn top_shows_this_machine_and_leaves_the_terminal_as_it_was() {
    let agent = Running::start(&[]);
    let Some(screen) = Screen::open(agent.path(), (80, 24)) else { return };
    screen.start_top("");
    screen.shows(&["n01", "agent", "UTC", "1 overview", "cpu", "memory", "load", "tcp", "tasks"]);
    assert_eq!(screen.format("#{alternate_on}"), "1");
    assert_eq!(screen.text().trim_end().lines().count(), 24, "{}", screen.text());

    // A user's own fact appears by itself.
    let published = agent.run(&["publish", "my-app/queue/depth", "17"]);
    assert_eq!(published.code, 0, "{published:?}");
    screen.shows(&["published", "my-app/queue/depth", "17"]);

    // Each pane has content, or a reason why it is empty.
    for (key, part) in [
        ("2", "core"),
        ("3", "mem/available_bytes"),
        ("6", "network"),
        ("8", "skopos"),
        ("9", "topic"),
    ] {
        screen.keys(&[key]);
        screen.shows(&[part]);
    }
    screen.keys(&["/"]);
    screen.keys(&["-l", "queue/DE"]);
    screen.shows(&["/queue/DE", "1 of ", "my-app/queue/depth"]);
    screen.keys(&["Enter", "Escape"]);
    screen.lacks("/queue/DE");
    screen.keys(&["?"]);
    screen.shows(&["any key closes", "sort by the next column"]);
    screen.keys(&["?", "p"]);
    screen.shows(&["PAUSED"]);
    screen.keys(&["p", "1"]);
    screen.lacks("PAUSED");

    assert!(screen.tmux(&["resize-window", "-x", "120", "-y", "40"]).status.success());
    screen.shows(&["cpu busy", "cgroups", "my-app/queue/depth"]);
    assert!(screen.tmux(&["resize-window", "-x", "30", "-y", "8"]).status.success());
    screen.shows(&["too small"]);
    assert!(screen.tmux(&["resize-window", "-x", "80", "-y", "24"]).status.success());
    screen.shows(&["1 overview 2 cpu"]);

    screen.keys(&["q"]);
    screen.is_restored(0);
}

#[test]
fn top_names_the_process_that_uses_a_processor() {
    let agent = Running::start(&[]);
    let Some(screen) = Screen::open(agent.path(), (120, 40)) else { return };
    // The loop outlives its terminal, so it has an end of its own if this test panics.
    screen.line("timeout 120 sh -c 'while :; do :; done' &");
    screen.start_top("");
    screen.shows(&["1 overview"]);
    screen.keys(&["0"]);
    screen.shows(&["processes", "cpu % v", "sort: cpu %"]);
    let busy = |text: &str| {
        let line = text.lines().find(|line| line.contains("while :; do"));
        let words = line.and_then(|line| line.split("done").nth(1)).map(str::to_owned);
        words.and_then(|words| words.split_whitespace().next()?.parse::<f64>().ok())
    };
    screen.until("a busy shell", |text| busy(text).is_some_and(|percent| percent > 0.0));
    screen.keys(&["m"]);
    screen.shows(&["memory v", "sort: memory"]);
    screen.keys(&["i"]);
    screen.shows(&["io/s v", "sort: io/s"]);
    screen.keys(&["q"]);
    screen.shows(&["ended with 0"]);
    screen.line("kill %1; wait; echo loops: $((1 - 1))");
    screen.shows(&["loops: 0"]);
}

#[test]
fn top_shows_insights_and_what_is_unusual() {
    let configuration = tempfile::NamedTempFile::new().expect("a file");
    let text = r#"
        [[insight]]
        name = "queues"
        sql = "SELECT sum(value) FROM latest WHERE topic LIKE '%/my-app/%/depth'"
        [[anomaly]]
        name = "queue-long"
        topic = "*/my-app/*/depth"
        detector = "threshold"
        above = 100
    "#;
    std::fs::write(configuration.path(), text).expect("writable");
    let path = configuration.path().to_str().expect("UTF-8");
    let mut agent = Running::start(&["--config", path]);
    // The list of insights is longer than that of most screens.
    let Some(screen) = Screen::open(agent.path(), (110, 60)) else { return };
    screen.start_top("");
    screen.shows(&["findings 0 raised"]);
    // Only the agent knows the reason of an unknown value.
    screen.keys(&["i"]);
    screen.shows(&["insights ", " known", "tier_remaining_capacity_bytes"]);
    screen.keys(&["/"]);
    screen.keys(&["-l", "queues"]);
    screen.until("a reason", |text| {
        let line = text.lines().find(|line| line.trim_start().starts_with("queues"));
        line.is_some_and(|line| line.contains("unknown: ") && !line.contains("waiting for"))
    });
    let publish = |value| {
        let published = agent.run(&["publish", "my-app/a/depth", value]);
        assert_eq!(published.code, 0, "{published:?}");
    };
    publish("7");
    screen.until("a value", |text| {
        let line = text.lines().find(|line| line.trim_start().starts_with("queues"));
        line.is_some_and(|line| line.contains(" 7 ") && !line.contains("unknown"))
    });
    publish("170");
    screen.shows(&["! 1 finding"]);
    screen.keys(&["Enter", "Escape", "f"]);
    screen.shows(&["findings ! 1 raised", "queue-long", "! RAISED", "170", "at most 100"]);
    publish("7");
    screen.shows(&["findings 0 raised", "cleared"]);
    screen.lacks("! 1 finding");
    // Without an agent the last answers stay on the screen, and the UI runs on.
    agent.kill();
    screen.keys(&["i"]);
    screen.shows(&["! gone since", "! no agent answers"]);
    screen.keys(&["q"]);
    screen.is_restored(0);
}

#[test]
fn top_restores_the_terminal_after_a_signal() {
    let agent = Running::start(&[]);
    let Some(screen) = Screen::open(agent.path(), (80, 24)) else { return };
    for signal in ["TERM", "INT", "HUP"] {
        screen.clear();
        screen.start_top("");
        screen.shows(&["1 overview"]);
        let ended = Command::new("kill").args([format!("-{signal}"), screen.top_pid()]).status();
        assert!(ended.expect("kill(1)").success());
        screen.is_restored(0);
    }
    screen.clear();
    screen.start_top("mem/avail");
    screen.shows(&["/mem/avail", "mem/available_bytes"]);
    screen.keys(&["C-c"]);
    screen.is_restored(0);
}

#[test]
fn top_outlives_the_agent_and_finds_the_next_one() {
    let mut agent = Running::start(&[]);
    let Some(screen) = Screen::open(agent.path(), (80, 24)) else { return };
    screen.start_top("");
    screen.shows(&["1 overview", "load"]);
    agent.kill();
    screen.shows(&["! gone since", "!cpu"]);
    let next = skopos(agent.path(), &["agent", "--node", "n01", "--interval", "100ms"])
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let pid = format!("agent {}", next.id());
    // From here on the agent ends with the test, however that ends.
    agent.child = next;
    screen.until("the next agent", |text| {
        text.contains(&pid) && !text.contains("gone since") && !text.contains("!cpu")
    });
    screen.keys(&["q"]);
    screen.is_restored(0);
}

#[test]
fn top_without_a_terminal_or_an_agent_says_what_to_do() {
    let dir = runtime_dir();
    let ran = run(dir.path(), &["top"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains("needs a terminal") && ran.stderr.contains("hint:"), "{ran:?}");
    for option in ["--json", "--plain"] {
        let ran = run(dir.path(), &["top", option]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("skopos watch"), "{ran:?}");
    }
    let Some(screen) = Screen::open(dir.path(), (80, 24)) else { return };
    screen.start_top("");
    screen.shows(&["nothing is running", "hint:", "ended with 2"]);
    screen.is_restored(2);
}

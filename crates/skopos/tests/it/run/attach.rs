//! `skopos run --attach`: a running task is measured from then on, and released unharmed.

use std::io::Write as _;
use std::process::{Child, Stdio};

use super::*;
use crate::support::eventually;

/// A shell that waits for a line before it goes on with the script; killed on drop.
struct Task(Child);

impl Task {
    fn new(before: &str, after: &str) -> Self {
        let script = format!("{before}\n: > ready\nread line\n{after}");
        Self::of(crate::support::program("sh").args(["-c", &script]))
    }

    fn of(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::piped()).spawn().expect("it starts"))
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn go(&mut self) {
        let stdin = self.0.stdin.as_mut().expect("piped");
        stdin.write_all(b"go\n").expect("it reads");
    }

    /// Returns the CPU time of the task and of the children that it waited for, in ticks.
    fn ticks(&self) -> u64 {
        let text =
            std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        let after = text.rsplit_once(") ").map_or("", |(_, after)| after);
        // The CPU times are the fields 14 to 17, and `after` begins with the third field.
        after.split(' ').skip(11).take(4).filter_map(|word| word.parse::<u64>().ok()).sum()
    }

    fn field(&self, name: &str) -> String {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let text = text.unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_owned()
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a monitor, and returns it once it is attached and waits for events.
fn attached(task: &Task, args: &[&str]) -> Child {
    let pid = task.pid();
    let mut all = vec!["--json", "--attach", &pid];
    all.extend(args);
    let child = monitor(&all).stderr(Stdio::piped()).spawn().expect("it starts");
    is_waiting(&child);
    child
}

/// Waits until the monitor holds the process and its other thread sleeps, for more than a moment.
fn is_waiting(monitor: &Child) {
    let own = monitor.id();
    let entries = |what: &str| {
        let all = std::fs::read_dir(format!("/proc/{own}/{what}")).into_iter().flatten();
        all.flatten().map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let mut quiet = 0;
    eventually("the monitor is attached", || {
        let links = entries("fd").into_iter().filter_map(|fd| std::fs::read_link(fd).ok());
        let holds = links.into_iter().any(|link| link.to_string_lossy().contains("pidfd"));
        let sleeps = entries("task").into_iter().filter(|t| !t.ends_with(own.to_string()));
        let sleeps = sleeps.into_iter().any(|thread| {
            let stat = std::fs::read_to_string(thread.join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
        });
        quiet = if holds && sleeps { quiet + 1 } else { 0 };
        quiet == 3
    });
}

fn report(monitor: Child) -> Outcome {
    let Output { status, stdout, stderr } = monitor.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&stderr);
    let last = stderr.lines().last().unwrap_or_default();
    let summary = serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {stderr}"));
    Outcome { code: status.code(), stdout: String::from_utf8_lossy(&stdout).into_owned(), summary }
}

fn send(signal: &str, pid: u32) {
    let sent = Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(sent.expect("kill").success());
}

fn may_trace() -> bool {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    // The tests' own children are not children of the monitor.
    let is_free = matches!(scope.trim(), "" | "0");
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|m| {
        use std::os::unix::fs::MetadataExt as _;
        m.uid() == 0
    });
    if !is_free && !is_root {
        eprintln!("skipped: kernel.yama.ptrace_scope is {}", scope.trim());
    }
    is_free || is_root
}

#[test]
fn usage_of_a_running_task_since_the_attach_is_exact() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("x");
    let before = format!("cd {}; head -c 3000000 /dev/zero > x", folder.path().display());
    let after = "head -c 1000000 /dev/zero >> x; i=0; while [ $i -lt 50 ]; do \
                 head -c 1000 /dev/zero >> x & i=$((i+1)); done; wait; exit 7";
    for level in ["1", "2"] {
        if level == "2" && !may_trace() {
            return;
        }
        let mut task = Task::new(&before, after);
        eventually("the task is ready", || folder.path().join("ready").exists());
        let monitor = attached(&task, &["--level", level]);
        task.go();
        let outcome = report(monitor);
        let what = format!("level {level}: {}", outcome.summary);
        assert_eq!(outcome.value("written_bytes"), 1_050_000.0, "{what}");
        assert_eq!(outcome.summary["task"]["attached"]["pid"].to_string(), task.pid(), "{what}");
        if level == "2" {
            assert_eq!(outcome.of("written_bytes", "completeness"), "all", "{what}");
            assert_eq!(outcome.value("processes_total"), 52.0, "{what}");
            assert_eq!(
                (outcome.code, &outcome.summary["ended"]["status"]),
                (Some(7), &7.into()),
                "{what}"
            );
            let of_memory = outcome.of("resident_bytes_max", "reason").as_str().expect("a reason");
            assert!(of_memory.contains("before the attach"), "{what}");
        } else {
            assert_eq!(outcome.of("written_bytes", "completeness"), "at_least", "{what}");
            assert_eq!(outcome.summary["ended"]["exit_type"], "unknown", "{what}");
            assert_eq!(outcome.code, Some(0), "the exit code is unknown: {what}");
        }
        assert_eq!(task.0.wait().expect("it ends").code(), Some(7), "{what}");
        assert_eq!(std::fs::metadata(&file).expect("written").len(), 4_050_000);
        std::fs::remove_file(folder.path().join("ready")).expect("removed");
    }
}

#[test]
fn threads_and_children_that_were_there_are_traced() {
    if !may_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    // A child of the task has a child. Both exit after the attachment, and the second writes first.
    let before = format!(
        "cd {}; mkfifo go; sh -c 'sh -c \"read a < go; head -c 5000 /dev/zero > y; exit 3\"; exit 4' &",
        folder.path().display()
    );
    let mut task = Task::new(&before, "wait; exit 5");
    eventually("the task is ready", || folder.path().join("ready").exists());
    eventually("both processes are there", || {
        let children = |pid: &str| {
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default()
        };
        !children(children(&task.pid()).trim()).is_empty()
    });
    let monitor = attached(&task, &[]);
    std::fs::write(folder.path().join("go"), "x\n").expect("it is read");
    task.go();
    let outcome = report(monitor);
    let statuses: Vec<_> = outcome.summary["processes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|p| &p["status"])
        .collect();
    assert!(
        [3, 4].iter().all(|code| statuses.contains(&&Json::from(*code))),
        "{}",
        outcome.summary
    );
    assert_eq!(
        (outcome.code, outcome.value("written_bytes")),
        (Some(5), 5000.0),
        "{}",
        outcome.summary
    );
}

#[test]
fn a_task_that_is_let_go_of_runs_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let after = "while [ ! -e stop ]; do /bin/true; done; exit 9";
    for (level, signal) in [("1", "-INT"), ("2", "-INT"), ("2", "-TERM")] {
        let _ = std::fs::remove_file(folder.path().join("ready"));
        let _ = std::fs::remove_file(folder.path().join("stop"));
        let mut task = Task::new(&format!("cd {}", folder.path().display()), after);
        eventually("the task is ready", || folder.path().join("ready").exists());
        let monitor = attached(&task, &["--level", level]);
        task.go();
        // The kernel counts in ticks, and on a busy machine some time passes before the first.
        eventually("the task uses CPU time", || task.ticks() >= 5);
        send(signal, monitor.id());
        let outcome = report(monitor);
        let what = format!("level {level}: {}", outcome.summary);
        assert_eq!(
            (outcome.code, &outcome.summary["ended"]["exit_type"]),
            (Some(0), &"running".into())
        );
        assert_eq!(outcome.of("cpu_seconds", "completeness"), "at_least", "{what}");
        assert!(outcome.value("cpu_seconds") > 0.0, "{what}");
        assert_eq!(task.field("TracerPid:"), "0", "{what}");
        assert!(task.0.try_wait().expect("asked").is_none(), "{what}");
        std::fs::write(folder.path().join("stop"), "").expect("written");
        assert_eq!(task.0.wait().expect("it ends").code(), Some(9), "{what}");
    }
}

#[test]
fn a_limit_ends_the_tree_of_that_process_and_nothing_else() {
    for level in ["1", "2"] {
        let folder = tempfile::tempdir().expect("a folder");
        let mark = format!("62{}{level}", std::process::id());
        // A process whose parent exits before the next sample is known only where births are reported.
        let orphan = if level == "2" { "(setsid sleep MARK &);" } else { "setsid sleep MARK &" };
        let after = format!("{orphan} sleep MARK & sleep MARK").replace("MARK", &mark);
        let mut other = Task::of(Command::new("sleep").arg("60"));
        let mut task = Task::new(&format!("cd {}", folder.path().display()), &after);
        eventually("the task is ready", || folder.path().join("ready").exists());
        let monitor =
            attached(&task, &["--level", level, "--series", "20ms", "--limit", "wall=2s"]);
        task.go();
        let outcome = report(monitor);
        assert_eq!(
            outcome.summary["ended"]["exit_type"], "limit",
            "level {level}: {}",
            outcome.summary
        );
        assert_eq!(outcome.code, Some(137), "level {level}");
        assert!(task.0.wait().expect("it ends").code().is_none(), "the task died of a signal");
        assert!(limits::is_gone(&mark), "level {level}: {}", outcome.summary);
        assert!(
            other.0.try_wait().expect("asked").is_none(),
            "the other process is not in the tree"
        );
    }
}

#[test]
fn a_second_monitor_of_the_same_process_falls_back() {
    if !may_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut task = Task::new(&format!("cd {}", folder.path().display()), "echo hello > x; exit 2");
    eventually("the task is ready", || folder.path().join("ready").exists());
    let first = attached(&task, &[]);
    let second = attached(&task, &[]);
    task.go();
    let (first, second) = (report(first), report(second));
    assert_eq!((first.code, first.value("written_bytes")), (Some(2), 6.0));
    let mechanisms = second.summary["mechanisms"].as_array().expect("a list");
    let ptrace = mechanisms.iter().find(|m| m["name"] == "ptrace").expect("it is listed");
    assert_eq!(ptrace["used"], false, "{ptrace}");
    assert!(ptrace["why"].as_str().is_some_and(|why| why.contains("only one tracer")));
    assert!(second.value("wall_seconds") > 0.0);
}

#[test]
fn an_ordinary_user_learns_which_values_are_hidden() {
    let exe = env!("CARGO_BIN_EXE_skopos");
    let user = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).args(args);
        command.stderr(Stdio::piped());
        command
    };
    if !user(&[exe, "--version"]).output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: the user cannot be changed, or the other user may not run the program");
        return;
    }
    // The first task belongs to another user, and the second to the user of the monitor.
    let folder = tempfile::tempdir().expect("a folder");
    let mut task = Task::new(&format!("cd {}", folder.path().display()), "exit 0");
    eventually("the task is ready", || folder.path().join("ready").exists());
    let monitor =
        user(&[exe, "run", "--json", "--attach", &task.pid()]).spawn().expect("it starts");
    // Only root may see the monitor's descriptors, and the tests are root here.
    is_waiting(&monitor);
    task.go();
    let outcome = report(monitor);
    // Since Linux 6.6 the connector reports births and exits to any user.
    let hears = |outcome: &Outcome| {
        let mechanisms = outcome.summary["mechanisms"].as_array().expect("a list");
        mechanisms.iter().any(|m| m["name"] == "connector" && m["used"] == true)
    };
    let level = 1 + u64::from(hears(&outcome));
    assert_eq!(outcome.summary["level"], level, "{}", outcome.summary);
    assert_eq!(outcome.of("written_bytes", "value"), &Json::Null);
    assert!(
        outcome.of("written_bytes", "reason").as_str().is_some_and(|r| r.contains("may not read"))
    );
    assert!(outcome.value("resident_bytes_max") > 0.0);
    let mechanisms = outcome.summary["mechanisms"].as_array().expect("a list");
    let ptrace = mechanisms.iter().find(|m| m["name"] == "ptrace").expect("it is listed");
    let why = ptrace["why"].as_str().expect("a reason");
    assert!(why.contains("belongs to user 0") || why.contains("ptrace_scope"), "{why}");
    let mut own = Task::of(user(&["sh", "-c", "read line; exit 6"]).stderr(Stdio::inherit()));
    eventually("the task runs as another user", || own.field("Uid:").starts_with("65534"));
    let monitor = user(&[exe, "run", "--json", "--attach", &own.pid()]).spawn().expect("it starts");
    is_waiting(&monitor);
    own.go();
    let outcome = report(monitor);
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let is_told = matches!(scope.trim(), "" | "0") || hears(&outcome);
    let expected = if is_told { (Some(6), 2) } else { (Some(0), 1) };
    let level = outcome.summary["level"].as_u64().expect("a level");
    assert_eq!((outcome.code, level), expected, "{}", outcome.summary);
}

#[test]
fn a_process_that_cannot_be_attached_to_is_refused_with_a_hint() {
    let check = |args: &[&str], said: &str, hint: &str| {
        let ran = monitor(args).output().expect("it starts");
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(said) && stderr.contains(hint), "{args:?}: {stderr}");
    };
    let mut ended = Command::new("true").spawn().expect("it starts");
    let pid = ended.id();
    eventually("the process is a zombie", || {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
    });
    check(&["--attach", &pid.to_string()], "has already exited", "ps -e");
    ended.wait().expect("reaped");
    check(&["--attach", "2147483647"], "there is no process 2147483647", "ps -e");
    check(&["--attach", "1"], "all others descend", "the service");
    check(&["--attach", "0"], "0 is not in 1..", "");
    check(&["--attach", "12", "--", "true"], "a command is given too", "leave out");
    check(&["--attach", "12", "--limit", "auto"], "--limit auto", "name the limit");
    if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        check(&["--attach", "2"], "[kthreadd]", "runs a program");
    }
    let thread = std::thread::spawn(|| {
        let link = std::fs::read_link("/proc/thread-self").expect("proc");
        let id = link.file_name().and_then(|n| n.to_str()).expect("an id").to_owned();
        let ran = monitor(&["--attach", &id]).output().expect("it starts");
        String::from_utf8_lossy(&ran.stderr).into_owned()
    });
    let said = thread.join().expect("it ran");
    let own = std::process::id();
    assert!(said.contains(&format!("is a thread of process {own}")), "{said}");
    assert!(said.contains(&format!("--attach {own}")), "{said}");
}

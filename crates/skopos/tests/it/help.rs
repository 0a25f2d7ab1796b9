//! Help, usage errors, manual pages and completion.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Running, run, runtime_dir, signal, skopos};

/// Verbs that have subcommands.
const GROUPS: [&str; 8] = ["archive", "insight", "delphi", "pki", "trace", "lab", "rank", "rule"];

/// Examples that a test machine cannot run, with the reasons.
const SKIPPED: [(&str, &str); 10] = [
    ("skopos lab up", "makes a network as root; `lab` tests it"),
    ("skopos lab down", "would remove a lab of the user; `lab` tests it"),
    ("skopos lab run", "needs a lab; `lab` tests it"),
    ("skopos trace", "needs the trace of a service; `trace` tests the verbs"),
    ("skopos rank", "needs a profile in the configuration; `rank` tests the verb"),
    ("skopos rule", "needs a hub with rules; `rule` tests the verbs"),
    ("skopos join", "needs a hub on another machine; `certificates` tests it"),
    ("skopos top", "needs a terminal; `top` tests it"),
    ("skopos slurm", "needs the environment of Slurm; `slurm` tests it"),
    (
        "skopos calibrate nvme0n1",
        "names a device that few machines have; `calibrate` tests the verb",
    ),
];

/// Examples that others need: `run` writes the report that the verbs of the archive read, and a hub needs a certificate.
const FIRST: [&str; 3] = ["skopos run", "skopos archive import", "skopos pki init"];

/// Programs that examples pipe into, and that few machines have.
const READERS: [&str; 2] = [" | dot ", " | man "];

/// Prefixes of the examples that need a runtime directory without an agent, each with options that keep
/// the usual ports free for other tests.
const ALONE: [(&str, &str); 3] = [
    ("skopos up", " --http none --flight none"),
    ("skopos agent", ""),
    ("skopos hub", " --http none --flight none"),
];

/// The time after which a program that still runs counts as working.
const LONG_ENOUGH: Duration = Duration::from_secs(4);

/// The greatest width of help in a pipe, in columns.
const COLUMNS: usize = 80;

/// Returns the verbs that the help of `path` lists.
fn verbs(dir: &Path, path: &[&str]) -> Vec<String> {
    let help = run(dir, &[path, &["--help"]].concat()).stdout;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Returns the words of every verb.
fn all_verbs(dir: &Path) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = verbs(dir, &[]).into_iter().map(|verb| vec![verb]).collect();
    for group in GROUPS {
        all.extend(verbs(dir, &[group]).into_iter().map(|verb| vec![group.to_owned(), verb]));
    }
    assert!(all.len() > 25, "{all:?}");
    all
}

fn help_of(dir: &Path, verb: &[String]) -> String {
    let words: Vec<&str> = verb.iter().map(String::as_str).chain(["--help"]).collect();
    run(dir, &words).stdout
}

/// Returns the lines of an example, without the remarks behind them.
fn example(help: &str) -> String {
    let lines = help.lines().take_while(|line| !line.is_empty());
    let commands = lines.map(|line| line.trim_start_matches("Example:").trim());
    let commands = commands.map(|line| line.split("   ").next().unwrap_or_default());
    commands.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_example_of_the_help_runs() {
    let agent = Running::start_as("up", &[]);
    let home = tempfile::tempdir().expect("a directory");
    std::fs::write(home.path().join("Makefile"), "all:\n\ttrue\n").expect("written");
    let mut examples: Vec<String> =
        all_verbs(agent.path()).iter().map(|verb| example(&help_of(agent.path(), verb))).collect();
    examples.extend(example(&help_of(agent.path(), &[])).lines().map(str::to_owned));
    examples.sort_by_key(|example| {
        let place = FIRST.iter().position(|first| example.starts_with(first));
        place.unwrap_or(FIRST.len())
    });
    for example in examples {
        assert!(example.starts_with("skopos ") || example.starts_with("echo "), "{example}");
        if !SKIPPED.iter().any(|(skipped, _)| example.starts_with(skipped)) {
            check(&example, agent.path(), home.path());
        }
    }
}

/// Runs an example until it exits, or for [`LONG_ENOUGH`]. Exit code 1 is the answer "no", which may be
/// right.
fn check(example: &str, dir: &Path, home: &Path) {
    let reader = READERS.iter().find_map(|reader| example.find(reader));
    let example = &example[..reader.unwrap_or(example.len())];
    let alone = ALONE.iter().find(|(start, _)| example.starts_with(start));
    let own = runtime_dir();
    let binaries = Path::new(env!("CARGO_BIN_EXE_skopos")).parent().expect("a folder");
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap_or_default());
    // `exec` lets a signal reach the program.
    let is_one = !example.contains("&&") && !example.contains('\n');
    let exec = if is_one { "exec " } else { "set -e\n" };
    let mut child = Command::new("sh")
        .args(["-c", &format!("{exec}{example}{}", alone.map_or("", |(_, more)| more))])
        .env("PATH", path)
        .env("HOME", home)
        .env("SKOPOS_DIR", if alone.is_some() { own.path() } else { dir })
        .env("SKOPOS_STATE", home.join("state"))
        .current_dir(home)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let started = Instant::now();
    while child.try_wait().expect("a child").is_none() && started.elapsed() < LONG_ENOUGH {
        std::thread::sleep(Duration::from_millis(50));
    }
    let is_running = child.try_wait().expect("a child").is_none();
    if is_running {
        signal(&child, "TERM");
    }
    let output = child.wait_with_output().expect("it ends");
    let is_answer = matches!(output.status.code(), Some(0 | 1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(is_running || is_answer, "{example}: {:?}: {stderr}", output.status);
    let has_devices = std::fs::read_dir("/sys/block").is_ok_and(|mut all| all.next().is_some());
    let is_matched = !stderr.contains("no topic matches");
    assert!(is_matched || example.contains("block/") && !has_devices, "{example}: {stderr}");
}

#[test]
fn help_in_a_pipe_has_at_most_80_columns() {
    let dir = runtime_dir();
    for verb in all_verbs(dir.path()) {
        let help = help_of(dir.path(), &verb);
        let lines = help.lines().skip_while(|line| !line.is_empty());
        for line in lines {
            assert!(line.chars().count() <= COLUMNS, "{verb:?}: {line}");
        }
    }
}

#[test]
fn wrong_usage_has_hints_and_no_tips() {
    let dir = runtime_dir();
    for (args, hint) in [
        (&["tpo"][..], "hint: did you mean `skopos top`?"),
        (&["wacth", "x"], "hint: did you mean `skopos watch`?"),
        (&["archive", "exprot"], "hint: did you mean `skopos archive export`?"),
        (&["nothing-alike"], "hint: `skopos --help` lists the verbs"),
        (&["ls", "--lon"], "hint: a similar argument exists: '--long'"),
        (&["delphi", "score"], "hint: `--help` describes every option"),
    ] {
        let ran = run(dir.path(), args);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.starts_with("error: "), "{ran:?}");
        assert!(ran.stderr.lines().any(|line| line == hint), "{ran:?}");
        assert!(!ran.stderr.contains("tip:"), "{ran:?}");
    }
}

#[test]
fn a_mistyped_pattern_suggests_the_nearest() {
    let agent = Running::start(&[]);
    let ran = agent.run(&["ls", "memm/**"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("hint: did you mean `mem/**`?"), "{ran:?}");
    let ran = agent.run(&["ls", "nothing-alike/**"]);
    assert!(ran.stderr.contains("hint: `skopos ls` shows every topic of this machine"), "{ran:?}");
}

#[test]
fn manual_pages_have_examples_environment_files_and_exit_status() {
    let dir = runtime_dir();
    for verb in all_verbs(dir.path()).into_iter().chain([Vec::new()]) {
        let words: Vec<&str> = ["man"].into_iter().chain(verb.iter().map(String::as_str)).collect();
        let page = run(dir.path(), &words);
        let source = concat!("\"skopos ", env!("CARGO_PKG_VERSION"), "\"");
        let title = page.stdout.lines().find(|line| line.starts_with(".TH ")).expect("a title");
        assert!(title.contains(source), "{title}");
        for section in ["EXAMPLES", "\"EXIT STATUS\"", "\"ENVIRONMENT\"", "\"FILES\""] {
            assert!(page.stdout.contains(&format!(".SH {section}\n")), "{words:?} {section}");
        }
        let examples = page.stdout.split(".SH EXAMPLES").nth(1).expect("a section");
        assert!(examples.contains(".nf\nskopos ") || examples.contains(".nf\necho "), "{examples}");
    }
}

#[test]
fn bash_completes_topics_and_insights() {
    let agent = Running::start(&[]);
    let binaries = Path::new(env!("CARGO_BIN_EXE_skopos")).parent().expect("a folder");
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap_or_default());
    let insight = agent.run(&["ls", "insight/**", "--plain"]).stdout;
    let insight =
        insight.split('\t').next().expect("a topic").rsplit('/').next().expect("a name").to_owned();
    let begun = &insight[..insight.len() - 1];
    for (words, expected) in [
        (vec!["get", "mem/avail"], "mem/available_bytes"),
        (vec!["get", "n01/mem/avail"], "n01/mem/available_bytes"),
        (vec!["watch", "load/load_1"], "load/load_1m"),
        (vec!["ls", "load/load_1"], "load/load_1m"),
        (vec!["record", "load/load_1"], "load/load_1m"),
        (vec!["insight", "show", begun], insight.as_str()),
        (vec!["insight", "explain", begun], insight.as_str()),
        (
            vec!["--dir", agent.path().to_str().expect("UTF-8"), "get", "mem/avail"],
            "mem/available_bytes",
        ),
        (vec!["simu"], "simulate"),
    ] {
        let (last, index) = (words.last().expect("a word"), words.len());
        let script = format!(
            "source <(skopos completion bash); COMP_WORDS=(skopos {}); COMP_CWORD={index}; COMP_TYPE=9; \
             _clap_complete_skopos skopos {last} x; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            words.join(" ")
        );
        let mut bash = Command::new("bash");
        bash.args(["-c", &script]).env("PATH", &path).stdin(Stdio::null());
        if words[0] != "--dir" {
            bash.env("SKOPOS_DIR", agent.path());
        }
        let output = bash.output().expect("bash starts");
        let offered = String::from_utf8_lossy(&output.stdout);
        assert!(offered.lines().any(|name| name.trim() == expected), "{words:?}: {output:?}");
    }
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        let script = run(agent.path(), &["completion", shell]).stdout;
        assert!(script.contains("SKOPOS_COMPLETE"), "{shell}: {script}");
    }
}

#[test]
fn doctor_says_whether_the_build_is_complete() {
    let dir = runtime_dir();
    let doctor = skopos(dir.path(), &["doctor", "--plain"]).output().expect("it starts");
    let told = String::from_utf8(doctor.stdout).expect("UTF-8");
    let build = told.lines().find(|line| line.split('\t').nth(1) == Some("build"));
    assert!(
        build.is_some_and(|line| line.contains("complete") || line.contains("lacks")),
        "{told}"
    );
}

//! `skopos record`: traces that can be replayed, and the ends of a recording.

use std::process::{Command, Stdio};

use skopos_score::trace::Trace;

use crate::support::{Running, eventually, runtime_dir, signal, skopos, terminate};

fn trace(dir: &std::path::Path, name: &str) -> Trace {
    let text = std::fs::read_to_string(dir.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    Trace::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}\n{text}"))
}

#[test]
fn a_row_an_interval_with_what_was_going_on_above() {
    let agent = Running::start(&[]);
    let out = runtime_dir();
    let dir = out.path().join("new/traces");
    let dir_text = dir.display().to_string();
    let args = ["record", "self/sensor/mem/polls_total", "mem/total_bytes", "--for", "3s"];
    let more = ["--interval", "200ms", "--out", &dir_text, "--note", "under test"];
    let ran = agent.run(&[&args[..], &more].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    let polls = trace(&dir, "n01~self~sensor~mem~polls_total.csv");
    assert_eq!(polls.topic, "n01/self/sensor/mem/polls_total");
    assert!(polls.notes[0].contains("every 200ms") && polls.notes[1] == "under test", "{polls:?}");
    assert!(polls.samples.len() > 2, "{polls:?}");
    let grows = |w: &[(std::time::Duration, f64)]| w[0].0 < w[1].0 && w[0].1 < w[1].1;
    assert!(polls.samples.windows(2).all(grows), "each row is another poll: {polls:?}");
    let total = trace(&dir, "n01~mem~total_bytes.csv");
    assert_eq!(total.unit, "bytes");
    assert!(total.samples.windows(2).all(|w| w[0].1 == w[1].1), "unchanged values have rows, too");
    // `record` does not overwrite a trace.
    let ran = agent.run(&[&args[..], &more].concat());
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains(" exists") && ran.stderr.contains("--out"), "{ran:?}");
}

#[test]
fn a_topic_that_goes_and_comes_back_leaves_a_gap() {
    let agent = Running::start(&[]);
    assert_eq!(agent.run(&["publish", "app/a", "1"]).code, 0);
    let out = runtime_dir();
    let dir = out.path().display().to_string();
    let child = skopos(agent.path(), &["record", "app/a", "--interval", "50ms", "--out", &dir])
        .args(["--plain"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let rows = || match std::fs::read_to_string(out.path().join("n01~app~a.csv")) {
        Ok(text) => Trace::parse(&text).map_or(0, |trace| trace.samples.len()),
        Err(_) => 0,
    };
    let publish = |value: &str| assert_eq!(agent.run(&["publish", "app/a", value]).code, 0);
    eventually("the trace has rows", || {
        publish("2");
        rows() > 0
    });
    assert_eq!(agent.run(&["publish", "app/a", "--remove"]).code, 0);
    std::thread::sleep(std::time::Duration::from_millis(400));
    let before = rows();
    eventually("the trace has more rows", || {
        publish("3");
        rows() > before
    });
    // Ctrl-C is the regular end of a recording.
    signal(&child, "INT");
    let ended = terminate(child);
    assert!(ended.status.success(), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("gone"), "{ended:?}");
    let trace = trace(out.path(), "n01~app~a.csv");
    assert_eq!(trace.samples.last().map(|(_, value)| *value), Some(3.0));
}

#[test]
fn a_full_disk_leaves_what_was_recorded_whole() {
    let agent = Running::start(&["--interval", "20ms"]);
    let mount = runtime_dir();
    let mounted = Command::new("unshare").args(["-m", "true"]).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no mount namespace may be made here");
        return;
    }
    let dir = mount.path().display().to_string();
    // The file system has one page, and the trace's comments already fill most of it.
    let record = format!(
        "mount -t tmpfs -o size=4k tmpfs {dir} && \
         {} record self/sensor/mem/polls_total --interval 20ms --out {dir} --for 60s \
         --note {} >/dev/null; code=$?; cat {dir}/*mem*; exit $code",
        env!("CARGO_BIN_EXE_skopos"),
        "x".repeat(3600)
    );
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &record])
        .env("SKOPOS_DIR", agent.path())
        .output()
        .expect("it starts");
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("cannot write") && stderr.contains("hint: "), "{stderr}");
    assert!(stdout.ends_with('\n'), "a torn line: {stdout:?}");
    let trace = Trace::parse(&stdout).expect("a trace");
    assert!(trace.samples.len() > 1, "{stdout}");
}

#[test]
fn a_topic_that_cannot_be_recorded_is_refused() {
    let agent = Running::start(&[]);
    assert_eq!(agent.run(&["publish", "app/list", "[1]"]).code, 0);
    let out = runtime_dir();
    let dir = out.path().display().to_string();
    for (topic, interval, code, says) in [
        ("mem/totl_bytes", "1s", 1, "did you mean"),
        ("app/list", "1s", 2, "no number"),
        ("mem/total_bytes", "0s", 2, "interval of 0"),
    ] {
        let ran = agent.run(&["record", topic, "--interval", interval, "--out", &dir]);
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(ran.stderr.contains(says), "{ran:?}");
    }
    let ran = agent.run(&["record", "mem/total_bytes", "--out", &dir, "--note", "a\nb"]);
    assert!(ran.code == 2 && ran.stderr.contains("a note is one line"), "{ran:?}");
}

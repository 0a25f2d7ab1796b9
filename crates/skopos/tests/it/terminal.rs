//! Features of a terminal: progress, and the shell of `skopos sql`. `script` provides the terminal.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use socket2::{Domain, Socket, Type};

use crate::support::{Running, program, run, runtime_dir};

/// The escape sequence that turns bracketed paste on. The editor prints it once for each line that it
/// reads.
const READY: &str = "\x1b[?2004h";

/// Runs a line of shell in a terminal of 24 lines, types each of `lines` at a prompt of its own, and returns
/// everything that was on the screen.
fn in_terminal(dir: &Path, line: &str, pager: &str, lines: &[&str]) -> String {
    let line = format!("stty rows 24 cols 80 -echo; '{}' {line}", env!("CARGO_BIN_EXE_skopos"));
    let mut child = program("script")
        .args(["-qec", &line, "/dev/null"])
        .env("SKOPOS_DIR", dir)
        .env("SKOPOS_STATE", dir.join("state"))
        .env("TERM", "xterm")
        .env("PAGER", pager)
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script(1) starts");
    let mut input = child.stdin.take().expect("piped");
    let mut output = child.stdout.take().expect("piped");
    let (mut screen, mut typed) = (String::new(), 0);
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = output.read(&mut bytes) {
        screen += &String::from_utf8_lossy(&bytes[..length]);
        // The editor discards all that is typed before its prompt.
        let prompts = screen.matches(READY).count();
        while typed < lines.len().min(prompts) {
            input.write_all(lines[typed].as_bytes()).expect("it reads");
            typed += 1;
        }
    }
    child.wait().expect("it ends");
    screen
}

#[test]
fn an_import_counts_on_a_terminal_and_is_silent_elsewhere() {
    let dir = runtime_dir();
    let report = run(
        dir.path(),
        &["run", "--report", dir.path().join("out").to_str().expect("UTF-8"), "--", "true"],
    );
    assert_eq!(report.code, 0, "{report:?}");
    let summary = std::fs::read_to_string(dir.path().join("out/summary.json")).expect("a report");
    let summary: serde_json::Value = serde_json::from_str(&summary).expect("JSON");
    // The file has the same report many times: the archive reads all of them, and adds one.
    let many = format!(
        "{summary}
"
    )
    .repeat(6000);
    let file = dir.path().join("many.jsonl");
    std::fs::write(&file, many).expect("written");
    let import = |archive: &str| {
        let archive = dir.path().join(archive).display().to_string();
        [
            "archive".to_owned(),
            "import".to_owned(),
            file.display().to_string(),
            "--archive".to_owned(),
            archive,
        ]
    };
    let screen = in_terminal(dir.path(), &import("a.sqlite").join(" "), "", &[]);
    assert!(screen.contains(" reports read"), "{screen}");
    assert!(screen.contains(" 0 refused"), "{screen}");
    let args = import("b.sqlite");
    let ran = run(dir.path(), &args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
}

#[test]
fn the_sql_shell_continues_completes_expands_and_pages() {
    let agent = Running::start(&[]);
    let lines = [
        "SELECT topic,\r",
        "value FROM lat\t WHERE topic LIKE '%/load/load_1m';\r",
        "\\x\r",
        "SELECT value FROM latest LIMIT 2;\r",
        "\\x\r",
        "SELECT topic FROM topics;\r",
        ".quit\r",
    ];
    let screen = in_terminal(agent.path(), "sql", "sed s/^/paged:/", &lines);
    assert!(screen.contains("     -> "), "{screen}");
    assert!(screen.contains("latest WHERE"), "completed: {screen}");
    assert!(screen.contains("n01/load/load_1m"), "{screen}");
    assert!(screen.contains("expanded mode is on") && screen.contains("-[ row 2 ]-"), "{screen}");
    assert!(screen.contains("paged:"), "{screen}");
}

#[test]
fn functions_of_insights_have_a_hint_in_sql() {
    let agent = Running::start(&[]);
    for (sql, hint) in [
        (
            "SELECT ema(value, '5s') FROM samples",
            "hint: `ema` is for insights of an agent; in `skopos sql` use ",
        ),
        (
            "SELECT sum(rate(value)) FROM samples",
            "hint: only insights of an agent nest them; in `skopos sql` use ",
        ),
    ] {
        let ran = agent.run(&["sql", sql]);
        assert!(ran.code == 2 && ran.stderr.contains(hint), "{ran:?}");
    }
    // The statement that the hint proposes is valid.
    let proposed = "SELECT sum(r) FROM (SELECT rate(value) AS r FROM samples GROUP BY topic)";
    let ran = agent.run(&["sql", proposed]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn simulated_nodes_say_that_no_hub_answers_and_end() {
    let dir = runtime_dir();
    // No other program can listen at the port of a socket that is bound, and this one does not.
    let silent = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    silent.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
    let address = silent.local_addr().expect("bound").as_socket().expect("an address of IPv4");
    let at = format!("tcp/{address}");
    let ran = run(
        dir.path(),
        &["simulate", "--insecure", "--nodes", "2", "--for", "3s", "--connect", &at],
    );
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.stderr.contains(&format!("warning: no hub answers at {at}; still trying")),
        "{ran:?}"
    );
    assert!(ran.stderr.contains(&format!("error: no hub answers at {at}\nhint: ")), "{ran:?}");
}

//! Runs the examples of the documentation as they are written.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::client::Up;
use crate::flight::{free_port, python};
use crate::support::{Running, eventually};

/// The addresses of the hub in the examples.
const HTTP: &str = "127.0.0.1:7470";
const FLIGHT: &str = "127.0.0.1:7471";

/// The pages whose commands are run, each with the least number of commands found on it.
const PAGES: [(&str, usize); 15] = [
    ("../README.md", 4),
    ("start.md", 6),
    ("howto/watch-a-node.md", 5),
    ("howto/ask-in-sql.md", 6),
    ("howto/find-anomalies.md", 2),
    ("howto/publish-a-fact.md", 4),
    ("howto/write-an-insight.md", 2),
    ("howto/connect-prometheus.md", 1),
    ("howto/keep-history.md", 2),
    ("howto/measure-a-task.md", 4),
    ("howto/archive-and-size-tasks.md", 6),
    ("howto/declare-tiers.md", 2),
    ("reference/sql.md", 5),
    ("reference/http.md", 7),
    ("howto/predict-a-value.md", 2),
];

/// Prefixes of the commands that are not run, each with the reason.
const NOT_RUN: [(&str, &str); 10] = [
    ("make ", "it installs and builds"),
    ("export ", "it changes the shell of the reader"),
    ("skopos up", "a node with a hub runs already"),
    ("skopos agent", "an agent runs already"),
    ("skopos top", "it needs a terminal"),
    ("skopos run --limit memory=4GiB --report out -- cargo", "it builds"),
    ("skopos run --attach", "there is no process 4711"),
    ("mpirun", "it needs MPI"),
    ("skopos delphi score --trace", "its trace is in the repository"),
    ("skopos get insight/space/nvme", "it needs the configuration of its page"),
];

/// Prefixes of the commands that never exit. The test stops them after some seconds.
const ENDLESS: [&str; 2] = ["curl -sN", "skopos watch"];

/// Statements that may return no rows here: a part of the statement, and the reason.
const MAY_BE_EMPTY: [(&str, &str); 1] =
    [("FROM tasks", "tasks are of the machine's own name, facts of the page's `n01`")];

/// A fenced block: its language and its lines.
struct Block {
    language: String,
    lines: Vec<String>,
}

fn blocks(document: &str) -> Vec<Block> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(document);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (mut blocks, mut open) = (Vec::new(), None::<Block>);
    for line in text.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(language), None) => {
                open = Some(Block { language: language.to_owned(), lines: Vec::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.lines.push(line.to_owned()),
            (None, None) => {}
        }
    }
    blocks
}

/// A command and its documented output.
struct Example {
    command: String,
    printed: String,
}

/// Returns the commands of `$ ` lines, with their continuation lines.
fn examples(document: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    for block in blocks(document).into_iter().filter(|block| block.language == "console") {
        let mut is_open = false;
        for line in block.lines {
            if let Some(command) = line.strip_prefix("$ ") {
                examples.push(Example { command: command.to_owned(), printed: String::new() });
            } else if let Some(last) = examples.last_mut() {
                let text = if is_open { &mut last.command } else { &mut last.printed };
                *text = format!("{text}\n{line}");
            }
            is_open = examples
                .last()
                .is_some_and(|last| last.printed.is_empty() && goes_on(&last.command));
        }
    }
    examples
}

/// Returns whether a shell would wait for another line.
fn goes_on(command: &str) -> bool {
    let mut quote = None;
    for c in command.chars().filter(|c| matches!(c, '\'' | '"')) {
        match quote {
            None => quote = Some(c),
            Some(open) if open == c => quote = None,
            Some(_) => {}
        }
    }
    quote.is_some() || command.ends_with('\\')
}

/// Creates the folder in which the commands run. It has a task to measure, in two forms.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let solver = folder.path().join("solver");
    std::fs::write(&solver, "#!/bin/sh\necho solved\n").expect("writable");
    let is_program = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&solver, is_program).expect("its owner may");
    std::fs::write(folder.path().join("Makefile"), "all:\n\t@echo made\n").expect("writable");
    folder
}

/// Runs a command as a user would in a shell, except for the address of the hub.
fn run(agent: &Running, folder: &Path, command: &str, http: &str) -> Output {
    // `skopos run` never overwrites a report, and several examples write to `out`.
    if command.contains("--report out") {
        let _ = std::fs::remove_dir_all(folder.join("out"));
    }
    let program = Path::new(env!("CARGO_BIN_EXE_skopos")).parent().expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let is_endless = ENDLESS.iter().any(|start| command.starts_with(start));
    let seconds = if is_endless { "4" } else { "60" };
    Command::new("timeout")
        .args([seconds, "bash", "-c", &command.replace(HTTP, http)])
        .env("PATH", format!("{}:{path}", program.display()))
        .env("SKOPOS_DIR", agent.path())
        .env("SKOPOS_STATE", agent.path().join("state"))
        .current_dir(folder)
        .output()
        .expect("timeout(1)")
}

/// Returns the names of a JSON object in their order, and nothing if `text` is not an object.
fn names(text: &str) -> Vec<String> {
    let document: Result<Json, _> = serde_json::from_str(text);
    let object = document.ok().and_then(|document| document.as_object().cloned());
    let mut names: Vec<String> = object.map(|o| o.keys().cloned().collect()).unwrap_or_default();
    names.sort();
    names
}

/// Panics unless the command did what the documentation says.
fn check(example: &Example, ran: &Output) {
    let Example { command, printed } = example;
    let (stdout, stderr) =
        (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    let told = format!("$ {command}\n{stdout}{stderr}");
    let is_endless = ENDLESS.iter().any(|start| command.starts_with(start));
    let code = ran.status.code();
    assert!(code == Some(0) || (is_endless && code == Some(124)), "{code:?}: {told}");
    // `skopos watch` may print nothing on a terminal.
    assert!(!stdout.trim().is_empty() || command.starts_with("skopos watch"), "{told}");
    // The values in the output depend on the machine, but its form does not.
    let printed = printed.trim().replace(",…", "").replace('\n', "");
    if command.starts_with("curl") && !is_endless {
        assert_eq!(printed.contains("\"error\""), stdout.contains("\"error\":"), "{told}");
        if printed.starts_with('{') {
            let (said, is) = (names(&printed), names(&stdout));
            assert!(!said.is_empty() && said == is, "{said:?} {is:?}: {told}");
        }
    }
    if is_endless && command.starts_with("curl") {
        for start in ["event: ", "id: ", "data: {"] {
            assert!(stdout.lines().any(|line| line.starts_with(start)), "{start}: {told}");
        }
    }
}

#[test]
fn commands_of_the_pages_do_what_the_pages_say() {
    let up = Up::start();
    eventually("history is long enough to be grouped", || {
        up.sql("SELECT count(*) > 20 AS enough FROM samples").json()["rows"][0]["enough"] == true
    });
    for (page, least) in PAGES {
        let folder = folder();
        let mut seen = 0;
        for example in examples(page) {
            if NOT_RUN.iter().any(|(start, _)| example.command.starts_with(start)) {
                continue;
            }
            check(&example, &run(&up.agent, folder.path(), &example.command, &up.at));
            seen += 1;
        }
        assert!(seen >= least, "{page}: {seen} commands are found");
    }
}

#[test]
fn statements_of_the_page_on_sql_are_answered() {
    let up = Up::start();
    let pages = ["reference/sql.md", "reference/sql-functions.md"];
    let statements: Vec<_> =
        pages.into_iter().flat_map(blocks).filter(|block| block.language == "sql").collect();
    assert!(statements.len() >= 3, "{}", statements.len());
    for statement in statements {
        let sql = statement.lines.join("\n");
        let may_be_empty = MAY_BE_EMPTY.iter().any(|(part, _)| sql.contains(part));
        eventually("the statement has rows", || {
            let ran = up.agent.run(&["sql", "--json", &sql]);
            assert_eq!(ran.code, 0, "{sql}: {ran:?}");
            ran.json()["rows"].as_array().is_some_and(|rows| may_be_empty || !rows.is_empty())
        });
    }
}

#[test]
fn the_python_of_the_page_on_flight_runs() {
    let Some(python) = python() else {
        println!("skipped: no Python with adbc-driver-flightsql and pyarrow");
        return;
    };
    let at = format!("127.0.0.1:{}", free_port());
    let up = Running::start_as("up", &["--flight", &at]);
    eventually("insights are there", || {
        let ran = up.run(&["sql", "--json", "SELECT count(*) > 0 AS some FROM insights"]);
        ran.code == 0 && ran.json()["rows"][0]["some"] == true
    });
    let pages = ["reference/flight.md", "howto/connect-python-and-jdbc.md"];
    let scripts: Vec<_> =
        pages.into_iter().flat_map(blocks).filter(|block| block.language == "python").collect();
    assert!(!scripts.is_empty());
    for script in scripts {
        let script = script.lines.join("\n").replace(FLIGHT, &at);
        let ran = Command::new(&python).args(["-c", &script]).output().expect("it starts");
        assert!(ran.status.success() && !ran.stdout.is_empty(), "{script}\n{ran:?}");
    }
}

//! The examples of the documentation, run as they stand there.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value as Json;

use crate::client::Up;
use crate::flight::{free_port, python};
use crate::support::{Running, eventually};

/// Where the examples ask a hub.
const HTTP: &str = "127.0.0.1:7470";
const FLIGHT: &str = "127.0.0.1:7471";

/// What goes on until it is ended, and so is ended after some seconds.
const ENDLESS: [&str; 2] = ["curl -sN", "skopos watch"];

/// Statements that may have no rows here, by a part of them, and why.
const MAY_BE_EMPTY: [(&str, &str); 1] =
    [("FROM tasks", "tasks are of the machine's own name, facts of the page's `n01`")];

/// A fenced block: its language, and its lines.
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

/// A command, and what it is said to print.
struct Example {
    command: String,
    printed: String,
}

/// The commands of `$ ` lines, with the lines that they go on in.
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

/// Whether a shell would wait for the rest.
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

/// Runs a command as a user would in a shell, but for where the hub is.
fn run(agent: &Running, command: &str, http: &str) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_skopos")).parent().expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let is_endless = ENDLESS.iter().any(|start| command.starts_with(start));
    let seconds = if is_endless { "4" } else { "60" };
    Command::new("timeout")
        .args([seconds, "bash", "-c", &command.replace(HTTP, http)])
        .env("PATH", format!("{}:{path}", program.display()))
        .env("SKOPOS_DIR", agent.path())
        .output()
        .expect("timeout(1)")
}

/// The names of a JSON object, in their order; nothing of what is none.
fn names(text: &str) -> Vec<String> {
    let document: Result<Json, _> = serde_json::from_str(text);
    let object = document.ok().and_then(|document| document.as_object().cloned());
    let mut names: Vec<String> = object.map(|o| o.keys().cloned().collect()).unwrap_or_default();
    names.sort();
    names
}

/// Panics unless the command did what it is said to do.
fn check(example: &Example, ran: &Output) {
    let Example { command, printed } = example;
    let (stdout, stderr) =
        (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    let told = format!("$ {command}\n{stdout}{stderr}");
    let is_endless = ENDLESS.iter().any(|start| command.starts_with(start));
    let code = ran.status.code();
    assert!(code == Some(0) || (is_endless && code == Some(124)), "{code:?}: {told}");
    // What is watched on a terminal may have nothing to tell.
    assert!(!stdout.trim().is_empty() || command.starts_with("skopos watch"), "{told}");
    // What is printed depends on the machine, how it looks does not.
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
fn commands_of_the_pages_on_sql_and_http_do_what_they_say() {
    let up = Up::start();
    eventually("history is long enough to be grouped", || {
        up.sql("SELECT count(*) > 20 AS enough FROM samples").json()["rows"][0]["enough"] == true
    });
    let mut seen = [0, 0];
    for (document, seen) in ["reference/sql.md", "reference/http.md"].into_iter().zip(&mut seen) {
        for example in examples(document) {
            check(&example, &run(&up.agent, &example.command, &up.at));
            *seen += 1;
        }
    }
    assert!(seen[0] >= 5 && seen[1] >= 7, "{seen:?} are found");
}

#[test]
fn statements_of_the_page_on_sql_are_answered() {
    let up = Up::start();
    let statements: Vec<_> =
        blocks("reference/sql.md").into_iter().filter(|block| block.language == "sql").collect();
    assert!(statements.len() >= 2, "{}", statements.len());
    for statement in statements {
        let sql = statement.lines.join("\n");
        let may_be_empty = MAY_BE_EMPTY.iter().any(|(part, _)| sql.contains(part));
        eventually("it has rows", || {
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
    let scripts: Vec<_> = blocks("reference/flight.md")
        .into_iter()
        .filter(|block| block.language == "python")
        .collect();
    assert!(!scripts.is_empty());
    for script in scripts {
        let script = script.lines.join("\n").replace(FLIGHT, &at);
        let ran = Command::new(&python).args(["-c", &script]).output().expect("it starts");
        assert!(ran.status.success() && !ran.stdout.is_empty(), "{script}\n{ran:?}");
    }
}

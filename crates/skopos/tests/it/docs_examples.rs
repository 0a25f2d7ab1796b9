//! Runs the examples of the documentation as they are written.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::client::Up;
use crate::flight::python;
use crate::support::{Running, eventually, free_port};

/// The addresses of the hub in the examples.
const HTTP: &str = "127.0.0.1:7470";
const FLIGHT: &str = "127.0.0.1:7471";

/// Prefixes of the commands that are not run, each with the reason. The options of those that are verbs of
/// `skopos` are checked all the same.
const NOT_RUN: [(&str, &str); 28] = [
    ("skopos lab", "it makes a network as root; `lab` tests it"),
    ("make ", "it installs and builds"),
    ("pip ", "it downloads"),
    ("mvn ", "it downloads and builds"),
    ("java ", "it is built from the repository"),
    ("cp clients/java", "it needs a Cassandra"),
    ("duckdb ", "it needs the program of DuckDB"),
    ("skopos-bench", "it is another program"),
    ("cargo ", "it builds"),
    ("skopos-dataservice", "it is another program"),
    ("target/release/", "it is built from the repository"),
    ("echo go", "it pipes into another program"),
    ("skopos trace", "it needs a service that records its calls; `trace` tests it"),
    ("python3 tests/abuse", "it is a program of the repository"),
    ("export ", "it changes the shell of the reader"),
    ("skopos up", "a node with a hub runs already"),
    ("skopos agent", "an agent runs already"),
    ("skopos top", "it needs a terminal"),
    ("skopos calibrate", "it loads a device"),
    ("skopos record load/load_1m --for 30m", "it takes half an hour"),
    ("skopos run --limit memory=4GiB --report out -- cargo", "it builds"),
    ("skopos run --attach", "there is no process 4711"),
    ("mpirun", "it needs MPI"),
    ("skopos delphi score --trace", "its trace is in the repository"),
    ("skopos rank", "it needs the configuration of its page; `rank` tests it"),
    ("skopos get insight/space/nvme", "it needs the configuration of its page"),
    ("skopos get 'peer/**'", "it needs the configuration of its page"),
    ("skopos watch 'peer/*/alive'", "it needs the configuration of its page"),
];

/// Prefixes of the commands that never exit. The test stops them after some seconds.
const ENDLESS: [&str; 2] = ["curl -sN", "skopos watch"];

/// Statements that may return no rows here: a part of the statement, and the reason.
const MAY_BE_EMPTY: [(&str, &str); 3] = [
    ("FROM task_files", "as of `tasks`"),
    ("FROM tasks", "tasks are of the machine's own name, facts of the page's `n01`"),
    ("FROM jobs", "the machine has no jobs"),
];

/// A fenced block: its language and its lines.
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) lines: Vec<String>,
}

pub(crate) fn blocks(document: &str) -> Vec<Block> {
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

/// Returns README and every page of the documentation, as paths below its folder.
fn pages() -> Vec<String> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let (mut pages, mut folders) = (vec!["../README.md".to_owned()], vec![docs.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let page = path.strip_prefix(&docs).expect("below it").to_str().expect("UTF-8");
                pages.push(page.to_owned());
            }
        }
    }
    pages.sort();
    pages
}

/// A command and its documented output.
struct Example {
    /// The machine in the prompt; empty for the reader's own.
    machine: String,
    command: String,
    printed: String,
}

/// Splits a line into the machine of its prompt and the command: `$ ls`, `node1$ ls`.
fn prompted(line: &str) -> Option<(&str, &str)> {
    let (machine, command) = line.split_once("$ ")?;
    machine.chars().all(char::is_alphanumeric).then_some((machine, command.trim_start()))
}

/// Returns the commands of a page, with their continuation lines.
fn examples(document: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    for block in blocks(document).into_iter().filter(|block| block.language == "console") {
        let (before, mut is_open) = (examples.len(), false);
        for line in block.lines {
            let begins = if is_open { None } else { prompted(&line) };
            if let Some((machine, command)) = begins {
                let (machine, command) = (machine.to_owned(), command.to_owned());
                examples.push(Example { machine, command, printed: String::new() });
            } else if let Some(last) = examples.last_mut() {
                let text = if is_open { &mut last.command } else { &mut last.printed };
                *text = format!("{text}\n{line}");
            }
            is_open = examples
                .last()
                .is_some_and(|last| last.printed.is_empty() && goes_on(&last.command));
        }
        assert!(examples.len() > before, "{document}: a console without a command");
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
    let Example { command, printed, .. } = example;
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

/// Checks the options of a verb without running it: `--help` answers only if those before it are known.
fn check_options(agent: &Running, folder: &Path, command: &str) {
    // The words after `--` are the command line of a task.
    if command.starts_with("skopos ") && !command.contains(" -- ") {
        let command = command.split(" #").next().unwrap_or_default();
        assert!(
            !command.contains(['|', '&', ';', '>']),
            "`--help` is not its last option: {command}"
        );
        // The interface of the page need not exist here.
        let command = command.replace("--look-on eth0", "--look-on lo");
        let ran = run(agent, folder, &format!("{command} --help"), HTTP);
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && !ran.stdout.is_empty(), "{command}: {stderr}");
    }
}

#[test]
fn commands_of_the_pages_do_what_the_pages_say() {
    let up = Up::start();
    eventually("history is long enough to be grouped", || {
        up.sql("SELECT count(*) > 20 AS enough FROM samples").json()["rows"][0]["enough"] == true
    });
    let mut unused: Vec<&str> = NOT_RUN.iter().map(|(start, _)| *start).collect();
    for page in pages() {
        let folder = folder();
        for example in examples(&page) {
            let excused = NOT_RUN.iter().find(|(start, _)| example.command.starts_with(start));
            if let Some((start, _)) = excused {
                unused.retain(|other| other != start);
            }
            if excused.is_some() || !example.machine.is_empty() {
                check_options(&up.agent, folder.path(), &example.command);
            } else {
                check(&example, &run(&up.agent, folder.path(), &example.command, &up.at));
            }
        }
    }
    assert!(unused.is_empty(), "no page has these commands any more: {unused:?}");
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
    let pages =
        ["reference/flight.md", "howto/connect-python-and-jdbc.md", "howto/connect-duckdb.md"];
    let scripts: Vec<_> =
        pages.into_iter().flat_map(blocks).filter(|block| block.language == "python").collect();
    assert!(!scripts.is_empty());
    for script in scripts {
        let script = script.lines.join("\n").replace(FLIGHT, &at);
        let ran = Command::new(&python).args(["-c", &script]).output().expect("it starts");
        assert!(ran.status.success() && !ran.stdout.is_empty(), "{script}\n{ran:?}");
    }
}

#[test]
fn the_python_of_the_page_on_reports_reads_a_report() {
    let Some(python) = python() else {
        println!("skipped: no Python with pyarrow");
        return;
    };
    let folder = folder();
    let at = folder.path().to_str().expect("UTF-8");
    let report = format!("{at}/report");
    let task = ["run", "--report", &report, "--", "sleep", "0.2"];
    let ran = crate::support::run(folder.path(), &task);
    assert_eq!(ran.code, 0, "{ran:?}");
    let scripts: Vec<_> = blocks("reference/report-files.md")
        .into_iter()
        .filter(|block| block.language == "python")
        .collect();
    assert_eq!(scripts.len(), 3);
    for script in scripts {
        let script = script.lines.join("\n").replace("DIR/", &format!("{report}/"));
        let ran = Command::new(&python).args(["-c", &script]).output().expect("it starts");
        assert!(ran.status.success(), "{script}\n{ran:?}");
    }
}

/// The program of the page, which `skopos-shm` runs as its example.
#[rustfmt::skip]
#[expect(unused_variables, reason = "the page leaves something to its reader")]
fn program_of_the_page() -> Result<(), Box<dyn std::error::Error>> {
    // The page begins.
    use std::time::Duration;
    use skopos_shm::{Delivery, Host, Publisher, Reader, now};

    // All segments of this machine that this user may read.
    let host = Host::open()?;
    let available: Reader<u64> = host.reader("mem/available_bytes")?;   // of this node, or "n01/mem/available_bytes"
    println!("{} bytes", available.get()?);                            // nanoseconds, no system call
    println!("{} bytes", available.fresh(Duration::from_secs(60))?);   // an error if it is older

    // The time and the age of the value.
    let free = available.vertex();
    let reading = free.latest()?;
    println!("{} bytes, {:?} old", reading.sample.value, reading.age());

    // Follow it: the publish itself wakes the subscriber, and a gap is reported with its length.
    let mut subscription = free.subscribe();
    while let Some(delivery) = subscription.next_timeout(Duration::from_secs(5))? {
        match delivery {
            Delivery::Sample(sample) => println!("{}", sample.value),
            Delivery::Lost(missed) => println!("{missed} missed"),
        }
    }

    // The samples of the last minute, as far as memory reaches back.
    let minute = free.range(now().saturating_sub(Duration::from_secs(60))..=now())?;

    // Publish facts of your own. A dropped writer unregisters its vertex.
    let publisher = Publisher::builder("my-service").create()?;
    let mut depth = publisher.writer::<u64>("n01/my-service/depth")?;
    depth.publish(17)?;
    // The page ends.
    Ok(())
}

#[test]
fn the_rust_of_the_page_on_programs_compiles() {
    let _compiled = program_of_the_page;
    let own = include_str!("docs_examples.rs");
    let (_, own) = own.split_once("// The page begins.\n").expect("a mark");
    let (own, _) = own.split_once("// The page ends.\n").expect("a mark");
    let page = blocks("howto/read-from-a-program.md");
    let rust = page.iter().find(|block| block.language == "rust").expect("a program");
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(own), words(&rust.lines.join("\n")));
}

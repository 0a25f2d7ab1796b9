//! Programs in C and Python that report the outcomes of their choices: to an agent, and to one that is dead or hangs.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::docs_examples::blocks;
use crate::rank::{CONFIG, configured, ranking};
use crate::support::{Running, eventually, runtime_dir};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(name)
}

fn is_there(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        println!("skipped: there is no `{program}`");
    }
    is_there
}

/// Returns a compiler with the header in its path and every warning an error.
fn compiler(name: &str) -> Command {
    let mut compiler = Command::new(name);
    compiler.args(["-D_GNU_SOURCE", "-pedantic", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    compiler.arg("-I").arg(repository().join("clients/c"));
    compiler
}

fn succeeds(mut command: Command) -> String {
    let ran = command.output().expect("it starts");
    assert!(ran.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("UTF-8")
}

/// A program that reports: `outcomes.c`, with a limit to the age of outcomes in nanoseconds, or `outcomes.py`.
struct Program {
    /// The compiled program. It is not in shared memory, which is often mounted without permission to execute.
    built: Option<TempDir>,
}

impl Program {
    fn c(stale_ns: u64) -> Option<Self> {
        is_there("cc").then(|| {
            let built = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("cargo made it");
            let mut cc = compiler("cc");
            cc.arg("-std=c11").arg(format!("-DSKOPOS_REPORT_STALE_NS=UINT64_C({stale_ns})"));
            cc.arg(source("outcomes.c")).arg("-o").arg(built.path().join("outcomes"));
            succeeds(cc);
            Self { built: Some(built) }
        })
    }

    fn python() -> Option<Self> {
        is_there("python3").then_some(Self { built: None })
    }

    /// Returns the command that reports to the agent in `dir`.
    fn command(&self, mode: &str, dir: &Path) -> Command {
        let mut command = match &self.built {
            Some(built) => Command::new(built.path().join("outcomes")),
            None => python(&[source("outcomes.py")]),
        };
        command.arg(mode).arg(dir.join("agent.sock"));
        command
    }
}

fn python(args: &[impl AsRef<std::ffi::OsStr>]) -> Command {
    let mut python = Command::new("python3");
    python.args(args).env("PYTHONPATH", repository().join("clients/python"));
    python.env("PYTHONDONTWRITEBYTECODE", "1");
    python
}

/// A limit to the age of outcomes that no test reaches, however busy the machine is.
const NEVER_STALE_NS: u64 = 600_000_000_000;

/// Starts an agent that ranks by [`CONFIG`].
fn ranking_agent() -> Running {
    let dir = runtime_dir();
    let config = configured(dir.path(), CONFIG);
    let agent = Running::start_in(dir, "agent", &["--config", &config]);
    eventually("the agent ranks", || agent.run(&["rank"]).code == 0);
    agent
}

/// Has a program report from threads and from children, and compares its counts with those of the agent.
fn reports_to_an_agent(program: &Program) {
    let agent = ranking_agent();
    let printed = succeeds(program.command("agent", agent.path()));
    let taken: u64 = printed.trim().parse().expect("a number");
    let shown = ranking(&agent);
    assert_eq!(shown["outcomes_total"], taken, "{shown}");
    // The other eight that a program counts did not leave it.
    assert_eq!(shown["outcomes_refused_total"], 1, "{shown}");
}

#[test]
fn a_program_in_c_reports_from_threads_and_from_children() {
    if let Some(program) = Program::c(NEVER_STALE_NS) {
        reports_to_an_agent(&program);
    }
}

#[test]
fn a_program_in_python_reports_from_threads_and_from_children() {
    if let Some(program) = Program::python() {
        reports_to_an_agent(&program);
    }
}

/// A running program, which is ended with the test.
struct Reporting {
    child: Child,
    printed: Lines<BufReader<ChildStdout>>,
}

impl Reporting {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let printed = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, printed }
    }

    fn next_line(&mut self) -> String {
        self.printed.next().expect("the program prints a line").expect("UTF-8")
    }
}

impl Drop for Reporting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends an answer in one piece, as an agent does: a program takes what comes first as the whole answer.
fn answer(mut stream: UnixStream, answer: &Json) {
    stream.write_all(format!("{answer}\n").as_bytes()).expect("sent");
}

/// Accepts a connection and returns it with the line that came.
fn accepted(listener: &UnixListener) -> (UnixStream, Json) {
    let (stream, _) = listener.accept().expect("a connection");
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).expect("a line");
    (stream, serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}")))
}

/// Has a program report while the agent hangs. The lines that it prints are the outcomes that wait, that were taken, refused
/// and dropped, and the last error.
fn waits_for_no_agent(program: &Program) {
    let dir = runtime_dir();
    assert_eq!(succeeds(program.command("once", dir.path())), "0 0 0 1 2\n", "no socket");
    let socket = dir.path().join("agent.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let mut reporting = Reporting::start(program.command("hung", dir.path()));
    assert_eq!(reporting.next_line(), "257 0 0 43 11");

    let (stream, line) = accepted(&listener);
    let outcome =
        json!({ "candidate": "n02", "seconds": 0.0012, "failed": true, "probability": 0.25 });
    assert_eq!(line, json!({ "verb": "outcomes", "profile": "reads", "outcomes": [outcome] }));
    answer(stream, &json!({ "outcomes": { "taken": 1, "refused": 0, "first_refusal": null } }));
    let (stream, line) = accepted(&listener);
    assert_eq!(line["outcomes"].as_array().map(Vec::len), Some(256));
    assert_eq!(line["outcomes"][0], json!({ "candidate": "n03", "seconds": 3e-9 }));
    let error = "this agent ranks no profile `\"taken\":7`";
    answer(stream, &json!({ "refused": { "error": error, "hint": null } }));
    assert_eq!(reporting.next_line(), "0 1 256 43 11");

    // An agent that dies before it answers.
    drop(accepted(&listener));
    assert_eq!(reporting.next_line(), "0 1 256 44 104");
    assert!(reporting.child.wait().expect("our own child").success());
    drop(listener);
    assert_eq!(succeeds(program.command("once", dir.path())), "0 0 0 1 111\n", "nothing listens");
}

#[test]
fn a_program_in_c_waits_for_no_agent_and_counts_what_it_drops() {
    if let Some(program) = Program::c(NEVER_STALE_NS) {
        waits_for_no_agent(&program);
    }
}

#[test]
fn a_program_in_python_waits_for_no_agent_and_counts_what_it_drops() {
    if let Some(program) = Program::python() {
        waits_for_no_agent(&program);
    }
}

#[test]
fn outcomes_that_are_too_old_make_room_for_the_next_one() {
    for program in [Program::c(0), Program::python()].iter().flatten() {
        let dir = runtime_dir();
        let _hangs = UnixListener::bind(dir.path().join("agent.sock")).expect("a socket");
        assert_eq!(succeeds(program.command("stale", dir.path())), "2 0 0 1 110\n");
    }
}

/// Returns the blocks of the page on ranks in a language.
fn examples(language: &str) -> Vec<String> {
    let page = blocks("howto/rank-replicas.md").into_iter();
    let page = page.filter(|block| block.language == language);
    page.map(|block| block.lines.join("\n")).collect()
}

#[test]
fn the_programs_of_the_page_report() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = dir.path().join("page.c");
    let body = examples("c").into_iter().map(|block| format!("{{\n{block}\n}}\n"));
    let body = body.collect::<String>();
    assert!(body.contains("skopos_report("), "{body}");
    let includes = ["<stdio.h>", "\"skopos_shm.h\"", "\"skopos_report.h\""]
        .map(|header| format!("#include {header}\n"))
        .concat();
    let text = format!("{includes}int main(void)\n{{\n{body}return 0;\n}}\n");
    std::fs::write(&program, text).expect("written");
    for (name, language) in [("cc", ["-std=c11", "-xc"]), ("c++", ["-std=c++17", "-xc++"])] {
        if is_there(name) {
            let mut compiler = compiler(name);
            compiler.args(language).arg("-fsyntax-only").arg(&program);
            succeeds(compiler);
        }
    }
    if is_there("python3") {
        let agent = ranking_agent();
        let examples = examples("python");
        let example = examples.iter().find(|text| text.contains("Reporter(")).expect("a program");
        let socket = agent.path().join("agent.sock");
        let socket = socket.to_str().expect("UTF-8");
        let example = example.replace("/dev/shm/skopos-1000/agent.sock", socket);
        assert!(example.contains("flush(1.0)"), "{example}");
        // The agent of a busy machine is slow.
        let example = example.replace("flush(1.0)", "flush(180.0)");
        let patient = "import skopos_shm.report\nskopos_shm.report._STALE_SECONDS = 600.0\n";
        let printed = succeeds(python(&["-c", &format!("{patient}{example}")]));
        assert!(printed.starts_with("Counts(waiting=0, taken=2, refused=0"), "{printed}");
    }
}

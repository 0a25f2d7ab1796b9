//! The readers for C and Python that programs include agree with Rust.

use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use skopos_model::{Origin, Sample, Value, ValueType};
use skopos_shm::Publisher;
use tempfile::TempDir;

use crate::support::{at, publisher, runtime_dir, skipped, spec};

const TOPICS: [&str; 6] = [
    "n01/rank/reads@n02/weight",
    "n01/rank/reads@n02/place",
    "n01/rank/reads@n02/unknown",
    "n01/rank/reads@n02/empty",
    "n01/rank/reads@n02/text",
    "n01/rank/reads@n02/none",
];

/// The line of a reader for each of the topics.
const EXPECTED: [&str; 6] = ["0.25 1", "3 1", "code 4", "code 4", "code 3", "code 3"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Publishes numbers, an unknown one, one without a sample, and a text.
fn published() -> (TempDir, Publisher, Vec<skopos_shm::VertexWriter>) {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "agent");
    let types =
        [ValueType::F64, ValueType::U64, ValueType::F64, ValueType::F64, ValueType::Structured];
    let register = |(topic, value_type)| publisher.register(spec(topic, value_type)).expect("room");
    let writers: Vec<_> = TOPICS.into_iter().zip(types).map(register).collect();
    for round in 0..300 {
        writers[0].publish(f64::from(round)).expect("published");
    }
    writers[0].publish(0.25).expect("published");
    writers[1].publish(3_u64).expect("published");
    let unknown = Sample { time: at(1), value: Value::F64(0.0), origin: Origin::Unknown };
    writers[2].publish_sample(&unknown).expect("published");
    (dir, publisher, writers)
}

fn lines(command: &mut Command) -> Vec<String> {
    let ran = command.output().expect("it starts");
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{stderr}");
    String::from_utf8(ran.stdout).expect("UTF-8").lines().map(str::to_owned).collect()
}

/// Builds the program that reads topics with the header for C, in a folder of its own; `None` if there is no compiler.
fn program_in_c() -> Option<(TempDir, PathBuf)> {
    let built = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("cargo made it");
    let binary = built.path().join("rank");
    let source = repository().join("crates/shm/tests/foreign/rank.c");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I"]);
    cc.arg(repository().join("clients/c")).arg("-o").arg(&binary).arg(source);
    match cc.output() {
        Err(e) => {
            skipped("clients (C)", &format!("cc: {e}"));
            return None;
        }
        Ok(ran) => assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr)),
    }
    Some((built, binary))
}

#[test]
fn the_header_for_c_reads_what_was_published() {
    let Some((_built, binary)) = program_in_c() else { return };
    let (_dir, publisher, writers) = published();
    let read = || lines(Command::new(&binary).arg(publisher.path()).args(TOPICS));
    assert_eq!(read(), EXPECTED);
    publisher.unregister(&writers[0]);
    assert_eq!(read()[0], "code 3");
    let refused = Command::new(&binary).arg(&binary).output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&refused.stdout), "open 2\n");
}

#[test]
fn the_header_for_c_reads_the_directory_that_it_has_checked() {
    /// The place of the offset of the directory in the header.
    const DIRECTORY: u64 = 40;
    let Some((built, binary)) = program_in_c() else { return };
    let (_dir, publisher, _writers) = published();
    // A publisher may write anything into its file at any time; this copy has none.
    let copy = built.path().join("copy.seg");
    fs::copy(publisher.path(), &copy).expect("copied");
    let file = OpenOptions::new().read(true).write(true).open(&copy).expect("our own file");
    let mut program = Command::new(&binary);
    program.arg(&copy).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = program.spawn().expect("it starts");
    let output = child.stdout.take().expect("piped");
    let mut lines = BufReader::new(output).lines().map(|line| line.expect("UTF-8"));
    assert_eq!(lines.next().as_deref(), Some("open 0"));

    let mut offset = [0; 8];
    file.read_exact_at(&mut offset, DIRECTORY).expect("a header");
    file.write_all_at(&(1_u64 << 40).to_le_bytes(), DIRECTORY).expect("written");
    let mut input = child.stdin.take().expect("piped");
    writeln!(input, "{}", TOPICS[0]).expect("it reads");
    drop(input);
    assert_eq!(lines.next().as_deref(), Some(EXPECTED[0]));
    assert!(child.wait().expect("our own child").success());

    // Within the file, and not aligned.
    let odd = u64::from_le_bytes(offset) + 4;
    file.write_all_at(&odd.to_le_bytes(), DIRECTORY).expect("written");
    let refused = Command::new(&binary).arg(&copy).output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&refused.stdout), "open 2\n");
}

/// Reads the topics in the same form as the program in C.
const PYTHON: &str = r#"
import sys
from skopos_shm import Gone, NoValue, Segment

segment = Segment(sys.argv[1])
for topic in sys.argv[2:]:
    try:
        vertex = segment.find(topic)
    except NoValue:
        print("code 3")
        continue
    try:
        value, age = vertex.read()
        print(f"{value:.17g}", int(0 <= age < segment.silence() + 1000))
    except NoValue:
        print("code 4")
"#;

#[test]
fn the_module_for_python_reads_what_was_published() {
    if let Err(e) = Command::new("python3").arg("--version").output() {
        return skipped("clients (Python)", &format!("python3: {e}"));
    }
    let (_dir, publisher, _writers) = published();
    let mut python = Command::new("python3");
    python.args(["-c", PYTHON]).arg(publisher.path()).args(TOPICS);
    python.env("PYTHONPATH", repository().join("clients/python"));
    python.env("PYTHONDONTWRITEBYTECODE", "1");
    assert_eq!(lines(&mut python), EXPECTED);
}

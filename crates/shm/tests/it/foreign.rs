//! A C program and a Python script, written only from the layout document, agree with Rust.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value as Json, json};
use skopos_model::{Kind, Origin, Sample, Unit, Value, ValueType};
use skopos_shm::{Publisher, Segment, Vertex, VertexWriter};
use tempfile::TempDir;

use crate::support::{
    Kill, at, eventually, publisher, runtime_dir, skipped, spec, structured_sample, topic,
};

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign").join(name)
}

/// Compiles the C reader; `None` if this machine has no C compiler. The program is not put beside the
/// segments: shared memory is often mounted without permission to execute.
fn c_reader() -> Option<(TempDir, PathBuf)> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("cargo made it");
    let binary = dir.path().join("reader");
    let flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"];
    let compiled = Command::new("cc").args(flags).arg(&binary).arg(source("reader.c")).output();
    match compiled {
        Err(e) => {
            skipped("foreign (C)", &format!("cc: {e}"));
            None
        }
        Ok(Output { status, stderr, .. }) => {
            assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
            Some((dir, binary))
        }
    }
}

/// A publisher that lives while its segment is read.
struct Subject {
    dir: TempDir,
    publisher: Publisher,
    writers: Vec<VertexWriter>,
}

/// Makes a segment that uses every feature of the layout.
fn subject() -> Subject {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "subject");
    publisher.count_clock_step();
    let mut writers = Vec::new();
    let mut vertex = |text: &str, value_type, kind, unit: &str, slots, samples: Vec<Sample>| {
        let spec = spec(text, value_type).kind(kind).unit(Unit::new(unit).expect("a unit"));
        let writer = publisher.register(spec.slots(slots)).expect("room");
        for sample in &samples {
            writer.publish_sample(sample).expect("registered");
        }
        writers.push(writer);
    };
    let number = |nanos, value: Value| Sample::measured(at(nanos), value);
    let guess = |nanos, value: Value, bound| Sample {
        time: at(nanos),
        value,
        origin: Origin::Predicted { bound },
    };
    let (f64s, i64s, u64s) = (ValueType::F64, ValueType::I64, ValueType::U64);
    let many = (0..1000).map(|n| number(n, Value::U64(u64::MAX - n as u64))).collect();
    vertex("n01/cpu/total_seconds", u64s, Kind::Counter, "seconds", 16, many);
    let odd = vec![number(-5, Value::F64(f64::NAN)), number(1 << 60, Value::F64(-0.0))];
    vertex("n01/mem/used_ratio", f64s, Kind::Gauge, "ratio", 128, odd);
    vertex("n01/temp/delta", i64s, Kind::Gauge, "", 1, vec![number(7, Value::I64(i64::MIN))]);
    let predicted = vec![number(9, Value::F64(1.5)), guess(10, Value::F64(2.5), 0.1)];
    vertex("n01/load/next", f64s, Kind::Gauge, "x/y%", 4, predicted);
    vertex("n01/empty", f64s, Kind::State, "sixteen_bytes_16", 2, Vec::new());
    let texts =
        (0..40).map(|n| structured_sample(n, &format!(r#"["{}",{n}]"#, "é\\u0007".repeat(99))));
    vertex("n01/nodes", ValueType::Structured, Kind::State, "", 8, texts.collect());
    let repeated = vec![number(20, Value::U64(3)), number(30, Value::U64(3))];
    vertex("n01/unchanged", u64s, Kind::Gauge, "", 4, repeated);
    vertex(&"a".repeat(255), u64s, Kind::Gauge, "", 4, vec![number(1, Value::U64(0))]);
    let unknown = |value_type| vec![Sample::unknown(at(11), value_type, "no \"input\"")];
    vertex("n01/insight/number", f64s, Kind::Gauge, "", 4, unknown(f64s));
    let structured = ValueType::Structured;
    vertex("n01/insight/list", structured, Kind::State, "", 4, unknown(structured));
    let gone = publisher.register(spec("n01/gone", u64s)).expect("room");
    publisher.unregister(&gone);
    let mut group = publisher.group("a-group").expect("room");
    let member = group.register(spec("n01/member", u64s).slots(2)).expect("room");
    let mut tick = group.tick(at(44));
    tick.publish(&member, 5u64).expect("registered");
    tick.commit();
    writers.push(member);
    Subject { dir, publisher, writers }
}

/// Describes the segment by the Rust API, in the format of the foreign programs.
fn described_by_rust(segment: &Segment) -> Vec<Json> {
    let mut lines = vec![json!({
        "segment": segment.name(), "node": segment.node(), "pid": segment.pid(),
        "created_at": segment.created_at().as_nanos(), "alive": segment.is_alive(),
        "directory_version": segment.directory_version(), "clock_steps": segment.clock_steps(),
    })];
    lines.extend(segment.vertices().iter().map(vertex_line));
    lines
}

fn vertex_line(vertex: &Vertex) -> Json {
    let info = vertex.info();
    let latest = vertex.latest().ok().map(|reading| {
        let Sample { time, value, origin } = reading.sample;
        let mut line = json!({
            "count": vertex.count(), "time": time.as_nanos(),
            "checked_at": reading.checked_at.as_nanos(), "origin": "measured",
        });
        match value {
            Value::Structured(text) => line["text"] = text.as_json().clone(),
            Value::F64(v) => line["bits"] = v.to_bits().into(),
            Value::I64(v) => line["bits"] = v.cast_unsigned().into(),
            Value::U64(v) => line["bits"] = v.into(),
        }
        match origin {
            Origin::Measured => {}
            Origin::Predicted { bound } => {
                line["origin"] = "predicted".into();
                line["bound"] = bound.into();
            }
            Origin::Unknown => line["origin"] = "unknown".into(),
        }
        line
    });
    json!({
        "topic": info.topic.as_str(), "type": info.value_type.name(), "kind": info.kind.name(),
        "unit": info.unit.as_str(), "group": info.group, "slots": info.slots, "latest": latest,
    })
}

/// Runs a foreign reader and compares its output line by line.
fn agrees(mut reader: Command, segment: &Segment) {
    let Output { status, stdout, stderr } = reader.output().expect("it was found before");
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let text = String::from_utf8(stdout).expect("JSON is UTF-8");
    let parse = |line: &str| serde_json::from_str::<Json>(line);
    let output: Vec<Json> =
        text.lines().map(|l| parse(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect();
    let expected = described_by_rust(segment);
    assert_eq!(output.len(), expected.len(), "{text}");
    for (output, expected) in output.iter().zip(&expected) {
        let same = without_bound(output) == without_bound(expected);
        assert!(
            same && bound(output) == bound(expected),
            "\nforeign: {output}\n   Rust: {expected}"
        );
    }
}

/// Returns the bound, an `f32` that each language prints in its own way.
fn bound(line: &Json) -> Option<f32> {
    line["latest"]["bound"].as_f64().map(|bound| bound as f32)
}

fn without_bound(line: &Json) -> Json {
    let mut line = line.clone();
    if let Some(latest) = line.get_mut("latest").and_then(Json::as_object_mut) {
        latest.remove("bound");
    }
    line
}

#[test]
fn a_c_program_reads_a_segment_as_documented() {
    let subject = subject();
    let Some((_built, reader)) = c_reader() else { return };
    let segment = Segment::open(subject.publisher.path()).expect("sound");
    assert_eq!(segment.vertices().len(), 11);
    let list = |path: &Path| {
        let mut command = Command::new(&reader);
        command.arg("list").arg(path);
        command
    };
    agrees(list(segment.path()), &segment);
    let kept = subject.dir.path().join("kept.seg");
    std::fs::copy(segment.path(), &kept).expect("our own directory");
    agrees(list(&kept), &Segment::open(&kept).expect("a valid segment without a publisher"));
}

#[test]
fn a_python_script_reads_a_segment_as_documented() {
    if let Err(e) = Command::new("python3").arg("--version").output() {
        return skipped("foreign (Python)", &format!("python3: {e}"));
    }
    let subject = subject();
    let segment = Segment::open(subject.publisher.path()).expect("sound");
    let list = |path: &Path| {
        let mut command = Command::new("python3");
        command.arg(source("reader.py")).arg(path);
        command
    };
    agrees(list(segment.path()), &segment);
    let kept = subject.dir.path().join("kept.seg");
    std::fs::copy(segment.path(), &kept).expect("our own directory");
    agrees(list(&kept), &Segment::open(&kept).expect("a valid segment without a publisher"));
}

/// The number of the system call `futex(2)`.
const FUTEX: &str = if cfg!(target_arch = "aarch64") { "98" } else { "202" };

/// Starts the C reader and returns once it sleeps in the kernel.
fn waiting(reader: &Path, subject: &Subject, index: u64) -> Kill {
    let writer = &subject.writers[index as usize];
    let mut command = Command::new(reader);
    command.arg("wait").arg(subject.publisher.path()).arg(writer.topic().as_str()).arg("60000");
    let child = command.stdout(Stdio::piped()).spawn().expect("it was compiled before");
    let child = Kill(child);
    // The line starts with the number of the current system call.
    let path = format!("/proc/{}/syscall", child.0.id());
    eventually("the C program in futex(2)", || {
        let line = std::fs::read_to_string(&path).ok()?;
        (line.split_whitespace().next() == Some(FUTEX)).then_some(())
    });
    child
}

#[test]
fn a_c_program_is_woken_by_a_publish() {
    let subject = subject();
    let Some((_built, reader)) = c_reader() else { return };
    let mut child = waiting(&reader, &subject, 6);
    let writer = &subject.writers[6];
    assert_eq!(writer.topic(), &topic("n01/unchanged"));
    // The source is polled but unchanged: the program goes on sleeping.
    writer.publish_at(at(40), 3u64).expect("registered");
    writer.publish_at(at(50), 4u64).expect("registered");
    let mut output = String::new();
    child.0.stdout.as_mut().expect("piped").read_to_string(&mut output).expect("UTF-8");
    let output: Json = serde_json::from_str(&output).unwrap_or_else(|e| panic!("{e}: {output}"));
    assert_eq!((&output["latest"]["bits"], &output["latest"]["time"]), (&json!(4), &json!(50)));
    assert!(child.0.wait().expect("our own child").success());
}

#[test]
fn a_c_program_learns_that_its_vertex_is_gone() {
    let subject = subject();
    let Some((_built, reader)) = c_reader() else { return };
    let mut child = waiting(&reader, &subject, 6);
    subject.publisher.unregister(&subject.writers[6]);
    let mut output = String::new();
    child.0.stdout.as_mut().expect("piped").read_to_string(&mut output).expect("UTF-8");
    assert_eq!(output, "{\"gone\":true}\n");
}

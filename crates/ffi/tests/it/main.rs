//! Programs in C and C++ against the header, and the traces that they leave.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use skopos_rpc::file::{Definition, End};
use skopos_rpc::{Frame, Frames, Interval, Kind, Record, SpanRecord, Status};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the folder of the libraries: that of this test's binary.
fn libraries() -> PathBuf {
    let binary = std::env::current_exe().expect("this binary has a path");
    binary.parent().expect("a folder").to_path_buf()
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Compiles `service.c` by `compiler` and runs it. Returns the trace; `None` without a compiler.
fn run(compiler: &str, language: &[&str], libraries_of_program: &[&str]) -> Option<Trace> {
    if !is_there(compiler) {
        println!("skipped: there is no `{compiler}`");
        eprintln!("skipped: there is no `{compiler}`");
        return None;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let program = dir.path().join("service");
    let mut compile = Command::new(compiler);
    compile.args(["-Wall", "-Wextra", "-Werror", "-O1"]).args(language);
    compile.arg("-I").arg(root().join("clients/c"));
    compile.arg(root().join("crates/ffi/tests/c/service.c")).args(["-x", "none"]);
    compile.arg("-L").arg(libraries()).args(libraries_of_program).arg("-o").arg(&program);
    let compiled = compile.output().expect("the compiler is there");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let traces = dir.path().join("traces");
    std::fs::create_dir(&traces).expect("a folder");
    let ran = Command::new(&program)
        .env("LD_LIBRARY_PATH", libraries())
        .args([&dir.path().join("run"), &traces])
        .output()
        .expect("compiled");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let left: Vec<_> = std::fs::read_dir(dir.path().join("run")).expect("made").flatten().collect();
    assert!(left.iter().all(|file| file.path().extension().is_none_or(|e| e != "rpc")), "{left:?}");
    let of = |name: &str| {
        let files = std::fs::read_dir(&traces).expect("made").flatten().map(|file| file.path());
        let mut named = files.filter(|path| {
            path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name))
        });
        named.next().map(|path| Trace::read(&path)).expect("a trace")
    };
    let child = of("child-");
    assert_eq!((child.spans.len(), child.end), (1, Some(End::Closed)));
    Some(of("kv-"))
}

/// A trace of one part.
#[derive(Default)]
struct Trace {
    process: skopos_rpc::file::Process,
    spans: Vec<(SpanRecord, Vec<(u16, u64)>)>,
    nodes: Vec<(u32, String)>,
    pvars: Vec<(u16, String)>,
    peers: usize,
    end: Option<End>,
}

impl Trace {
    fn read(path: &Path) -> Self {
        let mut frames = Frames::open(path).expect("a trace");
        let mut trace = Self { process: frames.process().clone(), ..Self::default() };
        while let Some(frame) = frames.next_frame().expect("readable") {
            match frame {
                Frame::Process(process) => trace.process = process,
                Frame::Definition(Definition::Node(node)) => trace.nodes.push((node.id, node.name)),
                Frame::Definition(Definition::Pvar(pvar)) => {
                    trace.pvars.push((pvar.number, pvar.name));
                }
                Frame::Definition(Definition::Peer(_)) => trace.peers += 1,
                Frame::Records(records) => records.iter().flatten().for_each(|r| trace.add(r)),
                Frame::End(end) => trace.end = Some(end),
                _ => {}
            }
        }
        assert_eq!((frames.tear(), frames.damaged()), (None, 0));
        trace
    }

    fn add(&mut self, record: Record) {
        match record {
            Record::Span(span) => self.spans.push((span, Vec::new())),
            Record::Details(values) => {
                let values = values.iter().filter(|v| v.tag() != 0).map(|v| (v.tag(), v.value()));
                self.spans.last_mut().expect("behind a span").1.extend(values);
            }
            Record::Sample(_) => {}
        }
    }

    fn name(&self, span: &SpanRecord) -> &str {
        let node = self.nodes.iter().find(|(id, _)| *id == span.node);
        &node.expect("a definition").1
    }

    fn check(&self) {
        assert_eq!(self.end, Some(End::Closed));
        let process = &self.process;
        assert_eq!((process.name.as_str(), process.node.as_str()), ("kv", "n01"));
        assert_eq!(process.config["databases"], "4");
        assert_eq!(process.config["streams"], "2");
        assert_eq!(process.intervals, [Interval::TargetHandler.name()]);
        assert_eq!(process.unseen[Interval::OriginCompletionCallback.name()], "no hook");
        let seen: Vec<_> =
            self.spans.iter().map(|(s, _)| (s.kind, self.name(s), s.status)).collect();
        let expected = [
            (Kind::Origin, "get", Status::TimedOut),
            (Kind::Local, "sort", Status::Ok),
            (Kind::Target, "put", Status::Ok),
            (Kind::Origin, "put", Status::Ok),
            (Kind::Target, "put", Status::Error),
        ];
        assert_eq!(seen, expected);
        let [get, sort, served, put, stranger] = &self.spans[..] else { unreachable!() };
        assert_eq!(
            (get.0.parent, sort.0.parent, served.0.span),
            (put.0.span, put.0.span, put.0.span)
        );
        assert_ne!(stranger.0.request_low, put.0.request_low);
        assert!(put.0.lamport > 1000 && put.0.peer == 1 && self.peers == 1);
        let tag = |name: &str| {
            let pvar = self.pvars.iter().find(|(_, known)| known == name);
            pvar.expect("a definition").0 + skopos_rpc::record::FIRST_PVAR_TAG
        };
        assert!(served.1.contains(&(tag("rdma_time"), 900)), "{:?}", served.1);
        assert!(put.1.contains(&(tag("pool_depth"), 17)), "{:?}", put.1);
        assert!(put.1.contains(&(Interval::InputSerialization.tag(), 100)));
        for interval in [
            Interval::TargetHandler,
            Interval::TargetExecutionExclusive,
            Interval::TargetCompletionCallback,
            Interval::InputDeserialization,
            Interval::Children,
        ] {
            assert!(served.1.iter().any(|(tag, _)| *tag == interval.tag()), "{interval:?}");
        }
    }
}

#[test]
fn a_program_in_c_records_by_the_shared_library() {
    if let Some(trace) = run("cc", &["-std=c11", "-pedantic", "-x", "c"], &["-lskopos_ffi"]) {
        trace.check();
    }
}

#[test]
fn a_program_in_cpp_records_by_the_static_library() {
    let library = libraries().join("libskopos_ffi.a");
    let library = library.to_str().expect("UTF-8");
    let libraries = [library, "-lpthread", "-ldl", "-lm"];
    if let Some(trace) = run("c++", &["-std=c++17", "-x", "c++"], &libraries) {
        trace.check();
    }
}

/// Returns the names of functions that follow one of the `openings` in `text`.
fn names(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let found = text.match_indices("skopos_rpc_").filter_map(|(at, _)| {
        let rest = &text[at..];
        let name = rest.split(|c| !is_name(c)).next()?;
        let before = text[..at].chars().next_back();
        let is_whole = before.is_none_or(|c| !is_name(c));
        (is_whole && rest[name.len()..].starts_with('(')).then(|| name.to_owned())
    });
    found.collect()
}

#[test]
fn header_and_library_have_the_same_functions() {
    let header = std::fs::read_to_string(root().join("clients/c/skopos_rpc.h")).expect("readable");
    // Comments name functions too.
    let code: String =
        header.split("/*").filter_map(|part| Some(part.rsplit_once("*/")?.1)).collect();
    let output = Command::new("nm")
        .arg("-D")
        .arg("--defined-only")
        .arg(libraries().join("libskopos_ffi.so"))
        .output();
    let Ok(output) = output else {
        println!("skipped: there is no `nm`");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let symbols = String::from_utf8_lossy(&output.stdout).into_owned();
    let exported: BTreeSet<_> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .filter(|name| name.starts_with("skopos_"))
        .map(str::to_owned)
        .collect();
    assert_eq!(names(&code), exported);
}

//! Programs that make random calls run with the preloaded library and under `strace`, and both must count the same
//! bytes of each file. The seeds are fixed, so a failure can be repeated.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use skopos_model::task::Files;

use crate::preload::{file, measured};

/// Number of programs: some seconds of work.
const SEEDS: u64 = 24;

/// Number of calls of one program: enough that descriptors are used again.
const CALLS: &str = "400";

/// The seed of the first program; the variable sets another one, to search for more.
const FIRST_SEED: &str = "SKOPOS_FIRST_SEED";

/// The system calls that move bytes.
const TRACED: &str = "trace=read,write,pread64,pwrite64,readv,writev,preadv,pwritev,preadv2,pwritev2,sendfile,\
                      copy_file_range,splice,tee,vmsplice,sendto,recvfrom,sendmsg,recvmsg,sendmmsg,recvmmsg";

const PROGRAM: &str = include_str!("../data/programs/calls.c");

/// Bytes read and written.
type Bytes = (u64, u64);

fn compiled(folder: &Path) -> PathBuf {
    crate::support::compile(folder, "calls", PROGRAM, &["-w"]).expect("a compiler")
}

/// The name of a file, without the part that the C library chooses. Files that the C library names are of one class: a
/// file can take the inode of one that was removed in the same tick of the clock, and then both have one identity.
fn class(folder: &Path, path: &str) -> Option<String> {
    let path = path.trim_end_matches(" (deleted)");
    if path.starts_with("pipe:") || path.starts_with("socket:") {
        return path.split(':').next().map(str::to_owned);
    }
    if path.starts_with("/tmp/#") || path.starts_with("/tmp/tmpf") {
        return Some("made".to_owned());
    }
    let name = Path::new(path).strip_prefix(folder).ok()?.to_str()?;
    Some(if name.starts_with("made-") { "made".to_owned() } else { name.to_owned() })
}

/// The descriptors of a call, each with its file: `3</path>`.
fn paths(words: &str) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    for (at, _) in words.match_indices('<') {
        let digits = words[..at].chars().rev().take_while(char::is_ascii_digit).count();
        let Ok(descriptor) = words[at - digits..at].parse() else { continue };
        let Some(end) = words[at..].find('>') else { continue };
        found.push((descriptor, words[at + 1..at + end].to_owned()));
    }
    found
}

/// Sums the lengths of the first `done` messages of `sendmmsg` or `recvmmsg`.
fn messages(words: &str, done: u64) -> u64 {
    let lengths = words.split("msg_len=").skip(1).take(done as usize);
    lengths
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok())
        .sum()
}

/// Counts the bytes of each file in the output of `strace`.
fn traced(folder: &Path, text: &str) -> BTreeMap<String, Bytes> {
    let mut all: BTreeMap<String, Bytes> = BTreeMap::new();
    for line in text.lines() {
        let line = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        let Some((call, rest)) = line.split_once('(') else { continue };
        let Some((words, result)) = rest.rsplit_once(" = ") else { continue };
        let Some(done) = result.split(' ').next().and_then(|n| n.parse::<u64>().ok()) else {
            continue;
        };
        let files = paths(words);
        let mut add = |which: usize, bytes: Bytes| {
            let Some((_, path)) = files.get(which) else { return };
            let Some(class) = class(folder, path) else { return };
            let sum = all.entry(class).or_default();
            *sum = (sum.0 + bytes.0, sum.1 + bytes.1);
        };
        let is_peek = words.contains("MSG_PEEK");
        match call {
            "read" | "pread64" | "readv" | "preadv" | "preadv2" => add(0, (done, 0)),
            "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" => add(0, (0, done)),
            "sendfile" => (add(0, (0, done)), add(1, (done, 0))).0,
            "copy_file_range" | "splice" => (add(0, (done, 0)), add(1, (0, done))).0,
            "tee" => add(1, (0, done)),
            // The program's pipe has its reading end before its writing end.
            "vmsplice" if files[0].0 % 2 == 1 => add(0, (done, 0)),
            "vmsplice" => add(0, (0, done)),
            "sendto" | "sendmsg" => add(0, (0, done)),
            "sendmmsg" => add(0, (0, messages(words, done))),
            "recvfrom" | "recvmsg" if !is_peek => add(0, (done, 0)),
            "recvmmsg" => add(0, (messages(words, done), 0)),
            _ => {}
        }
    }
    all.retain(|_, bytes| *bytes != (0, 0));
    all
}

/// The same as the library counted it. Sockets are counted by their peers too, and there completely.
fn counted(folder: &Path, files: &Files) -> BTreeMap<String, Bytes> {
    let mut all: BTreeMap<String, Bytes> = BTreeMap::new();
    for file in &files.files {
        let class = match file.kind.as_str() {
            "pipes" => Some("pipe".to_owned()),
            "file" => class(folder, &file.path),
            _ => None,
        };
        let Some(class) = class else { continue };
        let sum = all.entry(class).or_default();
        *sum = (sum.0 + file.read_bytes, sum.1 + file.written_bytes);
    }
    let peers = files.peers.iter();
    let sockets = peers.fold((0, 0), |sum, p| (sum.0 + p.received_bytes, sum.1 + p.sent_bytes));
    all.insert("socket".to_owned(), sockets);
    all.retain(|_, bytes| *bytes != (0, 0));
    all
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().expect("a folder");
    let path = fs::canonicalize(place.path()).expect("it is there");
    (place, path)
}

#[test]
fn null_and_bad_pointers_fail_as_in_the_c_library() {
    let (_place, folder) = folder();
    let program = compiled(&folder).display().to_string();
    let (_, files) = measured(&folder, &[&program, &folder.display().to_string(), "wrong"]);
    assert_eq!(file(&files, &folder.join("survived")).written_bytes, 3);
}

/// Runs a script; returns the standard error of what it starts, and the files.
fn said(folder: &Path, script: &str) -> (String, Files) {
    let said = folder.join("said");
    let (_, files) =
        measured(folder, &["sh", "-c", &format!("{{ {script}; }} 2>{}", said.display())]);
    (fs::read_to_string(said).expect("said"), files)
}

#[test]
fn the_loader_is_silent_where_the_library_is_not() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root may change the root folder or mount");
        return;
    }
    let (_place, folder) = folder();
    let root = folder.join("root");
    let copied = "for f in /bin/cat $(ldd /bin/cat | grep -o '/[^ ]*'); do \
                  mkdir -p ROOT$(dirname $f); cp $f ROOT$f; done; chroot ROOT /bin/cat /bin/cat >/dev/null";
    let copied = copied.replace("ROOT", &root.display().to_string());
    let masks = "for f in /dev/shm $XDG_RUNTIME_DIR; do mount -t tmpfs none $f; done; cat /etc/passwd >/dev/null";
    for script in [copied, format!("unshare -m sh -c '{masks}'")] {
        let (said, files) = said(&folder, &script);
        assert_eq!(said, "", "{script}");
        assert!(files.not_seen.iter().any(|n| n.command.contains("cat /")), "{:?}", files.not_seen);
    }
}

#[test]
fn a_program_with_little_memory_keeps_it() {
    let (_place, folder) = folder();
    // So much is enough for the program alone, and not for the library's table too.
    let script =
        "bash -c 'ulimit -v 12000; dd if=/dev/zero of=/dev/null bs=1k count=3 status=none'";
    let (said, files) = said(&folder, script);
    assert_eq!(said, "");
    assert!(files.not_seen.iter().any(|n| n.command.starts_with("dd ")), "{:?}", files.not_seen);
}

#[test]
fn random_calls_move_the_bytes_that_strace_sees() {
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("SKIPPED: strace is not installed (scripts/setup test installs it)");
        return;
    }
    let (_place, place) = folder();
    let program = compiled(&place).display().to_string();
    let first = std::env::var(FIRST_SEED).ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let mut wrong = Vec::new();
    for seed in first..first + SEEDS {
        let (under_strace, with_library) = (place.join("a"), place.join("b"));
        for folder in [&under_strace, &with_library] {
            fs::create_dir(folder).expect("made");
        }
        let seed = seed.to_string();
        let trace = place.join("trace");
        let mut strace = Command::new("strace");
        strace.args(["-f", "-y", "-qq", "-s", "0", "-e", "abbrev=none", "-e", TRACED, "-o"]);
        strace.arg(&trace).arg(&program).arg(&under_strace).args([&seed, CALLS]);
        assert!(strace.status().expect("it starts").success(), "seed {seed} under strace");
        let with = with_library.display().to_string();
        let (_, files) = measured(&place, &[&program, &with, &seed, CALLS]);
        let text = fs::read_to_string(&trace).expect("a trace");
        let (expected, found) = (traced(&under_strace, &text), counted(&with_library, &files));
        assert!(expected.len() > 3, "it moves bytes: {expected:?}");
        if expected != found {
            wrong.push(format!("seed {seed}:\n  strace  {expected:?}\n  library {found:?}"));
        }
        for folder in [&under_strace, &with_library] {
            fs::remove_dir_all(folder).expect("removed");
        }
    }
    assert!(wrong.is_empty(), "{} of {SEEDS} differ:\n{}", wrong.len(), wrong.join("\n"));
}

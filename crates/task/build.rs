//! Compiles `preload/preload.c` with the system's C compiler, and `bpf/task.bpf.c` with clang if the
//! feature `bpf` is on. Without a compiler what it would make is empty, and the mechanism that needs it
//! says why.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const SOURCE: &str = "preload/preload.c";

/// All that it is made of.
const SOURCES: [&str; 3] = [SOURCE, "preload/table.h", "preload/calls.h"];

const FLAGS: &[&str] =
    &["-std=gnu11", "-shared", "-fPIC", "-O2", "-fvisibility=hidden", "-U_FORTIFY_SOURCE", "-Wall"];

const BPF: &str = "bpf/task.bpf.c";
const BPF_SOURCES: [&str; 5] =
    [BPF, "bpf/fields.h", "bpf/kernel.h", "bpf/processes.h", "bpf/files.h"];

/// Atomic operations that return came to BPF with this version of the instruction set, in Linux 5.12.
const BPF_FLAGS: &[&str] = &["-O2", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror", "-c"];

fn main() {
    library();
    programs();
}

fn library() {
    println!("cargo::rerun-if-env-changed=CC");
    let mut source = Vec::new();
    for file in SOURCES {
        println!("cargo::rerun-if-changed={file}");
        source.extend(fs::read(file).unwrap_or_else(|e| panic!("{file}: {e}")));
    }
    // Libraries that differ count in tables that differ: each looks for its own variable.
    let variable = format!("SKOPOS_COUNTERS_{:016x}", hash(&source));
    let object = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("preload.so");
    let missing = compile(&variable, &object).err().unwrap_or_default();
    if !missing.is_empty() {
        println!("cargo::warning={missing}; counting by LD_PRELOAD is left out");
        fs::write(&object, b"").unwrap_or_else(|e| panic!("{}: {e}", object.display()));
    }
    println!("cargo::rustc-env=SKOPOS_PRELOAD_VARIABLE={variable}");
    println!("cargo::rustc-env=SKOPOS_PRELOAD_MISSING={missing}");
}

fn compile(variable: &str, object: &Path) -> Result<(), String> {
    let of = |name: &str| env::var(name).unwrap_or_default();
    // A library for another processor needs a compiler for it, which only its user can name.
    let arch = |triple: String| triple.split('-').next().unwrap_or_default().to_owned();
    if env::var_os("CC").is_none() && arch(of("TARGET")) != arch(of("HOST")) {
        return Err(format!(
            "it was built for {} without CC naming a compiler for it",
            of("TARGET")
        ));
    }
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let define = format!("-DSKOPOS_VARIABLE=\"{variable}\"");
    let mut command = Command::new(&compiler);
    command.args(FLAGS).arg(define).arg(SOURCE).arg("-o").arg(object);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("{} did not compile {SOURCE}", compiler.display())),
        Err(_) => Err(format!("it was built where there is no C compiler {}", compiler.display())),
    }
}

fn programs() {
    println!("cargo::rerun-if-env-changed=CLANG");
    BPF_SOURCES.iter().for_each(|file| println!("cargo::rerun-if-changed={file}"));
    program("task.bpf.o", &[], "SKOPOS_BPF_MISSING");
    // Without it what nobody asked for need not be loaded.
    program("files.bpf.o", &["-DWITH_FILES"], "SKOPOS_BPF_FILES_MISSING");
}

fn program(name: &str, define: &[&str], variable: &str) {
    let object = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join(name);
    let missing = compile_program(define, &object).err().unwrap_or_default();
    if !missing.is_empty() {
        fs::write(&object, b"").unwrap_or_else(|e| panic!("{}: {e}", object.display()));
    }
    println!("cargo::rustc-env={variable}={missing}");
}

fn compile_program(define: &[&str], object: &Path) -> Result<(), String> {
    if env::var_os("CARGO_FEATURE_BPF").is_none() {
        return Err("it was built without BPF".to_owned());
    }
    // Which register holds what, and the numbers of system calls, are those of one processor.
    if !define.is_empty() && env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        return Err("system calls are looked at on x86-64 alone".to_owned());
    }
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let mut command = Command::new(&clang);
    command.args(BPF_FLAGS).args(define).arg(BPF).arg("-o").arg(object);
    let why = match command.status() {
        Ok(status) if status.success() => return Ok(()),
        // A clang without the BPF target is as good as none; what it printed says which it is.
        Ok(_) => format!("{} did not compile {BPF}", clang.display()),
        Err(_) => "it was built where there is no clang".to_owned(),
    };
    println!("cargo::warning={why}; watching a task by BPF is left out");
    Err(why)
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

//! Compiles `preload/preload.c` with the system's C compiler. Without one the library is empty, and the
//! mechanism `preload` gives the reason.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const SOURCE: &str = "preload/preload.c";

/// Every file that the library is compiled from.
const SOURCES: [&str; 5] =
    [SOURCE, "preload/table.h", "preload/streams.h", "preload/loader.h", "preload/calls.h"];

const FLAGS: &[&str] = &[
    "-std=gnu11",
    "-shared",
    "-fPIC",
    "-O2",
    "-fvisibility=hidden",
    "-U_FORTIFY_SOURCE",
    "-Wall",
    // Each process loads the library, and each part that is mapped for itself costs it microseconds.
    "-Wl,-z,noseparate-code,--hash-style=gnu",
];

fn main() {
    println!("cargo::rerun-if-env-changed=CC");
    let mut source = Vec::new();
    for file in SOURCES {
        println!("cargo::rerun-if-changed={file}");
        source.extend(fs::read(file).unwrap_or_else(|e| panic!("{file}: {e}")));
    }
    // Two versions of the library have tables of different layouts, so each has a variable of its own.
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

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

//! Compiles `*.bpf.c` with clang, where the feature `bpf` is on and clang is there. Without it the
//! object is empty, and the sensor that needs it says so.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// cmpxchg came to BPF with this version of the instruction set, in Linux 5.12.
const FLAGS: &[&str] = &["-O2", "-g0", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror", "-c"];

fn main() {
    let source = Path::new("src/block_access/issued.bpf.c");
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-env-changed=CLANG");
    let object = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("issued.bpf.o");
    fs::write(&object, b"").unwrap_or_else(|e| panic!("{}: {e}", object.display()));
    if env::var_os("CARGO_FEATURE_BPF").is_none() {
        return;
    }
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    match Command::new(&clang).args(FLAGS).arg(source).arg("-o").arg(&object).status() {
        Ok(status) if status.success() => {}
        Ok(status) => {
            // A clang without the BPF target is as good as none; what it printed says which it is.
            println!("cargo::warning={}: {status}; block_access is left out", source.display());
            fs::write(&object, b"").unwrap_or_else(|e| panic!("{}: {e}", object.display()));
        }
        Err(_) => println!("cargo::warning=there is no clang; block_access is left out"),
    }
}

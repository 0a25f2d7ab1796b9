//! Packs the relative relocations of the programs, which makes them a tenth smaller.
//!
//! The dynamic linker of glibc reads packed relocations since version 2.36. A program with them does not start
//! with an older one, so they are packed only if the machine that builds has such a glibc itself.

use std::env;
use std::process::Command;

/// The first glibc, by major and minor version, that reads packed relocations.
const FIRST_GLIBC: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is_native = env::var("HOST").is_ok_and(|host| env::var("TARGET") == Ok(host));
    if is_native && glibc().is_some_and(|version| version >= FIRST_GLIBC) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Returns the version of this machine's glibc; `None` if it has another C library.
fn glibc() -> Option<(u32, u32)> {
    let printed = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?.stdout;
    let printed = String::from_utf8(printed).ok()?;
    let (major, minor) = printed.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

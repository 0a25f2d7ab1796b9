//! Packs the relative relocations of the programs: `skopos-agent` becomes 2 MB smaller (`packed relocations` in
//! `docs/results/build.md`).
//!
//! The dynamic linker of glibc reads packed relocations since version 2.36. A program with them does not start
//! with an older one, so they are packed only if the machine that builds has such a glibc itself, and unless
//! `SKOPOS_PACK_RELOCATIONS` is `no`.

use std::env;
use std::process::Command;

/// The first glibc, by major and minor version, that reads packed relocations.
const FIRST_GLIBC: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SKOPOS_PACK_RELOCATIONS");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|set| set == value);
    let is_native = env::var("TARGET").is_ok_and(|target| is("HOST", &target));
    let is_wanted = is("CARGO_CFG_TARGET_ENV", "gnu") && !is("SKOPOS_PACK_RELOCATIONS", "no");
    if is_native && is_wanted && glibc().is_some_and(|version| version >= FIRST_GLIBC) {
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

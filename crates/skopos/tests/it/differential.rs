//! Generated statements, asked of a hub and of DuckDB over the same sealed history: `tests/sql` has the suite.

use std::process::Command;

use crate::flight::python;

/// The statements of a short run. `SKOPOS_STATEMENTS` and `SKOPOS_SEED` choose others.
const STATEMENTS: u64 = 500;

#[test]
fn generated_statements_have_the_answers_of_duckdb() {
    let Some(python) = python() else {
        println!("skipped: no duckdb; `scripts/setup test` gets it where there is PyPI");
        return;
    };
    let number = |name: &str, usual: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual).to_string()
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/sql/differential.py");
    let (count, seed) = (number("SKOPOS_STATEMENTS", STATEMENTS), number("SKOPOS_SEED", 1));
    let ran = Command::new(python)
        .args([
            script,
            "--skopos",
            env!("CARGO_BIN_EXE_skopos"),
            "--count",
            &count,
            "--seed",
            &seed,
        ])
        .output()
        .expect("it starts");
    let told = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{told}\n{}", String::from_utf8_lossy(&ran.stderr));
    println!("{told}");
}

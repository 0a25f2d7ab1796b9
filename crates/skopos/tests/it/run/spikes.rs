//! Memory that is held for a moment is seen, in every kind of program and however it ends.

use super::*;

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// Returns the peak of the first process.
fn peak(outcome: &Outcome) -> f64 {
    assert!(matches!(outcome.code, Some(0) | None), "{:?}", outcome.code);
    assert_eq!(outcome.of("resident_bytes_max", "completeness"), "all");
    outcome.summary["processes"][0]["resident_bytes_max"].as_f64().expect("known")
}

fn is_seen(program: &Path, way: &str) {
    for level in ["2", "3"] {
        // The program's own memory is not part of what it allocates.
        let peak = |mib| peak(&measure(&["--level", level, "--", text(program), mib, way]));
        let off = (peak("1024") - peak("0")) / GIB - 1.0;
        assert!(off.abs() < 0.001, "level {level}, by {way}: {off}");
    }
}

#[test]
fn a_gigabyte_that_is_held_for_a_moment_is_seen_within_a_thousandth() {
    let spike = program("spike");
    for way in ["return", "exit", "_exit", "kill"] {
        is_seen(&spike, way);
    }
}

#[test]
fn and_by_a_static_program() {
    let spike = built("spike", &["-static"]);
    for way in ["return", "_exit"] {
        is_seen(&spike, way);
    }
}

#[test]
fn and_by_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let spike = folder.path().join("spike-go");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/run/spike.go");
    match Command::new("go").args(["build", "-o", text(&spike)]).arg(source).status() {
        Ok(built) => assert!(built.success(), "go build"),
        Err(e) => {
            eprintln!("skipped: there is no Go compiler: {e}");
            return;
        }
    }
    for level in ["2", "3"] {
        let outcome = measure(&["--level", level, "--", text(&spike), "1024"]);
        let truth = outcome.stdout.trim().parse::<f64>().expect("KiB") * 1024.0;
        assert!(
            (peak(&outcome) / truth - 1.0).abs() < 0.001 && truth > GIB,
            "level {level}: {truth}"
        );
        assert_eq!(
            outcome.value("processes_total"),
            10.0,
            "level {level}: eight threads, and one of the Go runtime"
        );
    }
}

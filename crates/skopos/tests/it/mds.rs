//! `skopos mds`: the catalogue of jobs is made again, compared and printed, in SQLite and in PostgreSQL.

use std::path::Path;

use serde_json::json;

use crate::postgres_server::Server;
use crate::support::{Running, eventually, run};

/// Runs a hub that stores some jobs in a catalogue, and ends it.
fn stored(extra: &[&str]) -> Running {
    let mut up = Running::start_as("up", extra);
    for name in ["align", "solve"] {
        assert_eq!(up.run(&["run", "--quiet", "--name", name, "--", "true"]).code, 0);
    }
    let busy = up.run(&["mds", "verify"]);
    assert_eq!(busy.code, 2, "{busy:?}");
    assert!(busy.stderr.contains("a hub uses the jobs"), "{busy:?}");
    assert!(busy.stderr.contains("hint: stop the hub first"), "{busy:?}");
    let sql = "SELECT count(*) AS n FROM jobs WHERE state = 'completed'";
    eventually("the jobs are found", || {
        up.run(&["sql", "--json", sql]).json()["rows"] == json!([{"n": 2}])
    });
    // While the hub runs, too.
    eventually("the jobs are sealed", || {
        let dump = up.run(&[&["mds", "dump"], extra].concat()).stdout;
        let sealed =
            dump.lines().filter(|line| line.starts_with("job ") && line.contains("\"segment-"));
        sealed.count() == 2
    });
    up.kill();
    up
}

/// Runs `skopos mds`, and returns its output.
fn mds(dir: &Path, args: &[&str]) -> String {
    let ran = run(dir, &[&["mds"], args].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{args:?}: {ran:?}");
    ran.stdout
}

#[test]
fn a_catalogue_is_made_again_compared_and_printed() {
    let up = stored(&[]);
    let dir = up.dir.path();
    let file = dir.join("state/jobs/catalogue.sqlite");
    let before = mds(dir, &["dump"]);
    assert_eq!(before.lines().filter(|line| line.starts_with("job ")).count(), 2, "{before}");
    for ending in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{ending}", file.display()));
    }
    let missing = run(dir, &["mds", "dump"]);
    assert_eq!(missing.code, 1, "{missing:?}");
    assert!(missing.stderr.contains("hint: `skopos mds rebuild`"), "{missing:?}");
    let rebuilt = mds(dir, &["rebuild"]);
    assert!(rebuilt.starts_with("made the catalogue again: 2 jobs of "), "{rebuilt}");
    assert_eq!(mds(dir, &["dump"]), before);
    let verified = mds(dir, &["verify"]);
    assert!(
        verified.starts_with("2 jobs and ") && verified.ends_with("agree with the catalogue\n")
    );

    // A damaged file is replaced. SQLite leaves nothing beside it that would mend it.
    assert!(!file.with_extension("sqlite-wal").exists());
    std::fs::write(&file, "not a catalogue".repeat(500)).expect("written");
    assert_eq!(run(dir, &["mds", "dump"]).code, 2);
    mds(dir, &["rebuild"]);
    assert_eq!(mds(dir, &["dump"]), before);

    // A file of a later version: its number is in the head of every file of SQLite.
    let mut bytes = std::fs::read(&file).expect("a file");
    bytes[60..64].copy_from_slice(&99_u32.to_be_bytes());
    std::fs::write(&file, bytes).expect("written");
    check_newer(dir, &["dump"]);
    check_newer(dir, &["verify"]);
    mds(dir, &["rebuild"]);
    assert_eq!(mds(dir, &["dump"]), before);

    let Some(server) = Server::start() else { return };
    let config = dir.join("postgres.toml");
    let url = server.database();
    std::fs::write(&config, format!("[hub]\ncatalogue = \"{url}\"\n")).expect("written");
    let config = config.to_str().expect("UTF-8");
    assert_eq!(run(dir, &["mds", "verify", "--config", config]).code, 1, "it is empty");
    mds(dir, &["rebuild", "--config", config]);
    assert_eq!(mds(dir, &["dump", "--config", config]), before);
    mds(dir, &["verify", "--config", config]);
    server.execute(&url, "INSERT INTO skopos.version VALUES (99)");
    check_newer(dir, &["dump", "--config", config]);
    check_newer(dir, &["rebuild", "--config", config]);
}

/// Checks that the catalogue is refused, because a later version wrote it.
fn check_newer(dir: &Path, args: &[&str]) {
    let ran = run(dir, &[&["mds"], args].concat());
    assert_eq!(ran.code, 2, "{args:?}: {ran:?}");
    for told in ["has version 99 of the catalogue's format", "hint: `skopos mds rebuild`"] {
        assert!(ran.stderr.contains(told), "{args:?}: {ran:?}");
    }
}

#[test]
fn a_hub_keeps_its_catalogue_in_postgresql() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("skopos.toml");
    let url = server.database();
    std::fs::write(&config, format!("[hub]\ncatalogue = \"{url}\"\n")).expect("written");
    let config = config.to_str().expect("UTF-8");
    let up = stored(&["--config", config]);
    let dir = up.dir.path();
    assert!(!dir.join("state/jobs/catalogue.sqlite").exists());
    let before = mds(dir, &["dump", "--config", config]);
    server.execute(&url, "DROP SCHEMA skopos CASCADE");
    mds(dir, &["rebuild", "--config", config]);
    assert_eq!(mds(dir, &["dump", "--config", config]), before);
}

#[test]
fn without_jobs_the_verb_says_so() {
    let dir = crate::support::runtime_dir();
    let ran = run(dir.path(), &["mds", "rebuild"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("there are no jobs in "), "{ran:?}");
}

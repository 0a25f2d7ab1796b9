//! The conformance suite in memory and on disk, and properties of files.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::Connection;
use skopos_model::job::{JobEnd, JobStart, JobState};
use skopos_model::task::ExitType;

use super::super::super::entry::{Dated, JobEntry};
use super::super::conformance::{self, entry};
use super::super::contract::{Catalogue, Change};
use super::super::error::Error;
use super::super::filter::{Filter, Visibility};
use super::super::page::PageRequest;
use super::super::row::Columns;
use super::SqliteCatalogue;

#[test]
fn a_catalogue_in_memory_conforms() {
    for seed in 0..2 {
        let open =
            || -> Box<dyn Catalogue> { Box::new(SqliteCatalogue::in_memory().expect("memory")) };
        conformance::check(&open, seed);
    }
}

#[test]
fn a_catalogue_on_disk_conforms() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = AtomicU32::new(0);
    let open = || -> Box<dyn Catalogue> {
        let number = files.fetch_add(1, Ordering::Relaxed);
        let path = folder.path().join(format!("new/{number}.db"));
        Box::new(SqliteCatalogue::open(&path).expect("a file"))
    };
    conformance::check(&open, 7);
}

#[test]
fn front_ends_share_a_file() {
    for seed in 0..3 {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || -> Box<dyn Catalogue> {
            let path = folder.path().join("jobs.db");
            Box::new(SqliteCatalogue::open(&path).expect("a file"))
        };
        conformance::check_several(&open, seed);
    }
}

#[test]
fn a_file_of_another_kind_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    std::fs::write(path("text"), "x".repeat(5000)).expect("writable");
    let open = |name: &str| SqliteCatalogue::open(&path(name)).map(drop);
    assert!(matches!(open("text"), Err(Error::NotACatalogue(_))), "{:?}", open("text"));
    crate::archive::Archive::create(&path("archive")).expect("an archive");
    assert!(matches!(open("archive"), Err(Error::NotACatalogue(_))));
    crate::archive::Archive::open(&path("archive")).expect("still an archive");

    open("jobs").expect("a catalogue");
    let connection = Connection::open(path("jobs")).expect("a file");
    connection.pragma_update(None, "user_version", 99).expect("writable");
    assert!(matches!(open("jobs"), Err(Error::Newer { found: 99, known: 4, .. })));
}

#[test]
fn every_change_is_synced() {
    let folder = tempfile::tempdir().expect("a folder");
    let catalogue = SqliteCatalogue::open(&folder.path().join("jobs.db")).expect("a file");
    let writer = catalogue.pool.writer();
    let pragma = |name| writer.pragma_query_value(None, name, |row| row.get::<_, String>(0));
    assert_eq!(pragma("journal_mode").as_deref(), Ok("wal"));
    let synchronous = writer.pragma_query_value(None, "synchronous", |row| row.get(0));
    assert_eq!(synchronous, Ok(2), "FULL");
}

#[test]
fn a_damaged_row_is_named_and_can_be_written_again() {
    let catalogue = SqliteCatalogue::in_memory().expect("memory");
    let job = entry("1", &[0]);
    let change = Change { entries: std::slice::from_ref(&job), ..Change::default() };
    catalogue.apply(&change).expect("a change");
    let damage = "UPDATE document SET content = '{'";
    catalogue.pool.writer().execute_batch(damage).expect("writable");
    let found = catalogue.get(&Visibility::Everything, &job.site, &job.id);
    assert!(matches!(found, Err(Error::Damaged { what: "entry", .. })), "{found:?}");
    catalogue.apply(&change).expect("a change");
    let found = catalogue.get(&Visibility::Everything, &job.site, &job.id).expect("readable");
    assert_eq!(found, Some(job));
}

#[test]
fn an_entry_that_comes_again_changes_each_column_of_its_row() {
    let catalogue = SqliteCatalogue::in_memory().expect("memory");
    let check = |job: &JobEntry| {
        let change = Change { entries: std::slice::from_ref(job), ..Change::default() };
        assert_eq!(catalogue.apply(&change).expect("a change").written, 1);
        let everything = Filter::new(Visibility::Everything);
        let rows = catalogue.rows(&everything, &PageRequest::default()).expect("read").items;
        assert_eq!(rows, [Columns::of(job).expect("columns").row().expect("a row")]);
        let writer = catalogue.pool.writer();
        let whole = writer.query_row("PRAGMA integrity_check(job)", [], |row| row.get(0));
        assert_eq!(whole, Ok("ok".to_owned()));
    };
    let text = |text: &str| text.to_owned();
    let (mut job, mut start, mut end) = (entry("1", &[0]), JobStart::default(), JobEnd::default());
    (start.user, start.project, start.application) = (text("ann"), text("p"), text("solve"));
    (start.name, start.queue) = (text("first"), text("short"));
    (start.start_seconds, end.end_seconds) = (Some(1.0), Some(3.0));
    // Each of the columns of indexes changes alone.
    let changes: [fn(&mut JobStart, &mut JobEnd); 7] = [
        |_, _| {},
        |start, _| start.user = "bob".to_owned(),
        |start, _| start.project = "q".to_owned(),
        |start, _| start.application = "mesh".to_owned(),
        |start, _| start.start_seconds = Some(2.0),
        |_, end| end.end_seconds = Some(4.0),
        |_, end| end.state = JobState::Timeout,
    ];
    for change in changes {
        change(&mut start, &mut end);
        job.start = Some(Dated { at: 1, value: start.clone() });
        job.end = Some(Dated { at: 3, value: end.clone() });
        check(&job);
    }
    // The others change together.
    (start.name, start.queue) = (text("second"), text("long"));
    start.requested = [(text("cores"), 4.0)].into();
    end.exit_type = Some(ExitType::Signal);
    end.used = [(text("cpu_seconds"), 5.0)].into();
    job.start = Some(Dated { at: 1, value: start });
    job.end = Some(Dated { at: 3, value: end });
    job.nodes = [text("n01")].into();
    (job.samples, job.lost) = (7, 1);
    check(&job);
}

#[test]
fn words_are_written_again_only_if_they_differ() {
    let catalogue = SqliteCatalogue::in_memory().expect("memory");
    let mut job = entry("1", &[0]);
    let apply = |job: &JobEntry| {
        let change = Change { entries: std::slice::from_ref(job), ..Change::default() };
        assert_eq!(catalogue.apply(&change).expect("a change").written, 1);
    };
    let is_found = |text: &str| {
        let filter = Filter { text: text.to_owned(), ..Filter::new(Visibility::Everything) };
        catalogue.count(&filter).expect("a count") == 1
    };
    job.findings = ["idle cores".to_owned()].into();
    apply(&job);
    assert!(is_found("idle cores"));
    // An index without the words shows whether they are written.
    catalogue.pool.writer().execute_batch("DELETE FROM word WHERE rowid = 1").expect("writable");
    job.samples += 1;
    apply(&job);
    assert!(!is_found("idle"), "the words are the same");
    job.findings = ["slow disk".to_owned()].into();
    apply(&job);
    assert!(is_found("slow disk") && !is_found("idle"));
    // An entry of an earlier version has no fingerprint.
    let earlier = "DELETE FROM word WHERE rowid = 1; UPDATE job SET word_fingerprint = NULL";
    catalogue.pool.writer().execute_batch(earlier).expect("writable");
    apply(&job);
    assert!(is_found("slow"));
}

/// The plans of the questions that must be fast.
#[test]
fn questions_use_their_indexes() {
    let catalogue = SqliteCatalogue::in_memory().expect("memory");
    let plan = |filter: Filter| {
        let request = PageRequest { most: 100, ..Default::default() };
        let statement =
            super::super::statement::Statement::rows(&filter, &request, &super::dialect::Sqlite)
                .expect("a statement");
        let writer = catalogue.pool.writer();
        let sql = format!("EXPLAIN QUERY PLAN {}", statement.sql);
        let mut prepared = writer.prepare(&sql).expect("a plan");
        let values = rusqlite::params_from_iter(&statement.values);
        let lines = prepared.query_map(values, |row| row.get::<_, String>(3)).expect("a plan");
        lines.collect::<rusqlite::Result<Vec<_>>>().expect("a plan").join("; ")
    };
    let everything = || Filter::new(Visibility::Everything);
    let some = |text: &str| Some(text.to_owned());
    let ran =
        Some((skopos_model::Timestamp::from_nanos(1), skopos_model::Timestamp::from_nanos(2)));
    for (filter, expected) in [
        (Filter { user: some("ann"), ran, ..everything() }, "job_by_owner (owner=? AND started<?)"),
        (
            Filter { project: some("x"), ran, ..everything() },
            "job_by_project (project=? AND started<?)",
        ),
        (Filter { ran, ..everything() }, "job_by_start (started<?)"),
        (Filter { host: some("n1"), ..everything() }, "INTEGER PRIMARY KEY (rowid=?)"),
        (Filter { text: "slow".to_owned(), ..everything() }, "INTEGER PRIMARY KEY (rowid=?)"),
        (Filter { site: some("s"), job: some("7"), ..everything() }, "(site=? AND job=?)"),
    ] {
        let found = plan(filter.clone());
        assert!(found.contains(expected), "{filter:?}: {found}");
    }
}

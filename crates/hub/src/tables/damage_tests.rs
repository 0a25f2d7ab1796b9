//! Answers about jobs of which a segment is damaged.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::json;
use skopos_access::Caller;
use skopos_model::job::{JobRecord, Kind};
use skopos_query::Limits;

use super::job_tests::{PATIENCE, engine, place, store};
use super::tests::{block_on, rows_for};

/// Returns the segments in a folder and those below it.
fn segments(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            found.extend(segments(&path));
        } else if name.starts_with("segment-") && name.ends_with(".parquet") {
            found.insert(path);
        }
    }
    found
}

#[test]
fn a_damaged_segment_takes_no_other_job_from_an_answer_which_names_the_lost_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = place(folder.path());
    let (jobs, engine) = (place.open().expect("opened"), engine(&place));
    let sealed = "SELECT DISTINCT job FROM sealed_samples";
    let found = "SELECT DISTINCT job FROM job_findings";
    let mut first = BTreeSet::new();
    for (at, job) in ["whole", "damaged"].into_iter().enumerate() {
        let names = br#"{"schema":"s","names":["load"]}"#.to_vec();
        let sample = JobRecord::sample_content("s", &[1.5]);
        let records = [
            (Kind::Start, json!({"user": "ann"}).to_string().into_bytes()),
            (Kind::Metrics, names),
            (Kind::Sample, sample),
            (Kind::End, json!({"state": "completed"}).to_string().into_bytes()),
        ];
        let from = 4 * at as i64;
        for (sequence, (kind, content)) in (from..).zip(records) {
            store(&jobs, &Caller::Owner, (job, kind), &content, sequence).expect("stored");
        }
        let waiting = jobs.await_sealed();
        let begun = std::time::Instant::now();
        let count = |sql| rows_for(&engine, &Caller::Owner, sql).expect("answered").len();
        while count(sealed) <= at || count(found) <= at {
            assert!(begun.elapsed() < PATIENCE, "gave up waiting for the segment of {job}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        drop(waiting);
        if at == 0 {
            first = segments(folder.path());
        }
    }
    let later: Vec<PathBuf> = segments(folder.path()).difference(&first).cloned().collect();
    let [segment] = &*later else { panic!("a segment for each job: {first:?} {later:?}") };
    // In place: the hub has the file open.
    let length = std::fs::metadata(segment).expect("it is there").len() as usize;
    let file = std::fs::OpenOptions::new().write(true).open(segment).expect("opened");
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![0xff; length], 0).expect("written");
    let name = segment.file_name().and_then(|name| name.to_str()).expect("a name");
    for sql in [sealed, found] {
        let answer =
            block_on(engine.query(&Caller::Owner, sql, &Limits::default())).expect("answered");
        assert_eq!(rows_for(&engine, &Caller::Owner, sql).expect("answered"), ["whole"], "{sql}");
        let [missing] = &*answer.missing else { panic!("{sql}: {:?}", answer.missing) };
        assert!(missing.starts_with("the job damaged ("), "{sql}: {missing}");
        assert!(missing.contains(name) && missing.contains("is damaged"), "{sql}: {missing}");
    }
}

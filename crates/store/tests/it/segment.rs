//! Segments of jobs, read by programs that are not ours.

use std::path::PathBuf;
use std::process::Command;

use skopos_model::Timestamp;
use skopos_model::job::{JobId, JobRecord, Kind};
use skopos_store::jobs::{JobPart, Mark, SegmentWriter, StoredRecord};

/// Returns the Python that `scripts/setup test` installs.
fn python() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    let python = cache.join("skopos/python/bin/python");
    python.exists().then_some(python)
}

fn part(job: &str, generation: u32, samples: i64) -> JobPart {
    let record = |kind, node, nanos, content: &[u8]| {
        let time = Timestamp::from_nanos(nanos);
        StoredRecord::of(&JobRecord { kind, job, generation, node, time, content })
    };
    let start = 1_700_000_000_000_000_001;
    let mut records = vec![record(Kind::Start, "", start, "{\"name\":\"ü\"}".as_bytes())];
    for sample in 0..samples {
        let values: Vec<f64> = (0..3).map(|value| sample as f64 + f64::from(value) / 4.0).collect();
        let content = JobRecord::sample_content("node", &values);
        records.push(record(Kind::Sample, "n01", start + sample, &content));
    }
    records.push(record(Kind::Sample, "n01", start, &JobRecord::sample_content("empty", &[])));
    records.push(record(Kind::Spans, "n02", start, &[0xFF, 0x00]));
    records.push(record(Kind::End, "", -1, br#"{"state":"failed"}"#));
    let id = JobId::new(job, generation).expect("an id");
    let marks = vec![Mark { producer: "slurm\n\"1\"".to_owned(), epoch: 5, sequence: -7 }];
    JobPart { id, number: 2, records, marks }
}

#[test]
fn duckdb_and_arrow_read_the_columns_and_the_metadata() {
    let Some(python) = python() else {
        println!(
            "skipped: no duckdb and pyarrow; `scripts/setup test` gets them where there is PyPI"
        );
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut writer =
        SegmentWriter::new(folder.path(), 3, Timestamp::from_nanos(99)).expect("begun");
    for part in [part("a/../b", u32::MAX, 20_000), part("it's \"7\"", 0, 4)] {
        writer.push(&part).expect("pushed");
    }
    let segment = writer.finish().expect("finished");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/segment.py");
    let path = folder.path().join(&segment.name);
    let ran = Command::new(python).arg(script).arg(path).output().expect("it starts");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(
        said,
        "columns\nmetadata\nchecksums\nrows\nvalues\n",
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

//! A copy of another hub's jobs beside the jobs of this hub.

use std::path::Path;
use std::time::Duration;

use skopos_access::{Caller, Names};
use skopos_model::job::{JobRecord, Kind};
use skopos_store::jobs::{Filter, PageRequest, Visibility};

use super::place::{JobsPlace, JobsSettings};
use super::shared::now;
use super::store::Jobs;
use super::tests::eventually;

const START: &str = r#"{"user":"ann","nodes":["n01"]}"#;

fn place(folder: &Path) -> JobsPlace {
    JobsPlace::new(Some(folder.to_owned()), "s", JobsSettings::default())
}

fn store(jobs: &Jobs, caller: &Caller, sequence: i64, (kind, document): (Kind, &str)) {
    let (job, node) = ("7", if *caller == Caller::Owner { "" } else { "n02" });
    let record =
        JobRecord { kind, job, generation: 0, node, time: now(), content: document.as_bytes() };
    let stored = jobs.store(caller, ("p", 1), |visit| visit(sequence, record)).expect("stored");
    assert_eq!(stored.accepted, 1, "{stored:?}");
}

#[test]
fn records_under_the_id_of_a_copied_job_do_not_hide_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let copied = folder.path().join("replicas/hub1");
    {
        // A copy has the folders of a hub's jobs, and a file beside them.
        let jobs = place(&copied).open().expect("opened");
        store(&jobs, &Caller::Owner, 0, (Kind::Start, START));
        assert!(jobs.wait_durable(&Caller::Owner, ("p", 1), 0, Duration::from_secs(180)));
    }
    std::fs::write(copied.join("replica"), format!("{:016x}\n{:016x}\n", 7, 8)).expect("written");
    let place = place(&folder.path().join("jobs"));
    let jobs = place.open().expect("opened");
    let shown = || {
        let copies = place.shown_copies().expect("read").jobs;
        let filter = || Filter::new(Visibility::Everything);
        let rows = copies.iter().map(|copy| {
            let request = PageRequest::default();
            let rows = copy.search(&Caller::Owner, filter(), &request).expect("read").items;
            let entries = copy.search_entries(&Caller::Owner, filter(), &request).expect("read");
            assert_eq!(rows.len(), entries.items.len());
            rows.len()
        });
        rows.sum::<usize>()
    };
    eventually("the copy is listed", || shown() == 1);
    let (site, node) = ("s".to_owned(), "n02".to_owned());
    let node = Caller::Node(Names { site, node, is_hub: false });
    store(&jobs, &node, 0, (Kind::Spans, "[1]"));
    assert_eq!(shown(), 1, "a node that has nothing to do with the job names it");
    store(&jobs, &node, 1, (Kind::Start, &START.replace("n01", "n02")));
    assert_eq!(shown(), 1, "another job has the same id");
    store(&jobs, &Caller::Owner, 0, (Kind::Start, START));
    assert_eq!(shown(), 0, "this hub has the job itself");
}

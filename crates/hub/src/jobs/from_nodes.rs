//! Records that nodes deliver over the live plane, and the jobs that run on them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use skopos_access::Caller;
use skopos_model::job::{JobId, JobState};
use skopos_store::jobs::catalogue::MAX_CONDITIONS;
use skopos_store::jobs::spool::Sent;
use skopos_store::jobs::{Filter, JobRow, PageRequest, Visibility};
use skopos_wire::{Asker, Delivered, Delivery, JobsOfNode, MAX_JOBS_OF_NODE, Taker};

use super::delivering::Delivering;
use super::node_facts::may_run;
use super::place::JobsPlace;
use super::shared::{described, now};
use super::spooled::store_batch;
use super::store::Jobs;

/// The most jobs that a search looks at, those that began last first: some runs of each, or jobs of a node whose ends were lost.
const MAX_FOUND: usize = 4096;

/// Time in which the standing of a node's jobs is looked up. Then its request waits for the next round: other nodes need its place.
const LOOKUP_TIME: Duration = Duration::from_secs(2);

/// Answers nodes that deliver.
pub(crate) struct FromNodes {
    place: Arc<JobsPlace>,
    delivering: Delivering,
}

impl FromNodes {
    /// Stores records in a place, and notes the nodes that ask.
    pub(crate) fn new(place: Arc<JobsPlace>, delivering: Delivering) -> Self {
        Self { place, delivering }
    }

    /// Returns the jobs of a node, which sees the jobs with these ids.
    fn jobs_of(&self, node: &str, seen: Vec<String>) -> Result<JobsOfNode, String> {
        let jobs = self.place.get().map_err(|e| e.to_string())?;
        // The folder is made with the first job.
        let Some(jobs) = jobs else { return Ok(JobsOfNode::default()) };
        let of_node = Filter { host: Some(node.to_owned()), ..running(&jobs) };
        let is_running =
            |row: &JobRow| may_run(row.started, row.requested.get("wall_seconds").copied(), now());
        let rows = find(&jobs, of_node)?.into_iter().filter(is_running);
        let mut running: Vec<JobId> = rows.map(|row| row.id).collect();
        let known: HashSet<&str> = running.iter().map(JobId::job).collect();
        let unknown = seen.iter().filter(|id| !known.contains(id.as_str())).cloned();
        let unknown: Vec<String> = unknown.collect();
        // The node counts those that it sees itself.
        let further = running.split_off(running.len().min(MAX_JOBS_OF_NODE));
        let seen: HashSet<&str> = seen.iter().map(String::as_str).collect();
        let left_out = further.iter().filter(|id| !seen.contains(id.job())).count() as u64;
        let mut of_node = JobsOfNode { running, elsewhere: Vec::new(), left_out };
        let until = Instant::now() + LOOKUP_TIME;
        for ids in unknown.chunks(MAX_CONDITIONS) {
            if Instant::now() >= until {
                return Err("the jobs of the node cannot be looked up in time".to_owned());
            }
            for standing in standings(&jobs, ids)? {
                match standing {
                    // The node knows of it, and counts it if it has no room for it either.
                    Standing::Open(_) if of_node.running.len() >= MAX_JOBS_OF_NODE => {}
                    Standing::Open(id) => of_node.running.push(id),
                    Standing::Elsewhere(id) => of_node.elsewhere.push(id.job().to_owned()),
                }
            }
        }
        Ok(of_node)
    }
}

impl Taker for FromNodes {
    fn take(&self, asker: Asker<'_>, delivery: Delivery) -> Result<Delivered, String> {
        let Asker { caller, node, is_by_name } = asker;
        if !is_by_name && let Some(hub) = self.place.copies().hubs().first() {
            // The node may be one of that hub, which is away.
            return Err(format!(
                "this hub keeps the copy of the jobs of {hub}: if it takes the records of this node, name it as `hub` in \
                 the table [jobs]"
            ));
        }
        // Names of files are not for nodes.
        let later = |why: String| {
            let is_owner = *caller == Caller::Owner;
            let plain = || "the hub cannot use its jobs now".to_owned();
            Delivered::Sent(Sent::Later(if is_owner { why } else { plain() }))
        };
        Ok(match delivery {
            Delivery::Jobs(seen) => {
                // A node that asks all hubs does not deliver to any of them yet.
                if is_by_name {
                    self.delivering.note(node, Instant::now());
                }
                self.jobs_of(node, seen).map_or_else(later, Delivered::Jobs)
            }
            Delivery::Records(batch) => match self.place.open() {
                Ok(jobs) => Delivered::Sent(store_batch(&jobs, caller, &batch)),
                Err(e) => later(e.to_string()),
            },
        })
    }
}

/// A job that a node sees, and that is not known to run there.
enum Standing {
    /// This run of it may be on the node: its start has not come, or names no nodes.
    Open(JobId),
    /// It has ended, or runs on other nodes.
    Elsewhere(JobId),
}

/// Returns the standing of each job with one of these ids, by its last run. A job of which no record has come has no standing.
fn standings(jobs: &Jobs, ids: &[String]) -> Result<Vec<Standing>, String> {
    let site = Some(jobs.site().to_owned());
    let ids = ids.iter().cloned().collect();
    let filter = Filter { ids, site, ..Filter::new(Visibility::Everything) };
    let mut last: BTreeMap<String, JobRow> = BTreeMap::new();
    for row in find(jobs, filter)? {
        let run = row.id.generation();
        match last.get_mut(row.id.job()) {
            Some(known) if known.id.generation() > run => {}
            Some(known) => *known = row,
            None => drop(last.insert(row.id.job().to_owned(), row)),
        }
    }
    let standing = |row: JobRow| match row.state {
        JobState::Running | JobState::Orphan if row.nodes == 0 => Standing::Open(row.id),
        _ => Standing::Elsewhere(row.id),
    };
    Ok(last.into_values().map(standing).collect())
}

/// Returns the condition for the jobs of a site that run.
fn running(jobs: &Jobs) -> Filter {
    let site = Some(jobs.site().to_owned());
    Filter { states: vec![JobState::Running], site, ..Filter::new(Visibility::Everything) }
}

/// Returns the jobs that pass a filter, those that began last first, and not many more than [`MAX_FOUND`].
fn find(jobs: &Jobs, filter: Filter) -> Result<Vec<JobRow>, String> {
    let (mut rows, mut request) = (Vec::new(), PageRequest::default());
    loop {
        let page = jobs.search(&Caller::Owner, filter.clone(), &request);
        let page = page.map_err(|e| described(&e))?;
        rows.extend(page.items);
        request.after = page.next;
        if request.after.is_none() || rows.len() >= MAX_FOUND {
            return Ok(rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use skopos_model::Timestamp;
    use skopos_model::job::{JobRecord, Kind};
    use skopos_store::jobs::StoredRecord;
    use skopos_store::jobs::spool::SpooledBatch;

    use super::*;
    use crate::jobs::JobsSettings;

    const OF_N01: Asker<'static> = Asker { caller: &Caller::Owner, node: "n01", is_by_name: true };

    /// Stores documents of jobs, as their owner.
    fn store(jobs: &FromNodes, documents: &[(&str, u32, Kind, &str)]) {
        let of = |(sequence, (job, generation, kind, content)): (i64, &(&str, u32, Kind, &str))| {
            let (time, content) = (now(), content.as_bytes());
            let (kind, generation) = (*kind, *generation);
            let record = JobRecord { kind, job, generation, node: "", time, content };
            (sequence, StoredRecord::of(&record))
        };
        let records = (0..).zip(documents).map(of).collect();
        let batch = SpooledBatch { producer: "test".to_owned(), epoch: now().as_nanos(), records };
        let answer = jobs.take(OF_N01, Delivery::Records(batch));
        let new = documents.len() as u64;
        assert_eq!(answer, Ok(Delivered::Sent(Sent::Acknowledged { new })));
    }

    #[test]
    fn a_node_learns_which_jobs_run_on_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = JobsPlace::new(Some(folder.path().join("jobs")), "s", JobsSettings::default());
        let delivering = Delivering::default();
        let jobs = FromNodes::new(Arc::new(place), delivering.clone());
        let ask = |seen: &[&str]| {
            let seen = seen.iter().map(|id| (*id).to_owned()).collect();
            match jobs.take(OF_N01, Delivery::Jobs(seen)) {
                Ok(Delivered::Jobs(jobs)) => jobs,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(ask(&["1"]), JobsOfNode::default(), "without a folder");
        assert!(delivering.has("n01", Instant::now()));
        let here = format!(r#"{{"nodes":["n01","n02"],"start_seconds":{}}}"#, seconds());
        let elsewhere = here.replace("n01", "n03");
        let lost = r#"{"nodes":["n01"],"start_seconds":1e9}"#;
        let end = r#"{"state":"completed"}"#;
        store(
            &jobs,
            &[
                ("here", 1, Kind::Start, here.as_str()),
                ("there", 0, Kind::Start, elsewhere.as_str()),
                ("lost", 0, Kind::Start, lost),
                ("over", 0, Kind::Start, here.as_str()),
                ("over", 0, Kind::End, end),
                ("plain", 2, Kind::Start, "{}"),
                ("orphan", 0, Kind::Metrics, r#"{"schema":"a","names":["b"]}"#),
            ],
        );
        let mut states = BTreeMap::new();
        let until = Instant::now() + std::time::Duration::from_secs(180);
        let seen = ["here", "there", "lost", "over", "plain", "orphan", "unknown"];
        while states != expected() {
            assert!(Instant::now() < until, "{states:?}");
            std::thread::sleep(std::time::Duration::from_millis(5));
            let JobsOfNode { running, elsewhere, .. } = ask(&seen);
            let runs = running.into_iter().map(|id| (id.to_string(), "runs"));
            states = runs.chain(elsewhere.into_iter().map(|id| (id, "elsewhere"))).collect();
        }
        assert_eq!(ask(&[]).running.len(), 1, "a job whose nodes are not known is not told");
        // More than one search has, with further runs of a job.
        let ended = [1, 2, 3].map(|run| ("plain", run, Kind::End, end));
        store(&jobs, &[&ended[..], &[("plain", 9, Kind::Start, "{}")]].concat());
        let unknown: Vec<String> = (0..3 * MAX_CONDITIONS).map(|at| format!("x{at}")).collect();
        let many: Vec<&str> = unknown.iter().map(String::as_str).chain(seen).collect();
        let last = JobId::new("plain", 9).expect("an id");
        while !ask(&many).running.contains(&last) {
            assert!(Instant::now() < until, "{:?}", ask(&many));
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let JobsOfNode { running, mut elsewhere, .. } = ask(&many);
        elsewhere.sort();
        assert_eq!(
            (running.len(), elsewhere),
            (3, vec!["lost".into(), "over".into(), "there".into()])
        );
    }

    #[test]
    fn jobs_beyond_the_bound_of_an_answer_are_counted_and_are_not_elsewhere() {
        /// Jobs that are too many.
        const FURTHER: usize = 3;
        let folder = tempfile::tempdir().expect("a folder");
        let place = JobsPlace::new(Some(folder.path().join("jobs")), "s", JobsSettings::default());
        let jobs = FromNodes::new(Arc::new(place), Delivering::default());
        let ask = |seen: &[&str]| {
            let seen = seen.iter().map(|id| (*id).to_owned()).collect();
            jobs.jobs_of("n01", seen).expect("an answer")
        };
        let begun = seconds();
        let start = |at: usize| {
            let start = format!(r#"{{"nodes":["n01"],"start_seconds":{}}}"#, begun - at as f64);
            (format!("job{at}"), start)
        };
        let starts: Vec<(String, String)> = (0..MAX_JOBS_OF_NODE + FURTHER).map(start).collect();
        let starts =
            starts.iter().map(|(job, start)| (job.as_str(), 0, Kind::Start, start.as_str()));
        // The catalogue hears of jobs in the order of their first records.
        let orphan = ("orphan", 0, Kind::Metrics, r#"{"schema":"a","names":["b"]}"#);
        store(&jobs, &std::iter::once(orphan).chain(starts).collect::<Vec<_>>());
        let until = Instant::now() + std::time::Duration::from_secs(180);
        while ask(&[]).left_out < FURTHER as u64 {
            assert!(Instant::now() < until, "{:?}", ask(&[]));
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        // The node sees the job that began first, and one whose start has not come.
        let first = format!("job{}", MAX_JOBS_OF_NODE + FURTHER - 1);
        let answer = ask(&[&first, "orphan"]);
        assert_eq!((answer.running.len(), answer.left_out), (MAX_JOBS_OF_NODE, FURTHER as u64 - 1));
        assert_eq!(answer.elsewhere, [""; 0]);
        assert!(answer.running.iter().all(|id| id.job() != first && id.job() != "orphan"));
    }

    #[test]
    fn a_hub_with_a_copy_does_not_take_the_nodes_of_its_primary() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = JobsPlace::new(Some(folder.path().join("jobs")), "s", JobsSettings::default());
        let jobs = FromNodes::new(Arc::new(place), Delivering::default());
        let ask = |is_by_name| {
            let asker = Asker { is_by_name, ..OF_N01 };
            jobs.take(asker, Delivery::Jobs(Vec::new()))
        };
        assert!(ask(false).is_ok());
        let begun = jobs.place.copies().begin(&Caller::Owner, ("hub1", "s"), 7);
        drop(begun.expect("a copy"));
        let why = ask(false).expect_err("refused");
        assert!(why.contains("the copy of the jobs of hub1"), "{why}");
        assert!(ask(true).is_ok(), "the node is configured for this hub");
    }

    fn expected() -> BTreeMap<String, &'static str> {
        let runs = ["here.g1", "plain.g2", "orphan"].map(|id| (id.to_owned(), "runs"));
        let elsewhere = ["there", "lost", "over"].map(|id| (id.to_owned(), "elsewhere"));
        runs.into_iter().chain(elsewhere).collect()
    }

    fn seconds() -> f64 {
        now().since(Timestamp::from_nanos(0)).as_secs_f64()
    }
}

//! Records that nodes deliver over the live plane, and the jobs that run on them.

use std::sync::Arc;
use std::time::Instant;

use skopos_access::Caller;
use skopos_model::job::{JobId, JobState};
use skopos_store::jobs::spool::Sent;
use skopos_store::jobs::{Filter, JobRow, PageRequest, Visibility};
use skopos_wire::{Asker, Delivered, Delivery, JobsOfNode, MAX_JOBS_OF_NODE, Taker};

use super::delivering::Delivering;
use super::node_facts::may_run;
use super::place::JobsPlace;
use super::shared::{described, now};
use super::spooled::store_batch;
use super::store::Jobs;

/// The most runs of one job that are looked at, those that began last first.
const MAX_RUNS: usize = 16;

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
        // Without a folder nobody has stored a job.
        let Some(jobs) = jobs else { return Ok(JobsOfNode::default()) };
        let of_node = Filter { host: Some(node.to_owned()), ..running(&jobs) };
        let rows = find(&jobs, of_node, MAX_JOBS_OF_NODE)?;
        let is_running =
            |row: &JobRow| may_run(row.started, row.requested.get("wall_seconds").copied(), now());
        let mut of_node = JobsOfNode::default();
        of_node.running.extend(rows.into_iter().filter(is_running).map(|row| row.id));
        for id in seen {
            if of_node.running.iter().any(|running| running.job() == id) {
                continue;
            }
            match standing(&jobs, &id)? {
                Standing::Unknown => {}
                Standing::Open(id) if of_node.running.len() < MAX_JOBS_OF_NODE => {
                    of_node.running.push(id);
                }
                Standing::Open(_) | Standing::Elsewhere => of_node.elsewhere.push(id),
            }
        }
        Ok(of_node)
    }
}

impl Taker for FromNodes {
    fn take(&self, asker: Asker<'_>, delivery: Delivery) -> Delivered {
        let Asker { caller, node, is_by_name } = asker;
        // Names of files are not for nodes.
        let later = |why: String| {
            let is_owner = *caller == Caller::Owner;
            let plain = || "the hub cannot use its jobs now".to_owned();
            Delivered::Sent(Sent::Later(if is_owner { why } else { plain() }))
        };
        match delivery {
            Delivery::Jobs(seen) => {
                // A node that asks all hubs delivers to none yet.
                if is_by_name {
                    self.delivering.note(node, Instant::now());
                }
                self.jobs_of(node, seen).map_or_else(later, Delivered::Jobs)
            }
            Delivery::Records(batch) => match self.place.open() {
                Ok(jobs) => Delivered::Sent(store_batch(&jobs, caller, &batch)),
                Err(e) => later(e.to_string()),
            },
        }
    }
}

/// A job that a node sees, and that is not known to run there.
enum Standing {
    /// No record of it has come.
    Unknown,
    /// This run of it may be on the node: its start has not come, or names no nodes.
    Open(JobId),
    /// It has ended, or runs on other nodes.
    Elsewhere,
}

/// Returns the standing of the job with an id, by its last run.
fn standing(jobs: &Jobs, id: &str) -> Result<Standing, String> {
    let site = Some(jobs.site().to_owned());
    let filter = Filter { job: Some(id.to_owned()), site, ..Filter::new(Visibility::Everything) };
    let rows = find(jobs, filter, MAX_RUNS)?;
    let Some(last) = rows.into_iter().max_by_key(|row| row.id.generation()) else {
        return Ok(Standing::Unknown);
    };
    Ok(match last.state {
        JobState::Running | JobState::Orphan if last.nodes == 0 => Standing::Open(last.id),
        _ => Standing::Elsewhere,
    })
}

/// Returns the condition for the jobs of a site that run.
fn running(jobs: &Jobs) -> Filter {
    let site = Some(jobs.site().to_owned());
    Filter { states: vec![JobState::Running], site, ..Filter::new(Visibility::Everything) }
}

fn find(jobs: &Jobs, filter: Filter, most: usize) -> Result<Vec<JobRow>, String> {
    let request = PageRequest { most, ..PageRequest::default() };
    let page = jobs.search(&Caller::Owner, filter, &request).map_err(|e| described(&e))?;
    Ok(page.items)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

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
        assert_eq!(answer, Delivered::Sent(Sent::Acknowledged { new }));
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
                Delivered::Jobs(jobs) => jobs,
                Delivered::Sent(sent) => panic!("{sent:?}"),
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
            let JobsOfNode { running, elsewhere } = ask(&seen);
            let runs = running.into_iter().map(|id| (id.to_string(), "runs"));
            states = runs.chain(elsewhere.into_iter().map(|id| (id, "elsewhere"))).collect();
        }
        assert_eq!(ask(&[]).running.len(), 1, "a job whose nodes are not known is not told");
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

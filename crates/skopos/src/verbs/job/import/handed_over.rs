//! Tasks that `skopos run` handed to the hub when they ran. They are jobs already, under other ids than imported ones.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use skopos_model::task::Summary;
use skopos_query::Answer;
use skopos_query::arrow::array::{Array as _, AsArray as _};
use skopos_query::arrow::datatypes::TimestampNanosecondType;
use skopos_term::Failure;

use super::records::time_of;
use crate::verbs::job::hub::Hub;

/// Jobs that are asked for at once: some megabytes.
const PAGE: usize = 50_000;

/// Nanoseconds by which two times of one end may differ: a report has seconds as a double, which JSON rounds.
const SLACK_NS: i64 = 1_000;

/// The jobs of `skopos run`: the time of the end, and a fingerprint of node and class.
#[derive(Debug, Default)]
pub(super) struct HandedOver(BTreeSet<(i64, u64)>);

impl HandedOver {
    /// Asks the hub for them.
    pub(super) fn ask(hub: &Hub) -> Result<Self, Failure> {
        let (mut found, mut from) = (Self::default(), 0_i64);
        loop {
            let answer = hub.ask(&format!(
                "SELECT ended_at, job, application FROM jobs \
                 WHERE ended_at >= to_timestamp_nanos({from}) AND job LIKE '%/%/%' \
                 ORDER BY ended_at LIMIT {PAGE}"
            ))?;
            let last = found.add(&answer)?;
            if answer.rows() < PAGE {
                return Ok(found);
            }
            // More jobs may have ended at the time of the last one. Only a page of them alone has no place for others.
            from = last.max(from.saturating_add(1));
        }
    }

    /// Adds a page, and returns the time of the last end in it.
    fn add(&mut self, answer: &Answer) -> Result<i64, Failure> {
        let mut last = 0;
        for batch in &answer.batches {
            let text = |at: usize| batch.column(at).as_string_opt::<i32>();
            let ended = batch.column(0).as_primitive_opt::<TimestampNanosecondType>();
            let (Some(ended), Some(jobs), Some(classes)) = (ended, text(1), text(2)) else {
                return Err(Failure::new("the answer of the hub has other columns"));
            };
            for row in 0..ended.len() {
                last = last.max(ended.value(row));
                if let Some(node) = node_of(jobs.value(row)).filter(|_| !classes.is_null(row)) {
                    self.0.insert((ended.value(row), fingerprint(node, classes.value(row))));
                }
            }
        }
        Ok(last)
    }

    /// Returns true if the hub has the task of this report.
    pub(super) fn has(&self, summary: &Summary) -> bool {
        let ended = time_of(summary.end_seconds).as_nanos();
        let (from, to) = (ended.saturating_sub(SLACK_NS), ended.saturating_add(SLACK_NS));
        let own = fingerprint(&summary.host.node, &summary.task.class);
        self.0.range((from, 0)..=(to, u64::MAX)).any(|(_, of)| *of == own)
    }
}

/// Returns the node in the id that `skopos run` gives a job: `NODE/NANOSECONDS/PROCESS`.
fn node_of(job: &str) -> Option<&str> {
    let (rest, process) = job.rsplit_once('/')?;
    let (node, nanoseconds) = rest.rsplit_once('/')?;
    (process.parse::<u32>().is_ok() && nanoseconds.parse::<i64>().is_ok()).then_some(node)
}

fn fingerprint(node: &str, class: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (node, class).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_run_name_their_node() {
        assert_eq!(node_of("n01/1700000000000000000/4711"), Some("n01"));
        assert_eq!(node_of("a/b/1700000000000000000/4711"), Some("a/b"));
        for job in ["4711", "ann/solve/17x", "n01/x/4711", "task-00", "n01/4711"] {
            assert_eq!(node_of(job), None, "{job}");
        }
    }
}

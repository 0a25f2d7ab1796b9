//! Tasks that `skopos run` handed to the hub when they ran. They are jobs already, under other ids than imported ones.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::RangeInclusive;

use skopos_model::task::Summary;
use skopos_query::Answer;
use skopos_query::arrow::array::{Array as _, AsArray as _};
use skopos_query::arrow::datatypes::TimestampNanosecondType;
use skopos_term::Failure;

use super::records::time_of;
use crate::verbs::job::hub::Hub;

/// Jobs that are asked for at once: some megabytes.
const PAGE: usize = 50_000;

/// Most jobs that are compared: those of a day with fifty tasks a second. They take some hundred megabytes.
const MAX_JOBS: usize = 4_000_000;

/// Nanoseconds by which two times of one end may differ: a report has seconds as a double, which JSON rounds.
const SLACK_NS: i64 = 1_000;

/// The jobs of `skopos run`: the time of the end, and a fingerprint of node and class.
#[derive(Debug, Default)]
pub(super) struct HandedOver(BTreeSet<(i64, u64)>);

impl HandedOver {
    /// Asks the hub for those that ended in a range of times, in nanoseconds since 1970.
    ///
    /// # Errors
    /// The hub does not answer, or not with all its jobs; there are more than [`MAX_JOBS`].
    pub(super) fn ask(hub: &Hub, ended: RangeInclusive<i64>) -> Result<Self, Failure> {
        Self::collect(ended, MAX_JOBS, |sql| hub.ask(sql))
    }

    fn collect(
        ended: RangeInclusive<i64>,
        most: usize,
        ask: impl Fn(&str) -> Result<Answer, Failure>,
    ) -> Result<Self, Failure> {
        let mut found = Self::default();
        let mut from = ended.start().saturating_sub(SLACK_NS).max(0);
        let to = ended.end().saturating_add(SLACK_NS);
        loop {
            let answer = ask(&format!(
                "SELECT ended_at, job, application FROM jobs \
                 WHERE ended_at >= to_timestamp_nanos({from}) \
                 AND ended_at <= to_timestamp_nanos({to}) AND job LIKE '%/%/%' \
                 ORDER BY ended_at LIMIT {PAGE}"
            ))?;
            if !answer.missing.is_empty() {
                // Tasks that are among these jobs would become jobs a second time, under other ids.
                let missing = answer.missing.join(", ");
                let text = format!("the answer of the hub lacks {missing}");
                return Err(Failure::new(text).hint("import the archive when the hub has all jobs"));
            }
            let last = found.add(&answer)?;
            if found.0.len() > most {
                return Err(Failure::new(format!(
                    "the hub has more than {most} jobs of `skopos run` in the time of the tasks"
                ))
                .hint("import a part of the tasks at a time, such as --where 'name=make'"));
            }
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
    use std::cell::RefCell;
    use std::sync::Arc;

    use skopos_query::Way;
    use skopos_query::arrow::array::{
        ArrayRef, RecordBatch, StringArray, TimestampNanosecondArray,
    };

    use super::*;

    /// An answer with jobs of the class `make`, which ended at these times.
    fn answer(ended: &[i64], missing: &[&str]) -> Answer {
        let jobs: StringArray = ended.iter().map(|at| Some(format!("n01/{at}/7"))).collect();
        let classes = StringArray::from(vec!["make"; ended.len()]);
        let ended = TimestampNanosecondArray::from(ended.to_vec());
        let columns: [(&str, ArrayRef); 3] = [
            ("ended_at", Arc::new(ended)),
            ("job", Arc::new(jobs)),
            ("application", Arc::new(classes)),
        ];
        let batch = RecordBatch::try_from_iter(columns).expect("a batch");
        let missing = missing.iter().map(|part| (*part).to_owned()).collect();
        Answer::new(batch.schema(), vec![batch], Way::Planned, missing)
    }

    #[test]
    fn only_jobs_of_the_time_of_the_tasks_are_asked_for() {
        let asked = RefCell::new(String::new());
        let found = HandedOver::collect(5_000..=9_000, 3, |sql| {
            *asked.borrow_mut() = sql.to_owned();
            Ok(answer(&[5_000, 6_000, 9_000], &[]))
        });
        assert_eq!(found.expect("all are there").0.len(), 3);
        let asked = asked.take();
        for limit in [">= to_timestamp_nanos(4000)", "<= to_timestamp_nanos(10000)"] {
            assert!(asked.contains(&format!("ended_at {limit}")), "{asked}");
        }
    }

    #[test]
    fn an_answer_that_lacks_jobs_or_has_too_many_ends_the_import() {
        let refused = |most: usize, missing: &[&str]| {
            let found = HandedOver::collect(0..=9, most, |_| Ok(answer(&[1, 2, 3], missing)));
            let failure = found.expect_err("refused");
            assert!(failure.hint_text().is_some(), "{failure:?}");
            failure.message().to_owned()
        };
        let message = refused(3, &["the copy of the jobs of hub1, which is still being read"]);
        assert!(message.ends_with("lacks the copy of the jobs of hub1, which is still being read"));
        assert!(refused(2, &[]).starts_with("the hub has more than 2 jobs"));
    }

    #[test]
    fn ids_of_run_name_their_node() {
        assert_eq!(node_of("n01/1700000000000000000/4711"), Some("n01"));
        assert_eq!(node_of("a/b/1700000000000000000/4711"), Some("a/b"));
        for job in ["4711", "ann/solve/17x", "n01/x/4711", "task-00", "n01/4711"] {
            assert_eq!(node_of(job), None, "{job}");
        }
    }
}

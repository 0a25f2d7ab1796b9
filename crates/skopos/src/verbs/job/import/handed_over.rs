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
use crate::verbs::job::hub::{Hub, quoted};

/// Jobs that are asked for at once: some megabytes.
const PAGE: usize = 50_000;

/// Most jobs that are compared: those of a day with fifty tasks a second. They take some hundred megabytes.
const MAX_JOBS: usize = 4_000_000;

/// Most bytes of the condition that names classes: some hundred classes, with all of which the hub compares each job. If there are
/// more, the jobs of all classes are asked for.
const MAX_CLASSES_BYTES: usize = 2 << 10;

/// Nanoseconds by which two times of one end may differ: a report has seconds as a double, which JSON rounds.
const SLACK_NS: i64 = 1_000;

/// The tasks of an import.
#[derive(Debug)]
pub(super) struct Tasks {
    /// The range of times in which they ended, in nanoseconds since 1970.
    pub(super) ended: RangeInclusive<i64>,
    /// Their classes; empty if they are not known.
    pub(super) classes: Vec<String>,
}

/// The jobs of `skopos run`: the time of the end, and a fingerprint of node and class.
#[derive(Debug, Default)]
pub(super) struct HandedOver(BTreeSet<(i64, u64)>);

impl HandedOver {
    /// Asks the hub for those that may be the tasks of an import.
    ///
    /// # Errors
    /// The hub does not answer, or not with all its jobs; there are more than [`MAX_JOBS`].
    pub(super) fn ask(hub: &Hub, tasks: &Tasks) -> Result<Self, Failure> {
        Self::collect(tasks, MAX_JOBS, |sql| hub.ask(sql))
    }

    fn collect(
        tasks: &Tasks,
        most: usize,
        ask: impl Fn(&str) -> Result<Answer, Failure>,
    ) -> Result<Self, Failure> {
        let mut found = Self::default();
        let mut from = tasks.ended.start().saturating_sub(SLACK_NS).max(0);
        let to = tasks.ended.end().saturating_add(SLACK_NS);
        let of_classes = of_classes(&tasks.classes);
        loop {
            let answer = ask(&format!(
                "SELECT ended_at, job, application FROM jobs \
                 WHERE ended_at >= to_timestamp_nanos({from}) \
                 AND ended_at <= to_timestamp_nanos({to}) AND job LIKE '%/%/%'{of_classes} \
                 ORDER BY ended_at LIMIT {PAGE}"
            ))?;
            if !answer.missing.is_empty() {
                // Tasks that are among these jobs would become jobs a second time, under other ids.
                return Err(lacks(&answer.missing));
            }
            let last = found.add(&answer)?;
            if found.0.len() > most {
                return Err(Failure::new(format!(
                    "the hub has more than {most} jobs of `skopos run` in the time of the tasks"
                ))
                .hint("import a class at a time (--where 'name=make'), or a set of less time"));
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

/// Returns the condition of SQL that jobs are of these classes; an empty one if they are not known or too many.
fn of_classes(classes: &[String]) -> String {
    let names: Vec<String> = classes.iter().map(|class| quoted(class)).collect();
    let condition = format!(" AND application IN ({})", names.join(", "));
    let is_usable = !classes.is_empty() && condition.len() <= MAX_CLASSES_BYTES;
    if is_usable { condition } else { String::new() }
}

/// Returns the failure of an answer that lacks parts of the jobs.
fn lacks(missing: &[String]) -> Failure {
    let failure = Failure::new(format!("the answer of the hub lacks {}", missing.join(", ")));
    match missing.iter().find_map(|text| unread_copy(text)) {
        // It stays so until a person acts.
        Some(of) => failure.hint(format!(
            "stop the hub, and promote the copy (`skopos mds promote {of}`) or remove it \
             (`replicas/{of}` in the folder of state); a warning of the hub says why it is not read"
        )),
        None => failure.hint("import the archive when the hub has all jobs"),
    }
}

/// Returns the name of the hub if this missing part is a copy of its jobs that cannot be read.
fn unread_copy(missing: &str) -> Option<&str> {
    missing.strip_prefix("the copy of the jobs of ")?.strip_suffix(", which cannot be read")
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

    use skopos_hub::jobs::ShownCopies;
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

    fn tasks(ended: RangeInclusive<i64>, classes: &[&str]) -> Tasks {
        Tasks { ended, classes: classes.iter().map(|class| (*class).to_owned()).collect() }
    }

    #[test]
    fn only_jobs_of_the_time_and_the_classes_of_the_tasks_are_asked_for() {
        let asked = |classes: &[&str]| {
            let asked = RefCell::new(String::new());
            let found = HandedOver::collect(&tasks(5_000..=9_000, classes), 3, |sql| {
                *asked.borrow_mut() = sql.to_owned();
                Ok(answer(&[5_000, 6_000, 9_000], &[]))
            });
            assert_eq!(found.expect("all are there").0.len(), 3);
            asked.take()
        };
        let of_two = asked(&["make", "o'clock"]);
        for condition in [
            "ended_at >= to_timestamp_nanos(4000)",
            "ended_at <= to_timestamp_nanos(10000)",
            "application IN ('make', 'o''clock')",
        ] {
            assert!(of_two.contains(condition), "{of_two}");
        }
        let long = "x".repeat(MAX_CLASSES_BYTES);
        assert!(!asked(&[]).contains(" IN "), "the classes are not known");
        assert!(!asked(&[long.as_str()]).contains(" IN "), "the condition is too long");
    }

    #[test]
    fn an_answer_that_lacks_jobs_or_has_too_many_ends_the_import() {
        let refused = |most: usize, missing: &[&str]| {
            let of = tasks(0..=9, &["make"]);
            let found = HandedOver::collect(&of, most, |_| Ok(answer(&[1, 2, 3], missing)));
            let failure = found.expect_err("refused");
            assert!(failure.hint_text().is_some(), "{failure:?}");
            failure.message().to_owned()
        };
        let message = refused(3, &["the copy of the jobs of hub1, which is still being read"]);
        assert!(message.ends_with("lacks the copy of the jobs of hub1, which is still being read"));
        assert!(refused(2, &[]).starts_with("the hub has more than 2 jobs"));
    }

    #[test]
    fn the_hint_about_a_copy_that_cannot_be_read_names_the_way_out() {
        let (being_read, failed) = (vec!["hub1".to_owned()], vec!["hub2".to_owned()]);
        let copies = ShownCopies { being_read, failed, ..ShownCopies::default() };
        let failure = lacks(&copies.missing());
        let hint = failure.hint_text().expect("a hint");
        assert!(hint.contains("skopos mds promote hub2"), "{hint}");
        assert!(hint.contains("replicas/hub2"), "{hint}");
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

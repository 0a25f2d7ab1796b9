//! Hands jobs to a hub over several connections, so that one commit makes many of them durable.
//!
//! A job is counted once the hub has all of its records on its disk. Nothing is spooled: the archive has the tasks, and a
//! later import sends those that are missing.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use skopos_model::unpoisoned;
use skopos_store::jobs::spool::{Sent, SpooledBatch};
use skopos_term::Failure;

/// Number of connections. A hub commits the records of all of them together, after some milliseconds; with more of them its
/// processors are the limit.
const CONNECTIONS: usize = 8;

/// Pause before a batch is sent again.
const RETRY_EVERY: Duration = Duration::from_millis(200);

/// The most refusals that are named. Further ones are counted.
const MAX_NAMED: usize = 1_000;

/// The result of an import.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Counts {
    /// Number of tasks of which the hub did not have all records.
    pub(super) imported: u64,
    /// Number of tasks that the hub had.
    pub(super) known: u64,
    /// Number of tasks, and of lists of their files, that were not taken.
    pub(super) refused: u64,
    /// The first of these.
    pub(super) refusals: Vec<Refusal>,
}

/// A task, or the list of its files, that was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Refusal {
    /// Number of the task in its archive.
    pub(super) task: i64,
    pub(super) why: String,
}

/// The records of a task, with its number.
type Numbered = (i64, SpooledBatch);

/// The state of an import, which its threads share.
pub(super) struct Import {
    /// Time without an answer of the hub after which the import ends.
    patience: Duration,
    state: Mutex<State>,
}

struct State {
    counts: Counts,
    /// Time of the last answer other than "later".
    answered: Instant,
    /// The reason for which the import ended before its last task.
    ended: Option<String>,
}

/// The entry of the connections.
pub(super) struct Queue<'i> {
    import: &'i Import,
    tasks: SyncSender<Numbered>,
}

impl Import {
    pub(super) fn new(patience: Duration) -> Self {
        let state = State { counts: Counts::default(), answered: Instant::now(), ended: None };
        Self { patience, state: Mutex::new(state) }
    }

    /// Opens the connections, lets `read` hand over tasks, and waits until each of them has an answer. `connect` returns a
    /// function that sends a batch on a connection of its own. A task waits in memory for each connection, and not more.
    ///
    /// # Errors
    /// The error of `read`, or the hub gives no answer for too long.
    pub(super) fn run<C: FnMut(&SpooledBatch) -> Sent>(
        self,
        connect: impl Fn() -> C + Sync,
        read: impl FnOnce(&Queue<'_>) -> Result<(), Failure>,
    ) -> Result<Counts, Failure> {
        let (tasks, waiting) = sync_channel(0);
        let waiting = Mutex::new(waiting);
        let done = thread::scope(|scope| {
            for _ in 0..CONNECTIONS {
                scope.spawn(|| self.hand_over(&waiting, connect()));
            }
            // The threads end when this end of the channel does.
            read(&Queue { import: &self, tasks })
        });
        let State { counts, ended, .. } = unpoisoned(self.state.into_inner());
        done?;
        match ended {
            None => Ok(counts),
            Some(why) => Err(Failure::new(format!(
                "the hub takes no more jobs, after {} were imported and {} were there: {why}",
                counts.imported, counts.known
            ))
            .hint("import again once the hub runs: jobs that it has are not stored twice")),
        }
    }

    /// Hands over tasks until the last one has an answer.
    fn hand_over(
        &self,
        waiting: &Mutex<Receiver<Numbered>>,
        mut send: impl FnMut(&SpooledBatch) -> Sent,
    ) {
        let next = || unpoisoned(waiting.lock()).recv();
        while let Ok((task, batch)) = next() {
            let began = Instant::now();
            // After the end, the reader of the archive must not wait for a connection.
            while !self.has_ended() {
                match send(&batch) {
                    Sent::Later(why) => {
                        self.retry(began, why);
                        continue;
                    }
                    Sent::Refused(why) => self.count(|counts| counts.refuse(task, why)),
                    Sent::Acknowledged { new: 0 } => self.count(|counts| counts.known += 1),
                    Sent::Acknowledged { .. } => self.count(|counts| counts.imported += 1),
                }
                break;
            }
        }
    }

    fn count(&self, note: impl FnOnce(&mut Counts)) {
        let mut state = unpoisoned(self.state.lock());
        state.answered = Instant::now();
        note(&mut state.counts);
    }

    /// Waits, or ends the import if no connection has had an answer since a batch was sent for the first time, for too
    /// long.
    fn retry(&self, began: Instant, why: String) {
        {
            let mut state = unpoisoned(self.state.lock());
            if state.answered.max(began).elapsed() >= self.patience {
                state.ended.get_or_insert(why);
                return;
            }
        }
        thread::sleep(RETRY_EVERY);
    }

    fn has_ended(&self) -> bool {
        unpoisoned(self.state.lock()).ended.is_some()
    }
}

impl Queue<'_> {
    /// Hands over a task once a connection is free. Returns false if the import has ended.
    pub(super) fn push(&self, task: i64, batch: SpooledBatch) -> bool {
        self.tasks.send((task, batch)).is_ok() && !self.import.has_ended()
    }

    /// Counts a task that the hub is known to have.
    pub(super) fn add_known(&self) {
        unpoisoned(self.import.state.lock()).counts.known += 1;
    }

    /// Counts and names a task, or the list of its files, that cannot be handed over.
    pub(super) fn refuse(&self, task: i64, why: String) {
        unpoisoned(self.import.state.lock()).counts.refuse(task, why);
    }
}

impl Counts {
    fn refuse(&mut self, task: i64, why: String) {
        self.refused += 1;
        if self.refusals.len() < MAX_NAMED {
            self.refusals.push(Refusal { task, why });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Time in which a test's hub always answers.
    const LONG: Duration = Duration::from_secs(600);

    fn batch(name: i64) -> SpooledBatch {
        SpooledBatch { producer: name.to_string(), ..SpooledBatch::default() }
    }

    #[test]
    fn each_task_is_handed_over_until_it_has_an_answer_and_counted_once() {
        let tried: Mutex<BTreeMap<String, u32>> = Mutex::default();
        let tries = &tried;
        let connect = || {
            move |batch: &SpooledBatch| {
                let mut tries = unpoisoned(tries.lock());
                let times = tries.entry(batch.producer.clone()).or_default();
                *times += 1;
                match batch.producer.parse::<u32>().expect("a number") {
                    number if number % 50 == 7 && *times < 3 => Sent::Later("busy".to_owned()),
                    number if number % 100 == 9 => Sent::Refused("no".to_owned()),
                    number => Sent::Acknowledged { new: u64::from(number % 2) },
                }
            }
        };
        let counts = Import::new(LONG).run(connect, |queue| {
            assert!((0..200).all(|task| queue.push(task, batch(task))));
            queue.add_known();
            queue.refuse(-1, "damaged".to_owned());
            Ok(())
        });
        let mut counts = counts.expect("imported");
        counts.refusals.sort_by_key(|refusal| refusal.task);
        let named: Vec<i64> = counts.refusals.iter().map(|refusal| refusal.task).collect();
        assert_eq!((counts.imported, counts.known, counts.refused), (98, 101, 3));
        assert_eq!(named, [-1, 9, 109]);
        let tried = unpoisoned(tried.into_inner());
        assert_eq!((tried.len(), tried["7"], tried["8"]), (200, 3, 1));
    }

    #[test]
    fn an_import_ends_when_no_connection_has_an_answer_any_more() {
        let connect = || {
            |batch: &SpooledBatch| match batch.producer.as_str() {
                "0" => Sent::Acknowledged { new: 1 },
                _ => Sent::Later("no hub runs".to_owned()),
            }
        };
        let mut pushed = 0;
        let ended = Import::new(Duration::from_millis(300)).run(connect, |queue| {
            pushed = (0..1_000).take_while(|task| queue.push(*task, batch(*task))).count();
            Ok(())
        });
        let told = ended.expect_err("ended").in_one_line();
        assert!(told.contains("after 1 were imported and 0 were there: no hub runs"), "{told}");
        assert!(pushed < 1_000, "the archive was read on");
    }

    #[test]
    fn an_error_of_the_archive_ends_an_import() {
        let connect = || |_: &SpooledBatch| Sent::Acknowledged { new: 1 };
        let failed = Import::new(LONG).run(connect, |queue| {
            queue.push(1, batch(1));
            Err(Failure::new("it cannot be read"))
        });
        assert_eq!(failed.expect_err("failed").message(), "it cannot be read");
    }
}

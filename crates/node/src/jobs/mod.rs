//! Facts of the jobs of this node, which are delivered to a hub with the records of the jobs.
//!
//! A thread reads the facts that are in shared memory, like any other program: no source is read again, and the agent
//! waits for nothing. The records of a round go to the hub at once. While the hub is away they wait in a spool, which drops the
//! oldest measurements when it is full, and tells their jobs so.
//!
//! Read in this order: `facts`, `here`, `records`, `outbox`, `contact`, this file.

mod counts;
mod facts;
mod here;
mod records;
mod outbox;
mod contact;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use skopos_agent::config::{JobFacts, JobsConfig};
use skopos_model::schema::Metric;
use skopos_shm::now;
use skopos_store::jobs::spool::{Spool, SpooledBatch};
use skopos_term::{Failure, state};

use self::contact::{Away, Contact, PlaneNow};
use self::counts::{Counts, add, set};
use self::facts::FactReader;
use self::here::JobsHere;
use self::outbox::{Outbox, ToHub};
use self::records::Recorder;

/// Number of rounds after which a trouble that lasts is told: a hub that is started again is away for some seconds.
const ROUNDS_OF_TROUBLE: u32 = 3;

/// The settings of the delivery of a node.
#[derive(Clone, Debug)]
pub(crate) struct DeliverySettings {
    node: String,
    dir: PathBuf,
    facts: JobFacts,
    hub: Option<String>,
    spool: PathBuf,
}

impl DeliverySettings {
    /// Returns the settings for the agent `node` of a runtime directory.
    ///
    /// # Errors
    /// Neither the table nor the environment determines a folder for the spool.
    pub(crate) fn new(config: &JobsConfig, node: &str, dir: PathBuf) -> Result<Self, Failure> {
        let unknown = || {
            Failure::new("the place of the spool of jobs is not known")
                .hint("set `spool` in the table [jobs], or SKOPOS_STATE or HOME")
        };
        let spool = config.spool.clone().or_else(|| state::spool_of_node(node));
        let spool = spool.ok_or_else(unknown)?;
        let (facts, hub) = (config.facts(), config.hub.clone());
        Ok(Self { node: node.to_owned(), dir, facts, hub, spool })
    }
}

/// The thread that delivers, until this is dropped.
pub(crate) struct JobDelivery {
    stop: Option<Sender<()>>,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    counts: Arc<Counts>,
    messages: Receiver<String>,
}

impl JobDelivery {
    /// Starts the thread. `plane` returns the present session of the node.
    ///
    /// # Errors
    /// The runtime directory cannot be read; no thread can be started.
    pub(crate) fn start(settings: DeliverySettings, plane: PlaneNow) -> Result<Self, Failure> {
        let DeliverySettings { node, dir, facts, hub, spool } = settings;
        let (counts, is_stopped) = (Arc::<Counts>::default(), Arc::<AtomicBool>::default());
        let ((stop, stopped), (tell, messages)) = (channel(), channel());
        let every = facts.every;
        let mut task = Task {
            reader: FactReader::new(&node, dir, facts.topics)?,
            here: JobsHere::default(),
            recorder: Recorder::new(&node, now()),
            outbox: Outbox::new(Spool::new(spool), counts.clone()),
            contact: Contact::new((plane, &node), hub, is_stopped.clone()),
            counts: counts.clone(),
            trouble: Trouble::default(),
            tell,
        };
        let run = move || {
            let mut next = Instant::now();
            loop {
                task.round();
                // Rounds for which it was too late are left out.
                next = (next + every).max(Instant::now());
                let left = next.saturating_duration_since(Instant::now());
                if stopped.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("job-facts".to_owned()).spawn(run);
        let thread = thread.map_err(|e| Failure::new("a thread cannot be started").because(&e))?;
        Ok(Self { stop: Some(stop), is_stopped, thread: Some(thread), counts, messages })
    }

    /// Returns the messages for people since the last call.
    pub(crate) fn take_messages(&self) -> Vec<String> {
        self.messages.try_iter().collect()
    }

    /// Returns the numbers with their metrics, always in the same order.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = (&'static Metric, u64)> {
        self.counts.numbers().into_iter()
    }
}

impl Drop for JobDelivery {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Task {
    reader: FactReader,
    here: JobsHere,
    recorder: Recorder,
    outbox: Outbox,
    contact: Contact,
    counts: Arc<Counts>,
    trouble: Trouble,
    tell: Sender<String>,
}

impl Task {
    /// Records the facts of the jobs once, and sends what waits.
    fn round(&mut self) {
        let (facts, time) = (self.reader.read(), now());
        self.here.see(facts.jobs);
        let mut hub = self.contact.jobs(self.here.seen());
        if let Ok(Some(told)) = &mut hub {
            self.here.learn(std::mem::take(told));
        }
        let (jobs, no_room) = self.here.jobs();
        let recorded = self.recorder.record(&jobs, &facts.values, time);
        set(&self.counts.jobs, jobs.len() as u64);
        let left_out = [facts.left_out, recorded.left_out, no_room];
        add(&self.counts.left_out, left_out.into_iter().fold(0, u64::saturating_add));
        let contact = &self.contact;
        let mut send = |batch: &SpooledBatch| contact.records(batch);
        let to_hub: Result<&mut ToHub<'_>, String> = match &hub {
            Ok(_) => Ok(&mut send),
            Err(away) => Err(away.why().to_owned()),
        };
        let outcome = self.outbox.send(recorded.batches, to_hub, time);
        outcome.lost.iter().for_each(|batch| self.recorder.lose(batch));
        outcome.refused.iter().for_each(|batch| self.recorder.name_again(batch));
        if outcome.is_damaged {
            self.recorder.name_all_again();
        }
        let refused = match hub {
            Err(Away::Refused(why)) => Some(format!("facts of jobs are not delivered: {why}")),
            _ => None,
        };
        if let Some(message) = self.trouble.note(outcome.trouble.or(refused)) {
            // The receiver is gone when the node ends.
            let _ = self.tell.send(message);
        }
    }
}

/// The last trouble, and the number of rounds for which it lasts.
#[derive(Debug, Default)]
struct Trouble {
    why: Option<String>,
    rounds: u32,
}

impl Trouble {
    /// Notes the trouble of a round. Returns a message once it has lasted for some rounds.
    fn note(&mut self, why: Option<String>) -> Option<String> {
        self.rounds = if self.why == why { self.rounds.saturating_add(1) } else { 1 };
        self.why = why;
        self.why.clone().filter(|_| self.rounds == ROUNDS_OF_TROUBLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_told_once_when_it_lasts() {
        let mut trouble = Trouble::default();
        let mut note = |why: &str| trouble.note((!why.is_empty()).then(|| why.to_owned()));
        let told: Vec<bool> =
            ["a", "a", "b", "a", "a", "a", "a", "", "a"].map(|why| note(why).is_some()).to_vec();
        assert_eq!(told, [false, false, false, false, false, true, false, false, false]);
    }
}

//! Sends batches, and keeps those that no hub takes on the disk of this node.
//!
//! The order of batches never changes: a hub takes a sequence that it has passed for one that it has.

use std::sync::Arc;
use std::time::{Duration, Instant};

use skopos_model::Timestamp;
use skopos_store::history::Damage;
use skopos_store::jobs::spool::{Sent, Spool, SpooledBatch};

use super::counts::{Counts, add, set};

/// Time for which waiting batches are sent in one round. The next measurement comes after it.
const WAITING_TIME: Duration = Duration::from_secs(3);

/// The reason why a part of the spool waits although a hub takes batches.
const THE_REST: &str = "the rest is sent later";

/// Sends a batch to a hub.
pub(super) type ToHub<'s> = dyn FnMut(&SpooledBatch) -> Sent + 's;

/// The batches that wait, and those of the round.
pub(super) struct Outbox {
    spool: Spool,
    counts: Arc<Counts>,
    /// True if the newest file of the spool was never sent. A loss in place of it then counts no record that a hub has.
    is_unsent: bool,
}

/// The effect of a round.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Batches that nothing has taken.
    pub(super) lost: Vec<SpooledBatch>,
    /// Batches of which the hub refused records for good.
    pub(super) refused: Vec<SpooledBatch>,
    /// True if batches were damaged: it is not known which records they had.
    pub(super) is_damaged: bool,
    /// The reason why batches wait, were refused, or were lost.
    pub(super) trouble: Option<String>,
}

impl Outbox {
    pub(super) fn new(spool: Spool, counts: Arc<Counts>) -> Self {
        Self { spool, counts, is_unsent: false }
    }

    /// Sends what waits, and then `batches`; from the first one on that a hub does not take, they are kept. `hub` is the
    /// reason if there is no hub.
    pub(super) fn send(
        &mut self,
        batches: Vec<SpooledBatch>,
        mut hub: Result<&mut ToHub<'_>, String>,
        now: Timestamp,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let mut later = match &mut hub {
            Ok(send) => self.send_waiting(send, &mut outcome),
            Err(why) => Some(why.clone()),
        };
        for batch in batches {
            let (sent, may_join) = match (&later, &mut hub) {
                (None, Ok(send)) => (send(&batch), false),
                (why, _) => (Sent::Later(why.clone().unwrap_or_default()), self.is_unsent),
            };
            let records = batch.records.len() as u64;
            match sent {
                Sent::Acknowledged { .. } => add(&self.counts.acknowledged, records),
                Sent::Refused(why) => {
                    add(&self.counts.refused, records);
                    outcome.trouble = Some(format!("the hub refused records of jobs: {why}"));
                    outcome.refused.push(batch);
                }
                Sent::Later(why) => {
                    let is_kept = self.keep(batch, may_join, &mut outcome, now);
                    self.is_unsent = is_kept && later.is_some();
                    later = Some(why);
                }
            }
        }
        if let Some(why) = self.count_waiting(later) {
            outcome.trouble.get_or_insert(why);
        }
        outcome
    }

    /// Counts the batches that wait, `later` for a reason. Returns the trouble, if there is one. If they cannot be counted, the
    /// last number stays.
    fn count_waiting(&self, later: Option<String>) -> Option<String> {
        let wait = |why: String| format!("records of jobs wait: {why}");
        match self.spool.len().map_err(|e| described(&e)) {
            Ok(waiting) => {
                set(&self.counts.waiting, waiting as u64);
                later.filter(|why| waiting > 0 && why != THE_REST).map(wait)
            }
            Err(e) => Some(match later.filter(|why| *why != e) {
                Some(why) => wait(format!("{why}; they cannot be counted: {e}")),
                None => format!("records of jobs that wait cannot be counted: {e}"),
            }),
        }
    }

    /// Sends what waits. Returns the reason if a part of it goes on waiting.
    fn send_waiting(&mut self, send: &mut ToHub<'_>, outcome: &mut Outcome) -> Option<String> {
        let until = Instant::now() + WAITING_TIME;
        let (is_unsent, counts) = (&mut self.is_unsent, &self.counts);
        let refused = &mut outcome.refused;
        let delivered = self.spool.deliver(&mut |batch| {
            if Instant::now() >= until {
                return Sent::Later(THE_REST.to_owned());
            }
            *is_unsent = false;
            let sent = send(batch);
            if matches!(sent, Sent::Refused(_)) {
                add(&counts.refused, batch.records.len() as u64);
                refused.push(batch.clone());
            }
            sent
        });
        match delivered {
            Ok(delivered) => {
                add(&self.counts.acknowledged, delivered.records);
                self.note_aside(&delivered.aside, delivered.damaged, outcome);
                delivered.waiting
            }
            Err(e) => Some(described(&e)),
        }
    }

    /// Notes files that cannot be sent, of which some are `damaged`.
    fn note_aside(&self, aside: &[Damage], damaged: u64, outcome: &mut Outcome) {
        add(&self.counts.damaged, damaged);
        outcome.is_damaged |= damaged > 0;
        let Some((first, others)) = aside.split_first() else { return };
        let others = match others.len() {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let folder = self.spool.folder().display();
        outcome.trouble = Some(format!("a batch in {folder}: {first}{others}"));
    }

    /// Keeps a batch on the disk, in the newest file if it `may_join` that. Returns false if the disk does not take it.
    fn keep(
        &self,
        batch: SpooledBatch,
        may_join: bool,
        outcome: &mut Outcome,
        now: Timestamp,
    ) -> bool {
        let kept = match may_join {
            true => self.spool.join(&batch, now),
            false => self.spool.add(&batch, now),
        };
        match kept {
            Ok(added) => {
                add(&self.counts.dropped, added.dropped);
                self.note_aside(&added.damaged, added.damaged.len() as u64, outcome);
                true
            }
            Err(e) => {
                add(&self.counts.lost, batch.records.len() as u64);
                let why = format!("records of jobs are lost: {}", described(&e));
                outcome.trouble = Some(why);
                outcome.lost.push(batch);
                false
            }
        }
    }
}

/// Returns an error with its causes.
fn described(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(e) = cause {
        text = format!("{text}: {e}");
        cause = e.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use skopos_model::job::{JobRecord, Kind};
    use skopos_store::jobs::StoredRecord;

    use super::*;

    fn batch(sequence: i64) -> SpooledBatch {
        let content = JobRecord::sample_content("node", &[sequence as f64]);
        let (job, node, time) = ("7", "n01", Timestamp::from_nanos(sequence));
        let record =
            JobRecord { kind: Kind::Sample, job, generation: 0, node, time, content: &content };
        let records = vec![(sequence, StoredRecord::of(&record))];
        SpooledBatch { producer: "agent/1".to_owned(), epoch: 1, records }
    }

    fn outbox(folder: &Path) -> Outbox {
        Outbox::new(Spool::new(folder.join("spool")), Arc::default())
    }

    fn away() -> Result<&'static mut ToHub<'static>, String> {
        Err("no hub".to_owned())
    }

    /// Sends batches to a hub that gives this answer, and returns what it got.
    fn sent(outbox: &mut Outbox, batches: Vec<SpooledBatch>, answer: &Sent) -> (Vec<i64>, Outcome) {
        let mut got = Vec::new();
        let mut send = |batch: &SpooledBatch| {
            got.extend(batch.records.iter().map(|(sequence, _)| *sequence));
            answer.clone()
        };
        let outcome = outbox.send(batches, Ok(&mut send), Timestamp::from_nanos(1));
        (got, outcome)
    }

    fn waiting(outbox: &Outbox) -> usize {
        outbox.spool.len().expect("listed")
    }

    #[test]
    fn batches_wait_in_their_order_while_the_hub_is_away() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut outbox = outbox(folder.path());
        let (got, outcome) = sent(&mut outbox, vec![batch(0)], &Sent::Acknowledged { new: 1 });
        assert_eq!((got, outcome), (vec![0], Outcome::default()));
        assert_eq!(waiting(&outbox), 0, "nothing is written while the hub takes them");
        for sequence in 1..20 {
            let kept = outbox.send(vec![batch(sequence)], away(), Timestamp::from_nanos(2));
            assert_eq!(kept.trouble.as_deref(), Some("records of jobs wait: no hub"));
        }
        assert_eq!(waiting(&outbox), 1, "they are in one file");
        // A hub that does not answer may have taken a batch, so the next ones are in other files.
        let later = Sent::Later("no answer".to_owned());
        let (got, _) = sent(&mut outbox, vec![batch(20)], &later);
        assert_eq!(got, (1..20).collect::<Vec<_>>(), "the new batch waits behind the others");
        assert_eq!(waiting(&outbox), 2);
        outbox.send(vec![batch(21)], away(), Timestamp::from_nanos(3));
        assert_eq!(waiting(&outbox), 2, "the second file was never sent");
        let (got, outcome) = sent(&mut outbox, vec![batch(22)], &Sent::Acknowledged { new: 1 });
        assert_eq!((got, outcome), ((1..=22).collect(), Outcome::default()));
        assert_eq!(waiting(&outbox), 0);
        let (got, _) = sent(&mut outbox, vec![batch(23)], &later);
        assert_eq!(got, [23]);
        outbox.send(vec![batch(24)], away(), Timestamp::from_nanos(4));
        assert_eq!(waiting(&outbox), 2, "the hub may have the first one");
        let counts = outbox.counts.numbers().map(|(metric, number)| (metric.name, number));
        assert_eq!(counts[1], ("acknowledged_total", 23));
        assert_eq!(counts[3], ("waiting", 2));
    }

    #[test]
    fn batches_that_cannot_be_counted_are_reported_and_keep_their_number() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut outbox = outbox(folder.path());
        outbox.send(vec![batch(0)], away(), Timestamp::from_nanos(1));
        let waiting = |outbox: &Outbox| outbox.counts.numbers()[3].1;
        assert_eq!(waiting(&outbox), 1);
        // A file is in the place of the folder.
        let (spool, aside) = (folder.path().join("spool"), folder.path().join("aside"));
        std::fs::rename(&spool, &aside).expect("moved");
        std::fs::write(&spool, "").expect("written");
        let outcome = outbox.send(vec![], away(), Timestamp::from_nanos(2));
        let why = outcome.trouble.expect("told");
        let begin = "records of jobs wait: no hub; they cannot be counted: ";
        assert!(why.starts_with(begin), "{why}");
        let (_, outcome) = sent(&mut outbox, vec![], &Sent::Acknowledged { new: 0 });
        let why = outcome.trouble.expect("told");
        assert!(why.starts_with("records of jobs that wait cannot be counted: "), "{why}");
        assert_eq!(waiting(&outbox), 1);
        std::fs::remove_file(&spool).expect("there");
        std::fs::rename(&aside, &spool).expect("moved");
        let (got, outcome) = sent(&mut outbox, vec![], &Sent::Acknowledged { new: 1 });
        assert_eq!((got, outcome.trouble, waiting(&outbox)), (vec![0], None, 0));
    }

    #[test]
    fn refused_batches_and_those_without_a_place_are_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = outbox(folder.path());
        let (_, outcome) = sent(&mut first, vec![batch(0)], &Sent::Refused("not here".to_owned()));
        let why = outcome.trouble.expect("told");
        assert_eq!(why, "the hub refused records of jobs: not here");
        assert_eq!(outcome.refused, [batch(0)]);
        // So are those that waited.
        first.send(vec![batch(1)], away(), Timestamp::from_nanos(1));
        let (_, outcome) = sent(&mut first, vec![], &Sent::Refused("not here".to_owned()));
        assert_eq!((outcome.refused, outcome.is_damaged), (vec![batch(1)], false));
        // A file is in the place of the folder.
        std::fs::write(folder.path().join("file"), "").expect("written");
        let mut nowhere = outbox(&folder.path().join("file"));
        let outcome = nowhere.send(vec![batch(1)], away(), Timestamp::from_nanos(2));
        assert_eq!(outcome.lost, [batch(1)]);
        assert!(outcome.trouble.expect("told").contains("records of jobs are lost"));
        let numbers = |outbox: &Outbox| outbox.counts.numbers().map(|(_, number)| number);
        assert_eq!(numbers(&first)[2], 2);
        assert_eq!(numbers(&nowhere)[5], 1);
    }

    #[test]
    fn damaged_files_are_counted_and_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut outbox = outbox(folder.path());
        // A file that may have been sent is joined by no other.
        for sequence in 0..3 {
            outbox.spool.add(&batch(sequence), Timestamp::from_nanos(sequence)).expect("added");
        }
        let files = std::fs::read_dir(outbox.spool.folder()).expect("there");
        let files = files.map(|file| file.expect("a file").path());
        let files: Vec<_> = files.filter(|path| path.extension().is_some()).collect();
        assert_eq!(files.len(), 3);
        files[..2].iter().for_each(|path| std::fs::write(path, "x").expect("written"));
        let (got, outcome) = sent(&mut outbox, vec![], &Sent::Acknowledged { new: 1 });
        assert_eq!((got.len(), outcome.is_damaged), (1, true));
        let why = outcome.trouble.expect("told");
        assert!(why.ends_with(", and 1 more"), "{why}");
        let damaged = outbox.counts.numbers().map(|(metric, number)| (metric.name, number))[7];
        assert_eq!(damaged, ("damaged_total", 2));
    }
}

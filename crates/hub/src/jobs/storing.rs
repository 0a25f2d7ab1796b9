//! Storing a batch of records, within the turns of its stream.

use std::time::{Duration, Instant};

use skopos_access::Caller;
use skopos_model::job::JobRecord;
use skopos_store::jobs::{Account, PushOutcome, Pushed};

use super::counts::add;
use super::looked_up::LookedUp;
use super::pushing::NotStored;
use super::shared::Shared;
use super::stored::{Session, StoreError, Stored};
use super::turn::{InTurn, StoreTurn};

/// Bytes of a record beside its texts. Otherwise a turn of empty records would not end.
const RECORD_BYTES: u64 = 32;

/// Time for which the stream whose turn it is waits for a commit. If the disk fails for longer, the stream tries again later.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Pause of a thread that waits for a commit, which comes after some milliseconds.
pub(super) const WAIT_EVERY: Duration = Duration::from_millis(2);

/// A batch that is being stored.
pub(super) struct Storing<'s> {
    shared: &'s Shared,
    stream: InTurn<'s>,
    session: Session,
    producer: String,
    epoch: i64,
    looked_up: &'s mut LookedUp,
    stored: Stored,
    /// Bytes of accepted records that the committing thread was not told about.
    untold: u64,
}

impl<'s> Storing<'s> {
    /// Begins a batch of a caller's producer in an epoch.
    pub(super) fn new(
        shared: &'s Shared,
        (session, caller): (Session, &'s Caller),
        (producer, epoch): (&str, i64),
        turn: StoreTurn,
        looked_up: &'s mut LookedUp,
    ) -> Self {
        Self {
            shared,
            stream: InTurn::new(shared, caller, turn),
            session,
            producer: producer_of(caller, producer),
            epoch,
            looked_up,
            stored: Stored::default(),
            untold: 0,
        }
    }

    /// Returns true if the turn is over.
    pub(super) fn is_over(&self) -> bool {
        self.stream.is_over()
    }

    /// Ends the turn, and waits for the next one. Blocks.
    pub(super) fn next_turn(&mut self) {
        self.tell();
        self.stream.next();
    }

    /// Stores a record, and looks up its job if that is necessary. Blocks, also while other streams have the turn.
    ///
    /// # Errors
    /// The batch cannot go on.
    pub(super) fn take_on_own_thread(
        &mut self,
        sequence: i64,
        record: JobRecord<'_>,
    ) -> Result<(), StoreError> {
        loop {
            let lookup = match self.take(sequence, record) {
                Err(StoreError::Lookup(lookup)) => lookup,
                taken => return taken,
            };
            self.tell();
            let (shared, looked_up) = (self.shared, &mut *self.looked_up);
            self.stream.aside(|| shared.look_up(&lookup, looked_up))?;
        }
    }

    /// Stores a record. Blocks.
    ///
    /// # Errors
    /// The batch cannot go on, or the job is looked up first.
    pub(super) fn take(&mut self, sequence: i64, record: JobRecord<'_>) -> Result<(), StoreError> {
        let pushed = self.push(sequence, record);
        if !matches!(pushed, Err(NotStored::Lookup(_))) {
            let texts = record.job.len() + record.node.len() + record.content.len();
            self.stream.pass(RECORD_BYTES + texts as u64);
        }
        match pushed {
            Ok(PushOutcome::Accepted) => {
                self.stored.accepted += 1;
                self.stored.last = self.stored.last.max(Some(sequence));
                self.untold += 1 + record.content.len() as u64;
            }
            Ok(PushOutcome::Duplicate) => {
                self.stored.duplicates += 1;
                self.stored.last = self.stored.last.max(Some(sequence));
            }
            Err(NotStored::Record(why)) => self.stored.refuse(sequence, why),
            Err(NotStored::Batch(e)) => return Err(e),
            Err(NotStored::Lookup(lookup)) => return Err(StoreError::Lookup(lookup)),
            Err(NotStored::Uncommitted) => {
                add(&self.shared.counts.delayed, 1);
                return Err(StoreError::Busy("too much waits for the disk".to_owned()));
            }
        }
        self.stored.passed += 1;
        Ok(())
    }

    /// Pushes a record. Waits for a commit if too much waits for the disk.
    fn push(&mut self, sequence: i64, record: JobRecord<'_>) -> Result<PushOutcome, NotStored> {
        let mut until = None;
        loop {
            let (producer, epoch) = (self.producer.as_str(), self.epoch);
            let pushed = Pushed { producer, epoch, sequence, record };
            let caller = self.stream.caller;
            let outcome = self.shared.push((self.session, caller), &pushed, self.looked_up);
            if !matches!(outcome, Err(NotStored::Uncommitted)) {
                return outcome;
            }
            let until = *until.get_or_insert_with(|| Instant::now() + COMMIT_TIMEOUT);
            if Instant::now() >= until {
                return outcome;
            }
            self.tell();
            std::thread::sleep(WAIT_EVERY);
        }
    }

    /// Tells the committing thread about accepted records.
    fn tell(&mut self) {
        if self.untold > 0 {
            self.shared.signal.accept(std::mem::take(&mut self.untold));
        }
    }

    /// Ends the turn. The batch is at its end, unless the stream `steps_aside`.
    pub(super) fn finish(mut self, steps_aside: bool) -> Stored {
        if self.stored.accepted == 0 && self.stored.duplicates > 0 {
            // A commit acknowledges records whose log is gone: no other record may come that causes one.
            let reached = self.shared.intake().progress(&self.producer).map(|it| it.get());
            let is_behind = reached.is_some_and(|it| Some(it.durable) < self.stored.last);
            self.untold = u64::from(is_behind);
        }
        self.tell();
        let counts = &self.shared.counts;
        add(&counts.records, self.stored.accepted);
        add(&counts.duplicates, self.stored.duplicates);
        add(&counts.refused, self.stored.refused);
        self.stored.owed = self.stream.owed(steps_aside);
        self.stored
    }
}

/// Returns the name under which the intake knows a caller's producer: no caller can take the name of another one's.
pub(super) fn producer_of(caller: &Caller, name: &str) -> String {
    let account = match caller {
        Caller::Owner => Account::Owner,
        Caller::Node(names) => Account::Node(&names.node),
        Caller::User(user) => Account::User(&user.name),
        Caller::Invited(_) | Caller::Anybody | Caller::Stranger => Account::Other,
    };
    account.producer(name)
}

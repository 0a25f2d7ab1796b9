//! The hub that takes the records of this node.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use skopos_store::jobs::spool::{Sent, SpooledBatch};
use skopos_wire::{Delivered, Delivery, JobsOfNode, MAX_DELIVERY_BYTES, Plane};

/// Bytes of a request beside its records, and beside each of them, at most.
const HEAD_BYTES: usize = 4096;
const HEAD_OF_RECORD_BYTES: usize = 32;

/// Returns the present session of this node; `None` while it is not connected.
pub(super) type PlaneNow = Box<dyn Fn() -> Option<Plane> + Send>;

/// Sends a request to the hub of a name, or to all, and returns the answers with the names of the hubs.
type Deliver = dyn Fn(Option<&str>, &Delivery) -> Result<Vec<(String, Delivered)>, Away> + Send;

/// The way to the hub.
pub(super) struct Contact {
    deliver: Box<Deliver>,
    /// The name of the hub in the configuration.
    named: Option<String>,
    /// The name of the only hub that answered first. It stays the hub of this node: another one does not know the jobs, and would
    /// take them for new ones.
    found: Option<String>,
}

/// The reason why there is no hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Away {
    /// No hub answers.
    Silent(String),
    /// A hub refuses this node, or it is not clear which hub is meant.
    Refused(String),
}

impl Away {
    pub(super) fn why(&self) -> &str {
        let (Self::Silent(why) | Self::Refused(why)) = self;
        why
    }
}

impl Contact {
    /// Makes the contact of `node` with the hub of this name, else with the only hub of the site. It ends waiting when it
    /// `is_stopped`.
    pub(super) fn new(
        (plane, node): (PlaneNow, &str),
        named: Option<String>,
        is_stopped: Arc<AtomicBool>,
    ) -> Self {
        let node = node.to_owned();
        let deliver = move |hub: Option<&str>, delivery: &Delivery| {
            let alone = || Away::Silent("this node is not connected to a hub".to_owned());
            let plane = plane().ok_or_else(alone)?;
            let is_stopped = || is_stopped.load(Ordering::Relaxed);
            let answers = plane.deliver(hub, (&node, delivery), &is_stopped);
            answers.map_err(|e| Away::Refused(e.to_string()))
        };
        Self { deliver: Box::new(deliver), named, found: None }
    }

    /// Asks for the jobs of this node, which sees jobs with these ids. `None` if the hub does not know them now.
    pub(super) fn jobs(&mut self, seen: &BTreeSet<String>) -> Result<Option<JobsOfNode>, Away> {
        let ask = Delivery::Jobs(seen.iter().cloned().collect());
        let mut answers = (self.deliver)(self.hub(), &ask)?;
        if answers.len() > 1 {
            let mut names: Vec<String> = answers.into_iter().map(|(hub, _)| hub).collect();
            names.sort();
            let names = names.join("`, `");
            return Err(Away::Refused(format!(
                "the hubs `{names}` take records of jobs: name one as `hub` in the table [jobs]"
            )));
        }
        let Some((hub, answer)) = answers.pop() else {
            return Err(Away::Silent(match self.hub() {
                Some(hub) => format!(
                    "the hub `{hub}` does not answer, and no other one has the jobs of this node; if another one takes its \
                     place, name that as `hub` in the table [jobs], or start the agent again"
                ),
                None => "no hub answers".to_owned(),
            }));
        };
        self.found = Some(hub);
        match answer {
            Delivered::Jobs(jobs) => Ok(Some(jobs)),
            Delivered::Sent(_) => Ok(None),
        }
    }

    /// Sends a batch to the hub that has answered.
    pub(super) fn records(&self, batch: &SpooledBatch) -> Sent {
        let of = |record: usize| record + HEAD_OF_RECORD_BYTES;
        let bytes: usize =
            batch.records.iter().map(|(_, record)| of(record.as_bytes().len())).sum();
        if bytes + HEAD_BYTES > MAX_DELIVERY_BYTES {
            return Sent::Refused(format!("it has {bytes} bytes, too many for one message"));
        }
        let answers = (self.deliver)(self.hub(), &Delivery::Records(batch.clone()));
        let mut answers = match answers {
            Ok(answers) => answers.into_iter(),
            Err(away) => return Sent::Later(away.why().to_owned()),
        };
        match answers.next() {
            Some((_, Delivered::Sent(sent))) => sent,
            Some((_, Delivered::Jobs(_))) | None => {
                Sent::Later("the hub did not answer in time".to_owned())
            }
        }
    }

    fn hub(&self) -> Option<&str> {
        self.named.as_deref().or(self.found.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_node_without_a_connection_keeps_its_records() {
        let plane: PlaneNow = Box::new(|| None);
        let mut contact = Contact::new((plane, "n01"), None, Arc::default());
        let away = contact.jobs(&BTreeSet::new()).expect_err("there is no session");
        assert_eq!(away, Away::Silent("this node is not connected to a hub".to_owned()));
        let sent = contact.records(&SpooledBatch::default());
        assert_eq!(sent, Sent::Later(away.why().to_owned()));
    }

    #[test]
    fn a_node_stays_with_the_hub_that_has_its_jobs() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let answers = Arc::new(Mutex::new(vec!["hub1"]));
        let (own, told) = (asked.clone(), answers.clone());
        let deliver = move |hub: Option<&str>, _: &Delivery| {
            own.lock().expect("a lock").push(hub.unwrap_or("*").to_owned());
            let hubs = told.lock().expect("a lock").clone();
            let hubs = hubs.into_iter().filter(|it| hub.is_none_or(|hub| hub == *it));
            let answer = || Delivered::Jobs(JobsOfNode::default());
            match hubs.clone().any(|it| it == "busy") {
                true => Err(Away::Refused("busy".to_owned())),
                false => Ok(hubs.map(|it| (it.to_owned(), answer())).collect()),
            }
        };
        let mut contact = Contact { deliver: Box::new(deliver), named: None, found: None };
        let mut ask = |there: &[&'static str]| {
            *answers.lock().expect("a lock") = there.to_vec();
            contact.jobs(&BTreeSet::new()).is_ok()
        };
        assert!(!ask(&["hub1", "hub2"]), "it is not clear which one is meant");
        assert!(!ask(&["busy"]));
        assert!(ask(&["hub1"]));
        assert!(!ask(&["hub2"]), "the first hub is away");
        assert!(ask(&["hub1", "hub2"]));
        assert!(!ask(&[]));
        let asked = asked.lock().expect("a lock").clone();
        assert_eq!(asked, ["*", "*", "*", "hub1", "hub1", "hub1"]);
    }
}

//! Records of jobs, which a node delivers to a hub of its site over the live plane.
//!
//! A node asks which jobs run on it, and sends records in batches with sequences. A hub that is away, a slow one and a lost
//! message have the same effect: the node sends the batch again, and the hub skips the sequences that it has.
//!
//! ```text
//! request   "SKR" layout, name of the node, 0, number and ids of the jobs that the node sees
//!           "SKR" layout, name of the node, 1, producer, epoch, number of records; each: sequence, length, record
//! answer    "SKT" layout, 0, number of the jobs that run there; each: id, generation; number and ids of jobs that do not
//!           "SKT" layout, 1, number of new records   all records are on the disk
//!           "SKT" layout, 2, reason                  some are refused for good, the others are on the disk
//!           "SKT" layout, 3, reason                  not now
//!           "SKT" layout, 4, number of further jobs that run there, then as with 0   the list of jobs has no room for these
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use skopos_access::{Action, Caller, may};
use skopos_model::job::JobId;
use skopos_store::jobs::StoredRecord;
use skopos_store::jobs::spool::{Sent, SpooledBatch};
use zenoh::Wait as _;
use zenoh::query::{Query, Queryable};

use crate::bytes::{MessageReader, put_signed, put_text, put_varint};
use crate::drops::Dropped;
use crate::error::Error;
use crate::keys;
use crate::places::{Checking, Places};
use crate::plane::Plane;
use crate::trust::{Message, ProofRules, Received};

/// The version of both layouts.
const LAYOUT: u8 = 1;

const REQUEST: [u8; 4] = [b'S', b'K', b'R', LAYOUT];
const ANSWER: [u8; 4] = [b'S', b'K', b'T', LAYOUT];

/// The longest request and answer: the names of as many metrics as a measurement may have, a few times over.
pub const MAX_DELIVERY_BYTES: usize = 4 << 20;

/// The most jobs of a list: one for each core of the largest nodes.
pub const MAX_JOBS_OF_NODE: usize = 512;

/// The most further jobs in an answer. A hub looks at some thousand jobs of a node, and a sum of such numbers does not overflow.
pub const MAX_FURTHER_JOBS: u64 = 1 << 20;

/// The most hubs whose answers count.
const MAX_HUBS: usize = 16;

/// Time in which a hub answers. A commit takes some milliseconds, or a second on a busy disk.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Time between two checks of `is_over`.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The text that refuses a request for which there is no place.
const BUSY: &str = "the hub answers too many requests; ask again";

/// The jobs of a node, as a hub knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobsOfNode {
    /// The jobs that run there.
    pub running: Vec<JobId>,
    /// Ids that the node sees, and that belong to jobs which have ended or run elsewhere.
    pub elsewhere: Vec<String>,
    /// Number of further jobs that run there and that the node does not see, at most [`MAX_FURTHER_JOBS`]. The list has no room
    /// for them.
    pub left_out: u64,
}

/// A request of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Asks which jobs run on the node. It sees jobs with these ids.
    Jobs(Vec<String>),
    /// Has records stored.
    Records(SpooledBatch),
}

/// The answer of a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// The jobs of the node.
    Jobs(JobsOfNode),
    /// The effect of records, or the reason why the jobs are not known now.
    Sent(Sent),
}

/// The node that makes a request.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// The caller.
    pub caller: &'a Caller,
    /// The name of the node, which the policy has found to be the caller's.
    pub node: &'a str,
    /// True if the request is for this hub; false if it is for all hubs of the site.
    pub is_by_name: bool,
}

/// Takes the requests of nodes, on threads of the plane.
pub trait Taker: Send + Sync + 'static {
    /// Answers a request. May wait for a disk.
    ///
    /// # Errors
    /// The reason why this hub is not the one for the node: then the answer of another one counts.
    fn take(&self, asker: Asker<'_>, delivery: Delivery) -> Result<Delivered, String>;
}

/// Takes the records of nodes until it is dropped.
#[derive(Debug)]
pub struct DeliveryResponder {
    _queryable: Queryable<()>,
}

impl Delivery {
    /// Writes the request of a node as a message.
    pub fn encode(&self, node: &str) -> Vec<u8> {
        let mut out = REQUEST.to_vec();
        put_text(&mut out, node);
        match self {
            Self::Jobs(seen) => {
                out.push(0);
                put_ids(&mut out, seen);
            }
            Self::Records(batch) => {
                out.push(1);
                put_text(&mut out, &batch.producer);
                put_signed(&mut out, batch.epoch);
                put_varint(&mut out, batch.records.len() as u64);
                for (sequence, record) in &batch.records {
                    put_signed(&mut out, *sequence);
                    put_varint(&mut out, record.as_bytes().len() as u64);
                    out.extend_from_slice(record.as_bytes());
                }
            }
        }
        out
    }

    /// Reads a message. Returns the name of the node, too.
    ///
    /// # Errors
    /// The message is too long, is not a request, has another layout, or is damaged.
    pub fn decode(bytes: &[u8]) -> Result<(String, Self), Error> {
        let mut reader = reader(bytes, REQUEST)?;
        let node = reader.text()?.to_owned();
        let delivery = match reader.byte()? {
            0 => Self::Jobs(ids(&mut reader)?),
            1 => {
                let (producer, epoch) = (reader.text()?.to_owned(), reader.signed()?);
                // The least record has 16 bytes, its sequence and its length one each.
                let count = reader.count(18)?;
                let mut records = Vec::with_capacity(count);
                for _ in 0..count {
                    let (sequence, length) = (reader.signed()?, reader.count(1)?);
                    let record = StoredRecord::read(reader.take(length)?);
                    records.push((sequence, record.ok_or(Error::Foreign)?));
                }
                Self::Records(SpooledBatch { producer, epoch, records })
            }
            _ => return Err(Error::Foreign),
        };
        reader.end()?;
        Ok((node, delivery))
    }
}

impl Delivered {
    /// Writes the answer as a message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = ANSWER.to_vec();
        match self {
            Self::Jobs(jobs) => {
                // A node of an earlier version understands a list that has all jobs.
                match jobs.left_out {
                    0 => out.push(0),
                    left_out => {
                        out.push(4);
                        put_varint(&mut out, left_out);
                    }
                }
                put_varint(&mut out, jobs.running.len() as u64);
                for id in &jobs.running {
                    put_text(&mut out, id.job());
                    put_varint(&mut out, u64::from(id.generation()));
                }
                put_ids(&mut out, &jobs.elsewhere);
            }
            Self::Sent(Sent::Acknowledged { new }) => {
                out.push(1);
                put_varint(&mut out, *new);
            }
            Self::Sent(Sent::Refused(why)) => {
                out.push(2);
                put_text(&mut out, why);
            }
            Self::Sent(Sent::Later(why)) => {
                out.push(3);
                put_text(&mut out, why);
            }
        }
        out
    }

    /// Reads a message.
    ///
    /// # Errors
    /// The message is too long, is not an answer, has another layout, or is damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = reader(bytes, ANSWER)?;
        let answer = match reader.byte()? {
            kind @ (0 | 4) => {
                let left_out = if kind == 4 { reader.varint()? } else { 0 };
                if left_out > MAX_FURTHER_JOBS {
                    return Err(Error::Number);
                }
                let count = few(reader.count(2)?)?;
                let mut running = Vec::with_capacity(count);
                for _ in 0..count {
                    let (job, generation) = (reader.text()?, reader.index()?);
                    running.push(JobId::new(job, generation).map_err(|_| Error::Text)?);
                }
                Self::Jobs(JobsOfNode { running, elsewhere: ids(&mut reader)?, left_out })
            }
            1 => Self::Sent(Sent::Acknowledged { new: reader.varint()? }),
            2 => Self::Sent(Sent::Refused(reason(reader.text()?))),
            3 => Self::Sent(Sent::Later(reason(reader.text()?))),
            _ => return Err(Error::Foreign),
        };
        reader.end()?;
        Ok(answer)
    }
}

/// Returns the reader behind the first bytes of a message.
fn reader(bytes: &[u8], magic: [u8; 4]) -> Result<MessageReader<'_>, Error> {
    if bytes.len() > MAX_DELIVERY_BYTES {
        return Err(Error::Foreign);
    }
    let mut reader = MessageReader::new(bytes);
    reader.magic(magic)?;
    Ok(reader)
}

/// Returns the reason of a hub, which is shown to people.
fn reason(text: &str) -> String {
    Error::refused(text.as_bytes()).to_string()
}

fn put_ids(out: &mut Vec<u8>, ids: &[String]) {
    put_varint(out, ids.len() as u64);
    ids.iter().for_each(|id| put_text(out, id));
}

/// Returns a number of jobs, if it is not too large.
fn few(count: usize) -> Result<usize, Error> {
    if count <= MAX_JOBS_OF_NODE { Ok(count) } else { Err(Error::Number) }
}

/// Reads the ids of jobs.
fn ids(reader: &mut MessageReader<'_>) -> Result<Vec<String>, Error> {
    let count = few(reader.count(1)?)?;
    let id = |text: &str| JobId::new(text, 0).map(|_| text.to_owned()).map_err(|_| Error::Text);
    (0..count).map(|_| reader.text().and_then(id)).collect()
}

impl Plane {
    /// Has `taker` answer the requests of nodes, under the name of this hub.
    ///
    /// # Errors
    /// The session is closed.
    pub fn serve_deliveries(
        &self,
        hub: &str,
        taker: impl Taker,
    ) -> Result<DeliveryResponder, Error> {
        let key = keys::of_name(&self.site, "records", hub);
        let (taker, rules, places) = (Arc::new(taker), self.rules.clone(), Places::default());
        let (drops, own) = (self.drops.clone(), key.clone());
        let queryable = self.session.declare_queryable(key).callback(move |query| {
            let (taker, rules, own) = (taker.clone(), rules.clone(), own.clone());
            let busy = drops.clone();
            let is_begun = places.on_thread(move |checking| {
                let answered = answered((&query, &own), checking, &rules, &*taker);
                if matches!(&answered, Err(why) if why == BUSY) {
                    busy.count(Dropped::Delivery);
                }
                let _ = match answered {
                    Ok((answer, received)) => {
                        let proof = rules.answer(&received, &own, &answer, &[]);
                        query.reply(own, answer).attachment(proof).wait()
                    }
                    Err(why) => query.reply_err(why).wait(),
                };
            });
            if !is_begun {
                drops.count(Dropped::Delivery);
            }
        });
        let queryable = queryable.wait().map_err(|e| Error::plane(&e))?;
        Ok(DeliveryResponder { _queryable: queryable })
    }

    /// Sends a request of `node` to a hub, or to all hubs of the site. Returns the answers with the names of the hubs; none if
    /// no hub has answered in time, or before `is_over`.
    ///
    /// # Errors
    /// The request is too long, or the only answer is a refusal of the request itself.
    pub fn deliver(
        &self,
        hub: Option<&str>,
        (node, delivery): (&str, &Delivery),
        is_over: &dyn Fn() -> bool,
    ) -> Result<Vec<(String, Delivered)>, Error> {
        let payload = delivery.encode(node);
        if payload.len() > MAX_DELIVERY_BYTES {
            let why = format!("a request has at most {MAX_DELIVERY_BYTES} bytes");
            return Err(Error::Refused(why));
        }
        let key = keys::of_name(&self.site, "records", hub.unwrap_or("*"));
        let sent = self.rules.ask(&key, &payload)?;
        let get = self.ask_all(key).payload(payload).attachment(sent.proof).timeout(TIMEOUT);
        let replies = get.wait().map_err(|e| Error::plane(&e))?;
        let (until, mut answers, mut refusal) = (Instant::now() + TIMEOUT, Vec::new(), None);
        while answers.len() < MAX_HUBS {
            let reply = match replies.recv_timeout(LOOK_EVERY) {
                Ok(Some(reply)) => reply,
                Ok(None) if Instant::now() < until && !is_over() => continue,
                // An error says that all have answered.
                Ok(None) | Err(_) => break,
            };
            match reply.result() {
                Ok(sample) if sample.payload().len() > MAX_DELIVERY_BYTES => {}
                Ok(sample) => answers.extend(self.answer_of(&sent.nonce, &Message::from(sample))),
                // From the session and not from a hub: the time is over.
                Err(_) if Instant::now() >= until => {}
                Err(refused) => refusal = Some(Error::refused(&refused.payload().to_bytes())),
            }
        }
        match refusal {
            Some(refusal) if answers.is_empty() => Err(refusal),
            _ => Ok(answers),
        }
    }

    /// Returns the answer in a message, if a hub made it.
    fn answer_of(&self, nonce: &[u8], message: &Message) -> Option<(String, Delivered)> {
        let hub = message.key.rsplit('/').next()?.to_owned();
        self.rules.check(nonce, message, Action::TakeRecords { hub: &hub }).ok()?;
        Some((hub, Delivered::decode(&message.payload).ok()?))
    }
}

/// Returns the answer to a request, or the reason why there is none.
fn answered(
    (query, own): (&Query, &str),
    checking: Checking,
    rules: &ProofRules,
    taker: &dyn Taker,
) -> Result<(Vec<u8>, Received), String> {
    let received = rules.receive(query, Action::ReadFacts).map_err(|e| e.to_string())?;
    let _place = checking.admit(&received.caller).ok_or(BUSY)?;
    let bytes = query.payload().map(|payload| payload.to_bytes().into_owned());
    let decoded = Delivery::decode(&bytes.unwrap_or_default());
    let (node, delivery) = decoded.map_err(|e| e.to_string())?;
    let store = Action::StoreJob { node: Some(&node), owner: None, is_elsewhere: false };
    may(&received.caller, store).map_err(|denied| denied.to_string())?;
    let is_by_name = query.key_expr().as_str() == own;
    let asker = Asker { caller: &received.caller, node: &node, is_by_name };
    Ok((taker.take(asker, delivery)?.encode(), received))
}

#[cfg(test)]
mod tests {
    use skopos_model::Timestamp;
    use skopos_model::job::{JobRecord, Kind};

    use super::*;

    fn requests() -> [Delivery; 3] {
        let content = JobRecord::sample_content("node", &[1.5]);
        let record = JobRecord {
            kind: Kind::Sample,
            job: "7",
            generation: 1,
            node: "n01",
            time: Timestamp::from_nanos(9),
            content: &content,
        };
        let records = vec![(-1, StoredRecord::of(&record)), (1 << 40, StoredRecord::of(&record))];
        let batch = SpooledBatch { producer: "agent/n01/1".to_owned(), epoch: -3, records };
        [
            Delivery::Jobs(Vec::new()),
            Delivery::Jobs(vec!["7".to_owned(), "a b".to_owned()]),
            Delivery::Records(batch),
        ]
    }

    fn answers() -> [Delivered; 5] {
        let id = |job: &str, generation| JobId::new(job, generation).expect("an id");
        let running = vec![id("7", 0), id("é", u32::MAX)];
        let jobs = JobsOfNode { running, elsewhere: vec!["8".to_owned()], left_out: 0 };
        [
            Delivered::Jobs(jobs.clone()),
            Delivered::Jobs(JobsOfNode { left_out: 300, ..jobs }),
            Delivered::Sent(Sent::Acknowledged { new: 300 }),
            Delivered::Sent(Sent::Refused("no".to_owned())),
            Delivered::Sent(Sent::Later("soon".to_owned())),
        ]
    }

    #[test]
    fn messages_survive_encoding_and_damaged_ones_are_refused() {
        for request in requests() {
            let bytes = request.encode("n01");
            assert_eq!(Delivery::decode(&bytes).ok(), Some(("n01".to_owned(), request)));
            for end in 0..bytes.len() {
                assert!(Delivery::decode(&bytes[..end]).is_err(), "{end} bytes");
            }
            assert!(Delivery::decode(&[&bytes[..], &[0]].concat()).is_err());
        }
        for answer in answers() {
            let bytes = answer.encode();
            assert_eq!(Delivered::decode(&bytes).ok(), Some(answer));
            for end in 0..bytes.len() {
                assert!(Delivered::decode(&bytes[..end]).is_err(), "{end} bytes");
            }
        }
    }

    #[test]
    fn numbers_of_jobs_without_bound_and_a_reason_that_steers_a_terminal_are_refused() {
        let many = Delivery::Jobs(vec!["7".to_owned(); MAX_JOBS_OF_NODE + 1]);
        assert!(Delivery::decode(&many.encode("n01")).is_err());
        let most = Delivery::Jobs(vec!["7".to_owned(); MAX_JOBS_OF_NODE]);
        assert!(Delivery::decode(&most.encode("n01")).is_ok());
        let further = |left_out| {
            let jobs = JobsOfNode { left_out, ..JobsOfNode::default() };
            Delivered::decode(&Delivered::Jobs(jobs).encode())
        };
        assert!(further(MAX_FURTHER_JOBS).is_ok());
        for too_many in [MAX_FURTHER_JOBS + 1, u64::MAX] {
            assert!(matches!(further(too_many), Err(Error::Number)), "{too_many} further jobs");
        }
        let steering = Delivered::Sent(Sent::Later("\u{1b}[2J".repeat(1000)));
        let Ok(Delivered::Sent(Sent::Later(why))) = Delivered::decode(&steering.encode()) else {
            panic!("it is an answer");
        };
        assert!(why.len() < 400 && !why.chars().any(char::is_control), "{why}");
    }
}

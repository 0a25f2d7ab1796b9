//! Questions to a node about samples that it stores and a mirror does not have.
//!
//! The keys are in `keys`. A lost question, an incomplete answer and a slow node have the same effect:
//! the client reports the node as missing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use skopos_access::Action;
use skopos_model::{Timestamp, unpoisoned};
use tokio::sync::oneshot;
use zenoh::Wait as _;
use zenoh::query::{Query, Queryable};

use crate::batch::{Batch, MAX_BATCH_BYTES};
use crate::bytes::{MessageReader, put_signed, put_text, put_varint};
use crate::drops::{DropCounter, Dropped};
use crate::error::Error;
use crate::keys;
use crate::plane::Plane;
use crate::trust::{Message, ProofRules};

/// The version of a question's layout.
const LAYOUT: u8 = 1;

const MAGIC: [u8; 4] = [b'S', b'K', b'H', LAYOUT];

/// The longest question: it can name all topics of a node, or the beginnings of their names.
const MAX_QUESTION_BYTES: usize = 1 << 20;

/// The most questions that wait on a node: those of a few hubs, several times over. Further questions get
/// no answer, and their clients report the node as missing.
const MAX_WAITING: usize = 16;

/// The bytes that all nodes together may answer to one question, in equal shares: about two million samples. A node has
/// its share whatever the others answer.
const SHARED_BYTES: u64 = 32 << 20;

/// The bytes that the nodes with long answers have beyond their shares, whichever comes first: as many again, because
/// often one node has most of an answer.
const COMMON_BYTES: u64 = 32 << 20;

/// The bytes that a reply counts at least: what an empty batch takes in memory.
const LEAST_REPLY_BYTES: u64 = 256;

/// A question to a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Topics that are wanted.
    pub topics: Vec<String>,
    /// Prefixes; every topic with one of them is wanted too.
    pub starts: Vec<String>,
    /// Lower bound of the times; the minimum if only the last sample before `to` is wanted.
    pub from: Timestamp,
    /// Upper bound of the times.
    pub to: Timestamp,
    /// True if only the last sample of each topic is wanted.
    pub only_last: bool,
    /// The most samples of an answer; a longer answer is cut there and reported as incomplete.
    pub most: u64,
}

impl Question {
    /// Writes the question as a message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        put_signed(&mut out, self.from.as_nanos());
        put_signed(&mut out, self.to.as_nanos());
        out.push(u8::from(self.only_last));
        put_varint(&mut out, self.most);
        for texts in [&self.topics, &self.starts] {
            put_varint(&mut out, texts.len() as u64);
            texts.iter().for_each(|text| put_text(&mut out, text));
        }
        out
    }

    /// Reads a message.
    ///
    /// # Errors
    /// The message is not a question, has another layout, or is damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() > MAX_QUESTION_BYTES {
            return Err(Error::Foreign);
        }
        let mut reader = MessageReader::new(bytes);
        reader.magic(MAGIC)?;
        let mut time = || reader.signed().map(Timestamp::from_nanos);
        let (from, to) = (time()?, time()?);
        let (only_last, most) = (reader.byte()? != 0, reader.varint()?);
        let mut texts = || -> Result<Vec<String>, Error> {
            let count = reader.count(1)?;
            (0..count).map(|_| reader.text().map(str::to_owned)).collect()
        };
        let (topics, starts) = (texts()?, texts()?);
        reader.end()?;
        Ok(Self { topics, starts, from, to, only_last, most })
    }
}

/// Answers questions until it is dropped.
#[derive(Debug)]
pub struct HistoryResponder {
    _queryable: Queryable<()>,
    /// Keeps the session open: it closes with its last owner.
    _session: zenoh::Session,
}

/// The extent of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Some of the wanted samples: there are too many, or they cannot be read.
    Cut,
    /// All wanted samples.
    Whole,
    /// All wanted samples except those of damaged files.
    Damaged,
}

impl Extent {
    fn code(self) -> u8 {
        self as u8
    }

    fn from_code(code: u8) -> Option<Self> {
        [Self::Cut, Self::Whole, Self::Damaged].into_iter().find(|extent| extent.code() == code)
    }
}

/// The answer of a node to a question.
#[derive(Debug)]
pub struct HistoryAnswer {
    /// Name of the node.
    pub node: String,
    /// Its samples; `None` if the answer is missing or cut.
    pub batches: Option<Vec<Batch>>,
    /// True if files of its history are damaged, so that samples of them are missing.
    pub is_damaged: bool,
}

impl Plane {
    /// Answers questions to a node, one after the other, on a thread of its own. `answer` passes batches
    /// to its second argument, and returns their extent.
    ///
    /// # Errors
    /// The session is closed; no thread can be started.
    pub fn answer_history(
        &self,
        node: &str,
        incarnation: i64,
        answer: impl Fn(&Question, &mut dyn FnMut(&Batch)) -> Extent + Send + 'static,
    ) -> Result<HistoryResponder, Error> {
        let key = keys::of_publisher(&self.site, "history", node, incarnation);
        let (queue, queries): (SyncSender<Query>, _) = sync_channel(MAX_WAITING);
        let (base, rules) = (key.clone(), self.rules.clone());
        let (drops, overflowed) = (self.drops.clone(), self.drops.clone());
        let run = move || {
            // The channel closes with the queryable, which owns its other end.
            while let Ok(query) = queries.recv() {
                // A forged or malformed question gets no answer.
                let Ok(received) = rules.receive(&query, Action::ReadFacts) else {
                    drops.count(Dropped::HistoryRequest);
                    continue;
                };
                let reply = |key: String, payload: Vec<u8>| {
                    let proof = rules.answer(&received, &key, &payload, &[]);
                    // Replies to a client that has disconnected are lost.
                    let _ = query.reply(key, payload).attachment(proof).wait();
                };
                let bytes = query.payload().map(|payload| payload.to_bytes().into_owned());
                let Some(Ok(question)) = bytes.as_deref().map(Question::decode) else {
                    drops.count(Dropped::HistoryRequest);
                    continue;
                };
                let mut count = 0u64;
                let extent = answer(&question, &mut |batch| {
                    count += 1;
                    let batch = Batch { sequence: count, ..batch.clone() };
                    reply(format!("{base}/{count}"), batch.encode());
                });
                let mut end = vec![extent.code()];
                put_varint(&mut end, count);
                reply(format!("{base}/end"), end);
            }
        };
        let thread = std::thread::Builder::new().name("history".to_owned()).spawn(run);
        thread.map_err(Error::Thread)?;
        let queryable = self.session.declare_queryable(format!("{key}/*")).callback(move |query| {
            // A callback must not wait: it would delay the session.
            if queue.try_send(query).is_err() {
                overflowed.count(Dropped::HistoryRequest);
            }
        });
        let queryable = queryable.wait().map_err(|e| Error::plane(&e))?;
        Ok(HistoryResponder { _queryable: queryable, _session: self.session.clone() })
    }

    /// Asks nodes, given by name and incarnation, all at once. A node that has not answered completely by
    /// the deadline `until` has no batches in the result.
    pub async fn ask_history(
        &self,
        nodes: Vec<(String, i64, Question)>,
        until: Instant,
    ) -> Vec<HistoryAnswer> {
        let budget = Arc::new(Budget::new(nodes.len(), self.drops.clone()));
        let pending: Vec<(String, oneshot::Receiver<Whole>)> = nodes
            .into_iter()
            .map(|(node, incarnation, question)| {
                let answer = self.ask_node(&node, incarnation, &question, until, budget.clone());
                (node, answer)
            })
            .collect();
        let mut answers = Vec::with_capacity(pending.len());
        for (node, answer) in pending {
            let answer = tokio::time::timeout_at(until.into(), answer).await;
            let (batches, is_damaged) = match answer {
                Ok(Ok(Whole { batches, is_damaged })) => (Some(batches), is_damaged),
                _ => (None, false),
            };
            answers.push(HistoryAnswer { node, batches, is_damaged });
        }
        answers
    }

    fn ask_node(
        &self,
        node: &str,
        incarnation: i64,
        question: &Question,
        until: Instant,
        budget: Arc<Budget>,
    ) -> oneshot::Receiver<Whole> {
        let (done, answer) = oneshot::channel();
        let key = keys::of_publisher(&self.site, "history", node, incarnation) + "/*";
        let payload = question.encode();
        // Without random numbers the receiver gets nothing, as after a lost question.
        let Ok(sent) = self.rules.ask(&key, &payload) else { return answer };
        let replies = Arc::new(Replies {
            node: node.to_owned(),
            rules: self.rules.clone(),
            nonce: sent.nonce,
            budget,
            all: Mutex::new(Some(Replied::new(done))),
        });
        let left = until.saturating_duration_since(Instant::now());
        // After the last reply the session drops the callback, and with it `replies`; the receiver of an incomplete
        // answer then gets nothing.
        let request = self.ask_all(key).payload(payload).attachment(sent.proof).timeout(left);
        // If the request fails, the receiver gets nothing.
        let _ = request
            .callback(move |reply| {
                let Ok(sample) = reply.result() else { return };
                replies.receive(sample.payload().len(), || Message::from(sample));
            })
            .wait();
        answer
    }
}

/// An answer of which all batches arrived.
#[derive(Debug)]
struct Whole {
    batches: Vec<Batch>,
    is_damaged: bool,
}

/// The bytes that nodes may answer to one question. A node that wants more is reported as missing.
struct Budget {
    /// Share of each node.
    share: u64,
    /// Bytes that nodes have beyond their shares.
    beyond: AtomicU64,
    /// Counts the answers that are too long.
    drops: DropCounter,
}

impl Budget {
    fn new(nodes: usize, drops: DropCounter) -> Self {
        let share = SHARED_BYTES / (nodes as u64).max(1);
        Self { share, beyond: AtomicU64::new(0), drops }
    }

    /// Adds `length` to the bytes of a node. Returns false if those are too many; then the node has none of them any more.
    fn take(&self, bytes: &mut u64, length: u64) -> bool {
        let before = bytes.saturating_sub(self.share);
        *bytes += length;
        let after = bytes.saturating_sub(self.share);
        let more = after - before;
        let fits = self.beyond.fetch_add(more, Ordering::Relaxed) + more <= COMMON_BYTES;
        if !fits {
            self.beyond.fetch_sub(after, Ordering::Relaxed);
            *bytes = 0;
            self.drops.count(Dropped::HistoryAnswer);
        }
        fits
    }
}

/// Collects the replies of one node, and sends the batches on when all are there.
struct Replies {
    node: String,
    rules: ProofRules,
    /// Nonce of the question.
    nonce: Vec<u8>,
    budget: Arc<Budget>,
    /// The replies so far; `None` once the answer is complete, or too long.
    all: Mutex<Option<Replied>>,
}

struct Replied {
    batches: BTreeMap<u64, Batch>,
    /// Number of batches in the answer; `None` until its end arrives, and if it is cut.
    count: Option<u64>,
    is_damaged: bool,
    /// Bytes of all replies.
    bytes: u64,
    done: oneshot::Sender<Whole>,
}

impl Replied {
    fn new(done: oneshot::Sender<Whole>) -> Self {
        Self { batches: BTreeMap::new(), count: None, is_damaged: false, bytes: 0, done }
    }

    fn is_whole(&self) -> bool {
        let count = self.batches.len() as u64;
        self.count == Some(count) && self.batches.keys().copied().eq(1..=count)
    }
}

impl Replies {
    /// Adds a reply, unless it is longer than a batch can be: the transport accepts such messages. Those are counted.
    fn receive(&self, length: usize, message: impl FnOnce() -> Message) {
        match length <= MAX_BATCH_BYTES {
            true => self.add(&message()),
            false => self.budget.drops.count(Dropped::HistoryAnswer),
        }
    }

    /// Adds a reply; ignores one of another node, which takes nothing from the budget.
    fn add(&self, message: &Message) {
        let publish = Action::Publish { node: &self.node };
        if self.rules.check(&self.nonce, message, publish).is_err() {
            return;
        }
        let mut all = unpoisoned(self.all.lock());
        let Some(replied) = all.as_mut() else { return };
        let length = (message.payload.len() as u64).max(LEAST_REPLY_BYTES);
        if !self.budget.take(&mut replied.bytes, length) {
            // The receiver gets nothing, as after an incomplete answer.
            *all = None;
            return;
        }
        if message.key.ends_with("/end") {
            let mut reader = MessageReader::new(&message.payload);
            let extent = reader.byte().ok().and_then(Extent::from_code).unwrap_or(Extent::Cut);
            if extent != Extent::Cut {
                replied.count = reader.varint().ok();
                replied.is_damaged = extent == Extent::Damaged;
            }
        } else if let Ok(batch) = Batch::decode(&message.payload) {
            replied.batches.insert(batch.sequence, batch);
        }
        if replied.is_whole()
            && let Some(Replied { batches, is_damaged, done, .. }) = all.take()
        {
            let batches = batches.into_values().collect();
            // The caller may have given up.
            let _ = done.send(Whole { batches, is_damaged });
        }
    }
}

#[cfg(test)]
mod tests {
    use skopos_access::{Caller, Names};

    use super::*;
    use crate::trust::{Authority, Identity, Received};

    #[test]
    fn a_question_survives_encoding_and_a_damaged_one_is_refused() {
        let question = Question {
            topics: vec!["n01/mem/total_bytes".to_owned()],
            starts: vec!["n01/cpu/".to_owned(), String::new()],
            from: Timestamp::from_nanos(i64::MIN),
            to: Timestamp::from_nanos(1_700_000_000_000_000_000),
            only_last: true,
            most: 1_000_000,
        };
        let bytes = question.encode();
        assert_eq!(Question::decode(&bytes).ok(), Some(question));
        for end in 0..bytes.len() {
            assert!(Question::decode(&bytes[..end]).is_err(), "{end} bytes");
        }
        assert!(Question::decode(&[&bytes[..], &[0]].concat()).is_err());
    }

    /// Makes the replies of one node, and their receiver.
    fn replies(
        node: &str,
        rules: &ProofRules,
        budget: &Arc<Budget>,
    ) -> (Replies, oneshot::Receiver<Whole>) {
        let (done, answer) = oneshot::channel();
        let (rules, budget) = (rules.clone(), budget.clone());
        let all = Mutex::new(Some(Replied::new(done)));
        (Replies { node: node.to_owned(), rules, nonce: vec![7; 32], budget, all }, answer)
    }

    /// Returns an answer of one batch: the batch and its end.
    fn answer(node: &str) -> [Message; 2] {
        let batch = Batch { sequence: 1, ..Batch::default() }.encode();
        [("1", batch), ("end", vec![Extent::Whole.code(), 1])].map(|(end, payload)| {
            let key = keys::of_publisher("test", "history", node, 1) + "/" + end;
            Message { key, payload, proof: None }
        })
    }

    #[test]
    fn forged_replies_do_not_make_the_answers_of_nodes_incomplete() {
        let dir = tempfile::tempdir().expect("a folder");
        let names = Names { site: "test".to_owned(), node: "n01".to_owned(), is_hub: true };
        Authority::create(dir.path(), &names, &[]).expect("made");
        let identity = Identity::load(dir.path()).expect("readable").expect("there");
        let rules = ProofRules::new(Some(Arc::new(identity)), true);
        let budget = Arc::new(Budget::new(1, DropCounter::default()));
        let (replies, mut whole) = replies("n01", &rules, &budget);
        let noise = Message { payload: vec![0; 1 << 20], ..answer("n01")[0].clone() };
        (0..80).for_each(|_| replies.add(&noise));
        let (caller, nonce) = (Caller::Node(names), replies.nonce.clone());
        let received = Received { caller, key: None, nonce };
        for message in answer("n01") {
            let proof = rules.answer(&received, &message.key, &message.payload, &[]);
            replies.add(&Message { proof, ..message });
        }
        assert_eq!(whole.try_recv().expect("the answer is complete").batches.len(), 1);
    }

    #[test]
    fn a_node_that_answers_without_end_leaves_the_others_their_shares() {
        let (rules, budget) =
            (ProofRules::new(None, false), Arc::new(Budget::new(3, DropCounter::default())));
        let (endless, mut missing) = replies("n01", &rules, &budget);
        let long = Message { payload: vec![0; MAX_BATCH_BYTES], ..answer("n01")[0].clone() };
        let most = (SHARED_BYTES / 3 + COMMON_BYTES) / MAX_BATCH_BYTES as u64;
        (0..most).for_each(|_| endless.add(&long));
        assert!(unpoisoned(endless.all.lock()).is_some(), "its share and all that is common");
        let (other, mut whole) = replies("n02", &rules, &budget);
        answer("n02").iter().for_each(|message| other.add(message));
        assert!(whole.try_recv().is_ok(), "the share of another node");
        (0..2).for_each(|_| endless.add(&long));
        answer("n01").iter().for_each(|message| endless.add(message));
        assert!(missing.try_recv().is_err(), "its answer is too long");
        let counted = budget.drops.numbers().map(|(_, number)| number);
        assert_eq!(counted, [0, 0, 0, 0, 0, 1, 0, 0], "it is counted once");
        let unread = || -> Message { panic!("it is copied") };
        other.receive(MAX_BATCH_BYTES + 1, unread);
        let counted = budget.drops.numbers().map(|(_, number)| number);
        assert_eq!(counted, [0, 0, 0, 0, 0, 2, 0, 0], "a reply that is too long is counted");
        assert_eq!(budget.beyond.load(Ordering::Relaxed), 0, "it gives back what it had");
    }
}

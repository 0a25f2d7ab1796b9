//! Asking a node for what it has kept, which a mirror has not.
//!
//! # Keys
//! ```text
//! skopos/SITE/history/NODE/INCARNATION/N     answers, in batches that are numbered from 1
//! skopos/SITE/history/NODE/INCARNATION/end   how many there were, and whether that is all
//! ```
//! A question that is lost, an answer that is not whole and a node that is too slow are the same for
//! who asks: that node is missing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use skopos_model::{Timestamp, unpoisoned};
use tokio::sync::oneshot;
use zenoh::Wait as _;
use zenoh::query::{Query, Queryable};

use crate::batch::Batch;
use crate::bytes::{MessageReader, put_signed, put_text, put_varint};
use crate::error::Error;
use crate::plane::Plane;

/// The version of a question's layout.
const LAYOUT: u8 = 1;

const MAGIC: [u8; 4] = [b'S', b'K', b'H', LAYOUT];

/// The longest question: as many topics as a node has by name, or else by their beginnings.
const MAX_QUESTION_BYTES: usize = 1 << 20;

/// Questions that wait for an answer on a node: those of a few hubs, some times over. More are not
/// answered, and who asked says so.
const MAX_WAITING: usize = 16;

/// What all nodes together may answer to one question: about five million samples.
const MAX_ANSWER_BYTES: u64 = 64 << 20;

/// What a node is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Topics that are wanted.
    pub topics: Vec<String>,
    /// Topics that begin so are wanted as well.
    pub starts: Vec<String>,
    /// Not before this time; what only the last one before `to` is asked for does not have it.
    pub from: Timestamp,
    /// Not after this time.
    pub to: Timestamp,
    /// Only the last sample of each topic.
    pub only_last: bool,
    /// How many samples at the most; if there are more, none beyond these come.
    pub most: u64,
}

impl Question {
    /// As it is asked.
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

    /// Reads one.
    ///
    /// # Errors
    /// It is none of ours, or damaged.
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

/// Answers questions for as long as it is there.
#[derive(Debug)]
pub struct Answering {
    _queryable: Queryable<()>,
    /// A session closes with its last owner.
    _session: zenoh::Session,
}

/// What a node answered.
#[derive(Debug)]
pub struct Answered {
    /// Its name.
    pub node: String,
    /// What it has, if all of that came.
    pub batches: Option<Vec<Batch>>,
}

impl Plane {
    /// Answers questions about what a node has kept, one after the other, on a thread of its own.
    /// `answer` hands over batches one by one, and returns whether they are all that was asked for.
    ///
    /// # Errors
    /// The session is broken; no thread can be started.
    pub fn answer_history(
        &self,
        node: &str,
        incarnation: i64,
        answer: impl Fn(&Question, &mut dyn FnMut(&Batch)) -> bool + Send + 'static,
    ) -> Result<Answering, Error> {
        let key = format!("skopos/{}/history/{node}/{incarnation}", self.site);
        let (queue, came): (SyncSender<Query>, _) = sync_channel(MAX_WAITING);
        let base = key.clone();
        let run = move || {
            // It ends with the queryable, which has the other end.
            while let Ok(query) = came.recv() {
                let bytes = query.payload().map(|payload| payload.to_bytes().into_owned());
                // What is no question gets no answer.
                let Some(Ok(question)) = bytes.as_deref().map(Question::decode) else { continue };
                let mut count = 0u64;
                let is_whole = answer(&question, &mut |batch| {
                    count += 1;
                    let batch = Batch { sequence: count, ..batch.clone() };
                    // Who asked and went away gets nothing.
                    let _ = query.reply(format!("{base}/{count}"), batch.encode()).wait();
                });
                let mut end = vec![u8::from(is_whole)];
                put_varint(&mut end, count);
                let _ = query.reply(format!("{base}/end"), end).wait();
            }
        };
        let thread = std::thread::Builder::new().name("history".to_owned()).spawn(run);
        thread.map_err(Error::Thread)?;
        let queryable = self.session.declare_queryable(format!("{key}/*")).callback(move |query| {
            // The session waits for nobody.
            let _ = queue.try_send(query);
        });
        let queryable = queryable.wait().map_err(|e| Error::plane(&e))?;
        Ok(Answering { _queryable: queryable, _session: self.session.clone() })
    }

    /// Asks nodes, all at once. Who does not answer until then, or not with all, has no batches.
    pub async fn ask_history(
        &self,
        nodes: Vec<(String, i64, Question)>,
        until: Instant,
    ) -> Vec<Answered> {
        let bytes = Arc::new(AtomicU64::new(0));
        let asked: Vec<(String, oneshot::Receiver<Vec<Batch>>)> = nodes
            .into_iter()
            .map(|(node, incarnation, question)| {
                let answer = self.ask_one(&node, incarnation, &question, until, bytes.clone());
                (node, answer)
            })
            .collect();
        let mut answers = Vec::with_capacity(asked.len());
        for (node, answer) in asked {
            let answer = tokio::time::timeout_at(until.into(), answer).await;
            answers.push(Answered { node, batches: answer.ok().and_then(Result::ok) });
        }
        answers
    }

    fn ask_one(
        &self,
        node: &str,
        incarnation: i64,
        question: &Question,
        until: Instant,
        bytes: Arc<AtomicU64>,
    ) -> oneshot::Receiver<Vec<Batch>> {
        let (done, answer) = oneshot::channel();
        let key = format!("skopos/{}/history/{node}/{incarnation}/*", self.site);
        let pieces = Arc::new(Pieces { done: Mutex::new(Some(done)), came: Mutex::default() });
        let left = until.saturating_duration_since(Instant::now());
        // When the last reply has come the callback goes, and with it `pieces`, which hands them on.
        let asked = self.session.get(&key).payload(question.encode()).timeout(left);
        // What cannot be asked has no answer.
        let _ = asked
            .callback(move |reply| {
                let Ok(sample) = reply.result() else { return };
                let payload = sample.payload().to_bytes();
                let all = bytes.fetch_add(payload.len() as u64, Ordering::Relaxed);
                if all + payload.len() as u64 <= MAX_ANSWER_BYTES {
                    pieces.take(sample.key_expr().as_str(), &payload);
                }
            })
            .wait();
        answer
    }
}

/// An answer that comes in pieces.
struct Pieces {
    done: Mutex<Option<oneshot::Sender<Vec<Batch>>>>,
    came: Mutex<Came>,
}

#[derive(Default)]
struct Came {
    batches: BTreeMap<u64, Batch>,
    /// How many there are, if they are all that was asked for.
    count: Option<u64>,
}

impl Pieces {
    fn take(&self, key: &str, payload: &[u8]) {
        let mut came = unpoisoned(self.came.lock());
        if key.ends_with("/end") {
            let mut reader = MessageReader::new(payload);
            if reader.byte().is_ok_and(|is_whole| is_whole == 1) {
                came.count = reader.varint().ok();
            }
        } else if let Ok(batch) = Batch::decode(payload) {
            came.batches.insert(batch.sequence, batch);
        }
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        let Came { batches, count } = std::mem::take(&mut *unpoisoned(self.came.lock()));
        let done = unpoisoned(self.done.lock()).take();
        let is_whole = count == Some(batches.len() as u64)
            && batches.keys().copied().eq(1..=batches.len() as u64);
        if let Some(done) = done
            && is_whole
        {
            // Who asked may have given up.
            let _ = done.send(batches.into_values().collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read_as_they_were_written_and_damaged_ones_are_refused() {
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
}

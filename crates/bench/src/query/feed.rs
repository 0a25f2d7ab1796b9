//! The values of the peers: every second the feeder writes all changes that the hub knows into each
//! peer, or shows them to peers that scrape.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use skopos_access::Caller;
use skopos_model::unpoisoned;

use skopos_query::arrow::array::cast::AsArray as _;
use skopos_query::arrow::array::types::TimestampNanosecondType;
use skopos_query::arrow::array::{Array as _, Float64Array, StringArray};
use skopos_query::{Engine, Limits};
use tokio::runtime::Builder;

/// Time between two writes: the interval of the agents.
pub(super) const EVERY: Duration = Duration::from_secs(1);

/// The statement for all latest values.
const ALL: &str = "SELECT topic, time, value FROM latest WHERE topic LIKE '%'";

/// The latest value of a topic.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) topic: String,
    /// The time in nanoseconds since 1970.
    pub(super) time: i64,
    pub(super) value: f64,
}

/// Writes the changes since the last call.
pub(super) type Feed = Box<dyn FnMut(&[Row]) -> Result<(), String> + Send>;

/// The state that feeder and benchmark share.
#[derive(Default)]
struct Shared {
    latest: HashMap<String, Row>,
    /// The reason why a peer lacks values, by its name.
    failed: HashMap<&'static str, String>,
    /// Number of rows that were written into each peer.
    written: u64,
    seconds: f64,
}

/// The feeder, which ends when it is dropped.
pub(super) struct Feeder {
    shared: Arc<Mutex<Shared>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The values of the peers do not change while this exists.
pub(super) struct Still<'a>(MutexGuard<'a, Shared>);

impl Still<'_> {
    /// The value of this topic in the peers.
    pub(super) fn value(&self, topic: &str) -> Option<f64> {
        self.0.latest.get(topic).map(|row| row.value)
    }
}

impl Feeder {
    pub(super) fn start(engine: Arc<Engine>, mut feeds: Vec<(&'static str, Feed)>) -> Self {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let run = {
            let (shared, stop) = (shared.clone(), stop.clone());
            move || {
                let started = Instant::now();
                while !stop.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    once(&engine, &mut feeds, &mut lock(&shared));
                    lock(&shared).seconds = started.elapsed().as_secs_f64();
                    std::thread::sleep(EVERY.saturating_sub(begun.elapsed()));
                }
            }
        };
        Self { shared, stop, thread: Some(std::thread::spawn(run)) }
    }

    pub(super) fn still(&self) -> Still<'_> {
        Still(lock(&self.shared))
    }

    /// The reason why a peer could not be fed.
    pub(super) fn failure(&self, peer: &str) -> Option<String> {
        lock(&self.shared).failed.get(peer).cloned()
    }

    /// Number of topics, and of changes in a second.
    pub(super) fn size(&self) -> (usize, f64) {
        let shared = lock(&self.shared);
        (shared.latest.len(), shared.written as f64 / shared.seconds.max(f64::MIN_POSITIVE))
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    unpoisoned(shared.lock())
}

fn once(engine: &Engine, feeds: &mut [(&'static str, Feed)], shared: &mut Shared) {
    let rows = match all(engine) {
        Ok(rows) => rows,
        Err(why) => {
            shared.failed.extend(feeds.iter().map(|(name, _)| (*name, why.clone())));
            return;
        }
    };
    let is_new = |row: &Row| shared.latest.get(&row.topic).is_none_or(|old| old.time < row.time);
    let changed: Vec<Row> = rows.into_iter().filter(is_new).collect();
    for (name, feed) in feeds {
        if !shared.failed.contains_key(name)
            && let Err(why) = feed(&changed)
        {
            shared.failed.insert(name, format!("it could not be fed: {why}"));
        }
    }
    shared.written += changed.len() as u64;
    shared.latest.extend(changed.into_iter().map(|row| (row.topic.clone(), row)));
}

/// All latest values that are numbers.
fn all(engine: &Engine) -> Result<Vec<Row>, String> {
    let limits = Limits::default();
    let runtime = Builder::new_current_thread().enable_time().build().map_err(|e| e.to_string())?;
    let answer =
        runtime.block_on(engine.query(&Caller::Owner, ALL, &limits)).map_err(|e| e.to_string())?;
    let mut rows = Vec::with_capacity(answer.rows());
    for batch in &answer.batches {
        let topics: &StringArray = batch.column(0).as_string();
        let times = batch.column(1).as_primitive::<TimestampNanosecondType>();
        let values: &Float64Array = batch.column(2).as_primitive();
        for at in (0..batch.num_rows()).filter(|at| values.is_valid(*at)) {
            let (topic, time) = (topics.value(at).to_owned(), times.value(at));
            rows.push(Row { topic, time, value: values.value(at) });
        }
    }
    Ok(rows)
}

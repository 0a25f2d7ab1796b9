//! Sends the samples of this machine's publishers as batches to the live plane.
//!
//! The uplink reads shared memory like any other program, so the agent does not know of it. A publish wakes it; it
//! reads all new samples and sends them. Samples of the next moment go into the next batch. About once a second it also
//! looks for publishers and sends the poll times of unchanged values, with a batch that has samples if possible: each
//! batch wakes threads on both ends.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use skopos_model::{Topic, unpoisoned};
use skopos_shm::{Host, Segment, now};
use skopos_wire::{Batch, HistoryResponder, Outlet, Plane, Responder};

use crate::past;
use crate::published::published_here;
use crate::sent::{News, SentVertices};
use skopos_agent::control::{self, Request};
use skopos_term::Failure;

/// Mean time between batches while a program changes a value all the time: at most 4,000 batches a second.
const SHORTEST: Duration = Duration::from_micros(250);

/// Batches that may follow each other at once: changes that come in bursts, at a lower mean rate, do not wait.
const BURST: u32 = 8;

/// Parts of one batch that are sent at once, and the pause before the next ones: half of the queue of a link, and the time in
/// which its sender empties it. A publisher that registers thousands of vertices at once has many parts.
const PARTS_AT_ONCE: usize = 8;
const PAUSE_OF_PARTS: Duration = Duration::from_millis(2);

/// Time in which the agent polls the sensors that are due together: their facts fit into one batch.
const POLLS: Duration = Duration::from_millis(5);

/// Least time between two batches with poll times, and between two searches for publishers: somewhat less than the
/// second between the polls of most sensors, so that the batch with their samples has the poll times too.
const LOOK_EVERY: Duration = Duration::from_millis(900);

/// The longest time between two batches with poll times: somewhat more than that second, and as long as followers wait
/// for a batch.
const LOOK_AT_LATEST: Duration = Outlet::LONGEST_PAUSE;

/// Time for which the uplink wakes ten times a second after news that did not wake it.
const DISTRUST: Duration = Duration::from_secs(60);

/// A running uplink. It stops when it is dropped.
pub(crate) struct Uplink {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    dir: PathBuf,
    /// Answers questions about the past.
    _answering: HistoryResponder,
}

impl Uplink {
    /// Announces `node` and begins to send.
    ///
    /// # Errors
    /// Another node has that name; the directory cannot be read; a thread cannot be started.
    pub(crate) fn start(plane: &Plane, node: &str, dir: PathBuf) -> Result<Self, Failure> {
        let host = published_here(Host::open_dirs(vec![dir.clone()])?);
        let sent = Arc::new(Mutex::new(SentVertices::new(node)));
        // The facts are read before the node is announced.
        lock(&sent).look(&host);
        lock(&sent).collect();
        // A follower begins with a snapshot, which contains the pending samples.
        lock(&sent).pending = Batch::default();
        let answers = NodeResponder { sent: sent.clone(), dir: dir.clone() };
        let incarnation = now().as_nanos();
        let outlet = plane.announce(node, incarnation, answers).map_err(|e| {
            let failure = Failure::new(format!("the node `{node}` cannot join")).because(&e);
            failure.hint("give this node another name with --node")
        })?;
        let answering = past::answer(plane, node, incarnation, dir.clone())?;
        let stop = Arc::new(AtomicBool::new(false));
        let run = {
            let stop = stop.clone();
            move || run(host, &sent, outlet, &stop)
        };
        let thread = std::thread::Builder::new().name("uplink".to_owned()).spawn(run);
        let thread = thread.map_err(|e| Failure::new("a thread cannot be started").because(&e))?;
        Ok(Self { stop, thread: Some(thread), dir, _answering: answering })
    }

    /// Returns true if the uplink has ended because another node had this name before.
    pub(crate) fn is_refused(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

impl Drop for Uplink {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            while !thread.is_finished() {
                // It sleeps until a program publishes. It may have begun to sleep just after this.
                let host = Host::open_dirs(vec![self.dir.clone()]);
                host.iter().flat_map(Host::segments).for_each(Segment::rouse);
                std::thread::sleep(Duration::from_millis(1));
            }
            let _ = thread.join();
        }
    }
}

/// Answers the requests of other nodes.
struct NodeResponder {
    sent: Arc<Mutex<SentVertices>>,
    /// The runtime directory of the agent that measures.
    dir: PathBuf,
}

impl Responder for NodeResponder {
    fn snapshot(&self) -> Vec<Batch> {
        lock(&self.sent).whole()
    }

    fn refresh(&self, topic: &Topic) -> Result<Batch, String> {
        let request = Request::Refresh { topic: topic.to_string() };
        control::ask(&self.dir, &request).map_err(|e| e.message().to_owned())?;
        lock(&self.sent).fresh(topic).ok_or_else(|| format!("`{topic}` has no value yet"))
    }
}

fn lock(sent: &Mutex<SentVertices>) -> MutexGuard<'_, SentVertices> {
    unpoisoned(sent.lock())
}

fn run(mut host: Host, sent: &Mutex<SentVertices>, outlet: Outlet, stop: &AtomicBool) {
    let mut pace = Pace::new(Instant::now());
    let mut names = Backoff::new();
    while !stop.load(Ordering::Relaxed) {
        let news = wait(&host, sent, &mut pace, stop);
        if outlet.is_second() {
            break;
        }
        if news != News::Absent {
            std::thread::sleep(pace.gather(news, Instant::now()));
        }
        let now = Instant::now();
        let is_look_due = pace.is_look_due(now, news);
        if news == News::Absent && !is_look_due {
            continue;
        }
        let batches = {
            let mut sent = lock(sent);
            if is_look_due {
                let _ = host.refresh();
                sent.look(&host);
            }
            sent.collect();
            sent.batches(is_look_due)
        };
        if names.is_due() {
            // Fails only if the session is closed.
            let _ = outlet.look_for_first();
        }
        for (at, batch) in batches.iter().enumerate() {
            if at > 0 && at.is_multiple_of(PARTS_AT_ONCE) {
                std::thread::sleep(PAUSE_OF_PARTS);
            }
            // Followers notice a closed session by themselves.
            let _ = outlet.send(batch);
        }
        pace.note_sent(now, batches.len(), is_look_due);
    }
    outlet.close();
}

/// Waits for news, and until the next look at most.
fn wait(host: &Host, sent: &Mutex<SentVertices>, pace: &mut Pace, stop: &AtomicBool) -> News {
    let mut news = News::Absent;
    let is_ready = || {
        news = lock(sent).news();
        news != News::Absent || stop.load(Ordering::Relaxed)
    };
    let (begun, left) = (Instant::now(), pace.left(Instant::now()));
    match pace.is_distrustful(begun) {
        true => host.wait(left, is_ready),
        false => host.wait_for_wake(left, is_ready),
    };
    if news != News::Absent && begun.elapsed() >= left {
        pace.note_unannounced(Instant::now());
    }
    news
}

/// The times of batches and looks.
struct Pace {
    /// Time of the last look.
    looked_at: Instant,
    /// Time from which on the next batch may be sent.
    send_at: Instant,
    /// Until then, news that do not wake this thread are found within a tenth of a second.
    distrust_until: Option<Instant>,
}

impl Pace {
    fn new(now: Instant) -> Self {
        Self { looked_at: now, send_at: Self::rested(now), distrust_until: None }
    }

    /// Returns the time from which on a batch could be sent if there was none for long.
    fn rested(now: Instant) -> Instant {
        now.checked_sub(SHORTEST * BURST).unwrap_or(now)
    }

    /// Returns the time until the latest moment for a look.
    fn left(&self, now: Instant) -> Duration {
        (self.looked_at + LOOK_AT_LATEST).saturating_duration_since(now)
    }

    /// Returns the time in which news gather before they are sent.
    fn gather(&self, news: News, now: Instant) -> Duration {
        let spacing = self.send_at.saturating_duration_since(now);
        if news == News::OfAgent { spacing.max(POLLS) } else { spacing }
    }

    /// Returns true if a look is due. With news, it need not wait for its latest moment.
    fn is_look_due(&self, now: Instant, news: News) -> bool {
        let after = if news == News::Absent { LOOK_AT_LATEST } else { LOOK_EVERY };
        now.saturating_duration_since(self.looked_at) >= after
    }

    fn note_sent(&mut self, now: Instant, batches: usize, has_looked: bool) {
        let batches = u32::try_from(batches.max(1)).unwrap_or(u32::MAX);
        // Unused time counts, up to that of a burst.
        self.send_at = self.send_at.max(Self::rested(now)) + SHORTEST * batches;
        if has_looked {
            self.looked_at = now;
        }
    }

    /// Notes news that did not wake this thread: another process may have lowered the flag of a segment.
    fn note_unannounced(&mut self, now: Instant) {
        self.distrust_until = Some(now + DISTRUST);
    }

    fn is_distrustful(&self, now: Instant) -> bool {
        self.distrust_until.is_some_and(|until| now < until)
    }
}

/// A timer whose wait doubles up to a limit.
struct Backoff {
    next: Instant,
    wait: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_secs(1);

    /// The longest wait. Two nodes with the same name that start together notice it within seconds; after a
    /// network partition heals, within a minute.
    const LONGEST: Duration = Duration::from_secs(60);

    fn new() -> Self {
        Self { next: Instant::now() + Self::FIRST, wait: Self::FIRST }
    }

    fn is_due(&mut self) -> bool {
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        self.wait = (self.wait * 2).min(Self::LONGEST);
        self.next = now + self.wait;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_sent_at_once_and_a_program_that_never_rests_at_the_mean_rate() {
        let begun = Instant::now();
        let mut pace = Pace::new(begun);
        // Sends whenever it may, for a second.
        let (mut now, mut at_once, mut sent) = (begun, 0, 0);
        while now < begun + Duration::from_secs(1) {
            let wait = pace.gather(News::OfProgram, now);
            at_once += u32::from(wait.is_zero());
            now += wait;
            pace.note_sent(now, 1, false);
            sent += 1;
            // The time that a batch takes.
            now += Duration::from_micros(20);
        }
        assert!((BURST - 1..=2 * BURST).contains(&at_once), "{at_once} at once");
        assert!((4000..=4000 + 2 * BURST).contains(&sent), "{sent} in a second");
        now += Duration::from_secs(1);
        let waits = (0..BURST).map(|_| {
            let wait = pace.gather(News::OfProgram, now);
            pace.note_sent(now, 1, false);
            wait
        });
        assert!(waits.into_iter().all(|wait| wait.is_zero()), "it has rested");
        assert!(pace.gather(News::OfAgent, now) >= POLLS, "the agent's sensors go together");
    }
}

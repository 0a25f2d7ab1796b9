//! The connections of a listener on which nothing happens. When a listener is full, the one that has been idle for the longest
//! time makes room.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use skopos_model::unpoisoned;

/// Time without a byte after which a connection counts as idle: far longer than a client needs to send its request.
const IDLE_AFTER: Duration = Duration::from_millis(250);

/// The open connections of a listener.
#[derive(Clone, Default)]
pub(crate) struct Connections(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    open: HashMap<u64, Entry>,
    last: u64,
}

struct Entry {
    activity: Arc<Activity>,
    /// Ends the connection.
    close: Box<dyn Fn() + Send>,
}

/// The activity of a connection, which counts as open until this is dropped.
pub(crate) struct Open {
    number: u64,
    activity: Arc<Activity>,
    connections: Connections,
}

struct Activity {
    began: Instant,
    /// Milliseconds from then to the last byte.
    last_ms: AtomicU64,
    /// True while the hub owes an answer.
    is_busy: AtomicBool,
    /// True until the client shows who it is.
    is_stranger: AtomicBool,
}

/// The client of an open connection.
#[derive(Clone)]
pub(crate) struct Client(Arc<Activity>);

impl Client {
    /// Notes that the client has shown who it is: its connection makes room for others only while it is idle.
    pub(crate) fn introduce(&self) {
        self.0.is_stranger.store(false, Ordering::Relaxed);
    }
}

impl Connections {
    /// Adds a connection that `close` ends.
    pub(crate) fn add(&self, is_stranger: bool, close: impl Fn() + Send + 'static) -> Open {
        let activity = Arc::new(Activity {
            began: Instant::now(),
            last_ms: AtomicU64::new(0),
            is_busy: AtomicBool::new(false),
            is_stranger: AtomicBool::new(is_stranger),
        });
        let mut state = unpoisoned(self.0.lock());
        state.last += 1;
        let number = state.last;
        let entry = Entry { activity: activity.clone(), close: Box::new(close) };
        state.open.insert(number, entry);
        Open { number, activity, connections: self.clone() }
    }

    /// Ends the connection that has been idle for the longest time; false if none is idle. A stranger counts as idle from the
    /// start: whoever may stay shows a token with the first request.
    pub(crate) fn close_idle(&self) -> bool {
        self.close_longest(|activity| {
            let idle = activity.idle().filter(|idle| *idle >= IDLE_AFTER);
            idle.max(activity.age_of_stranger())
        })
    }

    /// Ends the oldest connection of a stranger if there are `most` of them: a newcomer takes its place.
    pub(crate) fn close_stranger_above(&self, most: usize) {
        let is_stranger = |entry: &&Entry| entry.activity.age_of_stranger().is_some();
        let strangers = unpoisoned(self.0.lock()).open.values().filter(is_stranger).count();
        if strangers >= most {
            self.close_longest(Activity::age_of_stranger);
        }
    }

    /// Ends the connection for which `time` is longest; false if it is `None` for all.
    fn close_longest(&self, time: impl Fn(&Activity) -> Option<Duration>) -> bool {
        let mut state = unpoisoned(self.0.lock());
        let times = state.open.iter().filter_map(|(n, entry)| Some((time(&entry.activity)?, *n)));
        let Some((_, number)) = times.max() else { return false };
        // It is no longer a candidate, also before its task has noticed.
        let Some(entry) = state.open.remove(&number) else { return false };
        drop(state);
        (entry.close)();
        true
    }
}

impl Open {
    /// Returns the client of the connection.
    pub(crate) fn client(&self) -> Client {
        Client(self.activity.clone())
    }

    /// Notes that bytes have arrived: the hub owes an answer.
    pub(crate) fn received(&self) {
        self.activity.touch();
        self.activity.is_busy.store(true, Ordering::Relaxed);
    }

    /// Notes that bytes have been sent.
    pub(crate) fn sent(&self) {
        self.activity.touch();
        self.activity.is_busy.store(false, Ordering::Relaxed);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        unpoisoned(self.connections.0.lock()).open.remove(&self.number);
    }
}

impl Activity {
    fn touch(&self) {
        let since = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(since, Ordering::Relaxed);
    }

    /// Returns the age of the connection if its client is a stranger.
    fn age_of_stranger(&self) -> Option<Duration> {
        self.is_stranger.load(Ordering::Relaxed).then(|| self.began.elapsed())
    }

    /// Returns the time for which the connection has been idle; `None` if it is busy.
    fn idle(&self) -> Option<Duration> {
        let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
        let is_busy = self.is_busy.load(Ordering::Relaxed);
        (!is_busy).then(|| self.began.elapsed().saturating_sub(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens connections whose names are noted as they are closed.
    #[derive(Default)]
    struct World {
        connections: Connections,
        closed: Arc<Mutex<Vec<u32>>>,
    }

    impl World {
        fn open(&self, name: u32, is_stranger: bool) -> Open {
            let closed = self.closed.clone();
            self.connections.add(is_stranger, move || unpoisoned(closed.lock()).push(name))
        }

        fn closed(&self) -> Vec<u32> {
            unpoisoned(self.closed.lock()).clone()
        }
    }

    #[test]
    fn the_longest_idle_connection_is_closed_and_a_busy_one_is_not() {
        let world = World::default();
        let all = [world.open(1, false), world.open(2, false)];
        assert!(!world.connections.close_idle(), "none is idle for so long");
        std::thread::sleep(IDLE_AFTER);
        all[0].received();
        let _newcomer = world.open(3, false);
        assert!(world.connections.close_idle());
        assert!(!world.connections.close_idle(), "one is busy, one is new");
        assert_eq!(world.closed(), [2]);
    }

    #[test]
    fn strangers_who_speak_without_end_make_room_and_known_clients_do_not() {
        let world = World::default();
        let all = [1, 2, 3, 4].map(|name| {
            let open = world.open(name, true);
            open.received();
            // The order of their ages.
            std::thread::sleep(Duration::from_millis(2));
            open
        });
        all[0].client().introduce();
        world.connections.close_stranger_above(4);
        assert_eq!(world.closed(), [0; 0], "there are three of them");
        world.connections.close_stranger_above(3);
        assert_eq!(world.closed(), [2], "the oldest one");
        assert!(world.connections.close_idle() && world.connections.close_idle());
        assert!(!world.connections.close_idle(), "the known one is busy");
        assert_eq!(world.closed(), [2, 3, 4]);
    }
}

//! The connections of a listener on which nothing happens. When a listener is full, the one that has been idle for the longest
//! time makes room.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use skopos_model::unpoisoned;

use super::entering::Entrant;

/// Time without a byte after which a connection counts as idle: far longer than a client needs to send its request.
const IDLE_AFTER: Duration = Duration::from_millis(250);

/// Age from which the connection of a stranger makes room as if it were idle: a client shows its token with its first
/// request.
const STRANGER_TIME: Duration = Duration::from_secs(5);

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
    /// Counts the connection as one of a stranger's address.
    entrant: Mutex<Option<Entrant>>,
}

/// The client of an open connection.
#[derive(Clone)]
pub(crate) struct Client(Arc<Activity>);

impl Client {
    /// Notes that the client has shown who it is: its connection no longer makes room for others while it is busy.
    pub(crate) fn is_known(&self) {
        if self.0.is_stranger.swap(false, Ordering::Relaxed) {
            drop(unpoisoned(self.0.entrant.lock()).take());
        }
    }
}

impl Connections {
    /// Adds a connection that `close` ends. That of a stranger counts as one of its address.
    pub(crate) fn add(&self, stranger: Option<Entrant>, close: impl Fn() + Send + 'static) -> Open {
        let activity = Arc::new(Activity {
            began: Instant::now(),
            last_ms: AtomicU64::new(0),
            is_busy: AtomicBool::new(false),
            is_stranger: AtomicBool::new(stranger.is_some()),
            entrant: Mutex::new(stranger),
        });
        let mut state = unpoisoned(self.0.lock());
        state.last += 1;
        let number = state.last;
        let entry = Entry { activity: activity.clone(), close: Box::new(close) };
        state.open.insert(number, entry);
        Open { number, activity, connections: self.clone() }
    }

    /// Ends the connection that has been idle for the longest time; false if none is idle. With `strangers_alone`, only one of a
    /// stranger. A stranger who has not shown in time who it is counts as idle from the start.
    pub(crate) fn close_idle(&self, strangers_alone: bool) -> bool {
        let mut state = unpoisoned(self.0.lock());
        let idle = state.open.iter().filter_map(|(number, entry)| {
            let is_stranger = entry.activity.is_stranger.load(Ordering::Relaxed);
            if strangers_alone && !is_stranger {
                return None;
            }
            let age = entry.activity.began.elapsed();
            if is_stranger && age >= STRANGER_TIME {
                return Some((age, *number));
            }
            let idle = entry.activity.idle().filter(|idle| *idle >= IDLE_AFTER)?;
            Some((idle, *number))
        });
        let Some((_, number)) = idle.max() else { return false };
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

    /// Returns the time for which the connection has been idle; `None` if it is busy.
    fn idle(&self) -> Option<Duration> {
        let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
        let is_busy = self.is_busy.load(Ordering::Relaxed);
        (!is_busy).then(|| self.began.elapsed().saturating_sub(last))
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::listen::entering::Entering;

    #[test]
    fn the_longest_idle_connection_is_closed_and_a_busy_one_is_not() {
        let (connections, closed) = (Connections::default(), Arc::<Mutex<Vec<u32>>>::default());
        let (entering, address) = (Entering::default(), IpAddr::from([10, 0, 0, 1]));
        let open = |name: u32| {
            let closed = closed.clone();
            let stranger = entering.begin(address).filter(|_| name == 3);
            connections.add(stranger, move || unpoisoned(closed.lock()).push(name))
        };
        let all = [open(1), open(2), open(3)];
        assert!(!connections.close_idle(false), "none is idle for so long");
        std::thread::sleep(IDLE_AFTER);
        all[0].received();
        std::thread::sleep(Duration::from_millis(20));
        let _newcomer = open(4);
        assert!(connections.close_idle(true), "a stranger first, where one has to go");
        assert!(!connections.close_idle(true));
        assert!(connections.close_idle(false));
        assert!(!connections.close_idle(false), "one is busy, one is new");
        assert_eq!(*unpoisoned(closed.lock()), [3, 2]);
    }

    #[test]
    fn a_stranger_who_speaks_without_end_makes_room_and_a_known_client_does_not() {
        let (connections, closed) = (Connections::default(), Arc::<AtomicBool>::default());
        let closing = closed.clone();
        let entering = Entering::default();
        let address = IpAddr::from([10, 0, 0, 1]);
        let open = connections.add(entering.begin(address), move || {
            closing.store(true, Ordering::Relaxed);
        });
        open.received();
        std::thread::sleep(IDLE_AFTER);
        assert!(!connections.close_idle(true), "it is busy, and may still show a token");
        let began = Instant::now().checked_sub(STRANGER_TIME).expect("a machine that ran for long");
        let later = |is_stranger: bool| {
            let activity = Activity {
                began,
                last_ms: AtomicU64::new(0),
                is_busy: AtomicBool::new(true),
                is_stranger: AtomicBool::new(is_stranger),
                entrant: Mutex::default(),
            };
            unpoisoned(connections.0.lock()).open.get_mut(&open.number).expect("open").activity =
                Arc::new(activity);
        };
        later(false);
        assert!(!connections.close_idle(true) && !connections.close_idle(false));
        later(true);
        assert!(connections.close_idle(true) && closed.load(Ordering::Relaxed));
        open.client().is_known();
        assert!(entering.is_empty(), "a known client no longer counts for its address");
    }
}

//! The UDP socket between this node and others, and the thread that reads from it.
//!
//! Answers must leave at once and not at the next poll, and an arrival must be timed when it
//! happens. The kernel's own timestamps of arrivals come as ancillary data, which needs unsafe
//! code. So a thread sleeps until a datagram arrives. It exists only if peers are configured, and
//! ends when the last sensor that uses the endpoint is gone.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::ClockId;
use skopos_model::{Timestamp, unpoisoned};

use super::contact::{Clocks, Contact, Verdict};
use super::datagram::{DATAGRAM_BYTES, Datagram, Name, Times};
use super::settings::{MAX_PEERS, PeerSettings};
use crate::clock;

/// The most answers a second: four times the probes that [`MAX_PEERS`] nodes send by default. An
/// answer takes some 12 us, so strangers can use at most a fortieth of a core of this node.
const MAX_ANSWERS: u32 = 2048;

/// The most datagrams of any kind that are read in a second. The kernel drops the others, and
/// counts them (`udp/receive_buffer_errors_total`).
const MAX_DATAGRAMS: u32 = 4 * MAX_ANSWERS;

/// The stack of the thread, which holds a datagram and a few frames.
const STACK_BYTES: usize = 128 << 10;

const SECOND: Duration = Duration::from_secs(1);

/// The counts that the family `responder` publishes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) answered: u64,
    pub(crate) malformed: u64,
    pub(crate) refused: u64,
    pub(crate) unasked: u64,
}

/// The state that polls and the thread share.
pub(crate) struct State {
    /// In the order of the settings.
    pub(crate) contacts: Vec<Contact>,
    pub(crate) traffic: Traffic,
    /// The reason why the thread ended, if it ended.
    failure: Option<io::ErrorKind>,
}

/// The socket, its thread and their state. Dropping it ends the thread.
pub(crate) struct Endpoint {
    shared: Arc<Shared>,
    /// Closing it wakes the thread, which then ends.
    hangup: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    socket: UdpSocket,
    node: Name,
    /// True if the socket answers probes; one that is open only for asking does not.
    answers: bool,
    wall_clock: fn() -> Timestamp,
    nonces: RandomState,
    state: Mutex<State>,
}

impl Endpoint {
    /// Opens the socket and starts the thread. The settings have been checked.
    pub(crate) fn open(settings: &PeerSettings) -> io::Result<Self> {
        let names = settings.peers.iter().map(|(name, _)| Name::new(name.as_bytes()));
        let contacts = names.flatten().map(|name| Contact::new(name, settings.timeout)).collect();
        let socket = UdpSocket::bind(settings.listen.unwrap_or_else(|| any_address(settings)))?;
        socket.set_nonblocking(true)?;
        let node = Name::new(settings.node.as_bytes()).ok_or(io::ErrorKind::InvalidInput)?;
        let shared = Arc::new(Shared {
            socket,
            node,
            answers: settings.listen.is_some(),
            wall_clock: settings.wall_clock,
            nonces: RandomState::new(),
            state: Mutex::new(State { contacts, traffic: Traffic::default(), failure: None }),
        });
        let (hangup, hung_up) = UnixStream::pair()?;
        let reader = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("skopos-peers".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || reader.read_until(&hung_up))?;
        Ok(Self { shared, hangup: Some(hangup), thread: Some(thread) })
    }

    /// Returns the state, locked.
    ///
    /// # Errors
    /// The thread ended, for this reason.
    pub(crate) fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.shared.state();
        match state.failure {
            None => Ok(state),
            Some(kind) => Err(io::Error::new(kind, "the socket of the peers cannot be read")),
        }
    }

    /// Reads both clocks.
    pub(crate) fn clocks(&self) -> Clocks {
        self.shared.clocks()
    }

    /// Sends a probe with this sequence number to `address`.
    pub(crate) fn send_probe(&self, address: SocketAddr, sequence: u64) -> io::Result<()> {
        let Shared { socket, node, .. } = &*self.shared;
        let nonce = self.shared.nonce(sequence);
        let probe = Datagram { sequence, nonce, times: None, name: *node };
        socket.send_to(&probe.encode(), self.reachable(address)).map(drop)
    }

    /// Returns the address as the socket takes it: an IPv6 socket reaches IPv4 by mapped addresses.
    fn reachable(&self, address: SocketAddr) -> SocketAddr {
        match (self.shared.socket.local_addr(), address.ip()) {
            (Ok(SocketAddr::V6(_)), IpAddr::V4(ip)) => {
                SocketAddr::new(ip.to_ipv6_mapped().into(), address.port())
            }
            _ => address,
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.hangup.take();
        if let Some(thread) = self.thread.take() {
            // The thread returns nothing, and the panic hook has reported a panic.
            let _ = thread.join();
        }
    }
}

/// Returns the sequence number of a probe, which contains the peer's index.
pub(crate) fn sequence(round: u64, peer: usize) -> u64 {
    round.wrapping_mul(MAX_PEERS as u64).wrapping_add(peer as u64)
}

/// Any port, for a node that probes and does not answer.
fn any_address(settings: &PeerSettings) -> SocketAddr {
    match settings.peers.iter().any(|(_, address)| address.is_ipv6()) {
        true => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
        false => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
    }
}

/// Datagrams read and answers sent in the present second.
#[derive(Default)]
struct Quota {
    since: Duration,
    datagrams: u32,
    answers: u32,
}

impl Quota {
    /// Counts a datagram at `now`. Returns the time to wait first, if there were too many.
    fn count(&mut self, now: Duration) -> Option<Duration> {
        let age = now.saturating_sub(self.since);
        if age >= SECOND {
            *self = Self { since: now, ..Self::default() };
        }
        self.datagrams += 1;
        (self.datagrams > MAX_DATAGRAMS).then(|| SECOND.saturating_sub(age))
    }

    /// Returns true if another probe may be answered.
    fn take_answer(&mut self) -> bool {
        self.answers += 1;
        self.answers <= MAX_ANSWERS
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Counts and times are consistent after each statement.
        unpoisoned(self.state.lock())
    }

    /// Reads the system time first: the time in between then widens the bound of an offset by as
    /// much as it makes the offset wrong.
    fn clocks(&self) -> Clocks {
        let wall_nanos = (self.wall_clock)().as_nanos();
        let monotonic = clock::now(ClockId::Monotonic).unsigned_abs();
        Clocks { monotonic: Duration::from_nanos(monotonic), wall_nanos }
    }

    /// Returns a number that only a receiver of the probe knows, so that others cannot answer it.
    fn nonce(&self, sequence: u64) -> u64 {
        self.nonces.hash_one(sequence)
    }

    fn read_until(&self, hung_up: &UnixStream) {
        if let Err(e) = self.read_until_failure(hung_up) {
            self.state().failure = Some(e.kind());
        }
    }

    fn read_until_failure(&self, hung_up: &UnixStream) -> io::Result<()> {
        let mut quota = Quota::default();
        // One byte more than a datagram, so that a longer one is recognised.
        let mut buffer = [0; DATAGRAM_BYTES + 1];
        loop {
            let mut waited =
                [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(hung_up, PollFlags::IN)];
            match poll(&mut waited, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            if !waited[1].revents().is_empty() {
                return Ok(());
            }
            let (len, from) = match self.socket.recv_from(&mut buffer) {
                Ok(received) => received,
                Err(e) if is_passing(&e) => continue,
                Err(e) => return Err(e),
            };
            let now = self.clocks();
            self.take(&buffer[..len], from, now, &mut quota);
            if let Some(pause) = quota.count(now.monotonic) {
                rest(hung_up, pause)?;
            }
        }
    }

    fn take(&self, bytes: &[u8], from: SocketAddr, now: Clocks, quota: &mut Quota) {
        let Some(datagram) = Datagram::decode(bytes) else {
            self.state().traffic.malformed += 1;
            return;
        };
        match datagram.times {
            None => self.answer(datagram, from, now, quota),
            Some(times) => self.take_answer(datagram, times, now),
        }
    }

    fn answer(&self, probe: Datagram, from: SocketAddr, now: Clocks, quota: &mut Quota) {
        let may = self.answers && quota.take_answer();
        let received = now.wall_nanos;
        // A clock that is set back in between must not make the answer impossible.
        let sent = (self.wall_clock)().as_nanos().max(received);
        let times = Some(Times { received, sent });
        let answer = Datagram { times, name: self.node, ..probe };
        let is_sent = may && self.socket.send_to(&answer.encode(), from).is_ok();
        let traffic = &mut self.state().traffic;
        match is_sent {
            true => traffic.answered += 1,
            false => traffic.refused += 1,
        }
    }

    fn take_answer(&self, answer: Datagram, times: Times, now: Clocks) {
        let Datagram { sequence, nonce, name, .. } = answer;
        let peer = (sequence % MAX_PEERS as u64) as usize;
        let mut state = self.state();
        let State { contacts, traffic, .. } = &mut *state;
        match contacts.get_mut(peer) {
            Some(contact) if nonce == self.nonce(sequence) => {
                if contact.answered(sequence, name, times, now) == Verdict::Impossible {
                    traffic.malformed += 1;
                }
            }
            _ => traffic.unasked += 1,
        }
    }
}

/// Returns true for errors after which the socket can be read again, such as an ICMP message to a
/// probe.
fn is_passing(e: &io::Error) -> bool {
    use io::ErrorKind::*;
    matches!(
        e.kind(),
        Interrupted
            | WouldBlock
            | ConnectionRefused
            | ConnectionReset
            | HostUnreachable
            | NetworkUnreachable
    )
}

/// Waits, but ends early when the endpoint is dropped.
fn rest(hung_up: &UnixStream, pause: Duration) -> io::Result<()> {
    let pause = Timespec::try_from(pause).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(hung_up, PollFlags::IN)], Some(&pause)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_read_and_answered_within_bounds() {
        let mut quota = Quota::default();
        let start = Duration::from_secs(100);
        let pauses = (0..MAX_DATAGRAMS + 3).filter_map(|_| quota.count(start)).collect::<Vec<_>>();
        assert_eq!(pauses.len(), 3);
        assert_eq!(pauses[0], SECOND);
        assert_eq!(
            (0..2 * MAX_ANSWERS).filter(|_| quota.take_answer()).count() as u32,
            MAX_ANSWERS
        );
        assert_eq!(quota.count(start + SECOND), None);
        assert!(quota.take_answer());
    }

    #[test]
    fn a_sequence_number_leads_back_to_its_peer() {
        for (round, peer) in [(0, 0), (7, 511), (u64::MAX / 3, 12)] {
            assert_eq!(sequence(round, peer) % MAX_PEERS as u64, peer as u64);
        }
    }
}

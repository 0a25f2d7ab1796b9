//! `peer`: other nodes, probed from this one: is there an agent that answers, how long is the way to
//! it and back, and what time is it there.
//!
//! No third party and no privilege takes part: agents send each other a datagram of 112 bytes and
//! answer it ([`datagram`] has its layout). A poll sends probes and hands over what is known; a
//! thread of its own ([`line`]) reads answers, and answers probes of others, when they arrive. The
//! mathematics of the offsets is in [`filter`], that of life and death in [`contact`].
//!
//! A peer is **dead** when at least two probes in a row are unanswered and the first of them is older
//! than the timeout; with the default of a probe each second and a timeout of 1.25 s that is at most
//! 3 s after it died. An answer in another node's name is no answer: addresses get new owners.
//!
//! What an answer brought (round trip and offset) is handed over when there was one since the last
//! poll, and grows old otherwise: of a peer that is dead it must not look fresh.
//!
//! Anybody may send anything to a UDP port. An answer is believed only with the nonce that its probe
//! carried, answers are never longer than what they answer, and both are bounded a second.

pub(crate) mod contact;
pub(crate) mod datagram;
pub(crate) mod filter;
pub(crate) mod line;
pub(crate) mod settings;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use skopos_model::escape_segment;
use skopos_model::schema::Family;
use skopos_model::schema::peer::{self, *};

pub use self::settings::{MAX_PEERS, PeerSettings};

use self::contact::{Clocks, Contact};
use self::line::{Line, sequence};
use crate::facts::Facts;
use crate::{Sensor, Skip, Tick};

/// One peer, beside its contact of the same place in the line's state.
struct Peer {
    name: String,
    address: SocketAddr,
    facts: Facts,
    /// How many answers there were at the last poll.
    answered: u64,
    /// Why the last probe did not leave, if it did not.
    unsent: Option<io::ErrorKind>,
    /// Whose answers came instead of the peer's.
    impostor: Option<datagram::Name>,
}

pub(crate) struct Peers {
    line: Arc<Line>,
    peers: Vec<Peer>,
    interval: Duration,
    round: u64,
}

impl Peers {
    /// The sensor of these settings' peers, on a line that was opened with them.
    pub(crate) fn new(settings: &PeerSettings, line: Arc<Line>) -> Self {
        let peers = settings.peers.iter().map(|(name, address)| {
            let mut segment = String::new();
            escape_segment(name.as_bytes(), &mut segment);
            let facts = Facts::of(&peer::FAMILY, &segment);
            let (name, address) = (name.clone(), *address);
            Peer { name, address, facts, answered: 0, unsent: None, impostor: None }
        });
        Self { line, peers: peers.collect(), interval: settings.interval, round: 0 }
    }

    /// Sends what is due. The lock is not held while a datagram leaves: the thread would wait.
    fn probe(&mut self) -> io::Result<()> {
        let Self { line, peers, interval, round } = self;
        *round += 1;
        for (at, peer) in peers.iter_mut().enumerate() {
            let sequence = sequence(*round, at);
            {
                let now = line.clocks().monotonic;
                let contact = &mut line.state()?.contacts[at];
                if !contact.is_due(now, *interval) {
                    continue;
                }
                contact.sending(sequence, now);
            }
            peer.unsent = line.send_probe(peer.address, sequence).err().map(|e| e.kind());
            if peer.unsent.is_some() {
                line.state()?.contacts[at].lose(sequence);
            }
        }
        Ok(())
    }
}

impl Peer {
    fn set(&mut self, tick: &mut Tick<'_>, contact: &Contact, now: Clocks) {
        let Self { facts, impostor, .. } = self;
        *impostor = contact.impostor;
        if let Some(is_alive) = contact.is_alive() {
            facts.set(tick, &ALIVE, u64::from(is_alive));
        }
        if let Some((_, wall_nanos)) = contact.last {
            facts.set(tick, &SEEN_AT_SECONDS, seconds(wall_nanos));
        }
        let tally = contact.tally;
        facts.set(tick, &PROBES_TOTAL, tally.probes);
        facts.set(tick, &ANSWERED_TOTAL, tally.answered);
        facts.set(tick, &LOST_TOTAL, tally.lost);
        facts.set(tick, &LATE_TOTAL, tally.late);
        facts.set(tick, &MISNAMED_TOTAL, tally.misnamed);
        if std::mem::replace(&mut self.answered, tally.answered) != tally.answered {
            self.set_answer(tick, contact, now);
        }
    }

    /// What the latest answers say.
    fn set_answer(&mut self, tick: &mut Tick<'_>, contact: &Contact, now: Clocks) {
        let facts = &mut self.facts;
        if let Some((answer, _)) = contact.last {
            facts.set(tick, &RTT_SECONDS, seconds(answer.rtt_nanos));
        }
        if let Some(best) = contact.filter.best(now.monotonic) {
            facts.set(tick, &RTT_SECONDS_MIN, seconds(best.rtt_nanos_min));
            let own = now.wall_nanos - now.monotonic.as_nanos() as i64;
            facts.set(tick, &CLOCK_OFFSET_SECONDS, seconds(best.ahead_nanos - own));
            facts.set(tick, &CLOCK_OFFSET_BOUND_SECONDS, best.bound_nanos / 1e9);
        }
    }

    fn skip(&self) -> Option<Skip> {
        let Self { name, address, unsent, impostor, .. } = self;
        let what = || format!("peer/{name}");
        if let Some(kind) = unsent {
            return Some(Skip::new(what(), format!("no probe can be sent to {address}: {kind}")));
        }
        impostor.map(|other| {
            let other = String::from_utf8_lossy(other.as_bytes()).into_owned();
            let reason = format!(
                "at {address} answers a node that calls itself `{other}`; one of the two names is \
                 wrong in the configuration"
            );
            Skip::new(what(), reason)
        })
    }
}

impl Sensor for Peers {
    fn family(&self) -> &'static Family {
        &peer::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let now = self.line.clocks();
        {
            let mut state = self.line.state()?;
            for (peer, contact) in self.peers.iter_mut().zip(&mut state.contacts) {
                contact.expire(now.monotonic);
                peer.set(tick, contact, now);
            }
        }
        self.probe()
    }

    fn interval_hint(&self) -> Option<Duration> {
        Some(self.interval)
    }

    fn skips(&self) -> Vec<Skip> {
        self.peers.iter().filter_map(Peer::skip).collect()
    }
}

fn seconds(nanos: i64) -> f64 {
    nanos as f64 / 1e9
}

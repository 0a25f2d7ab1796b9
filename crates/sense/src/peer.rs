//! `peer`: other nodes, probed from this one: whether an agent answers there, the round-trip time,
//! and the offset of its clock.
//!
//! Probing needs no third party and no privilege: agents send each other a datagram of 112 bytes
//! and answer it ([`datagram`] has its layout). A poll sends probes and sets the facts that are
//! known. A thread of its own ([`endpoint`]) receives answers, and answers the probes of others, as
//! they arrive. [`filter`] has the mathematics of the offsets, [`contact`] decides whether a peer
//! is alive.
//!
//! A peer is **dead** when at least two probes in a row are unanswered and the first of them is
//! older than the timeout. With the default of a probe each second and a timeout of 1.25 s, that is
//! at most 3 s after its death. An answer in another node's name does not count, since addresses
//! get new owners.
//!
//! The facts of an answer (round trip and offset) are set if an answer came since the last poll,
//! and grow old otherwise: those of a dead peer must not look fresh.
//!
//! Anybody may send anything to a UDP port. So an answer counts only with the nonce of its probe,
//! an answer is never longer than its probe, and the number of both in a second is bounded.

pub(crate) mod contact;
pub(crate) mod datagram;
pub(crate) mod filter;
pub(crate) mod endpoint;
pub(crate) mod settings;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use skopos_model::escape_segment;
use skopos_model::schema::Family;
use skopos_model::schema::peer::{self, *};

use self::contact::{Clocks, Contact};
use self::endpoint::{Endpoint, sequence};
use self::settings::PeerSettings;
use crate::facts::Facts;
use crate::sensor::{Sensor, Skip, Tick};

/// One peer. Its contact has the same index in the endpoint's state.
struct Peer {
    name: String,
    address: SocketAddr,
    facts: Facts,
    /// Number of answers at the last poll.
    answered: u64,
    /// The reason why the last probe could not be sent.
    unsent: Option<io::ErrorKind>,
    /// The node whose answers came instead of the peer's.
    impostor: Option<datagram::Name>,
}

pub(crate) struct Peers {
    endpoint: Arc<Endpoint>,
    peers: Vec<Peer>,
    interval: Duration,
    round: u64,
}

impl Peers {
    /// Makes the sensor of these settings' peers. The endpoint was opened with the same settings.
    pub(crate) fn new(settings: &PeerSettings, endpoint: Arc<Endpoint>) -> Self {
        let peers = settings.peers.iter().map(|(name, address)| {
            let mut segment = String::new();
            escape_segment(name.as_bytes(), &mut segment);
            let facts = Facts::of(&peer::FAMILY, &segment);
            let (name, address) = (name.clone(), *address);
            Peer { name, address, facts, answered: 0, unsent: None, impostor: None }
        });
        Self { endpoint, peers: peers.collect(), interval: settings.interval, round: 0 }
    }

    /// Sends the probes that are due. The lock is not held while a datagram is sent, or the thread
    /// would wait.
    fn probe(&mut self) -> io::Result<()> {
        let Self { endpoint, peers, interval, round } = self;
        *round += 1;
        for (at, peer) in peers.iter_mut().enumerate() {
            let sequence = sequence(*round, at);
            {
                let now = endpoint.clocks().monotonic;
                let contact = &mut endpoint.state()?.contacts[at];
                if !contact.is_due(now, *interval) {
                    continue;
                }
                contact.sending(sequence, now);
            }
            peer.unsent = endpoint.send_probe(peer.address, sequence).err().map(|e| e.kind());
            if peer.unsent.is_some() {
                endpoint.state()?.contacts[at].lose(sequence);
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

    /// Sets the facts of the latest answers.
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
            return Some(Skip::new(what(), format!("probes cannot be sent to {address}: {kind}")));
        }
        impostor.map(|other| {
            let other = String::from_utf8_lossy(other.as_bytes()).into_owned();
            let reason = format!(
                "the node at {address} calls itself `{other}`; one of the two names is \
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
        let now = self.endpoint.clocks();
        {
            let mut state = self.endpoint.state()?;
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

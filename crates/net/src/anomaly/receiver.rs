//! The receiving side: verifies packets of the nodes of a site, and gives their findings names.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use skopos_model::Timestamp;

use super::decode::Unverified;
use super::key::{NodeKey, SiteKey, node_id};
use super::limits::{
    FORGED_PER_SECOND, FORGED_PER_SECOND_KNOWN, MAX_AGE, MAX_NAME_BYTES_PER_NODE, MAX_NODES,
};
use super::packet::{Entry, Header, Packet, Severity};
use super::refused::{Refusals, Refused};
use super::tokens::Tokens;
use super::window::Window;

/// Receives the reports of the nodes of a site. See the [module](super) for an example.
pub struct Receiver {
    site: SiteKey,
    nodes: HashMap<u64, Node>,
    /// Addresses that sent a verified report, with its time. Bounded like nodes.
    addresses: HashMap<IpAddr, Timestamp>,
    strangers: Tokens,
    acquaintances: Tokens,
    refusals: Refusals,
}

/// A node that sent a verified report.
struct Node {
    key: NodeKey,
    session: u64,
    window: Window,
    /// Reports lost in earlier sessions.
    lost_before: u64,
    names: BTreeMap<u32, Arc<str>>,
    name_bytes: usize,
    heard_at: Timestamp,
}

/// A verified report.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The id of the node.
    pub node_id: u64,
    /// The name of the node; `None` until a packet with it was received.
    pub node: Option<Arc<str>>,
    /// The start of its reporter, in nanoseconds since 1970.
    pub session: u64,
    /// The number of the report in its session.
    pub sequence: u32,
    /// The time of the report, by the clock of the node.
    pub at: Timestamp,
    /// The number of reports of this node that did not arrive, since this receiver knows it.
    pub lost: u64,
    /// The number of findings for which the packet had no room; they follow in later reports.
    pub held: u64,
    /// The findings.
    pub findings: Vec<Finding>,
}

/// One metric that is unusual, or usual again.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The id of the metric in its session.
    pub id: u32,
    /// The topic of the metric without the node; `None` until a packet with it was received.
    pub name: Option<Arc<str>>,
    /// The severity; [`Severity::Usual`] ends the anomaly.
    pub severity: Severity,
    /// The observed value; for a counter its rate per second. Three digits.
    pub seen: f64,
    /// The lowest and the highest expected value; `None` if the metric is usual again.
    pub expected: Option<(f64, f64)>,
    /// The begin of the state, by the clock of the node.
    pub since: Timestamp,
}

impl Receiver {
    /// Creates a receiver that knows no node yet.
    pub fn new(site: SiteKey) -> Self {
        Self {
            site,
            nodes: HashMap::new(),
            addresses: HashMap::new(),
            strangers: Tokens::new(FORGED_PER_SECOND),
            acquaintances: Tokens::new(FORGED_PER_SECOND_KNOWN),
            refusals: Refusals::default(),
        }
    }

    /// Takes the bytes of a packet that came from an address, or of the payload of an in-band packet.
    ///
    /// # Errors
    /// The packet is not a report of a node of this site, was received before, or is too old; each is counted.
    pub fn take(
        &mut self,
        from: SocketAddr,
        bytes: &[u8],
        now: Timestamp,
    ) -> Result<Report, Refused> {
        let taken = self.verified(from.ip(), bytes, now);
        match &taken {
            Ok(_) => self.refusals.taken += 1,
            Err(refused) => self.refusals.note(refused),
        }
        taken
    }

    fn verified(&mut self, from: IpAddr, bytes: &[u8], now: Timestamp) -> Result<Report, Refused> {
        let unverified = Unverified::read(bytes).map_err(Refused::Malformed)?;
        let header = unverified.header;
        let known = self.addresses.contains_key(&from);
        let tokens = if known { &mut self.acquaintances } else { &mut self.strangers };
        if !tokens.has(now) {
            return Err(Refused::Busy);
        }
        let key = match self.nodes.get(&header.node) {
            Some(node) => node.key.clone(),
            None => self.site.node(header.node),
        };
        if !unverified.is_of(&key) {
            tokens.spend();
            return Err(Refused::Forged { node: header.node });
        }
        let (apart, ahead) = apart(header.at, now);
        if apart > MAX_AGE {
            return Err(Refused::Stale { apart, ahead });
        }
        self.admit(&header, key, now)?;
        self.remember(from, now);
        let packet = unverified.packet().map_err(Refused::Malformed)?;
        // The key is that of the id. A node that was broken into must not report under the name of another.
        let mut names = packet.names.iter().filter(|name| name.id == 0);
        if names.any(|name| node_id(&name.name) != header.node) {
            return Err(Refused::Forged { node: header.node });
        }
        Ok(self.report(&packet))
    }

    /// Notes the sequence of a verified packet, and makes room for a new node.
    fn admit(&mut self, header: &Header, key: NodeKey, now: Timestamp) -> Result<(), Refused> {
        let Header { session, sequence, .. } = *header;
        if !self.nodes.contains_key(&header.node) {
            if self.nodes.len() >= MAX_NODES {
                // The packets of a node that was silent for so long are too old to be replayed.
                self.nodes.retain(|_, node| apart(node.heard_at, now).0 <= MAX_AGE * 2);
            }
            if self.nodes.len() >= MAX_NODES {
                return Err(Refused::TooManyNodes);
            }
            let window = Window::starting_at(sequence);
            self.nodes.insert(header.node, Node::new(key, session, window, now));
            return Ok(());
        }
        let Some(node) = self.nodes.get_mut(&header.node) else { return Ok(()) };
        if session > node.session {
            node.start(session);
        }
        if session < node.session || !node.window.take(sequence) {
            return Err(Refused::Replayed { sequence });
        }
        node.heard_at = now;
        Ok(())
    }

    /// Remembers an address of a node. The oldest ones make room.
    fn remember(&mut self, from: IpAddr, now: Timestamp) {
        if self.addresses.len() >= MAX_NODES && !self.addresses.contains_key(&from) {
            let oldest = self.addresses.iter().min_by_key(|(_, at)| **at).map(|(ip, _)| *ip);
            oldest.map(|ip| self.addresses.remove(&ip));
        }
        self.addresses.insert(from, now);
    }

    /// Gives the findings of a packet the names that are known.
    fn report(&mut self, packet: &Packet) -> Report {
        let Packet { header, held, names, entries } = packet;
        let Self { nodes, refusals, .. } = self;
        let mut node = nodes.get_mut(&header.node);
        if let Some(node) = node.as_deref_mut() {
            for name in names {
                refusals.names_refused += u64::from(!node.learn(name.id, &name.name));
            }
        }
        let name_of = |id: u32| node.as_deref().and_then(|node| node.names.get(&id)).cloned();
        let findings: Vec<Finding> =
            entries.iter().map(|entry| Finding::of(entry, name_of(entry.id), header.at)).collect();
        refusals.unnamed += findings.iter().filter(|f| f.name.is_none()).count() as u64;
        Report {
            node_id: header.node,
            node: name_of(0),
            session: header.session,
            sequence: header.sequence,
            at: header.at,
            lost: node.as_deref().map_or(0, |node| node.lost_before + node.window.lost()),
            held: *held,
            findings,
        }
    }

    /// Returns the number of packets by their fate.
    pub fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// Returns the number of nodes that reported.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }
}

impl Node {
    fn new(key: NodeKey, session: u64, window: Window, heard_at: Timestamp) -> Self {
        Self {
            key,
            session,
            window,
            lost_before: 0,
            names: BTreeMap::new(),
            name_bytes: 0,
            heard_at,
        }
    }

    /// Starts a session: ids mean something else now.
    fn start(&mut self, session: u64) {
        self.session = session;
        self.lost_before += self.window.lost();
        self.window = Window::of_new_session();
        self.names.clear();
        self.name_bytes = 0;
    }

    /// Keeps the name of an id. Returns false if there is no room.
    fn learn(&mut self, id: u32, name: &str) -> bool {
        let known = self.names.get(&id);
        if known.is_some_and(|known| **known == *name) {
            return true;
        }
        let without = self.name_bytes - known.map_or(0, |known| known.len());
        if without + name.len() > MAX_NAME_BYTES_PER_NODE {
            return false;
        }
        self.name_bytes = without + name.len();
        self.names.insert(id, name.into());
        true
    }
}

impl Finding {
    fn of(entry: &Entry, name: Option<Arc<str>>, at: Timestamp) -> Self {
        let age = entry.age_tenths.saturating_mul(100_000_000).min(i64::MAX as u64) as i64;
        let is_usual = entry.severity == Severity::Usual;
        Self {
            id: entry.id,
            name,
            severity: entry.severity,
            seen: entry.seen,
            expected: (!is_usual).then_some((entry.low, entry.high)),
            since: Timestamp::from_nanos(at.as_nanos().saturating_sub(age)),
        }
    }
}

/// Returns the difference of two times, and true if `at` is the later one.
fn apart(at: Timestamp, now: Timestamp) -> (Duration, bool) {
    if at > now { (at.since(now), true) } else { (now.since(at), false) }
}

//! The state of a recorder that spans need, and its names.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::Thread;

use skopos_model::unpoisoned;
use skopos_shm::records::RecordSegment;
use skopos_shm::records::layout::Counter;
use skopos_shm::ticks::Ticks;

use crate::callpath::{ROOT, child, name_hash};
use crate::file::{Definition, MAX_NAME_BYTES, Node, Peer};
use crate::pvar::Registry;
use crate::text::cut;

/// Most callpath nodes of a process, and most names of calls: a thousand times those of a service, 4 MiB of memory.
pub const MAX_NODES: usize = 65_536;
/// Most names of peers: the number in a record has 16 bits.
pub const MAX_PEERS: usize = 65_535;
/// Most names of calls, most names of peers and most callpath nodes that come from requests of other processes: three
/// quarters of each table. So a peer that invents names or callpaths leaves a quarter, many times the names of a
/// service, to the calls that this process begins by itself.
pub const MAX_FOREIGN: usize = MAX_NODES / 4 * 3;
/// Name of the node of all callpaths for which there is no room. It has number 0.
pub const OTHER: &str = "other";

/// Number of that node.
const OTHER_NODE: u32 = 0;
/// Hash of that node.
const OTHER_HASH: u64 = child(ROOT, name_hash(OTHER));

/// Returns the hash of a node below the path `parent_hash`: calls below a path without room are calls below `other`, so
/// that their paths are as few as their names.
pub(crate) const fn hash_of(node: u32, parent_hash: u64, rpc: Rpc) -> u64 {
    if node == OTHER_NODE { OTHER_HASH } else { child(parent_hash, rpc.hash) }
}

/// The interned name of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Rpc {
    pub(crate) hash: u64,
    pub(crate) id: u32,
}

impl Rpc {
    /// The name of calls for which there is no room.
    pub(crate) const OTHER: Self = Self { id: 0, hash: name_hash(OTHER) };
}

/// The interned name of another entity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct PeerId(pub(crate) u16);

/// The state of a recorder.
#[derive(Debug)]
pub(crate) struct Inner {
    /// Number of the recorder in this process and its children.
    pub(crate) id: u64,
    pub(crate) stage: AtomicU32,
    pub(crate) ticks: Ticks,
    /// Length of a tick in ns: the bits of an f64.
    ns_per_tick: AtomicU64,
    pub(crate) segment: RecordSegment,
    pub(crate) registry: Registry,
    names: Mutex<Names>,
    /// The thread that drains the rings; empty if another process does.
    pub(crate) drainer: OnceLock<Thread>,
}

#[derive(Debug, Default)]
struct Names {
    rpcs: HashMap<String, u32>,
    rpc_names: Vec<String>,
    /// By parent hash and number of the name.
    nodes: HashMap<(u64, u32), u32>,
    peers: HashMap<String, u16>,
    /// Hashes of the nodes that requests of other processes brought, and of those below them.
    foreign_nodes: HashSet<u64>,
    foreign_rpcs: usize,
    foreign_peers: usize,
}

/// The side from which a name or a callpath comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The code of this process.
    Own,
    /// A request of another process.
    Foreign,
}

impl Names {
    /// Returns the number of the next callpath node; `None` if there is no room.
    fn next_node(&self, source: Source) -> Option<u32> {
        let is_full = self.nodes.len() >= MAX_NODES
            || source == Source::Foreign && self.foreign_nodes.len() >= MAX_FOREIGN;
        (!is_full).then_some(self.nodes.len() as u32)
    }
}

impl Inner {
    pub(crate) fn new(segment: RecordSegment, ticks: Ticks, ns_per_tick: f64) -> Self {
        static RECORDERS: AtomicU64 = AtomicU64::new(1);
        let names = Names {
            rpcs: HashMap::from([(OTHER.to_owned(), 0)]),
            rpc_names: vec![OTHER.to_owned()],
            nodes: HashMap::from([((ROOT, 0), 0)]),
            ..Names::default()
        };
        let inner = Self {
            id: RECORDERS.fetch_add(1, Ordering::Relaxed),
            stage: AtomicU32::new(0),
            ticks,
            ns_per_tick: AtomicU64::new(ns_per_tick.to_bits()),
            segment,
            registry: Registry::default(),
            names: Mutex::new(names),
            drainer: OnceLock::new(),
        };
        let (id, parent_hash, hash) = (OTHER_NODE, ROOT, OTHER_HASH);
        inner.define(&Definition::Node(Node { id, parent_hash, hash, name: OTHER.to_owned() }));
        inner
    }

    /// Returns a duration in ns.
    #[inline]
    pub(crate) fn ns(&self, ticks: u64) -> u64 {
        (ticks as f64 * f64::from_bits(self.ns_per_tick.load(Ordering::Relaxed))) as u64
    }

    pub(crate) fn set_ns_per_tick(&self, ns_per_tick: f64) {
        self.ns_per_tick.store(ns_per_tick.to_bits(), Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn count(&self, counter: Counter) {
        self.segment.count(counter, 1);
    }

    /// Appends a definition. Returns false if there is no room, which the segment counts.
    pub(crate) fn define(&self, definition: &Definition) -> bool {
        let (kind, payload) = definition.encode();
        self.segment.define(kind, &payload).is_ok()
    }

    /// Wakes the thread that drains the rings.
    #[cold]
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.drainer.get() {
            thread.unpark();
        }
    }

    pub(crate) fn rpc(&self, name: &str, source: Source) -> Rpc {
        // Another thread of the parent may have held the lock at the fork.
        if !self.segment.is_own() {
            return Rpc::OTHER;
        }
        let name = cut(name, MAX_NAME_BYTES);
        let mut names = unpoisoned(self.names.lock());
        if let Some(id) = names.rpcs.get(name) {
            return Rpc { id: *id, hash: name_hash(name) };
        }
        let is_foreign = source == Source::Foreign;
        if names.rpc_names.len() >= MAX_NODES || is_foreign && names.foreign_rpcs >= MAX_FOREIGN {
            self.count(Counter::NamesRefused);
            return Rpc::OTHER;
        }
        let id = names.rpc_names.len() as u32;
        names.rpc_names.push(name.to_owned());
        names.rpcs.insert(name.to_owned(), id);
        names.foreign_rpcs += usize::from(is_foreign);
        Rpc { id, hash: name_hash(name) }
    }

    pub(crate) fn peer(&self, name: &str, source: Source) -> PeerId {
        if !self.segment.is_own() {
            return PeerId(0);
        }
        let name = cut(name, MAX_NAME_BYTES);
        let mut names = unpoisoned(self.names.lock());
        if let Some(id) = names.peers.get(name) {
            return PeerId(*id);
        }
        let is_foreign = source == Source::Foreign;
        let has_room = !is_foreign || names.foreign_peers < MAX_FOREIGN;
        let room = u16::try_from(names.peers.len() + 1).ok().filter(|_| has_room);
        let Some(id) = room.filter(|id| usize::from(*id) <= MAX_PEERS) else {
            self.count(Counter::PeersRefused);
            return PeerId(0);
        };
        if !self.define(&Definition::Peer(Peer { id, name: name.to_owned() })) {
            self.count(Counter::PeersRefused);
            return PeerId(0);
        }
        names.peers.insert(name.to_owned(), id);
        names.foreign_peers += usize::from(is_foreign);
        PeerId(id)
    }

    /// Returns the node of a call below the path `parent_hash`; node 0 if there is no room. `source` says from where the
    /// path above comes; a path below a foreign one is foreign too.
    #[cold]
    pub(crate) fn node(&self, parent_hash: u64, rpc: Rpc, source: Source) -> u32 {
        let mut names = unpoisoned(self.names.lock());
        if let Some(id) = names.nodes.get(&(parent_hash, rpc.id)) {
            return *id;
        }
        let is_foreign = parent_hash != ROOT
            && (source == Source::Foreign || names.foreign_nodes.contains(&parent_hash));
        let source = if is_foreign { Source::Foreign } else { Source::Own };
        let Some(name) = names.rpc_names.get(rpc.id as usize).cloned() else { return 0 };
        let hash = child(parent_hash, rpc.hash);
        let defined = names
            .next_node(source)
            .filter(|id| self.define(&Definition::Node(Node { id: *id, parent_hash, hash, name })));
        let Some(id) = defined else {
            self.count(Counter::NodesRefused);
            return OTHER_NODE;
        };
        names.nodes.insert((parent_hash, rpc.id), id);
        if is_foreign {
            names.foreign_nodes.insert(hash);
        }
        id
    }
}

//! Interned names, so that a call takes no lock of the recorder that writers hold.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::RwLock;

use skopos_model::unpoisoned;

use crate::recorder::{PeerId, Recorder, Rpc};

/// Most paths and addresses that a layer remembers. A service has a few hundred calls; a client that invents paths gets
/// the slower way, which has its own bound.
const MAX_REMEMBERED: usize = 4096;

/// Names that a thread keeps at hand, a power of two: even readers of a shared table wait for each other to count themselves.
const KEPT: usize = 64;

/// A name that the thread met, with the address of the table that it is in.
type Kept = Option<(usize, Box<str>, Rpc)>;

thread_local! {
    /// The peer that the thread met last, with the address of the table that it is in.
    static LAST: Cell<Option<(usize, IpAddr, PeerId)>> = const { Cell::new(None) };
    static THREAD: RefCell<[Kept; KEPT]> = const { RefCell::new([const { None }; KEPT]) };
}

/// Returns the call of a name of `names`: from the names that this thread keeps, or by `find`, and keeps it then. A table lives
/// as long as the process, so its address is that of no other one.
fn kept(names: &Names, name: &str, find: impl FnOnce() -> Rpc) -> Rpc {
    let address = std::ptr::from_ref(names).addr();
    let at = place(name);
    let known = |kept: &Kept| match kept {
        Some((of, known, rpc)) if *of == address && **known == *name => Some(*rpc),
        _ => None,
    };
    if let Ok(Some(rpc)) = THREAD.try_with(|kept| known(&kept.borrow()[at])) {
        return rpc;
    }
    let rpc = find();
    // A thread that is ending keeps nothing.
    let _ = THREAD.try_with(|kept| kept.borrow_mut()[at] = Some((address, name.into(), rpc)));
    rpc
}

/// The place of a name: from its length and its last letters, in which the names of a service differ.
fn place(name: &str) -> usize {
    let last = name.bytes().rev().take(4);
    last.fold(name.len(), |sum, letter| sum.wrapping_mul(31).wrapping_add(letter.into())) % KEPT
}

/// The calls and peers that a layer has seen.
#[derive(Debug, Default)]
pub(super) struct Names {
    rpcs: RwLock<HashMap<String, Rpc>>,
    peers: RwLock<HashMap<IpAddr, PeerId>>,
}

impl Names {
    /// Returns the call of a path that this process calls: `/kv.Store/Put` is `kv.Store/Put`.
    pub(super) fn rpc(&self, recorder: &Recorder, path: &str) -> Rpc {
        self.find(path, |name| recorder.rpc(name))
    }

    /// Returns the call of a path that another process asks for, which may be of no service.
    pub(super) fn foreign_rpc(&self, recorder: &Recorder, path: &str) -> Rpc {
        self.find(path, |name| recorder.foreign_rpc(name))
    }

    fn find(&self, path: &str, intern: impl FnOnce(&str) -> Rpc) -> Rpc {
        let name = path.strip_prefix('/').unwrap_or(path);
        kept(self, name, || self.find_shared(name, intern))
    }

    fn find_shared(&self, name: &str, intern: impl FnOnce(&str) -> Rpc) -> Rpc {
        if let Some(rpc) = unpoisoned(self.rpcs.read()).get(name) {
            return *rpc;
        }
        let rpc = intern(name);
        let mut rpcs = unpoisoned(self.rpcs.write());
        if rpcs.len() < MAX_REMEMBERED {
            rpcs.insert(name.to_owned(), rpc);
        }
        rpc
    }

    /// Returns the peer at an address. Its port is left out: each connection of a client has another one.
    pub(super) fn peer(&self, recorder: &Recorder, address: IpAddr) -> PeerId {
        let own = std::ptr::from_ref(self).addr();
        if let Ok(Some((of, last, peer))) = LAST.try_with(Cell::get)
            && (of, last) == (own, address)
        {
            return peer;
        }
        let peer = self.find_peer(recorder, address);
        // A thread that is ending keeps nothing.
        let _ = LAST.try_with(|last| last.set(Some((own, address, peer))));
        peer
    }

    fn find_peer(&self, recorder: &Recorder, address: IpAddr) -> PeerId {
        if let Some(peer) = unpoisoned(self.peers.read()).get(&address) {
            return *peer;
        }
        let peer = recorder.foreign_peer(&address.to_string());
        let mut peers = unpoisoned(self.peers.write());
        if peers.len() < MAX_REMEMBERED {
            peers.insert(address, peer);
        }
        peer
    }
}

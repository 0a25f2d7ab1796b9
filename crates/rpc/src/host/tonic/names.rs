//! Interned names, so that a call takes no lock of the recorder that writers hold.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::RwLock;

use skopos_model::unpoisoned;

use crate::recorder::{PeerId, Recorder, Rpc};

/// Most paths and addresses that a layer remembers. A service has a few hundred calls; a client that invents paths gets
/// the slower way, which has its own bound.
const MAX_REMEMBERED: usize = 4096;

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

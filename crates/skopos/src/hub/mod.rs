//! The hub: what many nodes tell, and the doors through which it is asked.
//!
//! `uplink` is the other end: what this machine's publishers have, sent to whoever follows. `source`
//! is what the query engine reads: this machine's segments, and a mirror of every other node's.
//! `mirror` puts what other nodes tell into shared memory of this one; `forward` has it measured now.
//! `door` is the UNIX socket through which `skopos sql` asks.

mod uplink;
mod mirror;
mod forward;
mod source;
mod door;
#[allow(dead_code, reason = "the doors that need it come one by one")]
mod prometheus;

pub(crate) use door::{ask, socket_path};
pub(crate) use forward::Forward;
pub(crate) use mirror::Mirrored;
pub(crate) use uplink::Uplink;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use skopos_query::Engine;
use skopos_shm::Host;
use skopos_wire::{Follower, Plane};
use tokio::runtime::{Builder, Runtime};

use self::door::Door;
use self::source::HubSource;
use crate::agent::MIRROR_NAME;
use crate::config::HubConfig;
use crate::failure::Failure;
use crate::live::LiveArgs;
use crate::sql::Local;

/// A hub at work, on threads of its own, until it is dropped: for `skopos hub` and `skopos up`.
pub(crate) struct Hub {
    // Doors close first, then what they ask goes.
    _door: Door,
    dir: PathBuf,
    #[cfg(feature = "bench")]
    engine: Arc<Engine>,
    _follower: Option<Follower>,
    _runtime: Runtime,
}

impl Hub {
    /// Opens the doors in the runtime directory `dir`. With `plane` it follows all nodes of that site,
    /// without it knows this machine alone.
    ///
    /// # Errors
    /// The plane cannot be joined; a door cannot be opened; another hub has this directory.
    pub(crate) fn start(
        dir: &Path,
        plane: Option<&LiveArgs>,
        config: &HubConfig,
    ) -> Result<Self, Failure> {
        let runtime = Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Failure::new("no threads can be started").because(&e))?;
        let follower = plane.map(follow).transpose()?;
        std::fs::create_dir_all(dir)
            .map_err(|e| Failure::new(format!("{} cannot be made", dir.display())).because(&e))?;
        // What an agent mirrors here the hub knows from the nodes themselves.
        let local = Host::open_dirs(vec![dir.to_path_buf()])?.without(MIRROR_NAME);
        let local = Local::new(local);
        let source = HubSource::new(local, follower.as_ref().map(|f| f.site().clone()));
        let engine = Engine::new(Arc::new(source), config.aliases.clone())
            .map_err(|e| Failure::new("the query engine cannot start").because(&e))?;
        let engine = Arc::new(engine);
        let door = Door::open(dir, engine.clone(), runtime.handle().clone())?;
        Ok(Self {
            _door: door,
            dir: dir.to_path_buf(),
            #[cfg(feature = "bench")]
            engine,
            _follower: follower,
            _runtime: runtime,
        })
    }

    /// What answers, for a program that is the hub itself.
    #[cfg(feature = "bench")]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Where it can be asked, a line each.
    pub(crate) fn doors(&self) -> Vec<String> {
        vec![socket_path(&self.dir).display().to_string()]
    }
}

fn follow(plane: &LiveArgs) -> Result<Follower, Failure> {
    let failed = |e| Failure::new("the hub cannot join").because(&e);
    Follower::start(&Plane::open(&plane.config()).map_err(failed)?).map_err(failed)
}

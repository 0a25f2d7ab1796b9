//! The settings of a simulation, and the counts of its work.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use skopos_access::Names;
use skopos_term::Failure;
use skopos_wire::{Authority, Identity, PlaneConfig, new_key};

/// The number of nodes and their behaviour.
#[derive(Clone, Debug)]
pub(crate) struct Simulation {
    pub(crate) nodes: usize,
    pub(crate) facts: usize,
    /// Polls of each node in a second.
    pub(crate) rate: f64,
    /// The share of facts that change between two polls.
    pub(crate) change: f64,
    /// Connections that the nodes share.
    pub(crate) sessions: usize,
    /// Prefix of the nodes' names.
    pub(crate) prefix: String,
    /// Nanoseconds by which the clocks of the nodes are ahead.
    pub(crate) ahead: i64,
    pub(crate) seed: u64,
    pub(crate) plane: PlaneConfig,
    /// Makes a certificate for each node; `None` if messages need none.
    pub(crate) certificates: Option<Certificates>,
}

impl Simulation {
    /// Returns the name of a node.
    pub(crate) fn name_of(&self, node: usize) -> String {
        format!("{}{:04}", self.prefix, node + 1)
    }
}

/// Makes the certificates of simulated nodes, with the authority of the site. Its files are removed when it is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Certificates(Arc<Folder>);

#[derive(Debug)]
struct Folder {
    /// The identity beside the authority.
    own: Arc<Identity>,
    path: PathBuf,
}

impl Certificates {
    /// Returns the maker for a site whose authority lies beside the identity `own`.
    ///
    /// # Errors
    /// There is no authority.
    pub(crate) fn new(own: Arc<Identity>) -> Result<Self, Failure> {
        let there = Authority::load(own.folder(), &own.names().site);
        let there = there.map_err(|e| Failure::new("no certificates can be made").because(&e))?;
        if there.is_none() {
            let error = "simulated nodes need the authority of the site, to have certificates";
            return Err(Failure::new(error).hint("run this on the hub, or use --insecure"));
        }
        let path = std::env::temp_dir().join(format!("skopos-simulate-{}", std::process::id()));
        Ok(Self(Arc::new(Folder { own, path })))
    }

    /// Makes the identity of a node.
    ///
    /// # Errors
    /// Its files cannot be written.
    pub(crate) fn of(&self, node: &str) -> Result<Identity, Failure> {
        let Folder { own, path } = &*self.0;
        let failed = |why: String| Failure::new(format!("no certificate of {node}: {why}"));
        let names = Names { site: own.names().site, node: node.to_owned(), is_hub: false };
        let authority = Authority::load(own.folder(), &names.site).ok().flatten();
        let authority = authority.ok_or_else(|| failed("no authority".to_owned()))?;
        let (pkcs8, public) = new_key().map_err(|e| failed(e.to_string()))?;
        let issued = authority.issue(&names, &[], public).map_err(failed)?;
        let folder = path.join(node);
        Identity::save(&folder, &pkcs8, &issued, Some(own.authority()))
            .map_err(|e| failed(e.to_string()))?;
        let identity = Identity::load(&folder).map_err(|e| failed(e.to_string()))?;
        identity.ok_or_else(|| failed("it is gone".to_owned()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The counts of the work up to now.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub(crate) struct Counts {
    pub(crate) batches: u64,
    pub(crate) samples: u64,
    pub(crate) bytes: u64,
    /// Polls that were skipped because this process did not keep up.
    pub(crate) late: u64,
}

//! The interfaces of a table in pieces, and of other hubs.

use std::fmt;

use datafusion_distributed::grpc::BoxCloneSyncChannel;
use futures_util::future::BoxFuture;

use crate::rows::{BoxError, Rows};
use crate::scan::Scan;

/// A connection to another hub: any channel of tonic.
pub type HubChannel = BoxCloneSyncChannel;

/// A table whose rows come in pieces that can be read on any hub with the same files.
pub trait Pieces: fmt::Debug + Send + Sync {
    /// Returns the pieces that `scan` asks for, of rows that its caller may read. Each is a message for
    /// [`rows`](Self::rows), on this hub or another.
    ///
    /// # Errors
    /// They cannot be found.
    fn pieces(&self, scan: &Scan) -> Result<Vec<Vec<u8>>, BoxError>;

    /// Returns true if this hub alone can read a piece. A statement with such a piece is not divided.
    fn is_for_here(&self, piece: &[u8]) -> bool {
        let _ = piece;
        false
    }

    /// Returns the rows of a piece. The piece may come from another hub of the site, so this reads only what a piece can
    /// name. The scan has no caller: the hub that made the piece has asked the policy.
    ///
    /// # Errors
    /// It is not a piece, or its rows cannot be read.
    fn rows(&self, piece: &[u8], scan: &Scan) -> Result<Rows, BoxError>;
}

/// The other hubs that answer statements with this one.
pub trait Hubs: fmt::Debug + Send + Sync + 'static {
    /// Returns the addresses `HOST:PORT` of those that answer now.
    fn reachable(&self) -> BoxFuture<'_, Vec<String>>;

    /// Returns the connection to an address, or `None` if it is not one of these hubs.
    fn channel(&self, address: &str) -> Option<HubChannel>;

    /// Notes that a statement did not get its answer from the hubs and runs again here.
    fn failed(&self, why: &str);
}

//! The agent's view of the live plane.

use std::os::unix::net::UnixStream;

use skopos_model::Topic;

/// Connects an agent with other nodes. The verb that starts the agent owns the live plane and hands it
/// over as this trait, so the agent itself knows nothing of the network.
pub trait Link {
    /// Returns what happened since the last call, each as a line for people. The agent calls it once a
    /// second, and no call may wait.
    fn news(&mut self) -> Vec<String>;

    /// Returns true if facts of other nodes can be measured through this link.
    fn can_refresh(&self) -> bool;

    /// Has `topic`, a fact of another node, measured there, and answers the client at `stream` with
    /// [`Answer`](crate::control::Answer). The call returns at once.
    fn refresh(&self, topic: Topic, stream: UnixStream);
}

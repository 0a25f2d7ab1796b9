//! The agent's view of the live plane.

use std::os::unix::net::UnixStream;

use skopos_model::Topic;
use skopos_model::schema::Metric;

/// Connects an agent with other nodes. The verb that starts the agent owns the live plane and hands it
/// over as this trait, so the agent itself knows nothing of the network.
pub trait Link {
    /// Returns the events since the last call, each as a line for people. The agent calls it once a
    /// second, so the call must not wait.
    fn take_events(&mut self) -> Vec<String>;

    /// Passes the numbers that this link counts to `visit`, with the metrics of their facts: always in the same order,
    /// or none of them. The call must not wait.
    fn visit_counts(&self, visit: &mut dyn FnMut(&'static Metric, u64));

    /// Returns true if this link can have facts of other nodes measured.
    fn can_refresh(&self) -> bool;

    /// Has `topic`, a fact of another node, measured by that node, and sends the client at `stream` an
    /// [`Answer`](crate::control::Answer). The call returns at once.
    fn refresh(&self, topic: Topic, stream: UnixStream);
}

//! The segments that a node sends to others.

use skopos_agent::{HUB_INSIGHTS_NAME, MIRROR_NAME};
use skopos_shm::Host;

/// Leaves the facts that are not this node's own out of `host`: the mirror holds facts of other nodes, and
/// a hub's insights belong to the site, not to the machine that the hub runs on.
pub(crate) fn published_here(host: Host) -> Host {
    host.without(MIRROR_NAME).without(HUB_INSIGHTS_NAME)
}

//! The segments that a node sends to other nodes.

use skopos_agent::{HUB_INSIGHTS_NAME, HUB_RULES_NAME, MIRROR_NAME};
use skopos_shm::Host;

/// Removes the facts of others from `host`: the mirror holds facts of other nodes, and the insights
/// and rules of a hub belong to the site, not to the machine of the hub.
pub(crate) fn published_here(host: Host) -> Host {
    host.without(MIRROR_NAME).without(HUB_INSIGHTS_NAME).without(HUB_RULES_NAME)
}

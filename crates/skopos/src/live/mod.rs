//! What a node does in the live plane: it tells others what is published on its machine, answers their
//! questions, and keeps what they tell if that is wanted. It needs neither a hub's doors nor a query engine.
//!
//! `args` is what a user may say about it. `joined` joins, now or when a hub is there. `uplink` reads this
//! machine's segments and sends what is new; `past` answers what was, which `kept` shows; `mirror` puts
//! what other nodes tell into shared memory of this one, `forward` has it measured now.

mod args;
mod joined;
mod uplink;
mod kept;
mod past;
mod mirror;
mod forward;

pub(crate) use args::LiveArgs;
pub(crate) use joined::{Joined, News};
#[cfg(all(test, feature = "sql"))]
pub(crate) use kept::Rows;
#[cfg(all(test, feature = "sql"))]
pub(crate) use past::Answer;

use skopos_shm::Host;

use crate::agent::{HUB_INSIGHTS_NAME, MIRROR_NAME};

/// What is published here and others are told of: all but what is theirs. What is mirrored is another
/// node's to tell, and what a hub computes of its site is no fact of the machine that the hub is on.
fn all_told(host: Host) -> Host {
    host.without(MIRROR_NAME).without(HUB_INSIGHTS_NAME)
}

//! Records of jobs that arrive at the UNIX socket.

use skopos_access::Caller;
use skopos_hub::Backend;
use skopos_hub::jobs::{Sent, store_batch};
use skopos_hub::messages::{Head, StoreRequest};

/// Stores records, and waits until they are durable.
pub(crate) fn store(backend: &Backend, request: &StoreRequest) -> Head {
    let later = |why: String| Head::refusing(why, None);
    let for_good = |why: String, refused: u64| Head { refused: Some(refused), ..later(why) };
    let jobs = match backend.jobs.open() {
        Ok(jobs) => jobs,
        Err(e) => return later(e.to_string()),
    };
    let (batch, refusals) = request.batch();
    // The socket has told that the peer is the owner.
    match store_batch(&jobs, &Caller::Owner, &batch) {
        Sent::Later(why) => later(why),
        Sent::Refused(why) => for_good(why, 1 + refusals.len() as u64),
        Sent::Acknowledged { new } => match refusals.first() {
            Some(why) => for_good(why.clone(), refusals.len() as u64),
            None => Head { new: Some(new), ..Head::default() },
        },
    }
}

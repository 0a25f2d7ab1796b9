//! Analyses of synthetic traces.

mod profiles;
mod requests;
mod damage;
mod verdicts;
mod found;
mod exports;

use skopos_rpc::analysis::loader::MemoryLoader;
use skopos_rpc::synthetic::Service;

/// Truth about a service of 600 requests whose key-value processes have a clock that is two seconds ahead.
pub(crate) fn skewed() -> MemoryLoader {
    Service { requests: 600, skew_ns: 2_000_000_000, ..Service::default() }.trace()
}

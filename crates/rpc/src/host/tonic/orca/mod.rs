//! Load reports by ORCA (Open Request Cost Aggregation), which gRPC's and Envoy's weighted round robin read: out of band, by
//! the service `xds.service.orca.v3.OpenRcaService`, and with each response, in the trailer `endpoint-load-metrics-bin`.
//!
//! ```no_run
//! use skopos_rpc::host::tonic::orca::{Load, LoadLayer, OrcaService};
//!
//! # fn serve() {
//! let load = Load::of_node();
//! let server = tonic::transport::Server::builder()
//!     .layer(LoadLayer::new(load.clone()))
//!     .add_service(OrcaService::new(load.clone()));
//! load.set_application_utilization(0.7);
//! # }
//! ```
//!
//! The layer counts requests and errors. A call that its client gives up, at a deadline for instance, is an error. Utilization
//! of processor and memory are facts of the agent of this machine; while they are older than ten seconds, or there is no
//! agent, they are not reported. gRPC then uses equal weights.
//!
//! # Invariants
//! - A value that is not finite or is negative is not reported.
//! - A report waits for no file. While the agent is not found, a thread of its own searches for it.
//! - The number of reports that are streamed at one time, their rate and the number of named values are bounded.
//!
//! Read in this order: `message`, [`Load`], `node`, [`LoadLayer`], [`OrcaService`].

mod message;
mod node;
mod load;
mod layer;
mod service;

pub use layer::{LoadBody, LoadFuture, LoadLayer, LoadService};
pub use load::{Load, MAX_NAMED};
pub use message::OrcaLoadReport;
pub use service::{MAX_STREAMS, OrcaService, SHORTEST_INTERVAL};

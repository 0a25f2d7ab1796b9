//! IOAM in IPv6 (RFC 9197, RFC 9486): telemetry that Linux kernels write by themselves, without a program of ours.
//!
//! A sender gives its socket a hop-by-hop option with room for a number of nodes; each kernel on the way for which the
//! namespace is configured fills a place, and the receiver reads the option. A host says its own state in the data
//! of its namespace (`ip ioam namespace add ID data CODE`), which comes along: an anomaly code, for example.
//!
//! # Layout
//! The option begins at a multiple of four bytes:
//!
//! ```text
//! 49 8 | length 8 | 0 8 | 0 8 (pre-allocated trace)
//! namespace 16 | words of a node 5 | overflow 1 | 0 3 | words that remain 7
//! values 24 | 0 8
//! nodes, last one first; room that is not used comes first
//! ```
//!
//! Read in this order: `trace` (the option as bytes), `socket` (options of sockets), `window`, `nodes`, `probe` (datagrams with
//! traces).

mod trace;
mod socket;
mod window;
mod nodes;
mod probe;

pub use probe::{ProbeCounts, ProbeSink, Prober};
pub use socket::{Received, receive, receive_options, set_trace};
pub use trace::{IoamNode, MAX_TRACE_BYTES, Trace, TraceRequest, trace_of};

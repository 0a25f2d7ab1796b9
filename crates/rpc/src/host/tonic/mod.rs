//! Calls of tonic 0.14, as two layers: one for servers, one for channels.
//!
//! ```no_run
//! use skopos_rpc::host::tonic::{ServerLayer, options};
//!
//! # async fn serve(service: impl Clone) -> Result<(), Box<dyn std::error::Error>> {
//! skopos_rpc::Recorder::start(options("kv").trace_folder("traces"))?.set_global();
//! let server = tonic::transport::Server::builder().layer(ServerLayer::new());
//! # Ok(())
//! # }
//! ```
//!
//! A call that a handler makes through a channel with a [`ClientLayer`] belongs below the handler's request. A task that the
//! handler spawns keeps that with [`in_context`].
//!
//! # The moments of a call
//!
//! | moment | at the server |
//! |---|---|
//! | t4, arrival | hyper has the head of the request and clones the service for it |
//! | t5, the handler starts | the first poll of the handler's future, in a task of its own |
//! | t8, the handler ends | the future is ready; for a stream of responses, the last message |
//! | t13, the response is sent | the trailers were handed to HTTP/2 |
//!
//! So [`Interval::TargetHandler`] has all waiting for a free worker of the runtime and for the limit of requests of a
//! connection. [`Interval::InputDeserialization`], [`Interval::InputSerialization`] and [`Interval::OutputSerialization`]
//! are recorded for bodies of one message: there, nothing else happens between two polls of the body, or in the poll.
//!
//! Invariants: a span ends with the trailers, with the failure of the call, or as cancelled (or timed out, if the header
//! `grpc-timeout` says so) when its future or body is dropped. Nothing waits, and nothing grows with the number of calls.

mod meter;
mod headers;
mod scope;
mod names;
mod variables;
mod call;
mod answer;
mod server;
mod client;
pub mod orca;

pub use answer::{AnswerBody, AnswerFuture};
pub use client::{ClientLayer, ClientService};
pub use scope::{InContext, in_context};
pub use server::{ServerLayer, ServerService};

use crate::interval::Interval;
use crate::recorder::Options;

/// Returns the settings of a recorder for service `name`, with the intervals that these layers see and cannot see.
pub fn options(name: &str) -> Options {
    Options::new(name)
        .host("tonic 0.14")
        .sees(&[
            Interval::OriginExecution,
            Interval::InputSerialization,
            Interval::TargetHandler,
            Interval::InputDeserialization,
            Interval::TargetExecutionExclusive,
            Interval::OutputSerialization,
            Interval::TargetCompletionCallback,
            Interval::Children,
        ])
        .cannot_see(
            Interval::TargetInternalRdmaTransfer,
            "HTTP/2 sends a request as one stream, and has no second transfer for a part of it",
        )
        .cannot_see(
            Interval::OriginCompletionCallback,
            "the arrival of a response is inside of HTTP/2, below the layers of a channel",
        )
}

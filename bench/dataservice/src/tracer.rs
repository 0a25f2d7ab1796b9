//! Recorders of other projects, which record the same calls of the same service in the place of Skopos.
//!
//! The service knows none of them: a program that brings one gives [`crate::program::run`] the function that starts it.

use std::fmt::Debug;
use std::sync::Arc;

use skopos_rpc::{Context, Interval};

use crate::error::Result;
use crate::rpcs::Rpc;

/// The settings of a recorder.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The collector that takes its spans, as `http://HOST:PORT`.
    pub collector: &'a str,
    /// Whether spans carry intervals and performance variables.
    pub has_values: bool,
}

/// Starts the recorder of a process. It fails if the exporter cannot be made.
pub type Start = fn(&Setup<'_>) -> Result<Arc<dyn Tracer>>;

/// The recorder of a process.
pub trait Tracer: Debug + Send + Sync {
    /// Returns whether spans carry intervals and performance variables.
    fn has_values(&self) -> bool;

    /// Begins the origin's side of a call (t1), below the span of `parent`.
    fn origin(&self, rpc: Rpc, parent: Option<&Context>) -> Box<dyn TracedSide>;

    /// Begins the target's side of a call (t4), whose origin sent the bytes of [`TracedSide::context`].
    fn target(&self, rpc: Rpc, context: &[u8; 32]) -> Box<dyn TracedSide>;

    /// Sends all spans that have ended, and ends the recorder.
    ///
    /// # Errors
    /// Spans cannot be sent.
    fn close(&self) -> Result<()>;
}

/// One side of a call.
pub trait TracedSide: Debug + Send + Sync {
    /// Returns the bytes that travel with the request, in a form of the recorder's own.
    fn context(&self) -> [u8; 32];

    /// Returns the span as the parent of calls of this process.
    fn parent(&self) -> Context;

    /// The execution begins (t5).
    fn begin(&mut self);

    /// The execution ends (t8).
    fn respond(&mut self);

    /// Adds an interval, which took `ns` nanoseconds.
    fn interval(&mut self, interval: Interval, ns: u64);

    /// Adds the value of a performance variable.
    fn value(&mut self, name: &'static str, value: u64);

    /// Ends the span.
    fn end(self: Box<Self>, is_ok: bool);
}

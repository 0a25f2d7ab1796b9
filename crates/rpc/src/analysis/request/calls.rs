//! The calls of requests in compact form, a share of all requests at a time.

use crate::analysis::clocks::mix;
use crate::analysis::names::PathId;
use crate::analysis::stream::{Reader, Side, Visit};
use crate::analysis::trace::Trace;
use crate::error::Error;
use crate::interval::Interval;
use crate::record::{Kind, Status};

/// The most sides of calls that are held at once: 1 GiB. A greater trace is analysed in several passes, each with the
/// requests whose mixed id ends in certain bits.
pub const MAX_HELD: usize = 16 << 20;

/// The most passes over a trace: each halves the share of requests, so this is a trace of 2^20 times [`MAX_HELD`].
const MAX_BITS: u32 = 20;

/// One side of a call, 72 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Lower half of the request's id.
    pub request: u64,
    /// Id of the call.
    pub span: u64,
    /// Id of the enclosing call; 0 if there is none or a target does not know it.
    pub parent: u64,
    /// Begin on the common clock in ns since 1970.
    pub start: i64,
    /// Duration in ns.
    pub duration: u64,
    /// Time in the queue of the target in ns.
    pub queue: u64,
    /// Time from the arrival to the end of the handler in ns; the duration if the host does not report it.
    pub stay: u64,
    /// The callpath.
    pub path: PathId,
    /// Number of the process.
    pub process: u32,
    /// Lamport clock at the end.
    pub lamport: u32,
    /// Order counter of the request.
    pub order: u16,
    /// `Origin`, `Target` or `Local`.
    pub kind: Kind,
    /// The end of the call.
    pub status: Status,
}

impl Call {
    pub(crate) fn new(side: &Side, start: i64) -> Self {
        let part = |interval| side.interval(interval).unwrap_or(0);
        let stay = match side.interval(Interval::TargetExecutionExclusive) {
            Some(own) => own + part(Interval::TargetHandler) + part(Interval::Children),
            None => side.duration,
        };
        Self {
            request: side.request,
            span: side.span,
            parent: side.parent,
            start,
            duration: side.duration,
            queue: part(Interval::TargetHandler).min(side.duration),
            stay: stay.min(side.duration),
            path: side.path,
            process: side.process,
            lamport: side.lamport,
            order: side.order,
            kind: side.kind,
            status: side.status,
        }
    }

    /// The end on the common clock.
    pub fn end(&self) -> i64 {
        self.start.saturating_add_unsigned(self.duration)
    }
}

/// A share of all requests: those whose mixed id ends in `value`, of `bits` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    bits: u32,
    value: u64,
}

impl Share {
    #[inline]
    fn has(self, request: u64) -> bool {
        mix(request) & ((1 << self.bits) - 1) == self.value
    }
}

struct Held<'t> {
    calls: Vec<Call>,
    share: Share,
    /// Shares that were let go, for later passes.
    later: Vec<Share>,
    most: usize,
    trace: &'t Trace<'t>,
    dropped: u64,
}

impl Visit for Held<'_> {
    fn side(&mut self, side: &Side, _: &Reader) {
        if !self.share.has(side.request) {
            return;
        }
        if self.calls.len() >= self.most {
            if self.share.bits >= MAX_BITS {
                self.dropped += 1;
                return;
            }
            let other =
                Share { bits: self.share.bits + 1, value: self.share.value | 1 << self.share.bits };
            self.later.push(other);
            self.share.bits += 1;
            let share = self.share;
            self.calls.retain(|call| share.has(call.request));
            return self.side_again(side);
        }
        let start = self.trace.clocks.correct(side.process, side.start);
        self.calls.push(Call::new(side, start));
    }
}

impl Held<'_> {
    fn side_again(&mut self, side: &Side) {
        if self.share.has(side.request) {
            let start = self.trace.clocks.correct(side.process, side.start);
            self.calls.push(Call::new(side, start));
        }
    }
}

/// Calls `each` with all calls of one request, for each request, in no order. `most` bounds the calls that are held;
/// see [`MAX_HELD`]. Returns the number of calls that were left out because their request does not fit.
///
/// # Errors
/// A file cannot be read any more.
pub fn each_request(
    trace: &Trace<'_>,
    most: usize,
    mut each: impl FnMut(&mut [Call]),
) -> Result<u64, Error> {
    let mut open = vec![Share { bits: 0, value: 0 }];
    let mut calls = Vec::new();
    let mut dropped = 0;
    while let Some(share) = open.pop() {
        calls.clear();
        let mut held = Held { calls, share, later: open, most, trace, dropped: 0 };
        trace.stream(&mut held)?;
        dropped += held.dropped;
        (calls, open) = (held.calls, held.later);
        calls.sort_unstable_by_key(|call| (call.request, call.span, call.kind as u8));
        calls.chunk_by_mut(|a, b| a.request == b.request).for_each(&mut each);
    }
    Ok(dropped)
}

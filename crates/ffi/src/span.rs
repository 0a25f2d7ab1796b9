//! Spans, in memory of the caller.

use std::mem::ManuallyDrop;

use skopos_rpc::{Context, Interval, PeerId, Pvar, Recorder, Rpc, Span, Status};

use crate::convert::NO_CONTEXT;
use crate::recorder::{find_interval, recorder_at};

/// Marks memory that holds a span. Zeroed memory holds none, so each function takes it as "nothing".
const MARK: u64 = u64::from_le_bytes(*b"SKOPSPAN");

/// Length of `skopos_rpc_span` in the header.
const SPAN_BYTES: usize = 320;

/// The span in the memory of the caller.
#[repr(C)]
pub struct Slot {
    mark: u64,
    span: ManuallyDrop<Span>,
}

const _: () = assert!(size_of::<Slot>() <= SPAN_BYTES && align_of::<Slot>() <= 8);

/// Puts a span into the caller's memory.
///
/// # Safety
/// `place` is null or points to a `skopos_rpc_span`.
#[inline]
unsafe fn put(place: *mut Slot, span: Span) {
    if !place.is_null() {
        // SAFETY: not null, large enough and aligned by the contract; the header gives it the alignment of a u64.
        unsafe { place.write(Slot { mark: MARK, span: ManuallyDrop::new(span) }) };
    }
}

/// Returns the span at `place`; `None` if it is null, zeroed or has ended.
///
/// # Safety
/// `place` is null or points to a `skopos_rpc_span` that was zeroed or that a function here wrote, and that no other thread
/// uses at the same time.
#[inline]
pub(crate) unsafe fn span_at<'s>(place: *mut Slot) -> Option<&'s mut Span> {
    if place.is_null() {
        return None;
    }
    // SAFETY: the caller's memory holds at least the mark.
    let mark = unsafe { (&raw const (*place).mark).read() };
    if mark != MARK {
        return None;
    }
    // SAFETY: the mark says that a span was put here and has not ended; `ManuallyDrop` has the layout of its content.
    unsafe { (&raw mut (*place).span).cast::<Span>().as_mut() }
}

/// Begins the caller's side of a call.
///
/// # Safety
/// `recorder` is null or from `skopos_rpc_start`; `parent` is null or points to a context; `span` is null or points to a
/// `skopos_rpc_span`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_origin(
    recorder: *const Recorder,
    rpc: Rpc,
    parent: *const Context,
    span: *mut Slot,
) {
    // SAFETY: as this function's contract says.
    unsafe { put(span, recorder_at(recorder).origin(rpc, context_at(parent))) }
}

/// Begins the callee's side of a call that arrived at `arrived` ticks, or now if that is 0.
///
/// # Safety
/// The contract of `skopos_rpc_origin` holds; `context` is null or points to a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_target(
    recorder: *const Recorder,
    rpc: Rpc,
    context: *const Context,
    arrived: u64,
    span: *mut Slot,
) {
    // SAFETY: as this function's contract says.
    let (recorder, context) = unsafe { (recorder_at(recorder), context_at(context)) };
    // A caller that said nothing is not recorded: its request begins here.
    let context = context.copied().unwrap_or_else(|| recorder.new_request());
    let target = match arrived {
        0 => recorder.target(rpc, &context),
        arrived => recorder.target_at(rpc, &context, arrived),
    };
    // SAFETY: as this function's contract says.
    unsafe { put(span, target) }
}

/// Begins a step inside of the process.
///
/// # Safety
/// The contract of `skopos_rpc_origin` holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_local(
    recorder: *const Recorder,
    rpc: Rpc,
    parent: *const Context,
    span: *mut Slot,
) {
    // SAFETY: as this function's contract says.
    unsafe { put(span, recorder_at(recorder).local(rpc, context_at(parent))) }
}

/// Returns the context at `context`; `None` if it is null or has no request.
///
/// # Safety
/// `context` is null or points to a context.
#[inline]
unsafe fn context_at<'c>(context: *const Context) -> Option<&'c Context> {
    // SAFETY: as this function's contract says.
    unsafe { context.as_ref() }.filter(|context| context.request_low != 0)
}

/// Writes the context of a span: of an origin, for its request; of others, for the calls below. Without a span, one with
/// `request_low` 0 is written, the sign of no request.
///
/// # Safety
/// `span` is null or points to a `skopos_rpc_span`; `context` is null or points to a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_span_context(span: *mut Slot, context: *mut Context) {
    if context.is_null() {
        return;
    }
    // SAFETY: as this function's contract says.
    let found = unsafe { span_at(span) }.map_or(NO_CONTEXT, |span| span.context());
    // SAFETY: not null, and a place for a context by the contract.
    unsafe { context.write(found) };
}

macro_rules! on_span {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) => |$span:ident| $work:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// `span` is null or points to a `skopos_rpc_span`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(span: *mut Slot, $($argument: $type),*) {
            // SAFETY: as this function's contract says.
            if let Some($span) = unsafe { span_at(span) } {
                $work;
            }
        }
    )*};
}

on_span! {
    /// The handler begins (t5).
    skopos_rpc_span_begin() => |span| span.begin();
    /// The handler ends (t8).
    skopos_rpc_span_respond() => |span| span.respond();
    /// Takes the time of calls to others out of the exclusive time.
    skopos_rpc_span_exclude(ns: u64) => |span| span.exclude(ns);
    /// Adds an interval in ns; an unknown interval is passed over.
    skopos_rpc_span_interval(interval: u32, ns: u64) => |span| {
        find_interval(interval).map(|interval: Interval| span.interval(interval, ns))
    };
    /// Adds an interval between two moments in ticks; an unknown interval is passed over.
    skopos_rpc_span_interval_ticks(interval: u32, from: u64, to: u64) => |span| {
        find_interval(interval).map(|interval| span.interval_between(interval, from, to))
    };
    /// Adds the value of a variable.
    skopos_rpc_span_pvar(pvar: u16, value: u64) => |span| {
        span.pvar(&Pvar::from_number(pvar), value)
    };
    /// Names the other entity.
    skopos_rpc_span_peer(peer: PeerId) => |span| span.peer(peer);
    /// Takes the Lamport clock of a response into account.
    skopos_rpc_span_observe(lamport: u32) => |span| span.observe(lamport);
}

/// Ends a span and records it; returns its duration in ns.
///
/// # Safety
/// `span` is null or points to a `skopos_rpc_span`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_span_end(span: *mut Slot, status: u32) -> u64 {
    // SAFETY: as this function's contract says.
    if unsafe { span_at(span) }.is_none() {
        return 0;
    }
    // SAFETY: the memory holds a span; the mark is taken away, so the span is taken out once.
    let taken = unsafe {
        (*span).mark = 0;
        ManuallyDrop::take(&mut (*span).span)
    };
    taken.end(Status::from_code(u8::try_from(status).unwrap_or(u8::MAX)))
}

//! Contexts on the wire, and the current context of a thread.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use skopos_rpc::Context;
use skopos_rpc::context::CONTEXT_BYTES;

use crate::convert::{INVALID, NO_CONTEXT, OK, code, guarded, invalid, text};

/// Writes the binary form.
///
/// # Safety
/// `context` is null or points to a context; `bytes` is null or points to 32 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_context_to_bytes(context: *const Context, bytes: *mut u8) {
    // SAFETY: as this function's contract says.
    let Some(context) = (unsafe { context.as_ref() }) else { return };
    if !bytes.is_null() {
        let form = context.to_bytes();
        // SAFETY: not null, and 32 bytes by the contract, which do not lie in `form`.
        unsafe { ptr::copy_nonoverlapping(form.as_ptr(), bytes, CONTEXT_BYTES) };
    }
}

/// Reads the binary form.
///
/// # Safety
/// `bytes` is null or points to `length` bytes; `context` is null or points to a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_context_from_bytes(
    bytes: *const u8,
    length: usize,
    context: *mut Context,
) -> c_int {
    if bytes.is_null() || context.is_null() || length < CONTEXT_BYTES {
        return invalid("a context has 32 bytes, and neither place is null");
    }
    // SAFETY: not null, and at least that many bytes by the contract.
    let bytes = unsafe { std::slice::from_raw_parts(bytes, CONTEXT_BYTES) };
    code(Context::from_bytes(bytes).map(|read| {
        // SAFETY: not null, and a place for a context by the contract.
        unsafe { context.write(read) };
    }))
}

/// Copies a text with its end to `place`. Returns false if it does not fit.
///
/// # Safety
/// `place` is null or points to `capacity` bytes.
unsafe fn copy_text(from: &str, place: *mut c_char, capacity: usize) -> bool {
    if place.is_null() || from.len() >= capacity {
        return false;
    }
    // SAFETY: the text and its end fit, and the places do not overlap: one is a text of ours.
    unsafe {
        ptr::copy_nonoverlapping(from.as_ptr().cast(), place, from.len());
        place.add(from.len()).write(0);
    }
    true
}

/// Writes the headers `traceparent` and `tracestate`.
///
/// # Safety
/// `context` is null or points to a context; `others` is null or a text with an end; the places are null or have as many
/// bytes as the capacities say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_context_to_w3c(
    context: *const Context,
    others: *const c_char,
    traceparent: *mut c_char,
    traceparent_capacity: usize,
    tracestate: *mut c_char,
    tracestate_capacity: usize,
) -> c_int {
    // SAFETY: as this function's contract says.
    let (context, others) = unsafe { (context.as_ref(), text(others)) };
    let Some(context) = context else { return invalid("a context is not null") };
    guarded(INVALID, || {
        let (parent, state) = (context.traceparent(), context.tracestate(others));
        // SAFETY: as this function's contract says.
        let fits = unsafe {
            copy_text(&parent, traceparent, traceparent_capacity)
                && (tracestate.is_null() || copy_text(&state, tracestate, tracestate_capacity))
        };
        if fits { OK } else { invalid("the places of the headers are too short") }
    })
}

/// Reads the headers `traceparent` and `tracestate`.
///
/// # Safety
/// The texts are null or have an end; `context` is null or points to a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_context_from_w3c(
    traceparent: *const c_char,
    tracestate: *const c_char,
    context: *mut Context,
) -> c_int {
    // SAFETY: as this function's contract says.
    let (parent, state) = unsafe { (text(traceparent), text(tracestate)) };
    let (Some(parent), false) = (parent, context.is_null()) else {
        return invalid("traceparent and the place of the context are not null");
    };
    guarded(INVALID, || {
        code(Context::from_w3c(parent, state).map(|read| {
            // SAFETY: not null, and a place for a context by the contract.
            unsafe { context.write(read) };
        }))
    })
}

/// Writes the current context of this thread and returns 1; returns 0 if there is none.
///
/// # Safety
/// `context` is null or points to a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_context_current(context: *mut Context) -> c_int {
    match Context::current() {
        Some(current) if !context.is_null() => {
            // SAFETY: not null, and a place for a context by the contract.
            unsafe { context.write(current) };
            1
        }
        Some(_) => 1,
        None => 0,
    }
}

/// Makes `context` the current one of this thread, or none if it is null or has no request; writes the one before to
/// `previous`.
///
/// # Safety
/// `context` and `previous` are null or point to a context; they may be the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_context_set_current(
    context: *const Context,
    previous: *mut Context,
) {
    // SAFETY: as this function's contract says.
    let next = unsafe { context.as_ref() }.copied().filter(|context| context.request_low != 0);
    let before = Context::replace_current(next);
    if !previous.is_null() {
        // SAFETY: not null, and a place for a context by the contract.
        unsafe { previous.write(before.unwrap_or(NO_CONTEXT)) };
    }
}

/// Appends a name to an ancestry of four 16-bit hops.
///
/// # Safety
/// `name` is null or a text with an end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_ancestry_push(ancestry: u64, name: *const c_char) -> u64 {
    if name.is_null() {
        return ancestry;
    }
    // SAFETY: not null, and a text with an end by the contract.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    skopos_rpc::callpath::Ancestry(ancestry).push(&name).0
}

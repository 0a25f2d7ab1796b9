//! Texts and errors between C and Rust.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use skopos_rpc::{Context, Error};

/// Success.
pub(crate) const OK: c_int = 0;
/// An argument is null, not UTF-8, or out of its range.
pub(crate) const INVALID: c_int = -1;
/// The call failed; `skopos_rpc_last_error` has the reason.
pub(crate) const FAILED: c_int = -2;

/// The greatest length of a text from C, in bytes: longer than any path and any header.
const MAX_TEXT_BYTES: usize = 16 << 10;

/// The context of no request.
pub(crate) const NO_CONTEXT: Context = Context {
    request_low: 0,
    request_high: 0,
    span: 0,
    callpath: 0,
    lamport: 0,
    order: 0,
    flags: 0,
};

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps the message of an error for [`skopos_rpc_last_error`]; not in a signal handler that interrupted this function.
pub(crate) fn keep(message: &str) {
    let text = CString::new(message.replace('\0', " ")).unwrap_or_default();
    let _ = LAST.try_with(|last| last.try_borrow_mut().map(|mut last| *last = text));
}

/// Returns the code of a result, and keeps the message of an error with its causes.
pub(crate) fn code(result: Result<(), Error>) -> c_int {
    let Err(error) = result else { return OK };
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(next) = cause {
        message.push_str(": ");
        message.push_str(&next.to_string());
        cause = next.source();
    }
    keep(&message);
    FAILED
}

/// Returns the code of an argument that cannot be used.
pub(crate) fn invalid(message: &str) -> c_int {
    keep(message);
    INVALID
}

/// Runs `work`; a panic becomes `otherwise`, because it must not cross into C.
pub(crate) fn guarded<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        keep("a fault of the library: please report it");
        otherwise
    })
}

/// Returns the text at `text`; `None` if it is null, too long or not UTF-8.
///
/// # Safety
/// `text` is null or points to a text that ends in a zero byte and does not change during `'t`.
pub(crate) unsafe fn text<'t>(text: *const c_char) -> Option<&'t str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, and a text with an end by the contract of this function.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().ok().filter(|text| text.len() <= MAX_TEXT_BYTES)
}

/// Returns the message of the last call of this thread that failed; an empty text before. Valid until the next call of this
/// thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn skopos_rpc_last_error() -> *const c_char {
    let text = LAST.try_with(|last| last.try_borrow().map_or(c"".as_ptr(), |last| last.as_ptr()));
    text.unwrap_or(c"".as_ptr())
}

//! Options and recorders.

use std::ffi::{c_char, c_int};
use std::ptr;

use skopos_rpc::recorder::DEFAULT_BUDGET;
use skopos_rpc::{Interval, Options, PeerId, Recorder, Rpc, Stage};

use crate::convert::{INVALID, OK, code, guarded, invalid, text};

/// Version of the functions and structures in the header.
const ABI: u32 = 1;

/// Returns the version of the header to which this library belongs.
#[unsafe(no_mangle)]
pub extern "C" fn skopos_rpc_abi_version() -> u32 {
    ABI
}

/// Changes options by `change` with a text; returns a code.
///
/// # Safety
/// `options` is null or from `skopos_rpc_options_new`; the texts are as in [`text`].
unsafe fn with_text(
    options: *mut Options,
    value: *const c_char,
    change: impl FnOnce(Options, &str) -> Options,
) -> c_int {
    // SAFETY: as this function's contract says.
    let (options, value) = unsafe { (options.as_mut(), text(value)) };
    let (Some(options), Some(value)) = (options, value) else {
        return invalid("options and texts are not null, and texts are UTF-8");
    };
    guarded(INVALID, || {
        let taken = std::mem::replace(options, Options::new(""));
        *options = change(taken, value);
        OK
    })
}

/// Makes options.
///
/// # Safety
/// `name` is null or a text with an end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_options_new(name: *const c_char) -> *mut Options {
    // SAFETY: as this function's contract says.
    match unsafe { text(name) } {
        Some(name) => guarded(ptr::null_mut(), || Box::into_raw(Box::new(Options::new(name)))),
        None => {
            invalid("the name of a service is not null, and UTF-8");
            ptr::null_mut()
        }
    }
}

/// Frees options that were not given to `skopos_rpc_start`.
///
/// # Safety
/// `options` is null or from `skopos_rpc_options_new`, and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_options_free(options: *mut Options) {
    if !options.is_null() {
        // SAFETY: from `Box::into_raw`, and freed once, by the contract.
        drop(unsafe { Box::from_raw(options) });
    }
}

macro_rules! text_options {
    ($($(#[$doc:meta])* $name:ident => $method:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// `options` is null or from `skopos_rpc_options_new`; `value` is null or a text with an end.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(options: *mut Options, value: *const c_char) -> c_int {
            // SAFETY: as this function's contract says.
            unsafe { with_text(options, value, |options, value| options.$method(value)) }
        }
    )*};
}

text_options! {
    /// Sets the name of the node.
    skopos_rpc_options_node => node;
    /// Sets the runtime directory.
    skopos_rpc_options_dir => dir;
    /// Sets the folder of the trace.
    skopos_rpc_options_trace_folder => trace_folder;
    /// Names the RPC library.
    skopos_rpc_options_host => host;
}

/// Sets a value of the service's configuration.
///
/// # Safety
/// `options` is null or from `skopos_rpc_options_new`; the texts are null or have an end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_options_config(
    options: *mut Options,
    key: *const c_char,
    value: *const c_char,
) -> c_int {
    // SAFETY: as this function's contract says.
    let key = unsafe { text(key) };
    let Some(key) = key else { return invalid("a key is not null, and UTF-8") };
    // SAFETY: as this function's contract says.
    unsafe { with_text(options, value, |options, value| options.config(key, value)) }
}

/// Names an interval that the host sees.
///
/// # Safety
/// `options` is null or from `skopos_rpc_options_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_options_sees(options: *mut Options, interval: u32) -> c_int {
    let Some(interval) = find_interval(interval) else { return invalid("no such interval") };
    // SAFETY: as this function's contract says, and the text is a constant.
    unsafe { with_text(options, c"".as_ptr(), |options, _| options.sees(&[interval])) }
}

/// Names an interval that the host cannot see, with the reason.
///
/// # Safety
/// `options` is null or from `skopos_rpc_options_new`; `reason` is null or a text with an end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_options_cannot_see(
    options: *mut Options,
    interval: u32,
    reason: *const c_char,
) -> c_int {
    let Some(interval) = find_interval(interval) else { return invalid("no such interval") };
    // SAFETY: as this function's contract says.
    unsafe { with_text(options, reason, |options, why| options.cannot_see(interval, why)) }
}

/// Returns the interval of a number in the header.
pub(crate) fn find_interval(number: u32) -> Option<Interval> {
    Interval::from_tag(u16::try_from(number).ok()?)
}

/// Sets the stage at the beginning.
///
/// # Safety
/// `options` is null or from `skopos_rpc_options_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_options_stage(options: *mut Options, stage: u32) -> c_int {
    let stage = Stage::from_code(stage);
    // SAFETY: as this function's contract says, and the text is a constant.
    unsafe { with_text(options, c"".as_ptr(), |options, _| options.stage(stage)) }
}

/// Sets the share of processor time that recording may cost; a negative number sets no bound.
///
/// # Safety
/// `options` is null or from `skopos_rpc_options_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_options_budget(options: *mut Options, share: f64) -> c_int {
    let share = if share.is_nan() { Some(DEFAULT_BUDGET) } else { Some(share) };
    let share = share.filter(|share| *share >= 0.0);
    // SAFETY: as this function's contract says, and the text is a constant.
    unsafe { with_text(options, c"".as_ptr(), |options, _| options.budget(share)) }
}

/// Sets the number of threads that record, and the records of each one's ring.
///
/// # Safety
/// `options` is null or from `skopos_rpc_options_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_options_rings(
    options: *mut Options,
    threads: u32,
    records: u32,
) -> c_int {
    // SAFETY: as this function's contract says, and the text is a constant.
    unsafe { with_text(options, c"".as_ptr(), |options, _| options.rings(threads, records)) }
}

/// Sets the bound on the trace on disk, in bytes.
///
/// # Safety
/// `options` is null or from `skopos_rpc_options_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_options_max_trace_bytes(
    options: *mut Options,
    bytes: u64,
) -> c_int {
    // SAFETY: as this function's contract says, and the text is a constant.
    unsafe { with_text(options, c"".as_ptr(), |options, _| options.max_trace_bytes(bytes)) }
}

/// Starts a recorder and frees the options. The place of the recorder gets null if that fails.
///
/// # Safety
/// `options` is null or from `skopos_rpc_options_new`, and is not used afterwards; `recorder` is null or points to a
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_start(
    options: *mut Options,
    recorder: *mut *const Recorder,
) -> c_int {
    if !recorder.is_null() {
        // SAFETY: not null, and a place for a pointer by the contract.
        unsafe { recorder.write(ptr::null()) };
    }
    if options.is_null() || recorder.is_null() {
        return invalid("options and the place of the recorder are not null");
    }
    // SAFETY: from `Box::into_raw`, and taken once, by the contract.
    let options = unsafe { Box::from_raw(options) };
    guarded(INVALID, || {
        code(Recorder::start(*options).map(|started| {
            // A recorder lives as long as its process, so does the handle.
            let handle = ptr::from_ref(Box::leak(Box::new(started)));
            // SAFETY: not null, and a place for a pointer by the contract.
            unsafe { recorder.write(handle) };
        }))
    })
}

/// Returns the recorder at `recorder`; one that is off if it is null.
///
/// # Safety
/// `recorder` is null or from `skopos_rpc_start` or `skopos_rpc_global`.
#[inline]
pub(crate) unsafe fn recorder_at(recorder: *const Recorder) -> Recorder {
    // SAFETY: as this function's contract says; handles are never freed.
    unsafe { recorder.as_ref() }.copied().unwrap_or(Recorder::off())
}

/// Returns the recorder that `skopos_rpc_set_global` set last, and null before.
#[unsafe(no_mangle)]
pub extern "C" fn skopos_rpc_global() -> *const Recorder {
    GLOBAL.load(std::sync::atomic::Ordering::Relaxed)
}

/// The handle of the global recorder: it points to a leaked box.
static GLOBAL: std::sync::atomic::AtomicPtr<Recorder> =
    std::sync::atomic::AtomicPtr::new(ptr::null_mut());

/// Makes this the recorder of the hosts that start from now on.
///
/// # Safety
/// `recorder` is null or from `skopos_rpc_start`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_set_global(recorder: *const Recorder) {
    // SAFETY: as this function's contract says.
    unsafe { recorder_at(recorder) }.set_global();
    GLOBAL.store(recorder.cast_mut(), std::sync::atomic::Ordering::Relaxed);
}

/// Writes everything that ended before to the trace.
///
/// # Safety
/// `recorder` is null or from `skopos_rpc_start`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_flush(recorder: *const Recorder) -> c_int {
    // SAFETY: as this function's contract says.
    let recorder = unsafe { recorder_at(recorder) };
    guarded(INVALID, || code(recorder.flush()))
}

/// Ends a recorder.
///
/// # Safety
/// `recorder` is null or from `skopos_rpc_start`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_close(recorder: *const Recorder) -> c_int {
    // SAFETY: as this function's contract says.
    let recorder = unsafe { recorder_at(recorder) };
    guarded(INVALID, || code(recorder.close()))
}

/// Interns the name of a call.
///
/// # Safety
/// `recorder` is null or from `skopos_rpc_start`; `name` is null or a text with an end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_intern(recorder: *const Recorder, name: *const c_char) -> Rpc {
    // SAFETY: as this function's contract says.
    let (recorder, name) = unsafe { (recorder_at(recorder), text(name)) };
    guarded(Recorder::off().rpc(""), || recorder.rpc(name.unwrap_or("unnamed")))
}

/// Interns the name of another entity; 0 if there is no room.
///
/// # Safety
/// `recorder` is null or from `skopos_rpc_start`; `name` is null or a text with an end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_peer(recorder: *const Recorder, name: *const c_char) -> PeerId {
    // SAFETY: as this function's contract says.
    let (recorder, name) = unsafe { (recorder_at(recorder), text(name)) };
    guarded(PeerId::default(), || name.map_or(PeerId::default(), |name| recorder.peer(name)))
}

/// Sets a value of the service's configuration while it runs.
///
/// # Safety
/// `recorder` is null or from `skopos_rpc_start`; the texts are null or have an end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_set_config(
    recorder: *const Recorder,
    key: *const c_char,
    value: *const c_char,
) -> c_int {
    // SAFETY: as this function's contract says.
    let (recorder, key, value) = unsafe { (recorder_at(recorder), text(key), text(value)) };
    let (Some(key), Some(value)) = (key, value) else {
        return invalid("key and value are not null, and UTF-8");
    };
    guarded(INVALID, || code(recorder.set_config(key, value)))
}

/// Returns the stage of recording.
///
/// # Safety
/// `recorder` is null or from `skopos_rpc_start`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_stage(recorder: *const Recorder) -> u32 {
    // SAFETY: as this function's contract says.
    unsafe { recorder_at(recorder) }.stage() as u32
}

/// Sets the stage of recording.
///
/// # Safety
/// `recorder` is null or from `skopos_rpc_start`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_set_stage(recorder: *const Recorder, stage: u32) {
    // SAFETY: as this function's contract says.
    unsafe { recorder_at(recorder) }.set_stage(Stage::from_code(stage));
}

/// Returns the clock in ticks.
///
/// # Safety
/// `recorder` is null or from `skopos_rpc_start`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_ticks(recorder: *const Recorder) -> u64 {
    // SAFETY: as this function's contract says.
    unsafe { recorder_at(recorder) }.ticks()
}

/// Returns a duration of ticks in ns.
///
/// # Safety
/// `recorder` is null or from `skopos_rpc_start`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_ticks_to_ns(recorder: *const Recorder, ticks: u64) -> u64 {
    // SAFETY: as this function's contract says.
    unsafe { recorder_at(recorder) }.ns(ticks)
}

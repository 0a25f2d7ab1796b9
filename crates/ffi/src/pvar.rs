//! Performance variables.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;

use skopos_rpc::pvar::PvarInfo;
use skopos_rpc::{Bound, Pvar, PvarClass, PvarHandle, Recorder, Session};

use crate::convert::{INVALID, OK, code, guarded, invalid, text};
use crate::recorder::recorder_at;
use crate::span::{Slot, span_at};

/// Most handles of a session: as many as there are variables.
const MAX_HANDLES: usize = skopos_rpc::pvar::MAX_PVARS;

/// The source of a variable of the process: a function and its argument.
type Callback = unsafe extern "C" fn(*mut c_void) -> u64;

/// A function of C with its argument, which any thread may call.
struct Source {
    function: Callback,
    argument: *mut c_void,
}

// SAFETY: the header says that the function is called from any thread with this argument.
unsafe impl Send for Source {}
// SAFETY: as above.
unsafe impl Sync for Source {}

impl Source {
    fn sample(&self) -> u64 {
        // SAFETY: the contract of `skopos_rpc_pvar_register_source`.
        unsafe { (self.function)(self.argument) }
    }
}

/// Reads the arguments that both ways of registering have.
///
/// # Safety
/// `name` and `unit` are null or texts with an end.
unsafe fn described<'t>(
    name: *const c_char,
    class: u32,
    unit: *const c_char,
) -> Option<(&'t str, PvarClass, &'t str)> {
    // SAFETY: as this function's contract says.
    let (name, unit) = unsafe { (text(name)?, text(unit).unwrap_or_default()) };
    Some((name, PvarClass::from_code(u8::try_from(class).ok()?)?, unit))
}

const DESCRIPTION: &str = "a variable has a name, a class from 1 to 7, and a place for its number";

/// Registers a variable of requests.
///
/// # Safety
/// `recorder` is null or from `skopos_rpc_start`; the texts are null or have an end; `number` is null or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_pvar_register(
    recorder: *const Recorder,
    name: *const c_char,
    class: u32,
    unit: *const c_char,
    number: *mut u16,
) -> c_int {
    // SAFETY: as this function's contract says.
    let (recorder, described) = unsafe { (recorder_at(recorder), described(name, class, unit)) };
    let (Some((name, class, unit)), false) = (described, number.is_null()) else {
        return invalid(DESCRIPTION);
    };
    guarded(INVALID, || {
        code(recorder.pvars().register(name, class, unit).map(|pvar| {
            // SAFETY: not null, and a place for a number by the contract.
            unsafe { number.write(pvar.number()) };
        }))
    })
}

/// Registers a variable of the process.
///
/// # Safety
/// The contract of `skopos_rpc_pvar_register` holds; `function` may be called with `argument` from any thread until the process ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_pvar_register_source(
    recorder: *const Recorder,
    name: *const c_char,
    class: u32,
    unit: *const c_char,
    function: Option<Callback>,
    argument: *mut c_void,
    number: *mut u16,
) -> c_int {
    // SAFETY: as this function's contract says.
    let (recorder, described) = unsafe { (recorder_at(recorder), described(name, class, unit)) };
    let (Some((name, class, unit)), Some(function)) = (described, function) else {
        return invalid(DESCRIPTION);
    };
    let source = Source { function, argument };
    guarded(INVALID, || {
        let registered =
            recorder.pvars().register_source(name, class, unit, move || source.sample());
        code(registered.map(|pvar| {
            if !number.is_null() {
                // SAFETY: not null, and a place for a number by the contract.
                unsafe { number.write(pvar.number()) };
            }
        }))
    })
}

/// Samples a variable of the process at the end of each span.
///
/// # Safety
/// `recorder` is null or from `skopos_rpc_start`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_pvar_ride(recorder: *const Recorder, number: u16) -> c_int {
    // SAFETY: as this function's contract says.
    let recorder = unsafe { recorder_at(recorder) };
    guarded(INVALID, || code(recorder.pvars().ride(Pvar::from_number(number))))
}

/// A session of a tool.
pub struct OpenSession {
    session: Session<'static>,
    infos: Vec<(PvarInfo, CString, CString)>,
    handles: Vec<PvarHandle>,
}

/// The description of a variable, as C sees it.
#[repr(C)]
pub struct Info {
    name: *const c_char,
    unit: *const c_char,
    number: u16,
    class: u8,
    binding: u8,
}

/// Opens a session.
///
/// # Safety
/// `recorder` is null or from `skopos_rpc_start`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_session_open(recorder: *const Recorder) -> *mut OpenSession {
    // SAFETY: as this function's contract says.
    let recorder = unsafe { recorder_at(recorder) };
    guarded(ptr::null_mut(), || {
        let session = recorder.pvars().session();
        let infos = session.query().into_iter().map(|info| {
            let text = |text: &str| CString::new(text.replace('\0', " ")).unwrap_or_default();
            let (name, unit) = (text(&info.name), text(&info.unit));
            (info, name, unit)
        });
        let infos = infos.collect();
        Box::into_raw(Box::new(OpenSession { session, infos, handles: Vec::new() }))
    })
}

/// Returns the number of variables when the session was opened.
///
/// # Safety
/// `session` is null or from `skopos_rpc_session_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_session_count(session: *const OpenSession) -> usize {
    // SAFETY: as this function's contract says.
    unsafe { session.as_ref() }.map_or(0, |session| session.infos.len())
}

/// Describes variable `index` of the session.
///
/// # Safety
/// `session` is null or from `skopos_rpc_session_open`; `info` is null or points to a description.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_session_query(
    session: *const OpenSession,
    index: usize,
    info: *mut Info,
) -> c_int {
    // SAFETY: as this function's contract says.
    let session = unsafe { session.as_ref() };
    let found = session.and_then(|session| session.infos.get(index));
    let (Some((found, name, unit)), false) = (found, info.is_null()) else {
        return invalid("a session has as many variables as its count says");
    };
    let PvarInfo { number, class, binding, .. } = *found;
    let (class, binding) = (class as u8, binding as u8);
    let found = Info { name: name.as_ptr(), unit: unit.as_ptr(), number, class, binding };
    // SAFETY: not null, and a place for a description by the contract.
    unsafe { info.write(found) };
    OK
}

/// Allocates a handle for a variable.
///
/// # Safety
/// `session` is null or from `skopos_rpc_session_open`, and no other thread uses it now; `name` is null or a text with an
/// end; `handle` is null or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_session_handle(
    session: *mut OpenSession,
    name: *const c_char,
    handle: *mut u32,
) -> c_int {
    // SAFETY: as this function's contract says.
    let (session, name) = unsafe { (session.as_mut(), text(name)) };
    let (Some(session), Some(name), false) = (session, name, handle.is_null()) else {
        return invalid("a session, a name and a place for the handle are not null");
    };
    guarded(INVALID, || {
        if session.handles.len() >= MAX_HANDLES {
            return invalid("a session has at most as many handles as there are variables");
        }
        code(session.session.handle(name).map(|found| {
            session.handles.push(found);
            // SAFETY: not null, and a place for a number by the contract.
            unsafe { handle.write(session.handles.len() as u32 - 1) };
        }))
    })
}

/// Samples a variable.
///
/// # Safety
/// `session` is null or from `skopos_rpc_session_open`; `span` is null or points to a `skopos_rpc_span`; `value` is null or
/// points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_session_sample(
    session: *const OpenSession,
    handle: u32,
    span: *mut Slot,
    value: *mut u64,
) -> c_int {
    // SAFETY: as this function's contract says.
    let (session, span) = unsafe { (session.as_ref(), span_at(span)) };
    let found = session.and_then(|s| Some((s, s.handles.get(handle as usize)?)));
    let (Some((session, handle)), false) = (found, value.is_null()) else {
        return invalid("a session, a handle of it and a place for the value");
    };
    guarded(INVALID, || {
        let object = span.map(|span| &*span as &dyn Bound);
        code(session.session.sample(handle, object).map(|sampled| {
            // SAFETY: not null, and a place for a number by the contract.
            unsafe { value.write(sampled) };
        }))
    })
}

/// Ends a session and frees its handles.
///
/// # Safety
/// `session` is null or from `skopos_rpc_session_open`, and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skopos_rpc_session_finalize(session: *mut OpenSession) {
    if !session.is_null() {
        // SAFETY: from `Box::into_raw`, and freed once, by the contract.
        let open = unsafe { Box::from_raw(session) };
        open.session.finalize();
    }
}

//! `bpf` and `perf_event_open`, which the C library does not wrap: loads programs and attaches them to
//! tracepoints and interfaces. Maps files of the kernel into memory.

use std::ffi::{CStr, c_int};
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::path::Path;
use std::ptr::{self, NonNull};

use aya_obj::generated::bpf_insn;

const PROG_LOAD: c_int = 5;
const RAW_TRACEPOINT_OPEN: c_int = 17;
const LINK_CREATE: c_int = 28;

/// Kinds of attachment to an interface: the programs of an interface in their order (`tcx`).
const TCX_INGRESS: u32 = 46;
const TCX_EGRESS: u32 = 47;

/// The kind of a program.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum Kind {
    Classifier = 3,
    Tracepoint = 5,
    RawTracepoint = 17,
}

/// A type of `perf_event_attr`.
const TYPE_TRACEPOINT: u32 = 2;
/// A flag of `perf_event_open`.
const CLOSE_ON_EXEC: libc::c_ulong = 8;
/// Requests of `ioctl` on an event: attach a program, and begin.
const SET_BPF: libc::c_ulong = 0x4004_2408;
const ENABLE: libc::c_ulong = 0x2400;

/// The most bytes of the verifier's log. The end of a longer log is left out.
const LOG_BYTES: usize = 1 << 20;

/// The head of `union bpf_attr` for a program, in the version in which programs got names. The
/// kernel takes missing fields as zero.
#[repr(C)]
#[derive(Default)]
struct Program {
    kind: u32,
    instructions_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

/// The head of `union bpf_attr` for a tracepoint.
#[repr(C)]
#[derive(Default)]
struct Tracepoint {
    name: u64,
    program: u32,
    unused: u32,
}

/// The head of `union bpf_attr` for a link to an interface. Without a relative program, the new program is the
/// last of the interface.
#[repr(C)]
#[derive(Default)]
struct InterfaceLink {
    program: u32,
    interface: u32,
    kind: u32,
    flags: u32,
    relative: u32,
    padding: u32,
    expected_revision: u64,
}

/// Loads a program.
///
/// # Errors
/// The kernel's error, and the last line of the verifier's log.
pub(crate) fn load(
    name: &str,
    kind: Kind,
    instructions: &[bpf_insn],
    license: &CStr,
) -> Result<OwnedFd, (io::Error, String)> {
    let mut program = Program {
        kind: kind as u32,
        instructions_count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        ..Program::default()
    };
    // The last byte stays zero.
    let most = program.name.len() - 1;
    program.name.iter_mut().take(most).zip(name.bytes()).for_each(|(to, from)| *to = from);
    // SAFETY: instructions and license outlive the call, which reads as many as it is told.
    let first = unsafe { bpf(PROG_LOAD, &program) };
    first.or_else(|e| {
        // A log makes the call slower, so it is requested only after a failure.
        let mut log = vec![0; LOG_BYTES];
        program.log_level = 1;
        program.log_bytes = log.len() as u32;
        program.log = log.as_mut_ptr() as u64;
        // SAFETY: as above, and the log has the stated number of bytes.
        unsafe { bpf(PROG_LOAD, &program) }.map_err(|_| (e, last_line(&log)))
    })
}

/// Returns the last line of the log before the statistics.
fn last_line(log: &[u8]) -> String {
    let text =
        CStr::from_bytes_until_nul(log).map_or_else(|_| Default::default(), CStr::to_string_lossy);
    let line = text.lines().rev().find(|line| !line.is_empty() && !line.starts_with("processed "));
    line.unwrap_or_default().to_owned()
}

/// Attaches a program to a tracepoint until the returned descriptor is closed.
pub(crate) fn attach(program: BorrowedFd<'_>, tracepoint: &CStr) -> io::Result<OwnedFd> {
    let to = Tracepoint {
        name: tracepoint.as_ptr() as u64,
        program: program.as_raw_fd() as u32,
        unused: 0,
    };
    // SAFETY: the name outlives the call.
    unsafe { bpf(RAW_TRACEPOINT_OPEN, &to) }
}

/// Attaches a program to an interface until the returned descriptor is closed or the interface is removed.
pub(crate) fn attach_interface(
    program: BorrowedFd<'_>,
    interface: u32,
    ingress: bool,
) -> io::Result<OwnedFd> {
    let to = InterfaceLink {
        program: program.as_raw_fd() as u32,
        interface,
        kind: if ingress { TCX_INGRESS } else { TCX_EGRESS },
        ..InterfaceLink::default()
    };
    // SAFETY: the attributes have no addresses.
    unsafe { bpf(LINK_CREATE, &to) }
}

/// `struct perf_event_attr` in its first published size, which every kernel accepts.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct EventAttributes {
    /// `type`.
    pub kind: u32,
    /// The size of this structure, which [`open_event`] fills in.
    pub size: u32,
    /// The event among those of its type.
    pub config: u64,
    /// The number of events from one sample to the next.
    pub sample_period: u64,
    /// The content of samples.
    pub sample_type: u64,
    /// The values that a read returns.
    pub read_format: u64,
    /// The bits after `read_format`, from `disabled` on.
    pub flags: u64,
    /// The number of samples that wake a reader.
    pub wakeup_events: u32,
    /// The kind of a breakpoint.
    pub breakpoint_type: u32,
    /// Its address.
    pub breakpoint_address: u64,
}

/// The processes and processors whose events count.
#[derive(Clone, Copy, Debug)]
pub enum EventsOf {
    /// One process, on each processor.
    Process(i32),
    /// Each process, on one processor.
    Processor(i32),
}

/// Opens an event of the kernel (`perf_event_open(2)`).
///
/// # Errors
/// The kernel does not know the event, or this user may not count it.
pub fn open_event(attributes: EventAttributes, of: EventsOf) -> io::Result<OwnedFd> {
    let attributes = EventAttributes { size: size_of::<EventAttributes>() as u32, ..attributes };
    let (process, processor) = match of {
        EventsOf::Process(process) => (process, -1),
        EventsOf::Processor(processor) => (-1, processor),
    };
    let alone = -1;
    // SAFETY: the attributes have the stated size and outlive the call; the new descriptor has no other owner.
    unsafe {
        let event = &raw const attributes;
        let (call, close) = (libc::SYS_perf_event_open, CLOSE_ON_EXEC);
        let opened = libc::syscall(call, event, process, processor, alone, close);
        if opened < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(opened as c_int))
    }
}

/// Attaches a program to the tracepoint with this number until the returned descriptor is closed.
pub(crate) fn attach_event(program: BorrowedFd<'_>, id: u64) -> io::Result<OwnedFd> {
    let (kind, config) = (TYPE_TRACEPOINT, id);
    let attributes =
        EventAttributes { kind, config, sample_period: 1, wakeup_events: 1, ..Default::default() };
    // Its program is called for events on other processors too.
    let opened = open_event(attributes, EventsOf::Processor(0))?;
    // SAFETY: the requests take integers.
    let attached = unsafe {
        libc::ioctl(opened.as_raw_fd(), SET_BPF, program.as_raw_fd()) >= 0
            && libc::ioctl(opened.as_raw_fd(), ENABLE, 0) >= 0
    };
    if attached { Ok(opened) } else { Err(io::Error::last_os_error()) }
}

/// Calls `bpf`.
///
/// # Safety
/// All addresses in the attributes that the command reads or writes must be valid.
unsafe fn bpf<T>(command: c_int, attributes: &T) -> io::Result<OwnedFd> {
    let bytes = size_of::<T>() as u32;
    // SAFETY: the attributes have the stated size; the caller keeps what they point to. These
    // commands make a new descriptor that has no other owner.
    unsafe {
        let descriptor = libc::syscall(libc::SYS_bpf, command, ptr::from_ref(attributes), bytes);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(descriptor as c_int))
    }
}

/// An immutable file of the kernel, mapped into memory.
pub(crate) struct MappedFile {
    begin: NonNull<u8>,
    bytes: usize,
}

impl MappedFile {
    /// Maps a file.
    ///
    /// # Errors
    /// The file does not exist or cannot be mapped.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        // SAFETY: a new read-only mapping of a file that is part of the kernel's image, so that it
        // neither changes nor becomes shorter.
        let begin = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        if begin == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let begin = NonNull::new(begin.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { begin, bytes })
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: it is mapped as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.begin.as_ptr(), self.bytes) }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no reference to it is left.
        unsafe { libc::munmap(self.begin.as_ptr().cast(), self.bytes) };
    }
}

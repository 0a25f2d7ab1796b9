//! `bpf` and `perf_event_open`, which the C library does not wrap: loads programs and attaches them to
//! tracepoints and interfaces. Maps files and maps of the kernel into memory.

use std::ffi::{CStr, c_int};
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU32;

use aya_obj::generated::bpf_insn;

const PROG_LOAD: c_int = 5;
const RAW_TRACEPOINT_OPEN: c_int = 17;
const LINK_CREATE: c_int = 28;

/// Kinds of attachment to an interface: the programs of an interface in their order (`tcx`).
const TCX_INGRESS: u32 = 46;
const TCX_EGRESS: u32 = 47;

/// The kind of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Classifier,
    Tracepoint,
    RawTracepoint,
    TypedTracepoint {
        /// The number of the tracepoint's type in the types of the kernel.
        of: u32,
    },
}

impl Kind {
    /// Returns the type of the program, the type of its attachment and the type that it is attached to.
    fn numbers(self) -> (u32, u32, u32) {
        match self {
            Self::Classifier => (3, 0, 0),
            Self::Tracepoint => (5, 0, 0),
            Self::RawTracepoint => (17, 0, 0),
            Self::TypedTracepoint { of } => (26, TRACE_RAW, of),
        }
    }
}

/// The attachment of a typed tracepoint.
const TRACE_RAW: u32 = 23;

/// A type of `perf_event_attr`.
const TYPE_TRACEPOINT: u32 = 2;
/// A flag of `perf_event_open`.
const CLOSE_ON_EXEC: libc::c_ulong = 8;
/// Requests of `ioctl` on an event: attach a program, and begin.
const SET_BPF: libc::c_ulong = 0x4004_2408;
const ENABLE: libc::c_ulong = 0x2400;

/// The most bytes of the verifier's log. The end of a longer log is left out.
const LOG_BYTES: usize = 1 << 20;

/// The head of `union bpf_attr` for a program, up to the type that it is attached to. The kernel takes missing fields as
/// zero, and a kernel that is older than a field takes the field if it is zero.
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
    interface: u32,
    attachment: u32,
    types: u32,
    function_bytes: u32,
    functions: u64,
    functions_count: u32,
    line_bytes: u32,
    lines: u64,
    lines_count: u32,
    attached_to: u32,
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
    let (kind, attachment, attached_to) = kind.numbers();
    let mut program = Program {
        kind,
        attachment,
        attached_to,
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

/// Attaches a program to a tracepoint until the returned descriptor is closed. A typed program is loaded for its
/// tracepoint and needs no name.
pub(crate) fn attach(program: BorrowedFd<'_>, tracepoint: Option<&CStr>) -> io::Result<OwnedFd> {
    let to = Tracepoint {
        name: tracepoint.map_or(0, |name| name.as_ptr() as u64),
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

/// The file of the kernel's types: mapped into memory, or a copy of it before Linux 6.16, which cannot map it.
pub(crate) enum KernelTypes {
    Mapped(Mapping),
    Copied(Vec<u8>),
}

impl KernelTypes {
    /// Opens the file.
    ///
    /// # Errors
    /// The file does not exist or cannot be read.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        // The file is part of the kernel's image, so that it neither changes nor becomes shorter.
        match Mapping::of(file.as_fd(), bytes, libc::PROT_READ, libc::MAP_PRIVATE) {
            Ok(mapping) => Ok(Self::Mapped(mapping)),
            Err(_) => std::fs::read(path).map(Self::Copied),
        }
    }
}

impl Deref for KernelTypes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            // SAFETY: it is mapped as long as `self` lives, and nothing writes to it.
            Self::Mapped(mapping) => unsafe {
                std::slice::from_raw_parts(mapping.begin.as_ptr(), mapping.bytes)
            },
            Self::Copied(bytes) => bytes,
        }
    }
}

/// A range of memory that shows a file.
#[derive(Debug)]
pub(crate) struct Mapping {
    begin: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the range belongs to the process and not to a thread, and its users access it by shared reads or by atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn of(file: BorrowedFd<'_>, bytes: usize, access: c_int, flags: c_int) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses.
        let begin =
            unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, file.as_raw_fd(), 0) };
        if begin == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let begin = NonNull::new(begin.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { begin, bytes })
    }

    /// Maps the values of a BPF map, which are this many bytes.
    ///
    /// # Errors
    /// The map was made without `BPF_F_MMAPABLE`, or is shorter.
    pub(crate) fn of_map(map: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        Self::of(map, bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED)
    }

    /// Returns the words of a mapped BPF map.
    pub(crate) fn words(&self) -> &[AtomicU32] {
        let count = self.bytes / size_of::<AtomicU32>();
        // SAFETY: it is mapped for reading and writing as long as `self` lives, it begins at a page, and the kernel and
        // this process change it only by whole words.
        unsafe { std::slice::from_raw_parts(self.begin.as_ptr().cast(), count) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no reference to it is left.
        unsafe { libc::munmap(self.begin.as_ptr().cast(), self.bytes) };
    }
}

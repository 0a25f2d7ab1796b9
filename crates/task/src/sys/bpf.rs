//! `bpf`, which the C library does not wrap: programs are loaded and put on tracepoints. And files of the
//! kernel in memory, as they are.

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

const RAW_TRACEPOINT: u32 = 17;

/// What the kernel may say of a program that it refuses. Of more the last is left out.
const LOG_BYTES: usize = 1 << 20;

/// The head of `union bpf_attr` for a program, as it was when programs got names; the kernel takes what is
/// not given for zero.
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

/// The same for a tracepoint.
#[repr(C)]
#[derive(Default)]
struct Tracepoint {
    name: u64,
    program: u32,
    unused: u32,
}

/// Loads a program for a tracepoint.
///
/// # Errors
/// The kernel's answer, and the last thing that it said of the program.
pub(crate) fn load(
    name: &str,
    instructions: &[bpf_insn],
    license: &CStr,
) -> Result<OwnedFd, (io::Error, String)> {
    let mut program = Program {
        kind: RAW_TRACEPOINT,
        instructions_count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        ..Program::default()
    };
    // The last byte stays zero.
    let most = program.name.len() - 1;
    program.name.iter_mut().take(most).zip(name.bytes()).for_each(|(to, from)| *to = from);
    // SAFETY: instructions and license live through the call, which reads as many as it is told.
    let first = unsafe { bpf(PROG_LOAD, &program) };
    first.or_else(|e| {
        // To be told why takes longer, so that is asked for when there is something to tell.
        let mut log = vec![0; LOG_BYTES];
        program.log_level = 1;
        program.log_bytes = log.len() as u32;
        program.log = log.as_mut_ptr() as u64;
        // SAFETY: as above, and the log has as many bytes as it says.
        unsafe { bpf(PROG_LOAD, &program) }.map_err(|_| (e, last_said(&log)))
    })
}

/// The line before the sums.
fn last_said(log: &[u8]) -> String {
    let text =
        CStr::from_bytes_until_nul(log).map_or_else(|_| Default::default(), CStr::to_string_lossy);
    let said = text.lines().rev().find(|line| !line.is_empty() && !line.starts_with("processed "));
    said.unwrap_or_default().to_owned()
}

/// Has a program run at a tracepoint for as long as the descriptor that this gives is open.
pub(crate) fn attach(program: BorrowedFd<'_>, tracepoint: &CStr) -> io::Result<OwnedFd> {
    let to = Tracepoint {
        name: tracepoint.as_ptr() as u64,
        program: program.as_raw_fd() as u32,
        unused: 0,
    };
    // SAFETY: the name lives through the call.
    unsafe { bpf(RAW_TRACEPOINT_OPEN, &to) }
}

/// # Safety
/// Whatever the command reads and writes by addresses in the attributes is there.
unsafe fn bpf<T>(command: c_int, attributes: &T) -> io::Result<OwnedFd> {
    let bytes = size_of::<T>() as u32;
    // SAFETY: the attributes are as large as it says; what they point to is the caller's to keep. These
    // commands make a new descriptor that nobody else owns.
    unsafe {
        let descriptor = libc::syscall(libc::SYS_bpf, command, ptr::from_ref(attributes), bytes);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(descriptor as c_int))
    }
}

/// A file of the kernel's in memory, which nobody changes.
pub(crate) struct MappedFile {
    begin: NonNull<u8>,
    bytes: usize,
}

impl MappedFile {
    /// # Errors
    /// There is no such file, or it is not for this.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        // SAFETY: a new mapping that is only read, of a file that is part of the kernel's image: it neither
        // changes nor becomes shorter.
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
        // SAFETY: it is mapped for as long as `self` is there.
        unsafe { std::slice::from_raw_parts(self.begin.as_ptr(), self.bytes) }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nobody has a reference to it any more.
        unsafe { libc::munmap(self.begin.as_ptr().cast(), self.bytes) };
    }
}

//! `seccomp` with a listener: a filter that suspends some system calls until the listener answers.
//! The C library does not wrap it.

use std::ffi::{c_int, c_void};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::pipe::{PipeFlags, pipe_with};

use super::pid::Pid;

/// One instruction of a filter: `struct sock_filter`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) code: u16,
    pub(crate) if_true: u8,
    pub(crate) if_false: u8,
    pub(crate) k: u32,
}

/// A filter that the child installs, and the socket through which it sends the listener.
#[derive(Debug)]
pub(crate) struct Filter {
    pub(crate) program: Vec<Instruction>,
    pub(crate) to_monitor: OwnedFd,
}

/// A system call that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingCall {
    id: u64,
    /// The thread that makes the call.
    pub(crate) thread: Pid,
    pub(crate) call: i64,
    pub(crate) arguments: [u64; 6],
}

/// The descriptor through which the kernel announces suspended calls.
#[derive(Debug)]
pub(crate) struct Listener {
    descriptor: OwnedFd,
    last: LastCall,
}

/// The call that was received last, in memory that is shared with the guardian. If a process
/// receives a call and dies before it answers, the kernel does not announce that call again. Calls
/// are numbered consecutively, so the lost call is this one or one soon after it.
#[derive(Debug)]
struct LastCall(NonNull<AtomicU64>);

// SAFETY: the atomic word is in a mapping of its own, which lives until this value is dropped.
unsafe impl Send for LastCall {}

/// Number of calls from the last received one on that may include a lost call. Calls in between are
/// those that signals interrupted before they were received.
const AHEAD: u64 = 1024;

/// `_IOWR('!', 0, struct seccomp_notif)`, `_IOWR('!', 1, struct seccomp_notif_resp)` and
/// `_IOW('!', 4, u64)`.
const RECEIVE: u64 = 0xc050_2100;
const SEND: u64 = 0xc018_2101;
const SET_FLAGS: u64 = 0x4008_2104;

/// The listener runs on the processor of the caller, which waits anyway.
const SYNC_WAKE_UP: u64 = 1;

/// The most time that the child takes to send the listener. It only installs a filter before; the
/// bound ends the wait for a child that died.
const LISTENER_TIME: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Installs a filter in this process for good. May be called after a fork.
fn install(program: &[Instruction]) -> Result<RawFd, c_int> {
    let whole = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr() as *mut _ };
    // Without the second flag old kernels slow the task down to mitigate attacks, which is not the
    // purpose of this filter. With the third flag a signal does not interrupt a call between its
    // receipt and its answer.
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER
        | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW
        | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let set = || {
        // SAFETY: `whole` points to the stated number of instructions, in the layout of
        // `sock_filter`.
        let made = unsafe {
            let mode = libc::SECCOMP_SET_MODE_FILTER;
            libc::syscall(libc::SYS_seccomp, mode, flags, &raw const whole)
        };
        // SAFETY: reads this thread's own error number.
        if made < 0 { Err(unsafe { *libc::__errno_location() }) } else { Ok(made as RawFd) }
    };
    match set() {
        // Only administrators may install a filter without this promise.
        Err(libc::EACCES) => {
            // SAFETY: sets a flag of this process.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            set()
        }
        other => other,
    }
}

/// Installs the filter in the child before exec, and sends the listener, or the error. The listener
/// stays open until exec: `close` is one of the calls that nothing answers yet.
pub(super) fn install_and_send(filter: &Filter) {
    let made = install(&filter.program);
    let code = made.err().unwrap_or(0).to_ne_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    // SAFETY: the descriptor belongs to this process and stays open.
    let listener = made.ok().map(|fd| [unsafe { BorrowedFd::borrow_raw(fd) }]);
    if let Some(listener) = &listener {
        ancillary.push(SendAncillaryMessage::ScmRights(listener));
    }
    // Fails only if the monitor is gone, and with it the measurement.
    let _ = sendmsg(&filter.to_monitor, &[IoSlice::new(&code)], &mut ancillary, SendFlags::empty());
}

/// Checks on a child, which is then killed, whether such a filter can be installed in a traced
/// process.
///
/// # Errors
/// The reason why not.
pub(crate) fn try_on_a_child(program: &[Instruction]) -> io::Result<()> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: asks for the id of this process.
    let parent = unsafe { libc::getpid() };
    // SAFETY: the child makes only calls that are allowed after a fork, and does not return.
    let pid = unsafe {
        match libc::fork() {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                super::pid::die_with(parent);
                let code = install(program).err().unwrap_or(0);
                let from = (&raw const code).cast::<c_void>();
                libc::write(writer.as_raw_fd(), from, size_of::<c_int>());
                loop {
                    libc::pause();
                }
            }
            pid => pid,
        }
    };
    drop(writer);
    let mut code = [0; 4];
    let read = rustix::io::read(&reader, &mut code);
    // SAFETY: the first two calls touch no memory, the third takes no status.
    let traced = unsafe {
        let none = ptr::null_mut::<c_void>();
        let traced = match libc::ptrace(libc::PTRACE_SEIZE, pid, none, none) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, ptr::null_mut(), libc::__WALL);
        traced
    };
    match (read?, i32::from_ne_bytes(code)) {
        (4, 0) => traced.map_err(|e| io::Error::new(e.kind(), format!("it needs ptrace: {e}"))),
        (4, code) => Err(why(code)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Converts an error number to the reason why no filter was installed.
fn why(code: c_int) -> io::Error {
    let text = match code {
        libc::EBUSY => "another listener receives the system calls of this process already",
        libc::EINVAL | libc::ENOSYS => "the kernel is older than 5.19 or lacks seccomp filters",
        libc::EPERM | libc::EACCES => "this user may not install a seccomp filter here",
        _ => return io::Error::from_raw_os_error(code),
    };
    io::Error::other(text)
}

impl Listener {
    /// Receives the listener that the child sends.
    ///
    /// # Errors
    /// The child could not install the filter; the text has the reason.
    pub(crate) fn from_child(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
        if poll(&mut fds, Some(&LISTENER_TIME))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut code = [0; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut code)];
        recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let sent = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut sent) => sent.next(),
            _ => None,
        });
        let descriptor = sent.ok_or_else(|| why(i32::from_ne_bytes(code)))?;
        // SAFETY: takes a number. A kernel that does not know this flag is slower.
        unsafe { libc::ioctl(descriptor.as_raw_fd(), SET_FLAGS as _, SYNC_WAKE_UP) };
        Ok(Self { descriptor, last: LastCall::new()? })
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Waits for the next call and receives it.
    ///
    /// # Errors
    /// The thread that made it is gone.
    pub(crate) fn next(&self) -> io::Result<PendingCall> {
        let notification = next(self.descriptor.as_raw_fd(), &self.last)?;
        let (thread, call) = (notification.pid.cast_signed(), i64::from(notification.data.nr));
        Ok(PendingCall { id: notification.id, thread, call, arguments: notification.data.args })
    }

    /// Lets a call proceed.
    ///
    /// # Errors
    /// The thread was killed or interrupted; in the latter case it makes the call again.
    pub(crate) fn go_on(&self, call: &PendingCall) -> io::Result<()> {
        go_on(self.descriptor.as_raw_fd(), call.id)
    }

    /// Lets the call that was received last proceed, if it has no answer yet.
    pub(crate) fn go_on_with_last(&self) {
        let _ = go_on(self.descriptor.as_raw_fd(), self.last.word().load(Ordering::Relaxed));
    }
}

impl LastCall {
    fn new() -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, which nothing else refers to.
        let place =
            unsafe { libc::mmap(ptr::null_mut(), size_of::<AtomicU64>(), access, kind, -1, 0) };
        match NonNull::new(place.cast()) {
            Some(word) if place != libc::MAP_FAILED => Ok(Self(word)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: mapped until this value is dropped, aligned to a page, and all bits are a value
        // of it.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for LastCall {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and no reference to it is left.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<AtomicU64>()) };
    }
}

/// Receives a call. Allocates nothing, because the guardian uses it too.
fn next(listener: RawFd, last: &LastCall) -> io::Result<libc::seccomp_notif> {
    // SAFETY: all zero is a value of it, and the value that the kernel expects.
    let mut notification: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the request encodes the size of the structure, which the kernel does not exceed.
    if unsafe { libc::ioctl(listener, RECEIVE as _, &raw mut notification) } < 0 {
        return Err(io::Error::last_os_error());
    }
    last.word().store(notification.id, Ordering::Relaxed);
    Ok(notification)
}

fn go_on(listener: RawFd, id: u64) -> io::Result<()> {
    let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    let mut answer = libc::seccomp_notif_resp { id, val: 0, error: 0, flags };
    // SAFETY: as in `next`.
    let done = unsafe { libc::ioctl(listener, SEND as _, &raw mut answer) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Starts the guardian: a process that answers every call once the other end of `alive` is closed,
/// and exits with the last process under the filter. Its parent is init, so it is not a process of
/// the task, and no process waits for it or for its descriptors.
pub(crate) fn start_guardian(listener: &Listener, alive: BorrowedFd<'_>) -> io::Result<()> {
    let (last, alive) = (&listener.last, alive.as_raw_fd());
    let listener = listener.descriptor.as_raw_fd();
    // SAFETY: the children make only calls that are allowed after a fork and do not return; the
    // flag that is cleared and set again belongs to this process, which has no orphan yet.
    unsafe {
        let mut adopts: c_int = 0;
        libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut adopts);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
        let pid = libc::fork();
        if pid == 0 {
            match libc::fork() {
                0 => guard(listener, last, alive),
                -1 => libc::_exit(1),
                _ => libc::_exit(0),
            }
        }
        let e = io::Error::last_os_error();
        let mut status = 0;
        if pid > 0 {
            libc::waitpid(pid, &raw mut status, 0);
        }
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, adopts, 0, 0, 0);
        match (pid, status) {
            (-1, _) => Err(e),
            (_, 0) => Ok(()),
            _ => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
        }
    }
}

fn guard(listener: RawFd, last: &LastCall, alive: RawFd) -> ! {
    // SAFETY: raw system calls of a process that has only this thread; nothing is allocated.
    unsafe {
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        libc::prctl(libc::PR_SET_NAME, c"skopos-guardian".as_ptr());
        // A signal to the whole job is meant for the task, which may take its time.
        let mut all = MaybeUninit::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), ptr::null_mut());
        let (low, high) = (listener.min(alive) as u32, listener.max(alive) as u32);
        for (first, last) in [(0, low.wrapping_sub(1)), (low + 1, high - 1), (high + 1, u32::MAX)] {
            // The range before the first descriptor or between two neighbours may be empty.
            if first <= last && last.wrapping_add(1) != first {
                libc::syscall(libc::SYS_close_range, first, last, 0);
            }
        }
        let mut end = libc::pollfd { fd: alive, events: 0, revents: 0 };
        while end.revents == 0 {
            libc::poll(&raw mut end, 1, -1);
        }
        let taken = last.word().load(Ordering::Relaxed);
        // Without a call that was received, the child's first one is announced here. The child has the listener until
        // its exec, so that call would not fail by itself.
        if taken != 0 {
            for n in 0..AHEAD {
                let _ = go_on(listener, taken.wrapping_add(n));
            }
        }
        let mut calls = libc::pollfd { fd: listener, events: libc::POLLIN, revents: 0 };
        loop {
            libc::poll(&raw mut calls, 1, -1);
            if calls.revents & libc::POLLIN != 0 {
                if let Ok(notification) = next(listener, last) {
                    let _ = go_on(listener, notification.id);
                }
            } else if calls.revents != 0 {
                libc::_exit(0);
            }
        }
    }
}

/// True if two descriptors refer to one open file description; `None` if the kernel does not allow
/// the question.
pub(crate) fn is_same_file(one: (Pid, RawFd), other: (Pid, RawFd)) -> Option<bool> {
    const KCMP_FILE: c_int = 0;
    // SAFETY: touches no memory.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, one.0, other.0, KCMP_FILE, one.1, other.1) };
    (order >= 0).then_some(order == 0)
}

/// Restarts an interrupted call in a thread that stopped for a signal: a call that was waiting for
/// its answer is made again after the signal handler, even if the handler was not installed with
/// SA_RESTART. Otherwise `close` and others would fail with EINTR, which programs do not expect of
/// them. `is_filtered` tells from a call's number and second argument whether the filter suspends
/// it.
#[cfg(target_arch = "x86_64")]
pub(crate) fn restart(thread: Pid, is_filtered: impl Fn(i64, u64) -> bool) {
    /// ERESTARTSYS and ERESTARTNOINTR of the kernel, which programs never see.
    const INTERRUPTED: i64 = -512;
    const RESTARTED: i64 = -513;
    let peek = |register: c_int| {
        let at = (register as usize * size_of::<u64>()) as *mut c_void;
        // SAFETY: reads a register of a stopped thread and none of our memory.
        unsafe { libc::ptrace(libc::PTRACE_PEEKUSER, thread, at, ptr::null_mut::<c_void>()) }
    };
    if peek(libc::RAX) == INTERRUPTED
        && is_filtered(peek(libc::ORIG_RAX), peek(libc::RSI).cast_unsigned())
    {
        let at = (libc::RAX as usize * size_of::<u64>()) as *mut c_void;
        // SAFETY: writes a register of a stopped thread.
        unsafe { libc::ptrace(libc::PTRACE_POKEUSER, thread, at, RESTARTED as *mut c_void) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn restart(_thread: Pid, _is_filtered: impl Fn(i64, u64) -> bool) {}

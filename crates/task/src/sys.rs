//! The system calls that have no safe wrapper: fork, ptrace, waitid; in files of their own those that
//! one mechanism uses.

pub(crate) mod bpf;
pub(crate) mod fanotify;
mod groups;
pub(crate) mod netlink;
pub(crate) mod nvml;
pub(crate) mod perf;
pub(crate) mod seccomp;
pub(crate) mod sockets;
pub(crate) mod started;

use std::ffi::{CString, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

/// A process id.
pub(crate) type Pid = libc::pid_t;

/// What the child does between fork and exec. Everything is made before, because a child of a
/// process with threads may not allocate.
pub(crate) struct Child<'a> {
    pub(crate) program: &'a CString,
    pub(crate) arguments: &'a [CString],
    pub(crate) environment: &'a [CString],
    /// The filter that it puts itself under.
    pub(crate) filter: Option<&'a seccomp::Filter>,
    /// The control group of version 2 in which it is made, if that may be.
    pub(crate) group: Option<BorrowedFd<'a>>,
    /// The files by which it puts itself into control groups, and what it closes once it has.
    pub(crate) groups: Option<(&'a [CString], BorrowedFd<'a>)>,
    /// The signals that were blocked before the monitor blocked its own.
    pub(crate) mask: &'a libc::sigset_t,
    /// The child goes on once this is closed or written to.
    pub(crate) gate: BorrowedFd<'a>,
    /// Where it writes the error number if it cannot become the program.
    pub(crate) failed: BorrowedFd<'a>,
}

/// Forks a child that waits at its gate and then becomes the program.
pub(crate) fn spawn(child: &Child<'_>) -> io::Result<Pid> {
    let vector = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
    };
    let (arguments, environment) = (vector(child.arguments), vector(child.environment));
    // SAFETY: the child calls only what may be called after a fork, on memory made before.
    match unsafe {
        child.group.and_then(|group| groups::fork_into(group)).unwrap_or_else(|| libc::fork())
    } {
        -1 => Err(io::Error::last_os_error()),
        0 => become_program(child, &arguments, &environment),
        pid => Ok(pid),
    }
}

fn become_program(
    child: &Child<'_>,
    arguments: &[*const libc::c_char],
    environment: &[*const libc::c_char],
) -> ! {
    // SAFETY: raw system calls on descriptors and strings that were made before the fork and live
    // as long as this process image; nothing is allocated, and what is changed is this process's own.
    unsafe {
        if let Some((groups, ready)) = child.groups {
            groups::join(groups);
            libc::close(ready.as_raw_fd());
        }
        if let Some(filter) = child.filter {
            seccomp::put_under(filter);
        }
        // Nothing is read, so that no byte counts as the task's.
        let mut gate =
            libc::pollfd { fd: child.gate.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        while libc::poll(&raw mut gate, 1, -1) < 0 && *libc::__errno_location() == libc::EINTR {}
        started::restore();
        libc::sigprocmask(libc::SIG_SETMASK, child.mask, ptr::null_mut());
        libc::execvpe(child.program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
        let code = *libc::__errno_location();
        libc::write(
            child.failed.as_raw_fd(),
            (&raw const code).cast::<c_void>(),
            size_of::<c_int>(),
        );
        libc::_exit(127)
    }
}

/// Becomes a program, started as this process was. Why it cannot.
pub(crate) fn become_unwatched(arguments: &[CString]) -> io::Error {
    let vector: Vec<_> = arguments.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect();
    // SAFETY: the strings end with zero and outlive the call, and so does the list of them, which ends
    // with none; the mask is one that this process had.
    unsafe {
        started::restore();
        if let Some(mask) = BEFORE.get() {
            libc::sigprocmask(libc::SIG_SETMASK, mask, ptr::null_mut());
        }
        libc::execvp(vector[0], vector.as_ptr());
    }
    io::Error::last_os_error()
}

/// Something that happened to a child or to a traced thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A thread ended; the last of a process stands for it. It is not reaped yet.
    Ended { pid: Pid, status: Status },
    /// A traced thread stopped: the signal, and the event of ptrace or 0.
    Stopped { pid: Pid, signal: c_int, event: c_int },
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Exited(i32),
    Signalled(i32),
}

/// The next thing that happened, without taking the dead away; `None` if there is nothing now.
pub(crate) fn next_event() -> io::Result<Option<Event>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::WEXITED | libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: `info` is as large as the call wants, and all zero is a value of it.
    let info = unsafe {
        if libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), flags) < 0 {
            let e = io::Error::last_os_error();
            return if e.raw_os_error() == Some(libc::ECHILD) { Ok(None) } else { Err(e) };
        }
        info.assume_init()
    };
    // SAFETY: after waitid these fields are the ones that are set.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    Ok(Some(match info.si_code {
        libc::CLD_EXITED => Event::Ended { pid, status: Status::Exited(status) },
        libc::CLD_KILLED | libc::CLD_DUMPED => {
            Event::Ended { pid, status: Status::Signalled(status & 0x7f) }
        }
        _ => {
            take_stop(pid)?;
            Event::Stopped { pid, signal: status & 0x7f, event: status >> 8 }
        }
    }))
}

/// Takes the report of a stop away, so that the next one shows.
fn take_stop(pid: Pid) -> io::Result<()> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::WSTOPPED | libc::WNOHANG | libc::__WALL;
    // SAFETY: as in `next_event`.
    let done = unsafe { libc::waitid(libc::P_PID, pid.unsigned_abs(), info.as_mut_ptr(), flags) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What the kernel counted for a process and all that it waited for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    pub(crate) voluntary_switches: u64,
    pub(crate) involuntary_switches: u64,
}

/// Takes a dead one away. `None` if somebody else did.
pub(crate) fn reap(pid: Pid) -> Option<Usage> {
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: both places are as large as the call wants; all zero is a value of either.
    let usage = unsafe {
        if libc::wait4(pid, &raw mut status, libc::__WALL | libc::WNOHANG, usage.as_mut_ptr())
            != pid
        {
            return None;
        }
        usage.assume_init()
    };
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec.unsigned_abs())
            + Duration::from_micros(t.tv_usec.unsigned_abs())
    };
    Some(Usage {
        user: time(usage.ru_utime),
        system: time(usage.ru_stime),
        minor_faults: usage.ru_minflt.unsigned_abs(),
        major_faults: usage.ru_majflt.unsigned_abs(),
        voluntary_switches: usage.ru_nvcsw.unsigned_abs(),
        involuntary_switches: usage.ru_nivcsw.unsigned_abs(),
    })
}

/// What this process itself has used: processor time and the peak of its memory.
pub(crate) fn own_usage() -> (Duration, u64) {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: as in `reap`; asking about oneself cannot fail.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec.unsigned_abs())
            + Duration::from_micros(t.tv_usec.unsigned_abs())
    };
    (time(usage.ru_utime) + time(usage.ru_stime), usage.ru_maxrss.unsigned_abs() * 1024)
}

/// Begins to trace a thread and all that it will start. If the tracer dies they run on untraced.
pub(crate) fn seize(pid: Pid) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACEEXIT;
    // SAFETY: the call reads and writes no memory of ours.
    ptrace(unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, options) })
}

/// Lets a stopped thread go on, with this signal or none.
pub(crate) fn go_on(pid: Pid, signal: c_int) -> io::Result<()> {
    // SAFETY: as in `seize`.
    ptrace(unsafe { libc::ptrace(libc::PTRACE_CONT, pid, 0, signal) })
}

/// Leaves a thread in the stop that a signal like SIGTSTP brought, until it is continued.
pub(crate) fn stay_stopped(pid: Pid) -> io::Result<()> {
    // SAFETY: as in `seize`.
    ptrace(unsafe { libc::ptrace(libc::PTRACE_LISTEN, pid, 0, 0) })
}

/// What the kernel has to say about the event of a stop: the new thread, or the status at exit.
pub(crate) fn event_message(pid: Pid) -> io::Result<u64> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: the kernel writes one `unsigned long` there.
    ptrace(unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, pid, 0, &raw mut message) })?;
    Ok(message)
}

fn ptrace(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Orphans of the task come to this process, so that they are seen and reaped.
pub(crate) fn adopt_orphans() {
    // SAFETY: sets a flag of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// What was blocked before any task of this process.
static BEFORE: OnceLock<libc::sigset_t> = OnceLock::new();

/// Signals of this process as a readable descriptor.
pub(crate) struct Signals {
    descriptor: OwnedFd,
    /// What was blocked before.
    pub(crate) before: libc::sigset_t,
}

/// A signal that came, and whether the terminal sent it to the whole group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Came {
    pub(crate) signal: c_int,
    pub(crate) from_terminal: bool,
}

impl Signals {
    /// More kinds than are ever blocked here.
    const KINDS: usize = 16;

    /// Blocks these signals and reads them from a descriptor from now on.
    pub(crate) fn new(signals: &[c_int]) -> io::Result<Self> {
        // SAFETY: the sets outlive the calls and are made by `sigemptyset`.
        unsafe {
            let (mut set, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigemptyset(before.as_mut_ptr());
            let mut set = set.assume_init();
            for signal in signals {
                libc::sigaddset(&raw mut set, *signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, before.as_mut_ptr()) < 0 {
                return Err(io::Error::last_os_error());
            }
            let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
            // Nothing unblocks them again: of a second task the mask is that of the first.
            let before = *BEFORE.get_or_init(|| before.assume_init());
            let descriptor = libc::signalfd(-1, &raw const set, flags);
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            let descriptor = OwnedFd::from_raw_fd(descriptor);
            Ok(Self { descriptor, before })
        }
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd as _;
        self.descriptor.as_fd()
    }

    /// The signals that came, at most as many as can wait: of each kind there is one.
    pub(crate) fn take(&self) -> impl Iterator<Item = Came> + use<> {
        let mut infos = MaybeUninit::<[libc::signalfd_siginfo; Self::KINDS]>::zeroed();
        let size = size_of_val(&infos);
        // SAFETY: the place is of the size that is told, and all zero is a value of it.
        let (bytes, infos) = unsafe {
            let bytes = libc::read(self.descriptor.as_raw_fd(), infos.as_mut_ptr().cast(), size);
            (bytes, infos.assume_init())
        };
        let count = usize::try_from(bytes).unwrap_or(0) / size_of::<libc::signalfd_siginfo>();
        infos.into_iter().take(count).map(|info| Came {
            signal: info.ssi_signo as c_int,
            from_terminal: info.ssi_code == libc::SI_KERNEL,
        })
    }
}

/// Sends a signal; false if there is no such process.
pub(crate) fn kill(pid: Pid, signal: c_int) -> bool {
    // SAFETY: touches no memory.
    unsafe { libc::kill(pid, signal) == 0 }
}

/// Puts another group of this session in front of its terminal. Only who is in front itself may.
pub(crate) fn give_terminal(group: Pid) {
    let Ok(terminal) = std::fs::File::open("/dev/tty") else { return };
    // SAFETY: touches no memory.
    unsafe { libc::tcsetpgrp(terminal.as_raw_fd(), group) };
}

/// Ends this process as `signal` would, so that whoever waits for it sees what happened to the task.
pub fn die_of(signal: c_int) {
    // SAFETY: sets handlers and the mask of this process, which is about to end.
    unsafe {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::signal(signal, libc::SIG_DFL);
        let mut set = MaybeUninit::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        let mut set = set.assume_init();
        libc::sigaddset(&raw mut set, signal);
        libc::raise(signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
    }
}

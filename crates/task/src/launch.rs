//! Starts the task: it waits at a gate until everything that measures it is in place, and then
//! becomes the program, with the streams, group, terminal, environment and signals of the monitor.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

use crate::mechanism::Launch;
use crate::monitor::Failed;
use crate::sys::{self, Child, Pid, Signals};

/// A child that waits at its gate.
pub(crate) struct Waiting {
    pub(crate) pid: Pid,
    gate: File,
    failed: File,
}

/// What a child is started with. It is made before what measures the task takes descriptors: where there
/// are few, a task runs that is measured by less.
pub(crate) struct Pipes {
    gate: (OwnedFd, OwnedFd),
    failed: (OwnedFd, OwnedFd),
    /// Kept free for the child, and for what is opened once it is there.
    spare: Vec<OwnedFd>,
}

impl Pipes {
    /// A listener, two pipes, a handle of a process, and files of `/proc` one after the other.
    const SPARE: usize = 8;

    /// # Errors
    /// There are not even descriptors to start a child.
    pub(crate) fn new() -> io::Result<Self> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC);
        let (gate, failed) = (pipe()?, pipe()?);
        let spare = (0..Self::SPARE).map_while(|_| gate.0.try_clone().ok()).collect();
        Ok(Self { gate, failed, spare })
    }
}

/// Forks.
///
/// # Errors
/// There are no more processes; an argument has a zero byte in it.
pub(crate) fn start(
    command: &[OsString],
    launch: &Launch,
    signals: &Signals,
    pipes: Pipes,
) -> Result<Waiting, Failed> {
    let arguments = command.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let program = arguments.first().ok_or(Failed::Empty)?;
    let added = || launch.environment.iter().cloned();
    let is_kept = |name: &OsString| !launch.environment.iter().any(|(other, _)| other == name);
    let kept = std::env::vars_os().filter(|(name, _)| is_kept(name));
    let environment = kept.chain(added()).map(|(name, value)| {
        let mut both = name.into_vec();
        both.push(b'=');
        both.extend(value.into_vec());
        text(&OsString::from_vec(both))
    });
    let environment = environment.collect::<Result<Vec<_>, _>>()?;
    let Pipes { gate: (gate_in, gate), failed: (failed, failed_in), spare } = pipes;
    drop(spare);
    // Where there is no descriptor for this, the child is put into its groups later, which takes longer.
    let ready = match launch.groups.is_empty() {
        true => None,
        false => pipe_with(PipeFlags::CLOEXEC).ok(),
    };
    let child = Child {
        program,
        arguments: &arguments,
        environment: &environment,
        filter: launch.filter.as_ref(),
        group: launch.group.as_ref().map(AsFd::as_fd),
        groups: ready.as_ref().map(|(_, end)| (launch.groups.as_slice(), end.as_fd())),
        mask: &signals.before,
        gate: gate_in.as_fd(),
        failed: failed_in.as_fd(),
    };
    let pid = sys::spawn(&child).map_err(Failed::Start)?;
    if let Some((ready, end)) = ready {
        drop(end);
        // Closed by the child, or by its end.
        let mut fds = [PollFd::new(&ready, PollFlags::IN)];
        while poll(&mut fds, None) == Err(rustix::io::Errno::INTR) {}
    }
    Ok(Waiting { pid, gate: gate.into(), failed: failed.into() })
}

/// For the C library.
fn text(text: &OsString) -> Result<CString, Failed> {
    let has_zero = |_| {
        let why = "an argument has a zero byte in it";
        Failed::Start(io::Error::new(io::ErrorKind::InvalidInput, why))
    };
    CString::new(text.as_bytes()).map_err(has_zero)
}

/// Becomes the program itself, which then runs as it would without a monitor. Returns only if it cannot.
pub fn unwatched(command: &[OsString]) -> Failed {
    let arguments = match command.iter().map(text).collect::<Result<Vec<_>, _>>() {
        Ok(arguments) if arguments.is_empty() => return Failed::Empty,
        Ok(arguments) => arguments,
        Err(failed) => return failed,
    };
    Failed::to_become(sys::become_unwatched(&arguments))
}

/// Has the kernel end each process of a task after so much processor time: the child that waits hands its
/// limits down.
///
/// # Errors
/// It does not.
pub(crate) fn limit_cpu(child: Pid, most: u64) -> io::Result<()> {
    let (child, resource) = (rustix::process::Pid::from_raw(child), Resource::Cpu);
    let now = getrlimit(resource);
    let current = Some(now.current.map_or(most, |current| current.min(most)));
    prlimit(child, resource, Rlimit { current, ..now })?;
    Ok(())
}

impl Waiting {
    /// Opens the gate, and waits until the child has become the program, could not, or something else
    /// happened to it: one that is killed before it is the program stops once more for its tracer, and
    /// keeps `failed` open until it is let go. Then [`Waiting::refused`] tells at the end. True if it
    /// is the program now.
    ///
    /// # Errors
    /// It could not become the program; it has ended, and is still to be reaped.
    pub(crate) fn go(&mut self, signals: &Signals) -> Result<bool, Failed> {
        // Nobody reads it any more if the child was killed at its gate: its end is told like any other.
        let _ = self.gate.write_all(&[1]);
        let mut fds = [
            PollFd::new(&self.failed, PollFlags::IN),
            PollFd::from_borrowed_fd(signals.descriptor(), PollFlags::IN),
        ];
        while let Err(e) = poll(&mut fds, None) {
            if e != rustix::io::Errno::INTR {
                return Err(Failed::Start(e.into()));
            }
        }
        let is_told = !fds[0].revents().is_empty();
        if is_told { self.refused().map(|()| true) } else { Ok(false) }
    }

    /// What kept it from becoming the program, if anything did and it is known by now.
    ///
    /// # Errors
    /// That.
    pub(crate) fn refused(&mut self) -> Result<(), Failed> {
        let mut code = [0; 4];
        match self.failed.read_exact(&mut code) {
            // Closed by the program that took its place, or by the end of the child.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(e) => Err(Failed::Start(e)),
            Ok(()) => {
                let e = io::Error::from_raw_os_error(i32::from_ne_bytes(code));
                Err(Failed::to_become(e))
            }
        }
    }
}

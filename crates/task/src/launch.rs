//! Starts the task: the child waits at a gate until all mechanisms are attached, and then becomes the
//! program, with the streams, group, terminal, environment and signals of the monitor.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

use crate::error::RunError;
use crate::mechanism::Launch;
use crate::sys::{self, Child, Pid, Signals};

/// A child that waits at its gate.
pub(crate) struct Waiting {
    pub(crate) pid: Pid,
    gate: File,
    exec_error: File,
}

/// The pipes between monitor and child. They are opened before the mechanisms take descriptors: if
/// descriptors are scarce, the task runs and is measured by fewer mechanisms.
pub(crate) struct Pipes {
    gate: (OwnedFd, OwnedFd),
    exec_error: (OwnedFd, OwnedFd),
    /// Descriptors that are released before the child starts, for the child and for files that are
    /// opened while it runs.
    spare: Vec<OwnedFd>,
}

impl Pipes {
    /// Enough for a listener, two pipes, a process handle, and one file of `/proc` at a time.
    const SPARE: usize = 8;

    /// Opens the pipes.
    ///
    /// # Errors
    /// There are too few descriptors to start a child.
    pub(crate) fn new() -> io::Result<Self> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC);
        let (gate, exec_error) = (pipe()?, pipe()?);
        let spare = (0..Self::SPARE).map_while(|_| gate.0.try_clone().ok()).collect();
        Ok(Self { gate, exec_error, spare })
    }
}

/// Forks the child, which waits at its gate.
///
/// # Errors
/// The limit on processes is reached, or an argument contains a zero byte.
pub(crate) fn start(
    command: &[OsString],
    launch: &Launch,
    signals: &Signals,
    pipes: Pipes,
) -> Result<Waiting, RunError> {
    let arguments = command.iter().map(c_string).collect::<Result<Vec<_>, _>>()?;
    let program = arguments.first().ok_or(RunError::Empty)?;
    let added = || launch.environment.iter().cloned();
    let is_kept = |name: &OsString| !launch.environment.iter().any(|(other, _)| other == name);
    let kept = std::env::vars_os().filter(|(name, _)| is_kept(name));
    let environment = kept.chain(added()).map(|(name, value)| {
        let mut both = name.into_vec();
        both.push(b'=');
        both.extend(value.into_vec());
        c_string(&OsString::from_vec(both))
    });
    let environment = environment.collect::<Result<Vec<_>, _>>()?;
    let Pipes { gate: (gate_in, gate), exec_error: (exec_error, exec_error_in), spare } = pipes;
    drop(spare);
    // If there is no descriptor for this pipe, the monitor puts the child into its groups later,
    // which takes longer.
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
        gate_end: gate.as_fd(),
        exec_error: exec_error_in.as_fd(),
    };
    let pid = sys::spawn(&child).map_err(RunError::Start)?;
    if let Some((ready, end)) = ready {
        drop(end);
        // The child closes its end once it is in the groups, or by exiting.
        let mut fds = [PollFd::new(&ready, PollFlags::IN)];
        while poll(&mut fds, None) == Err(rustix::io::Errno::INTR) {}
    }
    Ok(Waiting { pid, gate: gate.into(), exec_error: exec_error.into() })
}

/// Converts an argument for the C library.
fn c_string(text: &OsString) -> Result<CString, RunError> {
    let has_zero = |_| {
        let why = "an argument contains a zero byte";
        RunError::Start(io::Error::new(io::ErrorKind::InvalidInput, why))
    };
    CString::new(text.as_bytes()).map_err(has_zero)
}

/// Replaces this process by the program, which then runs without a monitor. Returns only on failure.
pub fn exec_unmonitored(command: &[OsString]) -> RunError {
    let arguments = match command.iter().map(c_string).collect::<Result<Vec<_>, _>>() {
        Ok(arguments) if arguments.is_empty() => return RunError::Empty,
        Ok(arguments) => arguments,
        Err(e) => return e,
    };
    RunError::of_exec(sys::exec_unmonitored(&arguments))
}

/// Makes the kernel end each process of the task after `most` seconds of processor time: the
/// processes inherit the limit of the child.
///
/// # Errors
/// The kernel refuses the limit.
pub(crate) fn limit_cpu(child: Pid, most: u64) -> io::Result<()> {
    let (child, resource) = (rustix::process::Pid::from_raw(child), Resource::Cpu);
    let now = getrlimit(resource);
    let current = Some(now.current.map_or(most, |current| current.min(most)));
    prlimit(child, resource, Rlimit { current, ..now })?;
    Ok(())
}

impl Waiting {
    /// Returns a child that this process only pretends to have, and its end of the pipe that exec closes.
    #[cfg(test)]
    pub(crate) fn pretended(pid: Pid) -> io::Result<(Self, OwnedFd)> {
        let (gate, _) = pipe_with(PipeFlags::CLOEXEC)?;
        let (exec_error, end) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok((Self { pid, gate: gate.into(), exec_error: exec_error.into() }, end))
    }

    /// Opens the gate, and waits until the child has called exec, exec has failed, or a signal for the
    /// monitor arrives. After a signal [`Waiting::has_left_gate`] says whether the child is the program.
    ///
    /// A child that is killed before its exec stops once more for its tracer, and keeps `exec_error`
    /// open until it goes on. In that case [`Waiting::check_exec`] has the result at the end.
    ///
    /// # Errors
    /// Exec failed. The child has exited or will exit, and is still to be reaped.
    pub(crate) fn go(&mut self, signals: &Signals) -> Result<(), RunError> {
        // This fails if the child was killed at its gate. Its exit is reported like any other.
        let _ = self.gate.write_all(&[1]);
        let mut fds = [
            PollFd::new(&self.exec_error, PollFlags::IN),
            PollFd::from_borrowed_fd(signals.descriptor(), PollFlags::IN),
        ];
        while let Err(e) = poll(&mut fds, None) {
            if e != rustix::io::Errno::INTR {
                return Err(RunError::Start(e.into()));
            }
        }
        if fds[0].revents().is_empty() { Ok(()) } else { self.check_exec() }
    }

    /// The pipe that becomes readable once the child has called exec, exec has failed, or the child has exited.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.exec_error.as_fd()
    }

    /// True once the child has called exec, exec has failed, or the child has exited. Until then the child holds
    /// the monitor's memory.
    pub(crate) fn has_left_gate(&self) -> bool {
        let mut fds = [PollFd::new(&self.exec_error, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Checks whether exec failed, as far as that is known by now.
    ///
    /// # Errors
    /// The error of exec.
    pub(crate) fn check_exec(&mut self) -> Result<(), RunError> {
        let mut code = [0; 4];
        match self.exec_error.read_exact(&mut code) {
            // Exec or the child's exit has closed the pipe.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(e) => Err(RunError::Start(e)),
            Ok(()) => {
                let e = io::Error::from_raw_os_error(i32::from_ne_bytes(code));
                Err(RunError::of_exec(e))
            }
        }
    }
}

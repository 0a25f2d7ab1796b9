//! Reads command lines without waiting for long.
//!
//! To read a command line, the kernel takes a lock that the process holds while it forks. If thousands
//! of processes fork, its holder may not run for minutes. A reader then waits just as long, in a state
//! that no signal ends.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::proc;
use crate::sys::Pid;

/// The longest wait for a command line. Usually it takes some ten microseconds.
const PATIENCE: Duration = Duration::from_millis(20);

/// A thread that reads command lines.
pub(crate) struct Commands {
    pids: Sender<Pid>,
    commands: Receiver<Option<String>>,
    /// Command lines that the thread has not answered in time.
    late: usize,
}

impl Commands {
    /// Starts the thread. It ends with this value, or with the process if it cannot be ended.
    pub(crate) fn start() -> std::io::Result<Self> {
        Self::with(proc::command)
    }

    fn with(read: impl Fn(Pid) -> Option<String> + Send + 'static) -> std::io::Result<Self> {
        let (pids, asked) = channel();
        let (answer, commands) = channel();
        thread::Builder::new().name("commands".to_owned()).spawn(move || {
            for pid in asked {
                if answer.send(read(pid)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { pids, commands, late: 0 })
    }

    /// Returns the command line of a process, or its name in brackets if the command line takes too
    /// long.
    pub(crate) fn of(&mut self, pid: Pid) -> Option<String> {
        while self.late > 0 && self.commands.try_recv().is_ok() {
            self.late -= 1;
        }
        if self.late == 0 && self.pids.send(pid).is_ok() {
            match self.commands.recv_timeout(PATIENCE) {
                Ok(command) => return command,
                Err(_) => self.late = 1,
            }
        }
        proc::name(pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_that_cannot_be_read_is_waited_for_once() {
        let own = std::process::id() as Pid;
        let (open, gate) = channel();
        let mut commands = Commands::with(move |_| {
            let _: Result<(), _> = gate.recv();
            Some("late".to_owned())
        })
        .expect("a thread starts");
        let name = proc::name(own);
        assert_eq!(commands.of(own), name, "the thread is stuck");
        let begun = std::time::Instant::now();
        assert_eq!((0..1000).filter(|_| commands.of(own) == name).count(), 1000);
        assert!(begun.elapsed() < 1000 * PATIENCE / 2, "it waits for each");
        open.send(()).expect("the thread lives");
        drop(open);
        while commands.of(own) == name {}
        assert_eq!(commands.of(own).as_deref(), Some("late"), "the thread is asked again");
    }
}

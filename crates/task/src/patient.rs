//! Reads files of `/proc` without waiting for long.
//!
//! To read the command line or the page tables of a process, the kernel takes a lock that the process
//! holds while it forks. If thousands of processes fork, the holder may not run for minutes, and a reader
//! waits just as long in a state that only SIGKILL ends.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// The longest wait for a command line. One that is not locked takes some ten microseconds; a busy
/// machine may let the thread wait for its turn.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_millis(20);

type Job = Box<dyn FnOnce() + Send>;

/// A thread that reads files, one at a time.
///
/// The thread ends when this value is dropped. If it is blocked in a read then, it ends with the monitor,
/// so nothing joins it.
pub(crate) struct PatientReader {
    /// `None` if no thread could be started: nothing can be read then.
    jobs: Option<Sender<Job>>,
    /// A message for each job that is done.
    done: Receiver<()>,
    /// The thread has a job that was not done in time.
    is_late: bool,
}

impl PatientReader {
    pub(crate) fn start() -> Self {
        let (jobs, queue) = channel::<Job>();
        let (report, done) = channel();
        let thread = thread::Builder::new().name("skopos-reader".to_owned()).spawn(move || {
            for job in queue {
                job();
                if report.send(()).is_err() {
                    return;
                }
            }
        });
        Self { jobs: thread.is_ok().then_some(jobs), done, is_late: false }
    }

    /// Returns what `read` returns, or `None` if it takes longer than `timeout`. While the thread is
    /// blocked by an earlier file, returns `None` at once.
    pub(crate) fn read<T: Send + 'static>(
        &mut self,
        timeout: Duration,
        read: impl FnOnce() -> Option<T> + Send + 'static,
    ) -> Option<T> {
        if self.is_late && self.done.try_recv().is_err() {
            return None;
        }
        let (answer, answers) = channel();
        let job: Job = Box::new(move || {
            // The receiver is gone if the job is late.
            let _ = answer.send(read());
        });
        self.jobs.as_ref()?.send(job).ok()?;
        let read = answers.recv_timeout(timeout);
        // A job that has answered is done.
        self.is_late = read.is_err() || self.done.recv().is_err();
        read.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_file_that_cannot_be_read_blocks_its_first_reader_alone() {
        let (open, gate) = channel::<()>();
        let mut reader = PatientReader::start();
        assert_eq!(reader.read(LONG, || Some(1)), Some(1));
        let late = reader.read(COMMAND_TIMEOUT, move || {
            let _: Result<(), _> = gate.recv();
            Some(2)
        });
        assert_eq!(late, None, "the thread is blocked");
        let (tell, told) = channel();
        for _ in 0..1000 {
            let tell = tell.clone();
            assert_eq!(reader.read(LONG, move || tell.send(()).ok()), None);
        }
        open.send(()).expect("the thread lives");
        while reader.read(LONG, || Some(3)).is_none() {}
        assert!(told.try_recv().is_err(), "a job waits behind the blocked one");
    }
}

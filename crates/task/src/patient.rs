//! Reads files of `/proc` without waiting for long.
//!
//! To read the command line or the page tables of a process, the kernel takes a lock that the process
//! holds while it forks. If thousands of processes fork, the holder may not run for minutes, and a reader
//! waits just as long in a state that only SIGKILL ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

/// The longest wait for a command line. One that is not locked takes some ten microseconds; a busy
/// machine may let the thread wait for its turn.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_millis(20);

type Job = Box<dyn FnOnce() + Send>;

/// A file was not read in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late;

/// A thread that reads files, one at a time.
///
/// The thread ends when this value is dropped. If it is blocked in a read then, it ends with the monitor,
/// so nothing joins it.
pub(crate) struct PatientReader {
    /// Without a thread each job is dropped, and every read is late.
    jobs: Sender<Job>,
    /// True if the thread has no job.
    is_idle: Arc<AtomicBool>,
}

impl PatientReader {
    pub(crate) fn start() -> Self {
        let (jobs, queue) = channel::<Job>();
        let run = move || queue.into_iter().for_each(|job| job());
        // A user at the limit of threads gets the names of programs and no PSS.
        let _ = thread::Builder::new().name("skopos-reader".to_owned()).spawn(run);
        Self { jobs, is_idle: Arc::new(AtomicBool::new(true)) }
    }

    /// Returns what `read` returns, or `Late` if it takes longer than `timeout`. While the thread is blocked
    /// by an earlier file, returns `Late` at once.
    pub(crate) fn read<T: Send + 'static>(
        &mut self,
        timeout: Duration,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Late> {
        if !self.is_idle.swap(false, Ordering::AcqRel) {
            return Err(Late);
        }
        let (answer, answers) = channel();
        let is_idle = self.is_idle.clone();
        let job: Job = Box::new(move || {
            let value = read();
            // Before the answer: whoever waits for it may preempt this thread, and asks again.
            is_idle.store(true, Ordering::Release);
            // The receiver is gone if the job is late.
            let _ = answer.send(value);
        });
        self.jobs.send(job).map_err(|_| Late)?;
        answers.recv_timeout(timeout).map_err(|_| Late)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// A bound on hanging, not on speed.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_file_that_cannot_be_read_blocks_its_first_reader_alone() {
        let (open, gate) = channel::<()>();
        let mut reader = PatientReader::start();
        assert_eq!(reader.read(LONG, || 1), Ok(1));
        let blocked = move || gate.recv().is_ok();
        assert_eq!(reader.read(COMMAND_TIMEOUT, blocked), Err(Late), "the thread is blocked");
        let (tell, told) = channel();
        for _ in 0..3 {
            let tell = tell.clone();
            assert_eq!(reader.read(COMMAND_TIMEOUT, move || tell.send(()).is_ok()), Err(Late));
        }
        open.send(()).expect("the thread lives");
        let until = Instant::now() + LONG;
        while reader.read(LONG, || 3) == Err(Late) {
            assert!(Instant::now() < until, "the thread has its job still");
            thread::yield_now();
        }
        assert!(told.try_recv().is_err(), "a job waited behind the blocked one");
    }
}

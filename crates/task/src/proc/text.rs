//! Reads a small file of `/proc/PID` with one open, one read and one close, and without an
//! allocation. The monitor reads four such files of a process that lives for a millisecond.

use std::cell::RefCell;
use std::fmt::Write as _;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read};

use crate::sys::Pid;

/// Larger than any file that is read here, except a status with hundreds of groups.
const USUAL_BYTES: usize = 4096;

/// The most that is read: a status with all 65,536 groups that a process may have.
const MOST_BYTES: usize = 1 << 20;

thread_local! {
    static KEPT: RefCell<(String, Vec<u8>)> = const { RefCell::new((String::new(), Vec::new())) };
}

/// Passes the content of `/proc/PID/NAME` to `of`; `None` if the file does not exist. `of` must not
/// read another such file.
pub(super) fn text<T>(pid: Pid, name: &str, of: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    KEPT.with_borrow_mut(|(path, bytes)| {
        path.clear();
        write!(path, "/proc/{pid}/{name}").ok()?;
        if bytes.is_empty() {
            bytes.resize(USUAL_BYTES, 0);
        }
        let file = open(path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut length = 0;
        loop {
            match read(&file, &mut bytes[length..]) {
                Ok(more) => length += more,
                Err(Errno::INTR) => continue,
                Err(_) => return None,
            }
            // The kernel makes the whole text at the first read, so a short read is the end.
            if length < bytes.len() || length >= MOST_BYTES {
                return of(&bytes[..length]);
            }
            bytes.resize(2 * length, 0);
        }
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_file_longer_than_the_usual_buffer_is_read_completely() {
        let word = "x".repeat(3 * USUAL_BYTES);
        let mut child = Command::new("sleep").arg("60").env("LONG", &word).spawn().expect("sleep");
        let pid = child.id() as Pid;
        // The environment is visible a moment after exec.
        let patience = Instant::now() + Duration::from_secs(10);
        let length = loop {
            let length = text(pid, "environ", |bytes| Some(bytes.len()));
            if length != Some(0) || patience < Instant::now() {
                break length;
            }
        };
        let is_last = text(pid, "comm", |name| Some(name == b"sleep\n"));
        child.kill().and_then(|()| child.wait()).expect("it was there");
        assert!(length.is_some_and(|length| length > word.len()), "{length:?}");
        assert_eq!((is_last, text(pid, "comm", |_| Some(()))), (Some(true), None));
    }
}

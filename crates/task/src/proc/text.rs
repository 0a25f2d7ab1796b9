//! Reads a small file of `/proc/PID`: one open, one read, one close, and nothing allocated. A process of
//! a millisecond is asked for four of them.

use std::cell::RefCell;
use std::fmt::Write as _;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read};

use crate::sys::Pid;

/// Larger than all but a status with hundreds of groups in it.
const USUAL_BYTES: usize = 4096;

/// What is read at most: a status with all groups that a process may have, 65,536.
const MOST_BYTES: usize = 1 << 20;

thread_local! {
    static KEPT: RefCell<(String, Vec<u8>)> = const { RefCell::new((String::new(), Vec::new())) };
}

/// What `of` makes of the content of `/proc/PID/NAME`; `None` if there is no such file. `of` reads no
/// other such file.
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
            // The kernel makes the whole text at the first read: what is less than asked for is the end.
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
    fn what_is_longer_than_usual_is_read_whole() {
        let word = "x".repeat(3 * USUAL_BYTES);
        let mut child = Command::new("sleep").arg("60").env("LONG", &word).spawn().expect("sleep");
        let pid = child.id() as Pid;
        // Its environment is there a moment after the program is.
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

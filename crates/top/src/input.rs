//! Events of the terminal: keys, signals, a change of size, or a timeout.
//!
//! This module reads and decodes keys itself, because a reader must neither wait for the rest of a
//! sequence that does not come nor spin on a terminal that has gone away. Both happen to programs
//! that run for weeks.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::low_level::pipe;

/// Number of bytes that are read at once: enough for a pasted line.
const CHUNK_BYTES: usize = 1024;

/// A key that was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Char(char),
    Control(char),
    Up,
    Down,
    Left,
    Right,
    Home,
    End,
    PageUp,
    PageDown,
    Tab,
    BackTab,
    Enter,
    Escape,
    Backspace,
    F1,
}

/// The event that ended [`Input::wait`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Keys(Vec<Key>),
    /// The terminal has another size now.
    Resized,
    /// A signal ends the program, or the terminal has gone.
    Leave,
    /// The deadline has passed.
    Tick,
}

pub(crate) struct Input {
    terminal: File,
    signals: UnixStream,
    resizes: UnixStream,
    /// The start of a sequence whose end has not come yet.
    pending: Vec<u8>,
}

impl Input {
    /// Opens the terminal. From now on SIGINT, SIGTERM and SIGHUP do not end the process: `wait`
    /// returns them as events.
    pub(crate) fn open() -> io::Result<Self> {
        let stdin = io::stdin();
        let terminal = if stdin.is_terminal() {
            File::from(stdin.as_fd().try_clone_to_owned()?)
        } else {
            File::open("/dev/tty")?
        };
        let (signals, write) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            pipe::register(signal, write.try_clone()?)?;
        }
        let (resizes, write) = UnixStream::pair()?;
        pipe::register(SIGWINCH, write)?;
        resizes.set_nonblocking(true)?;
        Ok(Self { terminal, signals, resizes, pending: Vec::new() })
    }

    /// Sleeps until something happens, at most until `deadline`.
    pub(crate) fn wait(&mut self, deadline: Instant) -> io::Result<Event> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut fds = [
                PollFd::new(&self.signals, PollFlags::IN),
                PollFd::new(&self.resizes, PollFlags::IN),
                PollFd::new(&self.terminal, PollFlags::IN),
            ];
            match poll(&mut fds, Some(&timespec(left))) {
                Ok(0) => return Ok(self.end_pending()),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            }
            let [signals, resizes, terminal] = [0, 1, 2].map(|i: usize| fds[i].revents());
            if !signals.is_empty() || terminal.intersects(PollFlags::HUP | PollFlags::ERR) {
                return Ok(Event::Leave);
            }
            if !resizes.is_empty() {
                // All signals up to now are one change of size.
                let _ = self.resizes.read(&mut [0; CHUNK_BYTES]);
                return Ok(Event::Resized);
            }
            let mut chunk = [0; CHUNK_BYTES];
            let read = self.terminal.read(&mut chunk)?;
            if read == 0 {
                return Ok(Event::Leave);
            }
            self.pending.extend_from_slice(&chunk[..read]);
            let keys = decode(&mut self.pending);
            if !keys.is_empty() {
                return Ok(Event::Keys(keys));
            }
        }
    }

    /// Takes the first byte of a sequence that did not end in time as the Escape key.
    fn end_pending(&mut self) -> Event {
        let was_escape = self.pending.first() == Some(&ESCAPE);
        self.pending.clear();
        if was_escape { Event::Keys(vec![Key::Escape]) } else { Event::Tick }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

const ESCAPE: u8 = 0x1b;

/// Takes the keys out of `bytes` and leaves the start of a sequence that has no end yet.
fn decode(bytes: &mut Vec<u8>) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes.as_slice();
    while let Some((key, length)) = first_key(rest) {
        keys.extend(key);
        rest = &rest[length..];
    }
    let done = bytes.len() - rest.len();
    bytes.drain(..done);
    // Sequences of terminals are shorter: longer input is noise.
    if bytes.len() > CHUNK_BYTES {
        bytes.clear();
    }
    keys
}

/// The first key and its number of bytes. The key is `None` for a sequence without a meaning; the
/// whole result is `None` if more bytes must come first.
fn first_key(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let (&first, rest) = bytes.split_first()?;
    match first {
        ESCAPE => match rest.first() {
            // Without a byte behind it in the same read, it is the key itself.
            None => Some((Some(Key::Escape), 1)),
            Some(b'[') => control_sequence(rest).map(|(key, length)| (key, length + 1)),
            Some(b'O') => Some((letter_key(*rest.get(1)?), 3)),
            Some(_) => Some((Some(Key::Escape), 1)),
        },
        b'\r' | b'\n' => Some((Some(Key::Enter), 1)),
        b'\t' => Some((Some(Key::Tab), 1)),
        0x7f | 0x08 => Some((Some(Key::Backspace), 1)),
        1..=26 => Some((Some(Key::Control((b'a' + first - 1) as char)), 1)),
        0x20..=0x7e => Some((Some(Key::Char(first as char)), 1)),
        0xc0..=0xff => utf8_key(bytes),
        _ => Some((None, 1)),
    }
}

/// `[`, parameters, and a final byte (ECMA-48, 5.4).
fn control_sequence(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let end = bytes.iter().skip(1).position(|b| (0x40..=0x7e).contains(b))? + 1;
    let key = match bytes[end] {
        b'~' => match bytes[1..end].split(|b| *b == b';').next() {
            Some(b"1" | b"7") => Some(Key::Home),
            Some(b"4" | b"8") => Some(Key::End),
            Some(b"5") => Some(Key::PageUp),
            Some(b"6") => Some(Key::PageDown),
            Some(b"11") => Some(Key::F1),
            _ => None,
        },
        letter => letter_key(letter),
    };
    Some((key, end + 1))
}

fn letter_key(letter: u8) -> Option<Key> {
    Some(match letter {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'C' => Key::Right,
        b'D' => Key::Left,
        b'H' => Key::Home,
        b'F' => Key::End,
        b'Z' => Key::BackTab,
        b'P' => Key::F1,
        _ => return None,
    })
}

fn utf8_key(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    /// The most bytes of a character.
    const MOST: usize = 4;
    let bytes = &bytes[..bytes.len().min(MOST)];
    let valid = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) if e.valid_up_to() > 0 => std::str::from_utf8(&bytes[..e.valid_up_to()]).ok()?,
        // Without a length, the end of the character may still come.
        Err(e) => return e.error_len().map(|length| (None, length)),
    };
    let c = valid.chars().next()?;
    Some((Some(Key::Char(c)), c.len_utf8()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], keys: &[Key], left: usize) {
        let mut bytes = bytes.to_vec();
        assert_eq!(decode(&mut bytes), keys);
        assert_eq!(bytes.len(), left);
    }

    #[test]
    fn keys_are_decoded() {
        use Key::*;
        check(b"q/\r\t\x7f\x03", &[Char('q'), Char('/'), Enter, Tab, Backspace, Control('c')], 0);
        check(b"\x1b[A\x1b[B\x1bOC\x1b[D", &[Up, Down, Right, Left], 0);
        check(
            b"\x1b[H\x1b[4~\x1b[5~\x1b[6~\x1b[1~\x1b[Z",
            &[Home, End, PageUp, PageDown, Home, BackTab],
            0,
        );
        check(b"\x1bOP\x1b[11~", &[F1, F1], 0);
        check("é日".as_bytes(), &[Char('é'), Char('日')], 0);
        check(b"\x1b", &[Escape], 0);
        check(b"\x1bx", &[Escape, Char('x')], 0);
        check(b"\x1b[1;5A", &[Up], 0);
    }

    #[test]
    fn incomplete_sequences_wait() {
        check(b"a\x1b[", &[Key::Char('a')], 2);
        check(b"\x1bO", &[], 2);
        check(b"\xe6\x97", &[], 2);
    }

    #[test]
    fn noise_is_dropped() {
        check(b"\x00\xff\xff\xff\xffx", &[Key::Char('x')], 0);
        check(b"\x1b[200~\x1b[?1;2c", &[], 0);
        check(&[b"\x1b[".as_slice(), &[b'1'; 2000]].concat(), &[], 0);
    }

    #[test]
    fn any_bytes_come_to_an_end() {
        for first in 0..=255u8 {
            for second in 0..=255u8 {
                decode(&mut vec![first, second, b'[', first]);
            }
        }
    }
}

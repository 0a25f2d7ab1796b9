//! Names of files.

use std::fmt::Write as _;

use crate::Error;

/// Longest name, in bytes. With three bytes for each, it fits a name of a file system (255 bytes).
pub const MAX_NAME_BYTES: usize = 80;

/// A checked name, and its form on disk.
#[derive(Clone, Debug)]
pub(super) struct FileName {
    pub(super) name: String,
    pub(super) on_disk: String,
}

impl FileName {
    /// Checks a name: parts with `/` between them, of which none is empty, `.` or `..`.
    pub(super) fn new(name: &str) -> Result<Self, Error> {
        let fault = |fault| {
            Err(Error::FileName { name: name.chars().take(MAX_NAME_BYTES).collect(), fault })
        };
        if name.len() > MAX_NAME_BYTES {
            return fault("it is longer than 80 bytes");
        }
        if name.chars().any(char::is_control) {
            return fault("it has a control character");
        }
        for part in name.split('/') {
            match part {
                "" => return fault("it is empty, or has an empty part"),
                "." | ".." => return fault("it has a part `.` or `..`"),
                _ => {}
            }
        }
        Ok(Self { name: name.to_owned(), on_disk: encode(name) })
    }

    /// Returns the name of a file on disk; `None` if no engine wrote it.
    pub(super) fn of_disk(on_disk: &str) -> Option<Self> {
        let mut bytes = Vec::new();
        let mut rest = on_disk.as_bytes();
        while let Some((first, others)) = rest.split_first() {
            if *first == b'%' {
                let digits = std::str::from_utf8(others.get(..2)?).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &others[2..];
            } else {
                bytes.push(*first);
                rest = others;
            }
        }
        let found = Self::new(&String::from_utf8(bytes).ok()?).ok()?;
        // Only the form that an engine writes: two files on disk never have one name.
        (found.on_disk == on_disk).then_some(found)
    }
}

fn encode(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for (at, byte) in name.bytes().enumerate() {
        let is_plain = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if is_plain || (byte == b'.' && at > 0) {
            text.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_the_folder_are_refused() {
        for bad in ["", ".", "..", "../a", "a/../b", "/etc/passwd", "a//b", "a/", "a\0b", "a\nb"] {
            assert!(FileName::new(bad).is_err(), "{bad:?}");
        }
        assert!(FileName::new(&"x".repeat(MAX_NAME_BYTES + 1)).is_err());
    }

    #[test]
    fn a_name_comes_back_from_its_form_on_disk() {
        for name in
            ["a", "step-01/rank.3", ".hidden", "ünï/€", "a%2Fb", "x y", "..a", &"€".repeat(26)]
        {
            let file = FileName::new(name).expect(name);
            assert!(!file.on_disk.contains('/') && file.on_disk.len() <= 255, "{}", file.on_disk);
            assert!(!file.on_disk.starts_with('.'), "{}", file.on_disk);
            assert_eq!(FileName::of_disk(&file.on_disk).expect(name).name, name);
        }
        for foreign in ["a%2fb", "a b", "%", "%4", "%zz", "%2E%2E", ".x", "%41"] {
            assert!(FileName::of_disk(foreign).is_none(), "{foreign}");
        }
    }
}

//! Detects static programs, into which no library can be preloaded.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The program header that names a loader, and the most headers that are read: real programs have
/// about a dozen.
const INTERPRETER: u32 = 3;
const MAX_HEADERS: u16 = 256;

/// True for a 64-bit ELF file that names no loader.
pub(crate) fn is_static(command: &OsStr) -> bool {
    found(command).and_then(|path| has_no_loader(&path)).unwrap_or(false)
}

/// Returns the file of a command, found as `execvp` finds it.
fn found(command: &OsStr) -> Option<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return Some(command.into());
    }
    let is_program = |path: &PathBuf| {
        let about = fs::metadata(path);
        about.is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(command)).find(is_program)
}

fn has_no_loader(path: &Path) -> Option<bool> {
    let file = File::open(path).ok()?;
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0).ok()?;
    // Magic number, 64 bits, little-endian.
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return Some(false);
    }
    let short = |at: usize| Some(u16::from_le_bytes(*head.get(at..)?.first_chunk()?));
    let start = u64::from_le_bytes(*head.get(32..)?.first_chunk()?);
    let (size, count) = (short(54)?, short(56)?);
    for n in 0..count.min(MAX_HEADERS) {
        let mut kind = [0; 4];
        let at = start.checked_add(u64::from(n) * u64::from(size))?;
        file.read_exact_at(&mut kind, at).ok()?;
        if u32::from_le_bytes(kind) == INTERPRETER {
            return Some(false);
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_and_programs_with_a_loader_are_not_static() {
        for command in ["sh", "cat", "/proc/self/exe", "no-such-program", "/dev/null"] {
            assert!(!is_static(OsStr::new(command)), "{command}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        // An ELF header with one program header, of a loaded segment.
        let mut program = b"\x7fELF\x02\x01".to_vec();
        program.resize(128, 0);
        program[32] = 64;
        program[54] = 56;
        program[56] = 1;
        program[64] = 1;
        for (name, change, expected) in [
            ("static", None, true),
            ("dynamic", Some((64, 3)), false),
            ("cut", Some((56, 9)), false),
        ] {
            let mut program = program.clone();
            if let Some((at, byte)) = change {
                program[at] = byte;
            }
            fs::write(at(name), program).expect("written");
            assert_eq!(is_static(at(name).as_os_str()), expected, "{name}");
        }
    }
}

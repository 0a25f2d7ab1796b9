//! The table of mounts, `/proc/self/mountinfo` (proc(5)): what is mounted where, and what hides
//! what. Read only when it changed, so it may allocate.

use crate::parse;

/// One line: `36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/sda1 rw,errors=continue`.
pub(crate) struct Mount<'a> {
    id: u64,
    parent: u64,
    /// `st_dev` of everything in it, as `MAJOR:MINOR`.
    pub(crate) device: &'a [u8],
    /// The folder of the file system that is mounted; `/` unless it is a bind mount.
    pub(crate) root: Vec<u8>,
    /// Where it is mounted.
    pub(crate) point: Vec<u8>,
    /// The type, such as `ext4` or `fuse.sshfs`.
    pub(crate) kind: &'a [u8],
    /// What was mounted: a device, a server's name, or just a word.
    pub(crate) source: Vec<u8>,
    /// The options of the file system, with commas.
    pub(crate) options: &'a [u8],
}

/// The mounts of `text`; lines that are not like mountinfo are left out.
pub(crate) fn parse(text: &[u8]) -> Vec<Mount<'_>> {
    parse::lines(text).filter_map(mount).collect()
}

fn mount(line: &[u8]) -> Option<Mount<'_>> {
    let mut words = parse::words(line);
    let id = parse::u64(words.next()?)?;
    let parent = parse::u64(words.next()?)?;
    let device = words.next()?;
    let root = unescaped(words.next()?);
    let point = unescaped(words.next()?);
    // Options of the mount, then any number of optional words up to a lone dash.
    words.by_ref().skip(1).find(|word| *word == b"-")?;
    let kind = words.next()?;
    let source = unescaped(words.next()?);
    let options = words.next().unwrap_or_default();
    Some(Mount { id, parent, device, root, point, kind, source, options })
}

fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(word.len());
    parse::unescape_octal(word, &mut name);
    name
}

impl Mount<'_> {
    /// True if a path below [`point`](Self::point) leads elsewhere, since another of `mounts` lies
    /// on that point or above it and this one is not mounted on top of that.
    pub(crate) fn is_hidden(&self, mounts: &[Mount<'_>]) -> bool {
        mounts.iter().any(|other| {
            other.id != self.id
                && is_at_or_above(&other.point, &self.point)
                && !self.is_on_top_of(other, mounts)
        })
    }

    fn is_on_top_of(&self, other: &Mount<'_>, mounts: &[Mount<'_>]) -> bool {
        let mut below = self.parent;
        // A chain of parents is never longer than the table, unless the table is damaged.
        for _ in 0..mounts.len() {
            if below == other.id {
                return true;
            }
            match mounts.iter().find(|m| m.id == below) {
                Some(mount) => below = mount.parent,
                None => return false,
            }
        }
        false
    }
}

fn is_at_or_above(folder: &[u8], path: &[u8]) -> bool {
    match path.strip_prefix(folder) {
        Some(rest) => rest.is_empty() || rest[0] == b'/' || folder == b"/",
        None => false,
    }
}

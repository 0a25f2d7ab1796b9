//! The table of mounts, `/proc/self/mountinfo` (proc(5)): each mount with its place, and the mounts
//! that hide others. It is read only after a change, so reading it may allocate. A node of a
//! container platform has thousands of mounts and changes them often, so no step here compares
//! every mount with every other.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::io;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::file::KernelFile;
use crate::parse;

/// One line: `36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/sda1 rw,errors=continue`.
pub(crate) struct Mount<'a> {
    id: u64,
    parent: u64,
    /// `st_dev` of everything in it, as `MAJOR:MINOR`.
    pub(crate) device: &'a [u8],
    /// The folder of the file system that is mounted; `/` unless it is a bind mount.
    pub(crate) root: Vec<u8>,
    /// The folder at which it is mounted.
    pub(crate) point: Vec<u8>,
    /// The type, such as `ext4` or `fuse.sshfs`.
    pub(crate) kind: &'a [u8],
    /// The source of the mount: a device, a server's name, or just a word.
    pub(crate) source: Vec<u8>,
    /// The options of the file system, with commas.
    pub(crate) options: &'a [u8],
}

/// Returns true if mounts came or went since `mountinfo` was last read, which poll(2) reports
/// (proc(5)).
pub(crate) fn changed(mountinfo: &KernelFile) -> io::Result<bool> {
    let mut file = [PollFd::new(mountinfo, PollFlags::PRI)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut file, Some(&now))?;
    Ok(file[0].revents().intersects(PollFlags::PRI | PollFlags::ERR))
}

/// Returns the mounts of `text` that can be reached by their path. A mount is hidden by another
/// mount on its path or above it, unless it is mounted on top of that one. Lines that do not look
/// like mountinfo are left out.
pub(crate) fn visible(text: &[u8]) -> Vec<Mount<'_>> {
    let mounts: Vec<_> = parse::lines(text).filter_map(mount).collect();
    let mut hidden = hidden(&mounts).into_iter();
    mounts.into_iter().filter(|_| hidden.next() == Some(false)).collect()
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

/// Returns for each of `mounts` whether it is hidden: it has more mounts at or above its point than
/// it is mounted on top of.
fn hidden(mounts: &[Mount<'_>]) -> Vec<bool> {
    let depths = depths(mounts);
    let mut hidden = vec![false; mounts.len()];
    let mut order: Vec<usize> = (0..mounts.len()).collect();
    order.sort_by(|&a, &b| by_folder(&mounts[a].point, &mounts[b].point));
    // The mount points on the way to the current one, each with the number of mounts up to it.
    let mut way: Vec<(&[u8], usize)> = Vec::new();
    for same_point in order.chunk_by(|&a, &b| mounts[a].point == mounts[b].point) {
        let point = mounts[same_point[0]].point.as_slice();
        while way.pop_if(|(above, _)| !is_at_or_above(above, point)).is_some() {}
        let count = way.last().map_or(0, |(_, count)| *count) + same_point.len();
        for &at in same_point {
            // The mount itself does not count.
            hidden[at] = count - 1 > depths[at];
        }
        way.push((point, count));
    }
    hidden
}

/// Returns for each of `mounts` the number of mounts that it is mounted on top of.
fn depths(mounts: &[Mount<'_>]) -> Vec<usize> {
    let by_id: HashMap<u64, usize> = mounts.iter().enumerate().map(|(at, m)| (m.id, at)).collect();
    let parent = |at: usize| {
        let below = *by_id.get(&mounts[at].parent)?;
        (below != at && is_at_or_above(&mounts[below].point, &mounts[at].point)).then_some(below)
    };
    let mut depths: Vec<Option<usize>> = vec![None; mounts.len()];
    let mut chain = Vec::new();
    for start in 0..mounts.len() {
        let mut next = Some(start);
        while let Some(at) = next.filter(|&at| depths[at].is_none()) {
            // This value stands until the real depth is known. It ends the loop in a damaged table
            // whose mounts form a ring.
            depths[at] = Some(0);
            chain.push(at);
            next = parent(at);
        }
        let mut below = next;
        while let Some(at) = chain.pop() {
            depths[at] = Some(below.and_then(|below| depths[below]).map_or(0, |depth| depth + 1));
            below = Some(at);
        }
    }
    depths.into_iter().map(Option::unwrap_or_default).collect()
}

/// Compares two paths so that a folder sorts right before everything below it.
fn by_folder(a: &[u8], b: &[u8]) -> Ordering {
    let slash_first = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    a.iter().map(slash_first).cmp(b.iter().map(slash_first))
}

fn is_at_or_above(folder: &[u8], path: &[u8]) -> bool {
    match path.strip_prefix(folder) {
        Some(rest) => rest.is_empty() || rest[0] == b'/' || folder == b"/",
        None => false,
    }
}

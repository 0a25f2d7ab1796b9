//! `cgroup`: the resources that control groups use, v1, v2 and hybrid
//! (Documentation/admin-guide/cgroup-v1, cgroup-v2.rst).
//!
//! The hierarchies are listed in `/proc/self/mountinfo`. A group is a folder in one of them. Groups
//! of several hierarchies with the same path are one instance, to which each hierarchy adds the
//! facts of its controllers. `cgroup/tree.rs` has hierarchies and groups, `cgroup/files.rs` the
//! files and the facts that they feed.
//!
//! # Cost
//! Nodes have hundreds of groups, and a file costs one to three microseconds. So a tick reads
//! [`READS_PER_TICK`] files, checks [`CHECKS_PER_TICK`] folders for new children, and reads the
//! limits and peaks of one group (those of a new group at once, the others in turn, see
//! [`SLOW_CYCLE_TICKS`]). Each of the three continues where the last tick stopped. On a node with
//! few groups a tick reads all of them; on a big one facts are some ticks old. When it is a group's
//! turn, the sensor also opens files that the group did not have before: those of a controller that
//! was enabled since. The number of a folder's children is its `st_nlink`, so only a folder that
//! changed is listed. Up to [`MAX_KEPT_FILES`] files stay open; the others are opened for each
//! reading.

mod files;
mod tree;

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use skopos_model::escape_segment;
use skopos_model::schema::{Family, cgroup};

use self::files::Source;
use self::tree::{Group, GroupFile, Hierarchy, children, hierarchies, open};
use crate::facts::Facts;
use crate::file::read_record;
use crate::root::Root;
use crate::sensor::{Sensor, Sink, Skip, Tick};

/// The most groups with facts, over all hierarchies.
const MAX_GROUPS: usize = 256;

/// The depth up to which groups have facts. Slurm's steps (`slurm/uid_N/job_N/step_N`) and the
/// containers of a container platform are at depth 4, and their inner groups below.
const MAX_DEPTH: usize = 4;

/// Half of the 1,024 descriptors that a process may usually have.
const MAX_KEPT_FILES: usize = 512;

/// Reading takes 150 microseconds with cold caches. A full table of groups with three files each
/// takes twelve ticks.
const READS_PER_TICK: usize = 64;

/// All folders of a full table are checked within 128 ticks, those of a quiet node within a few.
const CHECKS_PER_TICK: usize = 2;

/// The number of ticks in which the limits and peaks of every group are read again, one group at a
/// tick; more groups take more ticks. Limits rarely change, and the kernel itself keeps peaks and
/// counts of kills.
const SLOW_CYCLE_TICKS: usize = 32;

pub(crate) struct Cgroup {
    hierarchies: Vec<Hierarchy>,
    groups: Vec<Group>,
    /// The place where the next tick continues.
    next_read: usize,
    next_check: usize,
    next_slow: usize,
    ticks: u64,
    /// Shared by all files.
    buffer: Vec<u8>,
    /// Path of a file that is not kept open.
    path: Vec<u8>,
}

impl Cgroup {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let path = root.proc.join("self/mountinfo");
        let skip = |reason| Skip::new("cgroup", reason);
        let table = fs::read(&path).map_err(|e| skip(format!("{}: {e}", path.display())))?;
        let hierarchies = hierarchies(&table);
        if hierarchies.is_empty() {
            return Err(skip("no cgroup hierarchy with a controller is mounted".into()));
        }
        let mut sensor = Self {
            hierarchies,
            groups: Vec::new(),
            next_read: 0,
            next_check: 0,
            next_slow: 0,
            ticks: 0,
            buffer: Vec::new(),
            path: Vec::new(),
        };
        for hierarchy in 0..sensor.hierarchies.len() {
            let point = sensor.hierarchies[hierarchy].point.clone();
            sensor.add(hierarchy, point, 0);
        }
        // Breadth first: groups that are found here are appended, and checked in their turn.
        let mut at = 0;
        while at < sensor.groups.len() {
            sensor.check(at);
            at += 1;
        }
        Ok(sensor)
    }

    /// Adds the group at `folder`, if there is room.
    fn add(&mut self, hierarchy: usize, folder: CString, depth: usize) -> bool {
        if self.groups.len() >= MAX_GROUPS {
            return false;
        }
        let point = self.hierarchies[hierarchy].point.to_bytes();
        let below_point = folder.to_bytes().strip_prefix(point).unwrap_or_default();
        let mut instance = String::new();
        escape_segment(if depth == 0 { b"/" } else { below_point }, &mut instance);
        let facts = Facts::of(&cgroup::FAMILY, &instance);
        self.groups.push(Group {
            hierarchy,
            folder,
            depth,
            facts,
            files: Vec::new(),
            links_when_listed: None,
            children_left_out: 0,
            has_slow_facts: false,
        });
        self.open_files(self.groups.len() - 1);
        true
    }

    /// Opens the files that the group at `at` has, but did not have when it was last checked.
    fn open_files(&mut self, at: usize) {
        let Self { hierarchies, groups, path, .. } = self;
        for &source in &hierarchies[groups[at].hierarchy].sources {
            let group = &groups[at];
            let is_known = group.files.iter().any(|file| std::ptr::eq(file.source, source));
            if is_known || (source.is_cpu_time && another_has_cpu_time(groups, at)) {
                continue;
            }
            let kept = match open(&group.folder, source.file, path) {
                Ok(file) => may_be_kept(groups, source).then(|| File::from(file)),
                // The process has no free descriptor now, but may have one when the file is read.
                Err(e) if is_out_of_descriptors(&e) => None,
                Err(_) => continue,
            };
            groups[at].files.push(GroupFile { source, kept });
        }
    }

    /// Checks whether the group's children changed, and adds the new ones. Returns false if it is
    /// gone.
    fn check(&mut self, at: usize) -> bool {
        let group = &self.groups[at];
        let folder = group.folder.as_c_str();
        let Ok(stat) = statx(CWD, folder, AtFlags::empty(), StatxFlags::NLINK) else {
            return false;
        };
        let links = u64::from(stat.stx_nlink);
        if group.links_when_listed == Some(links) {
            return true;
        }
        let (hierarchy, depth) = (group.hierarchy, group.depth + 1);
        let mut left_out = 0;
        // A group without children has 2 links: itself, and its name in its parent.
        if depth > MAX_DEPTH || self.groups.len() >= MAX_GROUPS {
            // Nothing can be added, so a folder of thousands need not be listed.
            let known = self.groups.iter().filter(|g| parent(&g.folder) == folder.to_bytes());
            left_out = links.saturating_sub(2 + known.count() as u64);
        } else if links != 2 {
            for folder in children(&group.folder) {
                let is_known = self.groups.iter().any(|g| g.folder == folder);
                if !is_known && !self.add(hierarchy, folder, depth) {
                    left_out += 1;
                }
            }
        }
        let group = &mut self.groups[at];
        group.links_when_listed = Some(links);
        group.children_left_out = left_out;
        true
    }

    fn remove(&mut self, at: usize, sink: &mut dyn Sink) {
        let mut gone = self.groups.swap_remove(at);
        gone.facts.unregister(sink);
        // Its parent may have another child in its place, and so the same number of links. There is
        // also room again for groups that were left out.
        let parent = parent(&gone.folder);
        for group in &mut self.groups {
            if group.children_left_out > 0 || group.folder.as_bytes() == parent {
                group.links_when_listed = None;
            }
        }
    }

    fn check_some(&mut self, sink: &mut dyn Sink) {
        for _ in 0..CHECKS_PER_TICK.min(self.groups.len()) {
            self.next_check = wrapped(self.next_check, self.groups.len());
            if self.groups.is_empty() {
                return;
            }
            match self.check(self.next_check) {
                true => self.next_check += 1,
                false => self.remove(self.next_check, sink),
            }
        }
    }

    /// Reads the slow files of the group at `at`, or the others, and returns their number; `None`
    /// if the group is gone.
    fn read(&mut self, at: usize, slow: bool, tick: &mut Tick<'_>) -> Option<usize> {
        let Self { groups, buffer, path, .. } = self;
        let Group { folder, facts, files, .. } = &mut groups[at];
        let mut reads = 0;
        for GroupFile { source, kept } in files.iter().filter(|f| f.source.is_slow == slow) {
            reads += 1;
            let text = match kept {
                Some(file) => read_record(file, buffer),
                None => open(folder, source.file, path)
                    .and_then(|file| read_record(&File::from(file), buffer)),
            };
            match text {
                Ok(text) => (source.set)(facts, tick, text),
                Err(e) if is_gone(&e) => return None,
                // A controller that refuses to answer does not affect the others.
                Err(_) => {}
            }
        }
        Some(reads)
    }

    /// Reads the slow files of one group, if it is a group's turn, and looks for new files.
    fn read_slow(&mut self, tick: &mut Tick<'_>) {
        if self.groups.is_empty() {
            return;
        }
        self.ticks += 1;
        let between_turns = (SLOW_CYCLE_TICKS / self.groups.len()).max(1) as u64;
        let at = match self.groups.iter().position(|group| !group.has_slow_facts) {
            Some(new) => new,
            None if self.ticks.is_multiple_of(between_turns) => {
                self.next_slow = wrapped(self.next_slow + 1, self.groups.len());
                self.next_slow
            }
            None => return,
        };
        self.groups[at].has_slow_facts = true;
        self.open_files(at);
        if self.read(at, true, tick).is_none() {
            self.remove(at, tick.sink);
        }
    }
}

impl Sensor for Cgroup {
    fn family(&self) -> &'static Family {
        &cgroup::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        self.check_some(tick.sink);
        let mut reads = 0;
        for _ in 0..self.groups.len() {
            self.next_read = wrapped(self.next_read, self.groups.len());
            match self.read(self.next_read, false, tick) {
                Some(files) => {
                    reads += files;
                    self.next_read += 1;
                }
                None => self.remove(self.next_read, tick.sink),
            }
            if reads >= READS_PER_TICK {
                break;
            }
        }
        self.read_slow(tick);
        Ok(())
    }

    fn skips(&self) -> Vec<Skip> {
        match self.groups.iter().map(|g| g.children_left_out).sum::<u64>() {
            0 => Vec::new(),
            n => vec![Skip::new(
                "cgroup/*",
                format!("{n} groups beyond the first {MAX_GROUPS} or deeper than {MAX_DEPTH}"),
            )],
        }
    }
}

/// In a hybrid setup both v1's `cpuacct` and v2 count a group's time. The first one is used.
fn another_has_cpu_time(groups: &[Group], at: usize) -> bool {
    let instance = groups[at].facts.instance();
    let mut others = groups.iter().enumerate().filter(|(other, _)| *other != at);
    others.any(|(_, group)| group.facts.instance() == instance && group.has_cpu_time())
}

fn may_be_kept(groups: &[Group], source: &Source) -> bool {
    let files = groups.iter().flat_map(|group| &group.files);
    !source.is_slow && files.filter(|file| file.kept.is_some()).count() < MAX_KEPT_FILES
}

fn wrapped(at: usize, len: usize) -> usize {
    if at < len { at } else { 0 }
}

/// Returns the folder that `folder` lies in.
fn parent(folder: &CStr) -> &[u8] {
    let folder = folder.to_bytes();
    &folder[..folder.iter().rposition(|&b| b == b'/').unwrap_or(0)]
}

/// The errors of a file whose group was removed.
fn is_gone(e: &io::Error) -> bool {
    is_one_of(e, [Errno::NODEV, Errno::NOENT])
}

fn is_out_of_descriptors(e: &io::Error) -> bool {
    is_one_of(e, [Errno::MFILE, Errno::NFILE])
}

fn is_one_of(e: &io::Error, errnos: [Errno; 2]) -> bool {
    errnos.iter().any(|errno| e.raw_os_error() == Some(errno.raw_os_error()))
}

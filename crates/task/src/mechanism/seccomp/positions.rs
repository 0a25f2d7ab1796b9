//! What the positions of descriptors say: how many bytes went through each open file.
//!
//! A description (what `open` makes) has one position, which descriptors share that were inherited or
//! duplicated. Its bytes are counted once, when the last of them goes: by `close`, by `exec`, by the
//! end of its process. `lseek` begins another stretch. A file may have several descriptors for one
//! description only if one was duplicated, or was open while its process forked: of all others, which
//! are most, nobody looks for another.

use std::collections::{HashMap, HashSet};
use std::os::fd::RawFd;

use skopos_model::task::{FileUse, ProcessFiles};

use super::descriptor::{Descriptor, DescriptorId, FileId, Mode, all_of};
use crate::proc;
use crate::sys::Pid;
use crate::sys::seccomp::PendingCall;

/// The most files that are told apart: as many as `preload` does. What is opened beyond is summed up.
const MAX_FILES: usize = 16_384;

/// The bytes that went through a description before its last stretch, and where that began.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    file: FileId,
    moved: u64,
    /// `None` after a seek whose end is not known.
    from: Option<u64>,
}

/// A descriptor that goes or moves. What is to be known of it is looked up before the call is made.
#[derive(Clone, Copy, Debug)]
struct DescriptorUse {
    holder: DescriptorId,
    descriptor: Descriptor,
    /// Where the stretch of its description is kept: here, or at a holder that shares it.
    place: DescriptorId,
}

/// What a call will have done once it is made.
#[derive(Debug, Default)]
pub(super) struct Effect {
    process: Pid,
    thread: Pid,
    /// Descriptors that go; of files with positions only.
    going: Vec<(DescriptorId, FileId)>,
    /// Those of them that are the last of their description.
    last: Vec<DescriptorUse>,
    /// Stretches that another holder takes over.
    heirs: Vec<(DescriptorId, DescriptorId)>,
    /// Files of which descriptors are closed one by one.
    closed: Vec<FileId>,
    /// A descriptor that moves, and where to if that is known.
    seek: Option<(DescriptorUse, Option<u64>)>,
    is_exec: bool,
    is_end: bool,
}

/// All that is known of the task's files.
#[derive(Debug, Default)]
pub(super) struct Positions {
    own: Pid,
    /// What is open on behalf of whoever started the monitor, with the positions at the start. The
    /// monitor has these open itself, until the end.
    outside: Vec<(DescriptorId, Descriptor)>,
    living: HashSet<Pid>,
    /// Processes whose descriptors were taken account of for the last time.
    gone: HashSet<Pid>,
    /// The process of each thread that asked.
    processes: HashMap<Pid, Pid>,
    /// Files of which several descriptors may have one description.
    shared: HashSet<FileId>,
    stretches: HashMap<DescriptorId, Stretch>,
    /// Descriptors that go by the last call of a thread, which may still be about to be made.
    leaving: HashMap<Pid, Vec<(DescriptorId, FileId)>>,
    /// What is done once a process has become another program: it may fail to.
    becoming: HashMap<Pid, Effect>,
    files: HashMap<FileId, FileUse>,
    others: FileUse,
    by_process: HashMap<Pid, ProcessFiles>,
    pub(super) counts: Counts,
}

/// What could not be counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Descriptions whose position is the end of a file that others wrote too.
    pub(super) appending: u64,
    /// Stretches that began where the position was not known.
    pub(super) unknown_stretches: u64,
    /// Processes that were killed before anybody could look.
    pub(super) unseen_ends: u64,
}

impl Positions {
    /// Of a task whose first process waits to become its program.
    pub(super) fn of(own: Pid, root: Pid) -> Self {
        let mut positions = Self { own, ..Self::default() };
        positions.living.insert(root);
        let inherited = all_of(root).into_iter().filter(|(_, d)| !d.closes_on_exec);
        for (holder, descriptor) in inherited {
            let holder = DescriptorId { process: own, ..holder };
            positions.shared.insert(descriptor.file);
            let is_there = |(other, _): &(DescriptorId, _)| holder.shares_with(*other, &descriptor);
            if !positions.outside.iter().any(is_there) {
                let stretch =
                    Stretch { file: descriptor.file, moved: 0, from: Some(descriptor.position) };
                positions.stretches.insert(holder, stretch);
                positions.outside.push((holder, descriptor));
            }
        }
        positions
    }

    /// What a call would do, as things are before it.
    pub(super) fn effect_of(&mut self, asked: &PendingCall) -> Effect {
        let thread = asked.thread;
        let process = self.met(thread);
        // It asks again: its last call is over, and what it wanted to become it did not.
        self.leaving.remove(&thread);
        self.becoming.remove(&process);
        if self.gone.contains(&process) {
            return Effect::default();
        }
        Effect { thread, ..self.effect(process, asked) }
    }

    fn effect(&mut self, process: Pid, asked: &PendingCall) -> Effect {
        let [first, second, third, ..] = asked.arguments;
        let number = |word: u64| word as RawFd;
        match asked.call {
            libc::SYS_close => self.closing(process, |n| n == number(first), Some(number(first))),
            // Onto itself it does nothing.
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 if number(first) == number(second) => Effect::default(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => self.duplicating(process, number(first), Some(number(second))),
            libc::SYS_dup3 => self.duplicating(process, number(first), Some(number(second))),
            libc::SYS_dup | libc::SYS_fcntl => self.duplicating(process, number(first), None),
            libc::SYS_close_range => {
                let (range, marks) = (first as u32..=second as u32, third as u32);
                match marks & libc::CLOSE_RANGE_CLOEXEC {
                    0 => self.closing(process, |n| range.contains(&n.cast_unsigned()), None),
                    _ => Effect::default(),
                }
            }
            libc::SYS_execve | libc::SYS_execveat => {
                let effect = self.going(process, |_, d| d.closes_on_exec, all_of(process));
                Effect { is_exec: true, ..effect }
            }
            libc::SYS_exit_group => self.end_of(process),
            libc::SYS_lseek => self.seeking(process, number(first), second.cast_signed(), third),
            _ => Effect::default(),
        }
    }

    /// The end of a process, whose descriptors are all there.
    pub(super) fn end_of(&mut self, process: Pid) -> Effect {
        let effect = self.going(process, |_, _| true, all_of(process));
        Effect { is_end: true, thread: process, ..effect }
    }

    fn closing(
        &mut self,
        process: Pid,
        is_closed: impl Fn(RawFd) -> bool,
        single: Option<RawFd>,
    ) -> Effect {
        let all = match single {
            Some(number) => {
                let holder = DescriptorId { process, number };
                let Some(descriptor) = holder.look() else { return Effect::default() };
                match self.is_shared(&descriptor) {
                    false => vec![(holder, descriptor)],
                    true => all_of(process),
                }
            }
            None => all_of(process),
        };
        let closed = all.iter().filter(|(holder, _)| is_closed(holder.number));
        let closed = closed.map(|(_, descriptor)| descriptor.file).collect();
        Effect { closed, ..self.going(process, |holder, _| is_closed(holder.number), all) }
    }

    /// A second descriptor of what one is, in the place of another or in a free one.
    fn duplicating(&mut self, process: Pid, from: RawFd, to: Option<RawFd>) -> Effect {
        if let Some(descriptor) = (DescriptorId { process, number: from }).look() {
            self.share(descriptor.file);
        }
        match to {
            Some(to) => self.closing(process, |n| n == to, Some(to)),
            None => Effect { process, ..Effect::default() },
        }
    }

    fn seeking(&mut self, process: Pid, number: RawFd, by: i64, whence: u64) -> Effect {
        let holder = DescriptorId { process, number };
        let Some(descriptor) = holder.look() else { return Effect::default() };
        let base = match whence as i32 {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => descriptor.position,
            libc::SEEK_END => descriptor.size,
            // Data and holes: where they are only the file system knows.
            _ => {
                let seek = Some((self.used(holder, descriptor), None));
                return Effect { process, seek, ..Effect::default() };
            }
        };
        // One to before the beginning fails, and moves nothing.
        let to = base.checked_add_signed(by);
        let seek = to.map(|to| (self.used(holder, descriptor), Some(to)));
        Effect { process, seek, ..Effect::default() }
    }

    /// Which of the descriptors that go are the last of theirs. `all` are those of the process, or that
    /// one alone that goes.
    fn going(
        &mut self,
        process: Pid,
        goes: impl Fn(&DescriptorId, &Descriptor) -> bool,
        all: Vec<(DescriptorId, Descriptor)>,
    ) -> Effect {
        let mut effect = Effect { process, ..Effect::default() };
        let (going, staying): (Vec<_>, Vec<_>) = all.into_iter().partition(|(h, d)| goes(h, d));
        for (at, (holder, descriptor)) in going.iter().enumerate() {
            effect.going.push((*holder, descriptor.file));
            let later = going.get(at + 1..).unwrap_or_default();
            let siblings: Vec<_> = staying.iter().chain(later).copied().collect();
            let used = self.used(*holder, *descriptor);
            match self.heir_of(&used, &siblings) {
                Some(heir) => effect.heirs.push((*holder, heir)),
                None => effect.last.push(used),
            }
        }
        effect
    }

    /// Looks up what cannot be looked up later.
    fn used(&mut self, holder: DescriptorId, descriptor: Descriptor) -> DescriptorUse {
        let FileId { device, inode, .. } = descriptor.file;
        if !self.files.contains_key(&descriptor.file) && self.files.len() < MAX_FILES {
            let (path, kind) = (holder.path(), "file".to_owned());
            let new = FileUse { path, kind, device, inode, ..FileUse::default() };
            self.files.insert(descriptor.file, new);
        }
        let is_of_file = |(_, s): &(&DescriptorId, &Stretch)| s.file == descriptor.file;
        let mut place = holder;
        if !self.stretches.get_key_value(&holder).is_some_and(|pair| is_of_file(&pair))
            && self.is_shared(&descriptor)
        {
            let of_file = self.stretches.iter().filter(is_of_file).map(|(other, _)| *other);
            let shared = of_file.into_iter().find(|o| holder.shares_with(*o, &descriptor));
            place = shared.unwrap_or(holder);
        }
        DescriptorUse { holder, descriptor, place }
    }

    /// Who else has the same description, of whoever stays.
    fn heir_of(
        &self,
        used: &DescriptorUse,
        siblings: &[(DescriptorId, Descriptor)],
    ) -> Option<DescriptorId> {
        let DescriptorUse { holder, descriptor, .. } = used;
        if !self.is_shared(descriptor) {
            return None;
        }
        let leaving = || self.leaving.values().flatten();
        let stays =
            |other: &DescriptorId| !leaving().any(|left| *left == (*other, descriptor.file));
        let is_heir = |other: &DescriptorId| stays(other) && holder.shares_with(*other, descriptor);
        let known = self.outside.iter().chain(siblings);
        let mut of_file = known.filter(|(_, of)| of.file == descriptor.file);
        if let Some((heir, _)) = of_file.find(|(other, _)| is_heir(other)) {
            return Some(*heir);
        }
        let is_there = |p: &&Pid| **p != holder.process && !self.gone.contains(p);
        let others = || self.living.iter().filter(is_there).copied();
        // What was inherited has the same number more often than not.
        let mut same_number = others().map(|process| DescriptorId { process, ..*holder });
        same_number.find(is_heir).or_else(|| {
            let all = others().flat_map(all_of).filter(|(_, of)| of.file == descriptor.file);
            all.map(|(other, _)| other).find(is_heir)
        })
    }

    fn is_shared(&self, descriptor: &Descriptor) -> bool {
        // Of too many, all may be.
        self.shared.len() >= MAX_FILES || self.shared.contains(&descriptor.file)
    }

    fn share(&mut self, file: FileId) {
        if self.shared.len() < MAX_FILES {
            self.shared.insert(file);
        }
    }

    /// A call is made: what it does is done.
    pub(super) fn done(&mut self, mut effect: Effect) {
        if !effect.going.is_empty() {
            self.leaving.insert(effect.thread, std::mem::take(&mut effect.going));
        }
        if effect.is_exec {
            effect.is_exec = false;
            self.becoming.insert(effect.process, effect);
            return;
        }
        if let Some((used, to)) = effect.seek {
            self.sought(&used, to);
        }
        for file in effect.closed {
            self.files.get_mut(&file).unwrap_or(&mut self.others).closes += 1;
        }
        for (holder, heir) in effect.heirs {
            if let Some(stretch) = self.stretches.remove(&holder) {
                self.stretches.entry(heir).or_insert(stretch);
            }
        }
        for used in effect.last {
            self.count(&used, 1);
        }
        if effect.is_end {
            self.gone.insert(effect.process);
        }
    }

    /// It became another program. What the monitor's child had open before it was the task does not
    /// count.
    pub(super) fn became(&mut self, process: Pid, counts: bool) {
        self.processes.retain(|_, of| *of != process);
        self.forget_calls_of(process);
        if let Some(effect) = self.becoming.remove(&process).filter(|_| counts) {
            self.done(effect);
        }
    }

    /// A thread forked: the last calls of its process are over, and what goes by the same number now
    /// may be another.
    pub(super) fn forked(&mut self, thread: Pid) {
        let process = self.met(thread);
        self.forget_calls_of(process);
    }

    fn forget_calls_of(&mut self, process: Pid) {
        self.leaving.retain(|_, going| going.iter().all(|(holder, _)| holder.process != process));
    }

    /// A thread is there. A process that is new may have inherited descriptors. Whose thread it is.
    pub(super) fn met(&mut self, thread: Pid) -> Pid {
        if let Some(process) = self.processes.get(&thread) {
            return *process;
        }
        let process = proc::process_of(thread).unwrap_or(thread);
        self.processes.insert(thread, process);
        if self.living.insert(process) {
            all_of(process).into_iter().for_each(|(_, descriptor)| self.share(descriptor.file));
        }
        process
    }

    /// A thread has ended, or a process with its last one. What it did, if it was one.
    pub(super) fn ended(&mut self, thread: Pid) -> Option<ProcessFiles> {
        self.processes.remove(&thread);
        self.leaving.remove(&thread);
        if !self.living.remove(&thread) {
            return None;
        }
        self.becoming.remove(&thread);
        if !self.gone.remove(&thread) {
            self.counts.unseen_ends += 1;
            self.stretches.retain(|holder, _| holder.process != thread);
        }
        self.by_process.remove(&thread)
    }

    /// True while its descriptors are to be looked at when it ends.
    pub(super) fn is_open(&self, process: Pid) -> bool {
        self.living.contains(&process) && !self.gone.contains(&process)
    }

    fn sought(&mut self, used: &DescriptorUse, to: Option<u64>) {
        let Descriptor { file, position, .. } = used.descriptor;
        let new = Stretch { file, moved: 0, from: Some(0) };
        let stretch = self.stretches.entry(used.place).or_insert(new);
        if stretch.file != file {
            *stretch = new;
        }
        match stretch.from {
            Some(from) => stretch.moved += position.saturating_sub(from),
            None => self.counts.unknown_stretches += 1,
        }
        stretch.from = to;
    }

    /// The bytes of a description go to its file.
    fn count(&mut self, used: &DescriptorUse, opens: u64) {
        let Descriptor { file, position, mode, appends, .. } = used.descriptor;
        let stretch = self.stretches.remove(&used.place).filter(|s| s.file == file);
        let bytes = match stretch {
            _ if appends => {
                self.counts.appending += u64::from(position > 0);
                0
            }
            None => position,
            Some(Stretch { moved, from: Some(from), .. }) => moved + position.saturating_sub(from),
            Some(Stretch { moved, .. }) => {
                self.counts.unknown_stretches += 1;
                moved
            }
        };
        let file = self.files.get_mut(&file).unwrap_or(&mut self.others);
        file.opens += opens;
        match mode {
            Mode::Read => file.read_bytes += bytes,
            Mode::Write => file.written_bytes += bytes,
            Mode::Both => file.read_or_written_bytes += bytes,
        }
        self.at_process(used.holder.process, |process| {
            process.opens += opens;
            match mode {
                Mode::Read => process.read_bytes += bytes,
                Mode::Write => process.written_bytes += bytes,
                Mode::Both => {}
            }
        });
    }

    fn at_process(&mut self, process: Pid, change: impl FnOnce(&mut ProcessFiles)) {
        // The monitor itself stands for what it has from outside.
        if process != self.own {
            let new = || ProcessFiles { pid: process, ..ProcessFiles::default() };
            change(self.by_process.entry(process).or_insert_with(new));
        }
    }

    /// All files, once nobody asks any more: what is still open is counted as far as it came. With what
    /// each process did that has not ended.
    pub(super) fn into_files(mut self) -> (Vec<FileUse>, Vec<ProcessFiles>, Counts) {
        let left: Vec<Pid> = self.living.difference(&self.gone).copied().collect();
        for process in left {
            let effect = self.end_of(process);
            self.done(effect);
        }
        for (holder, _) in std::mem::take(&mut self.outside) {
            if let Some(descriptor) = holder.look() {
                let used = self.used(holder, descriptor);
                self.count(&used, 0);
            }
        }
        let mut files: Vec<_> = self.files.into_values().filter(FileUse::is_used).collect();
        if self.others.is_used() {
            self.others.kind = "others".to_owned();
            files.push(self.others);
        }
        (files, self.by_process.into_values().collect(), self.counts)
    }
}

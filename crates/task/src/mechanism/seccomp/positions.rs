//! Counts the bytes that went through each open file, from the positions of descriptors.
//!
//! An open file description (the result of `open`) has one position, which inherited and duplicated
//! descriptors share. Its bytes are counted once, when its last descriptor is closed: by `close`,
//! by `exec`, or by the exit of its process. `lseek` starts another stretch. Several descriptors
//! can share a description only if one was duplicated or was open during a fork, so for most files
//! no search for others is needed.

use std::collections::{HashMap, HashSet};
use std::os::fd::RawFd;

use skopos_model::task::{FileUse, ProcessFiles};

use super::descriptor::{Descriptor, DescriptorId, FileId, Mode, all_of};
use crate::proc;
use crate::sys::Pid;
use crate::sys::seccomp::PendingCall;

/// The most files that are counted separately, as in `preload`. The rest is summed up.
const MAX_FILES: usize = 16_384;

/// The bytes that went through a description before its last stretch, and the start of that
/// stretch.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    file: FileId,
    moved: u64,
    /// `None` after a seek to an unknown position.
    from: Option<u64>,
}

/// A descriptor that is about to be closed or moved, with all that must be read before the call is
/// made.
#[derive(Clone, Copy, Debug)]
struct DescriptorUse {
    holder: DescriptorId,
    descriptor: Descriptor,
    /// The key of the stretch of its description: this descriptor, or another one that shares the
    /// description.
    place: DescriptorId,
}

/// The effect that a suspended call will have.
#[derive(Debug, Default)]
pub(super) struct Effect {
    process: Pid,
    thread: Pid,
    /// Descriptors of files with positions that will be closed.
    closing: Vec<(DescriptorId, FileId)>,
    /// The closed descriptors that are the last ones of their descriptions.
    last: Vec<DescriptorUse>,
    /// Stretches that move to another descriptor.
    heirs: Vec<(DescriptorId, DescriptorId)>,
    /// Files of which a descriptor is closed explicitly.
    closed: Vec<FileId>,
    /// A descriptor that seeks, and its new position if that is known.
    seek: Option<(DescriptorUse, Option<u64>)>,
    is_exec: bool,
    is_end: bool,
}

/// The state of all files of the task.
#[derive(Debug, Default)]
pub(super) struct Positions {
    own: Pid,
    /// Descriptions that the monitor inherited, with their positions at the start. The monitor
    /// keeps them open until the end.
    outside: Vec<(DescriptorId, Descriptor)>,
    living: HashSet<Pid>,
    /// Processes whose descriptors have been counted for the last time.
    gone: HashSet<Pid>,
    /// The process of each known thread.
    processes: HashMap<Pid, Pid>,
    /// Files of which several descriptors may share one description.
    shared: HashSet<FileId>,
    stretches: HashMap<DescriptorId, Stretch>,
    /// Descriptors that the last call of a thread closes; the call may still be pending.
    leaving: HashMap<Pid, Vec<(DescriptorId, FileId)>>,
    /// Effects of an exec that may still fail.
    becoming: HashMap<Pid, Effect>,
    files: HashMap<FileId, FileUse>,
    others: FileUse,
    by_process: HashMap<Pid, ProcessFiles>,
    pub(super) uncounted: Uncounted,
}

/// Numbers of things that could not be counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Uncounted {
    /// Descriptions whose position is the end of a file that other processes wrote too.
    pub(super) appending: u64,
    /// Stretches that began at an unknown position.
    pub(super) unknown_stretches: u64,
    /// Processes that were killed before their descriptors could be read.
    pub(super) unseen_exits: u64,
}

impl Positions {
    /// Starts with a task whose first process waits for its exec.
    pub(super) fn of(own: Pid, root: Pid) -> Self {
        let mut positions = Self { own, ..Self::default() };
        positions.living.insert(root);
        let inherited = all_of(root).into_iter().filter(|(_, d)| !d.closes_on_exec);
        for (holder, descriptor) in inherited {
            let holder = DescriptorId { process: own, ..holder };
            positions.shared.insert(descriptor.file);
            let is_living =
                |(other, _): &(DescriptorId, _)| holder.shares_with(*other, &descriptor);
            if !positions.outside.iter().any(is_living) {
                let stretch =
                    Stretch { file: descriptor.file, moved: 0, from: Some(descriptor.position) };
                positions.stretches.insert(holder, stretch);
                positions.outside.push((holder, descriptor));
            }
        }
        positions
    }

    /// Returns the effect of a call, from the state before it.
    pub(super) fn effect_of(&mut self, pending: &PendingCall) -> Effect {
        let thread = pending.thread;
        let process = self.add_thread(thread);
        // A new call means that the last call of the thread is over; a pending exec has failed.
        self.leaving.remove(&thread);
        self.becoming.remove(&process);
        if self.gone.contains(&process) {
            return Effect::default();
        }
        Effect { thread, ..self.effect(process, pending) }
    }

    fn effect(&mut self, process: Pid, pending: &PendingCall) -> Effect {
        let [first, second, third, ..] = pending.arguments;
        let number = |word: u64| word as RawFd;
        match pending.call {
            libc::SYS_close => self.close(process, |n| n == number(first), Some(number(first))),
            // Duplicating onto itself does nothing.
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 if number(first) == number(second) => Effect::default(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => self.duplicate(process, number(first), Some(number(second))),
            libc::SYS_dup3 => self.duplicate(process, number(first), Some(number(second))),
            libc::SYS_dup | libc::SYS_fcntl => self.duplicate(process, number(first), None),
            libc::SYS_close_range => {
                let (range, marks) = (first as u32..=second as u32, third as u32);
                match marks & libc::CLOSE_RANGE_CLOEXEC {
                    0 => self.close(process, |n| range.contains(&n.cast_unsigned()), None),
                    _ => Effect::default(),
                }
            }
            libc::SYS_execve | libc::SYS_execveat => {
                let effect = self.closing(process, |_, d| d.closes_on_exec, all_of(process));
                Effect { is_exec: true, ..effect }
            }
            libc::SYS_exit_group => self.end_of(process),
            libc::SYS_lseek => {
                self.seek_effect(process, number(first), second.cast_signed(), third)
            }
            _ => Effect::default(),
        }
    }

    /// Returns the effect of the exit of a process that still has all its descriptors.
    pub(super) fn end_of(&mut self, process: Pid) -> Effect {
        let effect = self.closing(process, |_, _| true, all_of(process));
        Effect { is_end: true, thread: process, ..effect }
    }

    fn close(
        &mut self,
        process: Pid,
        is_closed: impl Fn(RawFd) -> bool,
        single: Option<RawFd>,
    ) -> Effect {
        let all = match single {
            Some(number) => {
                let holder = DescriptorId { process, number };
                let Some(descriptor) = holder.read() else { return Effect::default() };
                match self.is_shared(&descriptor) {
                    false => vec![(holder, descriptor)],
                    true => all_of(process),
                }
            }
            None => all_of(process),
        };
        let closed = all.iter().filter(|(holder, _)| is_closed(holder.number));
        let closed = closed.map(|(_, descriptor)| descriptor.file).collect();
        Effect { closed, ..self.closing(process, |holder, _| is_closed(holder.number), all) }
    }

    /// Handles a duplicate of a descriptor, in place of another one or under a free number.
    fn duplicate(&mut self, process: Pid, from: RawFd, to: Option<RawFd>) -> Effect {
        if let Some(descriptor) = (DescriptorId { process, number: from }).read() {
            self.share(descriptor.file);
        }
        match to {
            Some(to) => self.close(process, |n| n == to, Some(to)),
            None => Effect { process, ..Effect::default() },
        }
    }

    fn seek_effect(&mut self, process: Pid, number: RawFd, by: i64, whence: u64) -> Effect {
        let holder = DescriptorId { process, number };
        let Some(descriptor) = holder.read() else { return Effect::default() };
        let base = match whence as i32 {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => descriptor.position,
            libc::SEEK_END => descriptor.size,
            // SEEK_DATA and SEEK_HOLE: only the file system knows the new position.
            _ => {
                let seek = Some((self.used(holder, descriptor), None));
                return Effect { process, seek, ..Effect::default() };
            }
        };
        // A seek to before the beginning fails and moves nothing.
        let to = base.checked_add_signed(by);
        let seek = to.map(|to| (self.used(holder, descriptor), Some(to)));
        Effect { process, seek, ..Effect::default() }
    }

    /// Finds which of the closed descriptors are the last of their descriptions. `all` are the
    /// descriptors of the process, or only the closed one.
    fn closing(
        &mut self,
        process: Pid,
        goes: impl Fn(&DescriptorId, &Descriptor) -> bool,
        all: Vec<(DescriptorId, Descriptor)>,
    ) -> Effect {
        let mut effect = Effect { process, ..Effect::default() };
        let (closing, staying): (Vec<_>, Vec<_>) = all.into_iter().partition(|(h, d)| goes(h, d));
        for (at, (holder, descriptor)) in closing.iter().enumerate() {
            effect.closing.push((*holder, descriptor.file));
            let later = closing.get(at + 1..).unwrap_or_default();
            let siblings: Vec<_> = staying.iter().chain(later).copied().collect();
            let used = self.used(*holder, *descriptor);
            match self.heir_of(&used, &siblings) {
                Some(heir) => effect.heirs.push((*holder, heir)),
                None => effect.last.push(used),
            }
        }
        effect
    }

    /// Reads what cannot be read after the call.
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

    /// Finds another descriptor of the same description that stays open.
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
        let is_living = |p: &&Pid| **p != holder.process && !self.gone.contains(p);
        let others = || self.living.iter().filter(is_living).copied();
        // An inherited descriptor usually has the same number.
        let mut same_number = others().map(|process| DescriptorId { process, ..*holder });
        same_number.find(is_heir).or_else(|| {
            let all = others().flat_map(all_of).filter(|(_, of)| of.file == descriptor.file);
            all.map(|(other, _)| other).find(is_heir)
        })
    }

    fn is_shared(&self, descriptor: &Descriptor) -> bool {
        // Beyond the limit, every file may be shared.
        self.shared.len() >= MAX_FILES || self.shared.contains(&descriptor.file)
    }

    fn share(&mut self, file: FileId) {
        if self.shared.len() < MAX_FILES {
            self.shared.insert(file);
        }
    }

    /// Applies the effect of a call once the call is made.
    pub(super) fn apply(&mut self, mut effect: Effect) {
        if !effect.closing.is_empty() {
            self.leaving.insert(effect.thread, std::mem::take(&mut effect.closing));
        }
        if effect.is_exec {
            effect.is_exec = false;
            self.becoming.insert(effect.process, effect);
            return;
        }
        if let Some((used, to)) = effect.seek {
            self.record_seek(&used, to);
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

    /// Handles an exec. Descriptors that the monitor's child had open before its first exec do not
    /// count.
    pub(super) fn executed(&mut self, process: Pid, counts: bool) {
        self.processes.retain(|_, of| *of != process);
        self.forget_calls_of(process);
        if let Some(effect) = self.becoming.remove(&process).filter(|_| counts) {
            self.apply(effect);
        }
    }

    /// Handles a fork: the last calls of the process are over, and its descriptor numbers may now
    /// mean other files.
    pub(super) fn forked(&mut self, thread: Pid) {
        let process = self.add_thread(thread);
        self.forget_calls_of(process);
    }

    fn forget_calls_of(&mut self, process: Pid) {
        self.leaving
            .retain(|_, closing| closing.iter().all(|(holder, _)| holder.process != process));
    }

    /// Adds a thread and returns its process. A new process may have inherited descriptors.
    pub(super) fn add_thread(&mut self, thread: Pid) -> Pid {
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

    /// Removes an exited thread. If it was the last one of a process, returns the counts of the
    /// process.
    pub(super) fn ended(&mut self, thread: Pid) -> Option<ProcessFiles> {
        self.processes.remove(&thread);
        self.leaving.remove(&thread);
        if !self.living.remove(&thread) {
            return None;
        }
        self.becoming.remove(&thread);
        if !self.gone.remove(&thread) {
            self.uncounted.unseen_exits += 1;
            self.stretches.retain(|holder, _| holder.process != thread);
        }
        self.by_process.remove(&thread)
    }

    /// True until the descriptors of a process have been counted at its exit.
    pub(super) fn is_open(&self, process: Pid) -> bool {
        self.living.contains(&process) && !self.gone.contains(&process)
    }

    fn record_seek(&mut self, used: &DescriptorUse, to: Option<u64>) {
        let Descriptor { file, position, .. } = used.descriptor;
        let new = Stretch { file, moved: 0, from: Some(0) };
        let stretch = self.stretches.entry(used.place).or_insert(new);
        if stretch.file != file {
            *stretch = new;
        }
        match stretch.from {
            Some(from) => stretch.moved += position.saturating_sub(from),
            None => self.uncounted.unknown_stretches += 1,
        }
        stretch.from = to;
    }

    /// Adds the bytes of a description to its file.
    fn count(&mut self, used: &DescriptorUse, opens: u64) {
        let Descriptor { file, position, mode, appends, .. } = used.descriptor;
        let stretch = self.stretches.remove(&used.place).filter(|s| s.file == file);
        let bytes = match stretch {
            _ if appends => {
                self.uncounted.appending += u64::from(position > 0);
                0
            }
            None => position,
            Some(Stretch { moved, from: Some(from), .. }) => moved + position.saturating_sub(from),
            Some(Stretch { moved, .. }) => {
                self.uncounted.unknown_stretches += 1;
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
        // The monitor stands for descriptions that it inherited.
        if process != self.own {
            let new = || ProcessFiles { pid: process, ..ProcessFiles::default() };
            change(self.by_process.entry(process).or_insert_with(new));
        }
    }

    /// Returns all files once no call is pending: open files are counted up to their present
    /// positions. Also returns the counts of processes that have not exited.
    pub(super) fn into_files(mut self) -> (Vec<FileUse>, Vec<ProcessFiles>, Uncounted) {
        let left: Vec<Pid> = self.living.difference(&self.gone).copied().collect();
        for process in left {
            let effect = self.end_of(process);
            self.apply(effect);
        }
        for (holder, _) in std::mem::take(&mut self.outside) {
            if let Some(descriptor) = holder.read() {
                let used = self.used(holder, descriptor);
                self.count(&used, 0);
            }
        }
        let mut files: Vec<_> = self.files.into_values().filter(FileUse::is_used).collect();
        if self.others.is_used() {
            self.others.kind = "others".to_owned();
            files.push(self.others);
        }
        (files, self.by_process.into_values().collect(), self.uncounted)
    }
}

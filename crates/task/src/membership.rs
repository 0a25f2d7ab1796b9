//! The facts by which a process of the task is told from others below the monitor.

use std::collections::HashSet;

use crate::member::Member;
use crate::proc;
use crate::sys::Pid;

/// The facts of one task that the monitor started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Membership {
    /// The first process of the task.
    pub(crate) root: Option<Pid>,
    /// The name of the task's control group, if it has one.
    pub(crate) group: Option<String>,
    /// The processes below the monitor that are older than the task.
    strangers: HashSet<Member>,
}

impl Membership {
    /// Finds the processes that exist before the task. Called before its first process is forked.
    pub(crate) fn before_start() -> Self {
        let below = proc::descendants(std::process::id() as Pid, usize::MAX).into_iter();
        let strangers = below.filter_map(|pid| Some(Member::new(pid, &proc::stat(pid)?)));
        Self { strangers: strangers.collect(), ..Self::default() }
    }

    /// True if processes below the monitor may be strangers.
    pub(crate) fn has_strangers(&self) -> bool {
        !self.strangers.is_empty()
    }

    /// True for a process that is older than the task.
    pub(crate) fn is_stranger(&self, member: &Member) -> bool {
        self.strangers.contains(member)
    }

    /// True if a process is in the task's control group of any hierarchy, or in a group below.
    pub(crate) fn is_in_group(&self, pid: Pid) -> bool {
        self.group.as_ref().is_some_and(|group| proc::groups_named(pid, group) > 0)
    }
}

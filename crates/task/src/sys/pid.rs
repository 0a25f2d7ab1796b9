//! Process ids, signals to processes, and the priority of the monitor.

use std::ffi::c_int;
use std::marker::PhantomData;

use rustix::process::{Resource, getrlimit};

/// A process id.
pub(crate) type Pid = libc::pid_t;

/// Sends a signal; false if the process does not exist or may not be signalled.
pub(crate) fn kill(pid: Pid, signal: c_int) -> bool {
    // SAFETY: touches no memory.
    unsafe { libc::kill(pid, signal) == 0 }
}

/// Makes the kernel kill this process, which has just been forked, when the thread that forked it ends.
/// Until exec the child blocks the signals of the monitor, so nothing but SIGKILL would end it.
///
/// # Safety
/// Makes system calls only, so it may be called after a fork.
pub(super) unsafe fn die_with(parent: Pid) {
    // SAFETY: changes a setting of this process, or ends it.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        if libc::getppid() != parent {
            libc::_exit(libc::EXIT_FAILURE);
        }
    }
}

/// The calling thread runs before all ordinary threads until this is dropped. Its children have the
/// ordinary priority.
#[derive(Debug)]
pub(crate) struct FirstPriority {
    policy: c_int,
    before: libc::sched_param,
    /// The priority is a property of the thread.
    _thread: PhantomData<*const ()>,
}

impl FirstPriority {
    /// Returns `None` if this user lacks the right, if the thread has a real-time priority already, or
    /// if the kernel would end a thread of that priority for its use of the processor.
    pub(crate) fn take() -> Option<Self> {
        let bound = getrlimit(Resource::Rttime).current;
        let mut before = libc::sched_param { sched_priority: 0 };
        // SAFETY: the kernel writes `before` during the call.
        let policy = unsafe {
            let policy = libc::sched_getscheduler(0) & !libc::SCHED_RESET_ON_FORK;
            (libc::sched_getparam(0, &mut before) == 0).then_some(policy)?
        };
        let is_ordinary =
            matches!(policy, libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE);
        let lowest = libc::sched_param { sched_priority: 1 };
        let taken = bound.is_none()
            && is_ordinary
            && set_policy(libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, lowest);
        // Not `then_some`: a value that is made sets the policy when it is dropped.
        taken.then(|| Self { policy, before, _thread: PhantomData })
    }
}

impl Drop for FirstPriority {
    fn drop(&mut self) {
        // Only an administrator may clear the flag. For an ordinary thread it changes nothing but a negative
        // nice value of its children.
        if !set_policy(self.policy, self.before) {
            set_policy(self.policy | libc::SCHED_RESET_ON_FORK, self.before);
        }
    }
}

/// Sets the policy of the calling thread; false if this user lacks the right.
fn set_policy(policy: c_int, param: libc::sched_param) -> bool {
    // SAFETY: the kernel reads `param` during the call.
    unsafe { libc::sched_setscheduler(0, policy, &param) == 0 }
}

/// The turns of the calling thread on a processor are short until this is dropped. The scheduler gives a thread
/// with short turns its turn sooner after it was woken (`sched_setattr(2)`, Linux 6.12); any user may ask for it.
#[derive(Debug)]
pub(crate) struct ShortTurns {
    before: Attributes,
    /// The turns are a property of the thread.
    _thread: PhantomData<*const ()>,
}

/// `struct sched_attr` in its first version.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// For an ordinary thread the length of its turns, in nanoseconds; 0 is the usual length.
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// The shortest turn that the scheduler grants.
const SHORT_TURN_NANOS: u64 = 100_000;

impl ShortTurns {
    /// Returns `None` if the thread is not an ordinary one, or if the kernel knows no turns.
    pub(crate) fn take() -> Option<Self> {
        let before = Attributes::of_this_thread().filter(|own| {
            [libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&own.policy.cast_signed())
        })?;
        let short = Attributes { runtime: SHORT_TURN_NANOS, ..before };
        let before = Attributes { runtime: 0, ..before };
        // Not `then_some`: a value that is made sets the turns when it is dropped.
        short.set().then(|| Self { before, _thread: PhantomData })
    }
}

impl Drop for ShortTurns {
    fn drop(&mut self) {
        // A length of 0 is always granted.
        self.before.set();
    }
}

impl Attributes {
    fn of_this_thread() -> Option<Self> {
        let (mut own, size) = (Self::default(), size_of::<Self>() as u32);
        // SAFETY: the kernel writes at most `size` bytes to `own` during the call.
        let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut own, size, 0) };
        (read == 0).then_some(own)
    }

    /// Sets the attributes of the calling thread; false if the kernel refuses.
    fn set(&self) -> bool {
        // SAFETY: the kernel reads the attributes during the call.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *self, 0) == 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calling_thread_has_short_turns_until_they_are_dropped() {
        let own = || Attributes::of_this_thread().expect("the kernel knows the call").runtime;
        let before = own();
        let Some(turns) = ShortTurns::take() else {
            return println!("skipped: the kernel refuses");
        };
        let with = own();
        if with == before {
            return println!("skipped: this kernel knows no turns");
        }
        assert_eq!(with, SHORT_TURN_NANOS);
        drop(turns);
        assert_eq!(own(), before);
    }

    /// Returns the policy of a thread, field 41 of its `stat`.
    fn policy_in(stat: &str) -> c_int {
        let (_, fields) = stat.rsplit_once(')').expect("a name");
        fields.split_whitespace().nth(41 - 3).and_then(|f| f.parse().ok()).expect("a policy")
    }

    #[test]
    fn only_the_calling_thread_has_the_priority_until_it_is_dropped() {
        let policy =
            || policy_in(&std::fs::read_to_string("/proc/thread-self/stat").expect("procfs"));
        let before = policy();
        let Some(priority) = FirstPriority::take() else {
            println!("skipped: this user may not have a real-time priority");
            return;
        };
        assert_eq!(policy(), libc::SCHED_RR);
        assert!(FirstPriority::take().is_none(), "it is held already");
        let child = std::process::Command::new("cat").arg("/proc/self/stat").output();
        let child = String::from_utf8(child.expect("it runs").stdout).expect("UTF-8");
        assert_eq!(policy_in(&child), libc::SCHED_OTHER);
        drop(priority);
        assert_eq!(policy(), before);
    }
}

//! Job control. A shell watches its job, which is the monitor. So if the task stops by itself in front
//! of a terminal (`kill -STOP $$`, `suspend`, an editor's Ctrl-Z), the monitor stops too, and `fg` and
//! `bg` continue both.
//!
//! Without a shell with job control the monitor does not stop: a process that continues the task would
//! not continue the monitor.

use std::time::Duration;

use crate::proc::{self, Stat};
use crate::sys::{self, Pid};

/// Time between the stop of the task and that of the monitor. Ctrl-Z and `fg` reach the whole group:
/// then the task goes on within a moment of the monitor, and has not stopped alone.
pub(crate) const DELAY: Duration = Duration::from_millis(50);

/// True for the stop of a process by a job control signal. `traces` says whether the process is
/// traced, since the event differs.
pub(crate) fn is_of_job(signal: i32, event: i32, traces: bool) -> bool {
    let expected = if traces { libc::PTRACE_EVENT_STOP } else { 0 };
    let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    event == expected && stops.contains(&signal)
}

/// Stops this process like the first one of the task, if a shell is there to continue it. When this
/// process goes on, it continues the task.
pub(crate) fn with(task: Pid) {
    let own = std::process::id() as Pid;
    let Some((before, of_task)) = proc::stat(own).zip(proc::stat(task)) else { return };
    if !of_task.is_stopped || !is_job(&before, &of_task, proc::stat(before.parent).as_ref()) {
        return;
    }
    sys::kill(own, libc::SIGSTOP);
    let is_apart = of_task.group != before.group;
    let is_in_front = proc::stat(own).is_some_and(|now| now.foreground == now.group);
    if is_apart && is_in_front && before.foreground == of_task.group {
        // The shell gave the terminal to its job; the task's group had it before.
        sys::give_terminal(of_task.group);
    }
    if proc::stat(task).is_some_and(|now| now.is_stopped) {
        sys::kill(if is_apart { -of_task.group } else { task }, libc::SIGCONT);
    }
}

/// True if a shell with job control started this process: it gives each job a group of its own, and
/// the terminal while it waits.
fn is_job(own: &Stat, task: &Stat, parent: Option<&Stat>) -> bool {
    let by_shell = parent.is_some_and(|p| p.session == own.session && p.group != own.group);
    by_shell && [own.group, task.group].contains(&own.foreground)
}

//! Job control. A shell sees its job stop and continues it, and its job is the monitor. So where the task
//! stops by itself in front of a terminal (`kill -STOP $$`, `suspend`, an editor's Ctrl-Z), the monitor
//! stops too, and `fg` and `bg` continue both.
//!
//! Only there: without a shell with job control nobody continues a monitor, and who continues the task
//! thinks of the task alone.

use std::time::Duration;

use crate::proc::{self, Stat};
use crate::sys::{self, Pid};

/// The monitor stops so long after the task. Ctrl-Z and `fg` are for the whole group: then the task goes
/// on within a moment of the monitor, and did not stop alone.
pub(crate) const AFTER: Duration = Duration::from_millis(50);

/// True if a process stopped as shells stop it, of those events that tell so of one that is traced or not.
pub(crate) fn is_of_job(signal: i32, event: i32, traces: bool) -> bool {
    let told = if traces { libc::PTRACE_EVENT_STOP } else { 0 };
    let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    event == told && stops.contains(&signal)
}

/// Stops this process with the first one of the task, if a shell is there that continues it; then that
/// goes on, too.
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
        // The shell gave the terminal to its job, which is to have been this group.
        sys::give_terminal(of_task.group);
    }
    if proc::stat(task).is_some_and(|now| now.is_stopped) {
        sys::kill(if is_apart { -of_task.group } else { task }, libc::SIGCONT);
    }
}

/// A shell with job control gives each job a group of its own; and the terminal, as long as it waits.
fn is_job(own: &Stat, task: &Stat, parent: Option<&Stat>) -> bool {
    let by_shell = parent.is_some_and(|p| p.session == own.session && p.group != own.group);
    by_shell && [own.group, task.group].contains(&own.foreground)
}

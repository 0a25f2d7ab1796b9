//! System calls without a safe wrapper, a file for each group of them.

mod pid;
mod child;
mod groups;
pub(crate) mod started;
mod witness;
mod signals;
mod wait;
mod ptrace;
pub(crate) mod fanotify;
pub(crate) mod netlink;
pub(crate) mod nvml;
pub(crate) mod perf;
pub(crate) mod seccomp;
pub(crate) mod sockets;

pub(crate) use child::{Child, exec_unmonitored, spawn};
pub(crate) use pid::{FirstPriority, Pid, ShortTurns, kill};
pub(crate) use ptrace::{event_message, go_on, leave_new_threads, release, seize, stay_stopped};
pub use signals::die_of;
pub(crate) use signals::{ReceivedSignal, Signals, forward, forwarded, give_terminal};
pub(crate) use wait::{
    Event, Status, Usage, adopt_orphans, has_children, next_event, own_usage, reap,
};

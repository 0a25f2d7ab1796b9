//! The processes of a task: its first process, and all that are born below it.
//!
//! If the monitor started the task, it adopts the orphans, so the task's processes descend from the
//! monitor. The converse does not hold: the program that became the monitor may have had children
//! (`sleep 100 & exec skopos run …`). They and everything born below them are strangers: they are
//! neither counted nor killed. If the monitor attached, the processes are the process itself, its
//! descendants, and all that were once known as descendants: orphans of that task go elsewhere.
//!
//! A control group only helps to tell: a process may leave its group, and stays a member.

use std::collections::HashSet;

use crate::ledger::Ledger;
use crate::member::Member;
use crate::proc;
use crate::sys::{self, Pid};

/// True if a child of the monitor belongs to the task. Without strangers every child does. Beside
/// strangers a child needs evidence: it was found below a process of the task, it is in the task's
/// control group, or it is traced, as the task alone is. A child without evidence may be an orphan
/// of either, and is left alone.
pub(crate) fn is_child_of_task(ledger: &Ledger, pid: Pid, started_ticks: u64) -> bool {
    let membership = &ledger.membership;
    if !membership.has_strangers() {
        return true;
    }
    if membership.is_stranger(&Member { pid, started: Some(started_ticks) }) {
        return false;
    }
    let own = std::process::id() as Pid;
    let is_traced = || proc::tracer_of(pid).and_then(proc::process_of) == Some(own);
    let is_known = membership.root == Some(pid) || ledger.ever_contained(pid);
    is_known || membership.is_in_group(pid) || is_traced()
}

/// True if a process or thread that has exited, and whose exit the kernel reports to the monitor, belongs
/// to the task. Counts a child without evidence.
pub(crate) fn is_exit_of_task(ledger: &mut Ledger, pid: Pid) -> bool {
    if !ledger.membership.has_strangers() {
        return true;
    }
    // The monitor has not reaped it, so it can be read. A traced thread may have been reaped by its parent.
    let Some(stat) = proc::stat(pid) else { return true };
    let is_of_task = is_child_of_task(ledger, pid, stat.started_ticks);
    let is_older = ledger.membership.is_stranger(&Member::new(pid, &stat));
    let is_unassigned = !is_of_task && !is_older && !ledger.tracks_processes;
    ledger.unassigned += u64::from(is_unassigned);
    is_of_task
}

/// Returns the ids of all processes of the task. Stops once it has found more than `most`: a task that
/// forks without end grows faster than all of it can be found.
pub(crate) fn pids(ledger: &Ledger, most: usize) -> HashSet<Pid> {
    if ledger.is_attached() || ledger.membership.has_strangers() {
        return visit(ledger, most, |_| {}).into_iter().map(|member| member.pid).collect();
    }
    proc::descendants(std::process::id() as Pid, most).into_iter().collect()
}

/// Returns the processes that are still to be killed or reaped. A zombie whose parent is a living
/// process of the task is left to that parent; a zombie child of the monitor is not.
pub(crate) fn unended(ledger: &Ledger) -> Vec<Member> {
    visit_unended(ledger, |_| {})
}

/// True if processes are still to be killed or reaped.
pub(crate) fn is_unended(ledger: &Ledger) -> bool {
    if ledger.is_attached() {
        return ledger.live_members().iter().any(Member::is_alive);
    }
    sys::has_children() && (!ledger.membership.has_strangers() || !unended(ledger).is_empty())
}

/// Returns the processes that are still to be killed or reaped, and calls `each` with each of them
/// before its children are read. A process that `each` stops completes at most the fork that it has
/// begun; the next call finds that child.
pub(crate) fn visit_unended(ledger: &Ledger, each: impl FnMut(&Member)) -> Vec<Member> {
    visit(ledger, usize::MAX, each)
}

fn visit(ledger: &Ledger, most: usize, mut each: impl FnMut(&Member)) -> Vec<Member> {
    let own = std::process::id() as Pid;
    let stat_of = |pid, parent| proc::stat(pid).filter(|stat| stat.parent == parent);
    let mut found: Vec<Member> = match ledger.is_attached() {
        true => ledger.live_members().into_iter().filter(Member::is_alive).collect(),
        false => {
            let member = |pid| {
                let stat = stat_of(pid, own)?;
                let is_of_task = is_child_of_task(ledger, pid, stat.started_ticks);
                is_of_task.then(|| Member::new(pid, &stat))
            };
            proc::children(own).into_iter().filter_map(member).collect()
        }
    };
    let mut pids: HashSet<Pid> = found.iter().map(|member| member.pid).collect();
    let mut next = 0;
    while let Some(parent) = found.get(next).copied().filter(|_| found.len() <= most) {
        next += 1;
        each(&parent);
        let before = found.len();
        for pid in proc::children(parent.pid) {
            let stat = stat_of(pid, parent.pid).filter(|stat| !stat.is_zombie);
            // The monitor may descend from the task that it measures.
            let Some(stat) = stat.filter(|_| pid != own && !pids.contains(&pid)) else { continue };
            pids.insert(pid);
            found.push(Member::new(pid, &stat));
        }
        // If another process took over the parent's id, these are children of that process.
        if found.len() > before && !parent.is_alive() {
            found.drain(before..).for_each(|member| {
                pids.remove(&member.pid);
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn an_attached_task_is_the_tree_of_its_process_and_nothing_else() {
        let script = "sleep 61 & sleep 61 & wait";
        let mut shell = Command::new("sh").args(["-c", script]).spawn().expect("it starts");
        let mut other = Command::new("sleep").arg("61").spawn().expect("it starts");
        let pid = shell.id() as Pid;
        let mut ledger = Ledger::for_attached();
        ledger.process_started(pid, 1);
        let mut tree = unended(&ledger);
        while tree.len() < 3 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            tree = unended(&ledger);
        }
        assert!(tree.iter().all(|member| member.pid != other.id() as Pid));
        assert!(tree.iter().all(|member| member.signal(libc::SIGKILL)), "it is permitted");
        shell.wait().expect("it ends");
        assert!(other.try_wait().expect("asked").is_none());
        other.kill().expect("killed");
        other.wait().expect("it ends");
    }

    #[test]
    fn the_start_times_of_all_processes_of_a_started_task_are_known() {
        let script = "sleep 62 & wait";
        let mut shell = Command::new("sh").args(["-c", script]).spawn().expect("it starts");
        let own = shell.id() as Pid;
        let is_of_it = |member: &Member| {
            member.pid == own || proc::stat(member.pid).is_some_and(|stat| stat.parent == own)
        };
        let mut tree: Vec<Member> = Vec::new();
        while tree.len() < 2 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            tree = unended(&Ledger::new());
            tree.retain(is_of_it);
        }
        assert!(tree.iter().all(|member| member.started.is_some() && member.is_alive()));
        assert!(tree.iter().all(|member| member.signal(libc::SIGKILL)), "it is permitted");
        shell.wait().expect("it ends");
    }
}

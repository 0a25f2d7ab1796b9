//! Finds the processes of a task.
//!
//! If the monitor started the task, its processes are all that descend from the monitor, which adopts
//! the orphans. If the monitor attached, they are the process itself, its descendants, and all
//! processes that once were known as descendants: orphans of that task go elsewhere.

use std::collections::HashSet;

use crate::ledger::Ledger;
use crate::member::Member;
use crate::proc::{self, Stat};
use crate::sys::Pid;

/// Returns the ids of all processes of the task.
pub(crate) fn pids(ledger: &Ledger) -> HashSet<Pid> {
    match ledger.is_attached() {
        true => members(ledger).into_iter().map(|member| member.pid).collect(),
        false => proc::descendants(std::process::id() as Pid).into_iter().collect(),
    }
}

/// Returns the processes that are still to be killed or reaped. A zombie whose parent is a living
/// process of the task is left to that parent; a zombie child of the monitor is not.
pub(crate) fn unended(ledger: &Ledger) -> Vec<Member> {
    if ledger.is_attached() {
        return members(ledger);
    }
    let own = std::process::id() as Pid;
    let mut all = descendants(own);
    all.retain(|(_, stat)| !stat.is_zombie || stat.parent == own);
    all.iter().map(|(pid, stat)| Member::new(*pid, stat)).collect()
}

/// Returns the descendants of a process. A process that took over an id since the ids were read is
/// left out, unless it is a descendant too.
fn descendants(own: Pid) -> Vec<(Pid, Stat)> {
    let all = proc::descendants(own);
    let ids: HashSet<Pid> = all.iter().copied().collect();
    let stats = all.into_iter().filter_map(|pid| Some((pid, proc::stat(pid)?)));
    stats.filter(|(_, stat)| stat.parent == own || ids.contains(&stat.parent)).collect()
}

/// Returns all processes of the task.
pub(crate) fn members(ledger: &Ledger) -> Vec<Member> {
    let own = std::process::id() as Pid;
    if !ledger.is_attached() {
        return descendants(own).iter().map(|(pid, stat)| Member::new(*pid, stat)).collect();
    }
    let known = ledger.live_members().into_iter();
    let mut found: Vec<Member> = known.filter(Member::is_alive).collect();
    let mut pids: HashSet<Pid> = found.iter().map(|member| member.pid).collect();
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        next += 1;
        let before = found.len();
        for pid in proc::children(parent.pid) {
            let stat = proc::stat(pid).filter(|s| s.parent == parent.pid && !s.is_zombie);
            // The monitor may descend from the task that it measures.
            let Some(stat) = stat.filter(|_| pid != own && !pids.contains(&pid)) else { continue };
            pids.insert(pid);
            found.push(Member::new(pid, &stat));
        }
        // If another process took over the parent's id, these are children of that process.
        if !parent.is_alive() {
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
        let mut tree = members(&ledger);
        while tree.len() < 3 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            tree = members(&ledger);
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
        let is_of_it = |(pid, stat): &(Pid, Stat)| {
            *pid == shell.id() as Pid || stat.parent == shell.id() as Pid
        };
        let own = std::process::id() as Pid;
        let mut tree: Vec<Member> = Vec::new();
        while tree.len() < 2 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            let all = descendants(own);
            tree = all.iter().filter(|p| is_of_it(p)).map(|(p, s)| Member::new(*p, s)).collect();
        }
        assert!(tree.iter().all(|member| member.started.is_some() && member.is_alive()));
        assert!(tree.iter().all(|member| member.signal(libc::SIGKILL)), "it is permitted");
        shell.wait().expect("it ends");
    }
}

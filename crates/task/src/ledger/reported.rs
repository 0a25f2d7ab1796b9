//! Process events that the kernel reports after they happened, in their order and with their times.
//! The process itself may be gone, so nothing is read of it.

use super::Ledger;
use crate::proc;
use crate::sys::{Pid, Status};

impl Ledger {
    /// Records a fork. The new process runs its parent's program.
    pub(crate) fn record_fork(&mut self, pid: Pid, parent: Pid, is_vfork: bool, at_nanos: u64) {
        // The exit of an earlier process was lost, and the id belongs to another one now.
        if self.contains(pid) {
            self.exited_at(pid, None, self.clock.seconds_at(at_nanos));
        }
        let of_parent = self.live.get(&parent);
        let (name, command) = of_parent
            .map(|live| (live.name.clone(), live.process.command.clone()))
            .unwrap_or_default();
        self.insert(pid, parent, name, command, self.clock.seconds_at(at_nanos));
        if is_vfork {
            self.mark_borrowed_memory(pid);
        }
    }

    /// Records an exec, with the program's name and command line in the kernel's form.
    pub(crate) fn record_exec(&mut self, pid: Pid, name: &[u8], command: &[u8]) {
        if let Some(live) = self.live.get_mut(&pid) {
            live.leave_borrowed_memory();
            let name = name.split(|b| *b == 0).next().unwrap_or_default();
            live.name = format!("[{}]", String::from_utf8_lossy(name));
            live.process.command = proc::command_line(command).unwrap_or_else(|| live.name.clone());
        }
    }

    /// Records an exit.
    pub(crate) fn record_exit(&mut self, pid: Pid, status: Status, at_nanos: u64) {
        self.exited_at(pid, Some(status), self.clock.seconds_at(at_nanos));
    }

    /// Sets the number of processes that started. Those whose events were lost are in no list.
    pub(crate) fn set_processes_total(&mut self, processes_total: u64) {
        self.exited.left_out += processes_total.saturating_sub(self.processes_total);
    }

    /// Sets the processor time of an exited process, which is final only after its exit.
    pub(crate) fn set_final_cpu(&mut self, pid: Pid, cpu_seconds: f64) {
        if let Some(process) = self.exited.last_mut(pid) {
            process.cpu_seconds = Some(cpu_seconds);
        }
    }
}

//! BPF: programs on the kernel's tracepoints of fork, exec and exit report every process of the
//! task, with its memory and bytes when they are final. Nothing is stopped or traced, so short
//! processes cost next to nothing, and debuggers and set-user-id programs work inside the task.
//!
//! Needs root, or CAP_BPF and CAP_PERFMON, and a kernel with BTF. The programs end with the
//! monitor. Counts are made in the kernel; process events come through a ring, late but in order.

mod kernel;
mod record;
mod tables;
mod totals;

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use skopos_model::task::{Completeness, Limits};

pub(crate) use self::kernel::FILES_MISSING;
use self::kernel::Kernel;
use self::record::Record;
use self::tables::Names;
use self::totals::Totals;
use super::reasons::{NOT_IN_BYTES, still_running};
use super::{Launch, Mechanism, pages};
use crate::ledger::{Ledger, Offer};
use crate::proc::{self, Io, Memory};
use crate::sys::{Event, Pid};

/// The name in reports.
pub(crate) const NAME: &str = "bpf";

/// The most attempts to read a record that another processor is writing: that takes microseconds,
/// unless a hypervisor takes the processor away.
const MAX_TRIES: usize = 1000;

/// Time between two attempts at the end.
const LEAVE: Duration = Duration::from_micros(20);

pub(crate) struct Bpf {
    kernel: Option<Kernel>,
    /// Number of processes above which each process start wakes the monitor.
    most: Option<u64>,
    page: u64,
    /// Pages by which a peak of the kernel may lag.
    batched: u64,
    /// The largest error bound of the peak of one process.
    bound: u64,
    /// Number of records that could not be parsed.
    unparsed: u64,
    /// Paths of files and usage of processes, if files are counted.
    names: Option<Names>,
}

impl Bpf {
    /// Creates the mechanism, with or without counts of files.
    pub(crate) fn new(limits: &Limits, with_files: bool) -> Self {
        Self {
            kernel: None,
            most: limits.of("processes_max").map(|most| most as u64),
            page: rustix::param::page_size() as u64,
            batched: pages::max_lag(),
            bound: 0,
            unparsed: 0,
            names: with_files.then(Names::default),
        }
    }

    fn drain(&mut self, ledger: &mut Ledger) {
        let Some(mut kernel) = self.kernel.take() else { return };
        kernel.take(|bytes| match record::parse(bytes) {
            Some(record) => self.handle(record, ledger),
            None => self.unparsed += 1,
        });
        self.kernel = Some(kernel);
    }

    fn handle(&mut self, record: Record<'_>, ledger: &mut Ledger) {
        match record {
            Record::Forked { process, parent, is_vfork, at_nanos } => {
                ledger.record_fork(process, parent, is_vfork, at_nanos);
            }
            Record::Executed { process, name, command } => {
                ledger.record_exec(process, name, command)
            }
            Record::Path { row, names } => {
                if let Some(all) = &mut self.names {
                    all.set_path(row, names);
                }
            }
            Record::Exited { process, at_nanos, status, cpu_nanos, read, written, memory, own } => {
                if let Some(names) = &mut self.names {
                    names.process_exited(
                        process,
                        ledger.command_of(process).unwrap_or_default(),
                        own,
                    );
                }
                if let Some(memory) = memory {
                    // A peak may lag by the pages that processors held back when it was taken; the
                    // present size is exact.
                    let pages = memory.resident.max(memory.resident_max);
                    let behind = (memory.resident_max + self.batched).saturating_sub(pages);
                    self.bound = self.bound.max(behind * self.page);
                    let memory = Memory {
                        resident_bytes_max: pages * self.page,
                        virtual_bytes_max: memory.virtual_max * self.page,
                        ..Memory::default()
                    };
                    ledger.record_memory(process, memory);
                }
                let io = Io { read_bytes: read, written_bytes: written, ..Io::default() };
                ledger.record_usage(process, Some(cpu_nanos as f64 / 1e9), Some(io));
                ledger.record_exit(process, status, at_nanos);
            }
            Record::LeftCpu { process, cpu_nanos } => {
                ledger.set_final_cpu(process, cpu_nanos as f64 / 1e9);
            }
        }
    }
}

/// Reads the totals once all exited threads have left their processors, which takes microseconds
/// unless a hypervisor takes the processors away.
fn last_totals(kernel: &Kernel) -> Option<Totals> {
    for _ in 0..MAX_TRIES {
        let totals = kernel.totals().ok()?;
        if totals.leaving <= 0 {
            return Some(totals);
        }
        std::thread::sleep(LEAVE);
    }
    kernel.totals().ok()
}

impl Mechanism for Bpf {
    fn name(&self) -> &'static str {
        NAME
    }

    fn can_attach(&self) -> Result<(), &'static str> {
        Err("ptrace measures the usage of processes since the attach")
    }

    fn prepare(&mut self, _launch: &mut Launch) -> io::Result<()> {
        self.kernel = Some(Kernel::open(self.most, self.names.is_some())?);
        Ok(())
    }

    fn attach(&mut self, root: Pid, ledger: &mut Ledger) -> io::Result<()> {
        if let Some(kernel) = &mut self.kernel {
            kernel.put(root)?;
            ledger.process_started(root, std::process::id().cast_signed());
        }
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.kernel.as_ref().map(Kernel::descriptor)
    }

    fn readable(&mut self, ledger: &mut Ledger) {
        self.drain(ledger);
    }

    fn event(&mut self, event: &Event, ledger: &mut Ledger) {
        let Event::Ended { pid, .. } = event else { return };
        // The process has exited, so the record of its exit is in the ring; another processor may
        // still be writing an earlier one.
        for _ in 0..MAX_TRIES {
            self.drain(ledger);
            if !ledger.contains(*pid) {
                break;
            }
            std::hint::spin_loop();
        }
        // The processor time up to the very end can be read until the process is reaped.
        if proc::stat(*pid).is_some_and(|stat| stat.threads == 1)
            && let Some((cpu_nanos, _)) = proc::schedstat(*pid)
        {
            ledger.set_final_cpu(*pid, cpu_nanos as f64 / 1e9);
        }
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        let Some(totals) = self.kernel.as_ref().and_then(last_totals) else { return };
        self.drain(ledger);
        let kernel = self.kernel.take();
        let mut moved = [totals.read_bytes, totals.written_bytes];
        if let (Some(names), Some(tables)) = (self.names.take(), kernel.and_then(|k| k.tables())) {
            tables::report(NAME, names, &tables, &totals, ledger);
            moved = tables.with_uncounted(moved, ledger.files.as_ref());
        }
        ledger.set_processes_total(totals.processes_total);
        self.offer(&totals, moved, ledger);
    }
}

impl Bpf {
    fn offer(&self, totals: &Totals, moved: [u64; 2], ledger: &mut Ledger) {
        let left = ledger.live_pids().len();
        let missing = match totals.unknown {
            0 => still_running(left),
            many => Some(format!("the table had no room for {many} processes")),
        };
        let all = |missing: &Option<String>| match missing {
            None => Completeness::All,
            Some(_) => Completeness::AtLeast,
        };
        let leaving = (totals.leaving > 0)
            .then(|| format!("{} threads have not left their processors", totals.leaving));
        let of_cpu = missing.clone().or(leaving);
        let lost = totals.lost + self.unparsed;
        let unmeasured = match (lost, ledger.unmeasured) {
            (0, 0) => missing.clone(),
            (0, many) => Some(format!("{many} processes exited before their memory could be read")),
            (many, _) => Some(format!("the ring had no room for {many} records of the kernel")),
        };
        let (resident, virtual_size) = ledger.peak_sums();
        // Each process had its peak at a time of its own: together they held at least as much as
        // the greatest peak, and at most the sum.
        let spread =
            resident.saturating_sub(ledger.largest_resident) + self.bound * totals.processes_max;
        let unseen = if moved == [totals.read_bytes, totals.written_bytes] {
            NOT_IN_BYTES
        } else {
            tables::WITH_UNCOUNTED
        };
        let of_io = missing.clone().or(Some(unseen.to_owned()));
        let [read, written] = moved.map(|bytes| bytes as f64);
        for (name, value, bound, incomplete, reason) in [
            ("processes_max", totals.processes_max as f64, Some(0.0), &missing, &missing),
            ("processes_total", totals.processes_total as f64, Some(0.0), &missing, &missing),
            ("threads_max", totals.threads_max as f64, Some(0.0), &missing, &missing),
            ("threads_total", totals.threads_total as f64, Some(0.0), &missing, &missing),
            ("resident_bytes_max", resident as f64, Some(spread as f64), &unmeasured, &unmeasured),
            ("virtual_bytes_max", virtual_size as f64, None, &unmeasured, &unmeasured),
            ("cpu_delay_seconds", totals.delay_nanos as f64 / 1e9, Some(0.0), &missing, &missing),
            ("cpu_seconds", totals.cpu_nanos as f64 / 1e9, Some(0.0), &of_cpu, &of_cpu),
            ("minor_faults", totals.minor_faults as f64, Some(0.0), &of_cpu, &of_cpu),
            ("major_faults", totals.major_faults as f64, Some(0.0), &of_cpu, &of_cpu),
            ("voluntary_switches", totals.voluntary_switches as f64, Some(0.0), &of_cpu, &of_cpu),
            (
                "involuntary_switches",
                totals.involuntary_switches as f64,
                Some(0.0),
                &of_cpu,
                &of_cpu,
            ),
            ("read_bytes", read, Some(0.0), &missing, &of_io),
            ("written_bytes", written, Some(0.0), &missing, &of_io),
            ("device_read_bytes", totals.device_read_bytes as f64, Some(0.0), &missing, &missing),
            ("device_written_bytes", totals.device_written_bytes as f64, None, &missing, &missing),
        ] {
            // The kernel's count includes stops by another mechanism; `wait4` corrects for them.
            if name == "voluntary_switches" && ledger.stops > 0 {
                continue;
            }
            let (completeness, reason) = (all(incomplete), reason.clone());
            ledger
                .offers
                .add(name, Offer { method: NAME, value, completeness, error_bound: bound, reason });
        }
    }
}

//! Checks that records for which the BPF ring has no room are counted and reported.

use skopos_model::task::Completeness;
use skopos_task::choose;

use crate::support::{order, run};

#[test]
fn records_beyond_the_ring_are_counted_and_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    // While the monitor is stopped, 1,500 names of 3.5 KB each are sent: more than the 4 MiB of the
    // ring.
    let script = format!(
        "cd {}; part=$(printf %0250d 0); for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do \
         mkdir $part; cd $part; done; kill -STOP $PPID; i=0; while [ $i -lt 1500 ]; do : > $i; \
         i=$((i + 1)); done; kill -CONT $PPID",
        folder.path().display()
    );
    let mut order = order(&["sh", "-c", &script]);
    order.level = Some(3);
    order.only = Some(["wait4", "procfs", "bpf"].map(str::to_owned).to_vec());
    let uses = choose(&order).uses;
    let bpf = uses.iter().find(|each| each.name == "bpf").expect("every mechanism is listed");
    if !bpf.used {
        println!("skipped: {}", bpf.why);
        return;
    }
    let summary = run(&order).summary;
    let reading = |name: &str| summary.resources[name].clone();
    let memory = reading("resident_bytes_max");
    let reason = memory.reason.clone().unwrap_or_default();
    let lost = reason.strip_prefix("the ring had no room for ");
    let lost = lost.and_then(|rest| rest.strip_suffix(" records of the kernel"));
    let lost: u64 = lost.and_then(|number| number.parse().ok()).unwrap_or_else(|| {
        panic!("{memory:?}");
    });
    // Each record takes less than 4 KiB.
    assert!((200..=1500).contains(&lost), "{lost}");
    assert_eq!(memory.completeness, Completeness::AtLeast);
    // Counts in the kernel need no room in the ring: the shell, which has `printf` built in, and
    // the `mkdir`s.
    let processes = reading("processes_total");
    assert_eq!(processes.completeness, Completeness::All, "{processes:?}");
    let opened = reading("opened_files");
    assert!(opened.value >= Some(1500.0), "{opened:?}");
}

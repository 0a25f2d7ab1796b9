//! Cores and interrupts from kernel files of known content: facts of each core, and lists of many.

use crate::recorded::{check, check_data};
use crate::support::Tree;

#[test]
fn cores() {
    check_data(
        "modern",
        "cpu/total/user_seconds_total 25.14
         cpu/total/nice_seconds_total 0.2
         cpu/1/idle_seconds_total 814.99
         cpu/1/iowait_seconds_total 3.38
         cpu/1/softirq_seconds_total 0.17
         cpu/1/steal_seconds_total 0.01
         cpu/0/guest_seconds_total 0.1
         cpu/0/busy_ratio -
         cpu/total/context_switches_total 343637
         cpu/total/forks_total 5219
         cpu/total/running_tasks 3
         cpu/total/blocked_tasks 2
         cpu/0/forks_total -",
    );
}

#[test]
fn busy_ratio_is_over_the_time_since_the_last_poll() {
    let tree = Tree::empty();
    tree.write("proc/stat", "cpu0 100 0 50 1000 50 0 0 0 0 0\n");
    let mut host = tree.host();
    host.poll(1.0);
    tree.write("proc/stat", "cpu0 120 5 60 1050 55 3 2 5 7 0\n");
    // 100 ticks passed, 55 of them idle or waiting.
    check(host.poll(1.0), "cpu/0/busy_ratio 0.45");
    // The kernel's iowait may go backwards; then the ratio stays as it was.
    tree.write("proc/stat", "cpu0 220 5 60 1050 54 3 2 5 7 0\n");
    check(host.poll(1.0), "cpu/0/busy_ratio 0.45");
    // No time has passed.
    check(host.poll(0.001), "cpu/0/busy_ratio 0.45");
    tree.write("proc/stat", "cpu0 220 5 60 1050 154 3 2 5 7 0\n");
    check(host.poll(1.0), "cpu/0/busy_ratio 0");
}

#[test]
fn a_core_that_goes_offline_loses_its_facts() {
    let tree = Tree::of("modern");
    let mut host = tree.host();
    assert_eq!(host.poll(1.0).instances("cpu/"), ["0", "1", "total"]);
    tree.write("proc/stat", "cpu 1 2 3 4\ncpu1 1 2 3 4\n");
    assert_eq!(host.poll(1.0).instances("cpu/"), ["1", "total"]);
    tree.write("proc/stat", "cpu 1 2 3 4\ncpu0 1 2 3 4\ncpu1 1 2 3 4\n");
    assert_eq!(host.poll(1.0).instances("cpu/"), ["0", "1", "total"]);
}

/// Writes the files that have a column or line for each core, of this number of cores.
fn write_cores(tree: &Tree, cores: usize) {
    let line = |core: usize| format!("cpu{core} {} 0 50 1000 50 0 0 0 0 0\n", core * 100);
    let stat: String = (0..cores).map(line).collect();
    tree.write("proc/stat", format!("cpu  1 2 3 4\n{stat}intr 5 0\nsoftirq 3 1 2\n"));
    let column = |f: &dyn Fn(usize) -> String| (0..cores).map(f).collect::<String>();
    let (names, counts) = (column(&|n| format!(" CPU{n}")), column(&|n| format!(" {n}")));
    tree.write("proc/interrupts", format!("    {names}\n 24:{counts} IO-APIC 5-edge acpi\n"));
    tree.write("proc/softirqs", format!("    {names}\n HI:{counts}\n TIMER:{counts}\n"));
}

#[test]
fn a_machine_with_many_cores_has_lists_of_them() {
    let tree = Tree::empty();
    write_cores(&tree, 300);
    let mut host = tree.host();
    host.poll(1.0);
    let lists = ["per_cpu", "per_cpu:256", "total"];
    assert_eq!(host.table.instances("cpu/"), lists);
    assert_eq!(host.table.topics("cpu/per_cpu/").len(), 9, "there is no ratio yet");
    assert_eq!(host.table.instances("interrupts/"), ["acpi@24", "per_cpu", "per_cpu:256", "total"]);
    let user = host.table.list("cpu/per_cpu/user_seconds_total");
    assert_eq!((user.len(), user[0], user[255]), (256, Some(0.0), Some(255.0)));
    let user = host.table.list("cpu/per_cpu:256/user_seconds_total");
    assert_eq!((user.len(), user[0], user[43]), (44, Some(256.0), Some(299.0)));
    assert_eq!(host.table.list("interrupts/per_cpu:256/handled_total")[43], Some(299.0));
    // Core 1 was busy for a third of its time, core 2 went offline, and the others stand still.
    let stat = "cpu  1 2 3 4\ncpu0 0 0 50 1000 50 0 0 0 0 0\ncpu1 101 0 50 1002 50 0 0 0 0 0\n\
                cpu3 300 0 50 1000 50 0 0 0 0 0\n";
    tree.write("proc/stat", stat);
    host.poll(1.0);
    assert_eq!(host.table.list("cpu/per_cpu/busy_ratio"), [None, Some(0.3333)]);
    let idle = host.table.list("cpu/per_cpu/idle_seconds_total");
    assert_eq!(idle, [Some(10.0), Some(10.02), None, Some(10.0)]);
    assert_eq!(host.table.instances("cpu/"), ["per_cpu", "total"], "it keeps its lists");
}

#[test]
fn a_machine_with_64_cores_has_facts_of_each() {
    let tree = Tree::empty();
    write_cores(&tree, 64);
    let mut host = tree.host();
    assert_eq!(host.poll(1.0).instances("cpu/").len(), 65);
    assert_eq!(host.table.instances("interrupts/").len(), 66);
    assert_eq!((host.skip("cpu/*"), host.skip("interrupts/*")), (None, None));
    write_cores(&tree, 65);
    assert_eq!(host.poll(10.0).instances("cpu/"), ["per_cpu", "total"]);
    assert_eq!(host.table.instances("interrupts/"), ["acpi@24", "per_cpu", "total"]);
}

#[test]
fn cores_beyond_the_most_are_a_skip() {
    let tree = Tree::empty();
    write_cores(&tree, 2050);
    let mut host = tree.host();
    host.poll(1.0);
    assert_eq!(host.table.instances("cpu/").len(), 9);
    assert!(host.skip("cpu/per_cpu").expect("a reason").starts_with("2 cores"));
}

#[test]
fn interrupts() {
    check_data(
        "modern",
        "interrupts/total/handled_total 179190
         interrupts/cpu0/handled_total 25645
         interrupts/cpu2/handled_total 88284
         interrupts/cpu1/handled_total -
         interrupts/virtio1-req.0@36/handled_total 64492
         interrupts/arch_timer@40/handled_total 7
         interrupts/loc/handled_total 35996
         interrupts/err/handled_total -
         interrupts/virtio0-config@28/handled_total -
         softirqs/net_rx/handled_total 4895
         softirqs/rcu/handled_total 19114
         softirqs/hi/handled_total 0",
    );
}

#[test]
fn the_sum_of_interrupts_is_new_at_each_poll_and_the_table_each_ten_seconds() {
    let tree = Tree::empty();
    let table = |n: u32| format!("     CPU0\n 24: {n} IO-APIC 5-edge acpi\n");
    tree.write("proc/stat", "intr 100 0 0\n").write("proc/interrupts", table(1));
    let mut host = tree.host();
    host.poll(1.0);
    tree.write("proc/stat", "intr 200 0 0\n").write("proc/interrupts", table(2));
    let old = "interrupts/cpu0/handled_total 1\ninterrupts/acpi@24/handled_total 1";
    for _ in 0..8 {
        check(host.poll(1.0), &format!("interrupts/total/handled_total 200\n{old}"));
    }
    let new = "interrupts/cpu0/handled_total 2\ninterrupts/acpi@24/handled_total 2";
    check(host.poll(1.0), new);
}

#[test]
fn counts_are_told_from_the_zeros_that_the_kernel_writes_most() {
    let tree = Tree::empty();
    tree.write("proc/stat", "intr 100 0 0\n");
    let head = "           CPU0       CPU1       CPU2       \n";
    let numbers = |n: [u64; 3]| n.map(|n| format!(" {n:>10}")).concat();
    let lines = [
        format!(" 24:{}  IO-APIC   5-edge      a\n", numbers([0, 7, 0])),
        format!(" 25:{}  IO-APIC   5-edge      b\n", numbers([10, 0, 12_345_678_901])),
        format!(" 26:{}  IO-APIC   5-edge      c\n", numbers([0, 0, 0])),
        // An old kernel's format, and a number that only begins with ten digits of zero.
        " 27: 0 5 0 GIC d\n 28:          01          02          0 GIC e\n".to_owned(),
    ];
    tree.write("proc/interrupts", format!("{head}{}", lines.concat()));
    check(
        tree.host().poll(1.0),
        "interrupts/a@24/handled_total 7
         interrupts/b@25/handled_total 12345678911
         interrupts/c@26/handled_total -
         interrupts/d@27/handled_total 5
         interrupts/e@28/handled_total 3
         interrupts/cpu0/handled_total 11
         interrupts/cpu1/handled_total 14
         interrupts/cpu2/handled_total 12345678901",
    );
}

#[test]
fn only_the_busiest_interrupt_lines_have_facts() {
    let tree = Tree::empty();
    let table = |busy: usize| {
        let lines = (0..100).map(|irq| {
            let count = if irq == busy { 1_000_000 } else { 1000 - irq };
            format!("{irq:3}: {count:10} PCI-MSI {irq}-edge nvme0q{irq}\n")
        });
        format!("           CPU0\n{}", lines.collect::<String>())
    };
    tree.write("proc/stat", "intr 1 0\n").write("proc/interrupts", table(99));
    let mut host = tree.host();
    let lines = host.poll(1.0).topics("interrupts/nvme0q").len();
    assert_eq!(lines, 32);
    host.table.value("interrupts/nvme0q99@99/handled_total");
    assert!(host.skip("interrupts/*").expect("a reason").starts_with("68 lines"));
    // A line that becomes busy is chosen after some polls.
    assert_eq!(host.table.get("interrupts/nvme0q50@50/handled_total"), None);
    tree.write("proc/interrupts", table(50));
    for _ in 0..60 {
        host.poll(10.0);
    }
    host.table.value("interrupts/nvme0q50@50/handled_total");
    assert_eq!(host.table.topics("interrupts/nvme0q").len(), 32);
}

#[test]
fn a_removed_interrupt_line_does_not_change_the_others() {
    const LINES: [&str; 4] = [
        "           CPU0\n",
        " 24: 1 IO-APIC 5-edge acpi\n",
        " 26: 15 IO-APIC 4-edge serial\n",
        "LOC: 7 Local timer interrupts\n",
    ];
    let tree = Tree::empty();
    tree.write("proc/stat", "intr 23 0\n").write("proc/interrupts", LINES.concat());
    let mut host = tree.host();
    assert_eq!(host.poll(1.0).instances("interrupts/").len(), 5);
    let before = host.table.changes;
    tree.write("proc/interrupts", [LINES[0], LINES[1], LINES[3]].concat());
    assert_eq!(host.poll(10.0).instances("interrupts/"), ["acpi@24", "cpu0", "loc", "total"]);
    assert_eq!(host.table.changes, before + 1);
    // Another driver got the same line.
    tree.write("proc/interrupts", LINES.concat().replace("acpi", "nvme0q1"));
    let lines = ["cpu0", "loc", "nvme0q1@24", "serial@26", "total"];
    assert_eq!(host.poll(10.0).instances("interrupts/"), lines);
}

//! The files of a machine with many cores, in the kernel's formats. An example uses it too.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Interrupt lines of devices for each core: a queue of a fast disk and one of a fast interface, and
/// some more.
const DEVICE_LINES_OF_A_CORE: f64 = 2.3;

/// Lines of the kernel's own interrupts, most of which count on all cores.
static KERNEL_LINES: [(&str, &str, u64); 15] = [
    ("NMI", "Non-maskable interrupts", 12),
    ("LOC", "Local timer interrupts", 3_141_592),
    ("SPU", "Spurious interrupts", 0),
    ("PMI", "Performance monitoring interrupts", 12),
    ("IWI", "IRQ work interrupts", 4_321),
    ("RTR", "APIC ICR read retries", 0),
    ("RES", "Rescheduling interrupts", 27_182),
    ("CAL", "Function call interrupts", 161_803),
    ("TLB", "TLB shootdowns", 57_721),
    ("TRM", "Thermal event interrupts", 0),
    ("THR", "Threshold APIC interrupts", 0),
    ("DFR", "Deferred Error APIC interrupts", 0),
    ("MCE", "Machine check exceptions", 0),
    ("MCP", "Machine check polls", 288),
    ("PIN", "Posted-interrupt notification event", 0),
];

static SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// Writes `/proc/stat`, `/proc/interrupts` and `/proc/softirqs` of a machine with this number of
/// cores below `folder`. The counts grow with `time`.
pub(crate) fn write(folder: &Path, cores: u64, time: u64) {
    let proc = folder.join("proc");
    fs::create_dir_all(&proc).expect("writable");
    fs::create_dir_all(folder.join("sys")).expect("writable");
    let write = |name: &str, text: String| fs::write(proc.join(name), text).expect("writable");
    let devices = (cores as f64 * DEVICE_LINES_OF_A_CORE) as u64;
    write("stat", stat(cores, devices, time));
    write("interrupts", interrupts(cores, devices, time));
    write("softirqs", softirqs(cores, time));
}

fn stat(cores: u64, devices: u64, time: u64) -> String {
    let mut text = String::new();
    let columns = |of: u64| {
        let busy = time * (of % 7);
        let (user, idle) = (7_654_321 + busy, 98_765_432 + time * 100 - busy);
        format!("{user} 4321 {} {idle} 23456 0 {} 0 0 0", 1_234_567 + of, 65_432 + of)
    };
    writeln!(text, "cpu  {}", columns(3)).expect("a String takes all");
    for core in 0..cores {
        writeln!(text, "cpu{core} {}", columns(core)).expect("a String takes all");
    }
    let lines = (0..devices).map(|n| format!(" {}", n * time)).collect::<String>();
    let kinds = (0..10).map(|n| format!(" {}", n * 12_345_678 + time)).collect::<String>();
    write!(
        text,
        "intr {}{lines}\nctxt {}\nbtime 1795294442\nprocesses 5219\nprocs_running 3\n\
         procs_blocked 2\nsoftirq 9876543210{kinds}\n",
        1_000_000_000 + time,
        987_654_321 + time
    )
    .expect("a String takes all");
    text
}

fn names(cores: u64) -> String {
    let names = (0..cores).map(|core| format!("CPU{core:<8}")).collect::<String>();
    format!("            {names}\n")
}

fn line(text: &mut String, key: &str, cores: u64, count: impl Fn(u64) -> u64, what: &str) {
    write!(text, "{key:>4}:").expect("a String takes all");
    for core in 0..cores {
        write!(text, " {:>10}", count(core)).expect("a String takes all");
    }
    writeln!(text, "{what}").expect("a String takes all");
}

fn interrupts(cores: u64, devices: u64, time: u64) -> String {
    let mut text = names(cores);
    for device in 0..devices {
        let count = |core| if core == device % cores { device * 1000 + time } else { 0 };
        let what = format!(" PCI-MSIX-0000:{:02x}:00.0 {device}-edge      q{device}", device % 90);
        line(&mut text, &(24 + device).to_string(), cores, count, &what);
    }
    for (key, what, count) in KERNEL_LINES {
        let count = |core| if count == 0 { 0 } else { count + core + time };
        line(&mut text, key, cores, count, &format!("   {what}"));
    }
    text.push_str(" ERR:          0\n MIS:          0\n");
    text
}

fn softirqs(cores: u64, time: u64) -> String {
    let mut text = names(cores);
    for (n, kind) in (0..).zip(SOFTIRQS) {
        line(&mut text, kind, cores, |core| n * 123_456 + core + time, "");
    }
    text
}

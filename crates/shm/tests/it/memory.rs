//! Memory of a thousand vertices and a thousand subscriptions.
//!
//! Measured in a separate process, where nothing else grows.

use std::process::Output;

use skopos_model::{Unit, ValueType};
use skopos_shm::{Publisher, Segment, Subscription};

use crate::support::{at, child_dir, runtime_dir, spec, this_binary};

const VERTICES: u32 = 1000;
const MOST_BYTES: u64 = 16 << 20;

#[test]
fn a_thousand_vertices_and_cursors_fit_in_16_megabytes() {
    let dir = runtime_dir();
    let mut child = this_binary("memory::measure", dir.path());
    let Output { status, stdout, stderr } =
        child.stdout(std::process::Stdio::piped()).output().expect("this binary runs");
    let text = String::from_utf8_lossy(&stdout);
    println!("{text}");
    assert!(status.success(), "{text}\n{}", String::from_utf8_lossy(&stderr));
    assert!(text.contains("1 passed"), "{text}");
}

/// Returns the resident memory of this process, including shared pages.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = text.split(' ').nth(1).and_then(|field| field.parse::<u64>().ok());
    let page = page_size();
    pages.expect("the second field is the resident pages") * page
}

/// Returns the kernel's page size, from smaps.
fn page_size() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps").expect("Linux");
    let line = text.lines().find_map(|l| l.strip_prefix("KernelPageSize:")).expect("in each entry");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") << 10
}

#[test]
#[ignore = "the test above runs this as a separate process"]
fn measure() {
    let Some(dir) = child_dir() else { return };
    let before = resident_bytes();
    let publisher = Publisher::builder("thousand").dir(&dir).create().expect("room");
    let writers: Vec<_> = (0..VERTICES)
        .map(|n| {
            let spec = spec(&format!("n01/block/nvme{n}n1/read_bytes_total"), ValueType::U64);
            publisher.register(spec.unit(Unit::BYTES)).expect("room")
        })
        .collect();
    let segment = Segment::open(publisher.path()).expect("sound");
    let mut cursors: Vec<Subscription> =
        segment.vertices().iter().map(skopos_shm::Vertex::subscribe).collect();
    assert_eq!(cursors.len(), VERTICES as usize);
    // Write and read every slot of every ring.
    for n in 1..=128u64 {
        for (writer, cursor) in writers.iter().zip(&mut cursors) {
            writer.publish_at(at(n as i64), n).expect("registered");
            assert!(cursor.try_next().expect("registered").is_some());
        }
    }
    let grown = resident_bytes().saturating_sub(before);
    let used = publisher.used_bytes();
    println!("memory: {used} bytes of the segment, {grown} bytes of this process");
    assert!(used >= 1000 * 128 * 32, "the rings alone take more than {used}");
    // The process maps the segment twice, for writing and for reading, and each mapping counts.
    assert!(used + grown <= MOST_BYTES, "{used} + {grown} bytes are more than {MOST_BYTES}");
}

/// Returns the KiB of this program's file that are in memory.
fn program_kib() -> u64 {
    let program = std::env::current_exe().expect("a program");
    let smaps = std::fs::read_to_string("/proc/self/smaps").expect("procfs");
    let mut is_own = false;
    let mut kib = 0;
    for line in smaps.lines() {
        if let Some(rss) = line.strip_prefix("Rss:").filter(|_| is_own) {
            kib += rss.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number");
        } else if line.split(' ').next().is_some_and(|range| range.contains('-')) {
            is_own = line.ends_with(program.to_str().expect("UTF-8"));
        }
    }
    kib
}

#[test]
fn released_pages_of_the_program_come_back_when_needed() {
    // Other tests run at the same time and touch pages too: one success in ten attempts is enough.
    let released = (0..10).any(|_| {
        let before = program_kib();
        skopos_shm::release_program_pages();
        program_kib() < before
    });
    assert!(released, "{} KiB are still in memory", program_kib());
}

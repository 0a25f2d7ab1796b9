//! Damaged kernel files yield fewer facts, but never a panic and never a value that is not a
//! number.

use std::fs;

use skopos_model::SplitMix64;

use crate::support::{Host, Tree};

/// Rounds per run, which take a few seconds.
const ROUNDS: u32 = 60;

/// Seconds between two polls on the sensors' clock: longer than any source is left unread.
const SECONDS: f64 = 100.0;

/// Text that a bug, a race or another kernel could put into a file.
const ODD: [&[u8]; 12] = [
    b"18446744073709551615",
    b"99999999999999999999999",
    b"-1",
    b"\n",
    b" ",
    b":",
    b"\0\xff",
    b"nan",
    b"1e400",
    b"cpu",
    b"\\777",
    b"Node 0 ",
];

fn damage(random: &mut SplitMix64, text: &mut Vec<u8>) {
    let at = random.below(text.len() + 1);
    match random.below(6) {
        0 => text.truncate(at),
        1 => {
            let end = (at + random.below(40)).min(text.len());
            text.drain(at..end);
        }
        2 => {
            let end = (at + random.below(200)).min(text.len());
            let again = text[at..end].to_vec();
            text.splice(at..at, again);
        }
        3 => drop(text.splice(at..at, ODD[random.below(ODD.len())].iter().copied())),
        4 if at < text.len() => text[at] = random.below(256) as u8,
        _ => {
            // One number becomes another.
            if let Some(digit) = text[at..].iter().position(u8::is_ascii_digit) {
                text[at + digit] = b'0' + random.below(10) as u8;
            }
        }
    }
}

fn check(name: &str, prepare: impl Fn(&Tree)) {
    let seed = match std::env::var("SKOPOS_SEED") {
        Ok(seed) => seed.parse().expect("SKOPOS_SEED is a number"),
        Err(_) => u64::from(std::process::id()),
    };
    println!("SKOPOS_SEED={seed}");
    let mut random = SplitMix64::new(seed);
    let tree = Tree::of(name);
    prepare(&tree);
    let originals: Vec<_> =
        tree.files().into_iter().map(|f| (f.clone(), fs::read(f).expect("readable"))).collect();
    // One host sees every round, another only the damaged files.
    let mut old = tree.host();
    for _ in 0..ROUNDS {
        for (file, original) in &originals {
            let mut text = original.clone();
            for _ in 0..random.below(6) {
                damage(&mut random, &mut text);
            }
            fs::write(file, text).expect("writable");
        }
        let mut new: Host = tree.host();
        for host in [&mut old, &mut new] {
            host.poll(SECONDS);
            host.poll(1e-9);
            host.sensors.iter().for_each(|sensor| drop(sensor.skips()));
        }
    }
    // The host recovers.
    for (file, original) in &originals {
        fs::write(file, original).expect("writable");
    }
    for _ in 0..3 {
        old.poll(SECONDS);
    }
    let mut fresh = tree.host();
    fresh.poll(SECONDS);
    let missing = |topic: &&str| !old.table.has(topic);
    let lost: Vec<_> = fresh.table.topics("").into_iter().filter(missing).collect();
    // These sensors look again only after many polls.
    let slow = ["cgroup/", "device/", "fs/", "fsinfo/", "netdev/eth0/speed"];
    assert!(lost.iter().all(|t| slow.iter().any(|s| t.starts_with(s))), "{lost:?}");
}

#[test]
fn damaged_files_of_a_modern_kernel() {
    check("modern", |tree| {
        let folder = tree.folder.path().to_str().expect("UTF-8");
        let mounts = format!(
            "1 0 0:26 / {folder}/cg rw - cgroup2 cgroup2 rw\n2 0 0:40 / {folder}/sys rw - ext4 /dev/sda1 rw\n"
        );
        tree.write("proc/self/mountinfo", mounts)
            .write("cg/cpu.stat", "usage_usec 5000000\nuser_usec 3000000\nsystem_usec 2000000\n")
            .write("cg/job/memory.current", "4096\n")
            .write("cg/job/memory.max", "max\n")
            .write("cg/job/io.stat", "8:0 rbytes=10 wbytes=20 rios=1\n")
            .write("sys/class/hwmon/hwmon0/name", "coretemp\n")
            .write("sys/class/hwmon/hwmon0/temp1_input", "45500\n");
    });
}

#[test]
fn damaged_files_of_an_old_kernel() {
    check("old", |_| {});
}

//! The time of each BPF program, by the kernel's own statistics.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _};

use aya::programs::loaded_programs;

use super::setting::{Outcome, WATCHED, lab, planes, seen, socket};
use crate::plan::Plan;
use crate::report::{Better, Row};

/// Packets of a measurement.
const PACKETS: u32 = 20_000;

const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

pub(super) fn measure(_: &Plan) -> Outcome<Vec<Row>> {
    let before = fs::read_to_string(SWITCH)?;
    fs::write(SWITCH, "1")?;
    let programs = programs_after_packets();
    fs::write(SWITCH, before)?;
    let programs = programs?.into_iter().filter(|(_, (_, runs))| *runs > 0);
    let row = |(name, (nanos, runs)): (String, (u64, u64))| {
        Row::new(
            format!("program {name}"),
            "time a packet",
            "ns",
            nanos as f64 / runs as f64,
            Better::Lower,
        )
    };
    Ok(programs.map(row).collect())
}

/// Sends watched packets through a source and a sink. Returns nanoseconds and runs of each program, by name.
fn programs_after_packets() -> Outcome<BTreeMap<String, (u64, u64)>> {
    let lab = lab(None)?;
    let [_source, mut sink] = planes(&lab, None)?;
    let (sender, receiver) = (socket(&lab, "a", 0)?, socket(&lab, "b", WATCHED)?);
    sender.connect((lab.addresses("b")?.0, WATCHED))?;
    receiver.set_nonblocking(true)?;
    for round in 0..PACKETS {
        sender.send(&[7; 500])?;
        // Packets take part whether or not they have come by now.
        let _ = receiver.recv(&mut [0; 600]);
        if round % 100 == 0 {
            seen(&mut sink);
        }
    }
    programs()
}

/// Nanoseconds and runs of each program of this crate, by name.
fn programs() -> Outcome<BTreeMap<String, (u64, u64)>> {
    let mut programs = BTreeMap::new();
    for info in loaded_programs() {
        let Ok(info) = info else { continue };
        let Some(name) = info.name_as_str().filter(|name| name.starts_with("int_")) else {
            continue;
        };
        let Ok(descriptor) = info.fd() else { continue };
        let path = format!("/proc/self/fdinfo/{}", descriptor.as_fd().as_raw_fd());
        let text = fs::read_to_string(path)?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        let entry: &mut (u64, u64) = programs.entry(name.to_owned()).or_default();
        entry.0 += field("run_time_ns:");
        entry.1 += field("run_cnt:");
    }
    Ok(programs)
}

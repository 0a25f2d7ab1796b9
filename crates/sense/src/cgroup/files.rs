//! The files of a group, and the facts that they feed.

use skopos_model::schema::Metric;
use skopos_model::schema::cgroup::*;

use crate::facts::Facts;
use crate::parse;
use crate::sensor::Tick;

/// A file that groups of some hierarchy have.
pub(super) struct Source {
    /// The v1 controller that has it; empty for v2.
    pub(super) v1_controller: &'static str,
    pub(super) file: &'static str,
    /// Sets the facts of the file's `text`.
    pub(super) set: fn(&mut Facts, &mut Tick<'_>, text: &[u8]),
    /// Counts a group's CPU time, which a hybrid setup counts twice.
    pub(super) is_cpu_time: bool,
    /// The content rarely changes or is not lost by waiting, so the file is read rarely and not
    /// kept open.
    pub(super) is_slow: bool,
}

const fn source(
    v1_controller: &'static str,
    file: &'static str,
    set: fn(&mut Facts, &mut Tick<'_>, &[u8]),
) -> Source {
    Source { v1_controller, file, set, is_cpu_time: false, is_slow: false }
}

const fn cpu_time(source: Source) -> Source {
    Source { is_cpu_time: true, ..source }
}

const fn slow(source: Source) -> Source {
    Source { is_slow: true, ..source }
}

/// Every source: v2's, then v1's by controller.
pub(super) static SOURCES: [Source; 18] = [
    cpu_time(source("", "cpu.stat", cpu_stat)),
    source("", "memory.current", |f, t, text| number(f, t, &MEMORY_BYTES, text)),
    slow(source("", "memory.peak", |f, t, text| number(f, t, &MEMORY_BYTES_MAX, text))),
    slow(source("", "memory.events", oom_kills)),
    slow(source("", "memory.max", |f, t, text| limit_or_none(f, t, &MEMORY_LIMIT_BYTES, text))),
    source("", "pids.current", |f, t, text| number(f, t, &TASKS, text)),
    slow(source("", "pids.max", |f, t, text| limit_or_none(f, t, &TASKS_LIMIT, text))),
    source("", "io.stat", io_stat),
    cpu_time(source("cpuacct", "cpuacct.usage", cpuacct_usage)),
    cpu_time(source("cpuacct", "cpuacct.stat", cpuacct_stat)),
    source("cpu", "cpu.stat", cpu_stat_v1),
    source("memory", "memory.usage_in_bytes", |f, t, text| number(f, t, &MEMORY_BYTES, text)),
    slow(source("memory", "memory.max_usage_in_bytes", |f, t, text| {
        number(f, t, &MEMORY_BYTES_MAX, text);
    })),
    slow(source("memory", "memory.oom_control", oom_kills)),
    slow(source("memory", "memory.limit_in_bytes", |f, t, text| {
        limit_or_none(f, t, &MEMORY_LIMIT_BYTES, text);
    })),
    source("pids", "pids.current", |f, t, text| number(f, t, &TASKS, text)),
    slow(source("pids", "pids.max", |f, t, text| limit_or_none(f, t, &TASKS_LIMIT, text))),
    source("blkio", "blkio.throttle.io_service_bytes_recursive", blkio_bytes),
];

/// v1 writes the largest multiple of the page size for "no limit". Half of it is more than any
/// machine has.
const NO_LIMIT: u64 = 1 << 62;

fn number(facts: &mut Facts, tick: &mut Tick<'_>, metric: &'static Metric, text: &[u8]) {
    if let Some(value) = parse::u64(parse::trim(text)) {
        facts.set(tick, metric, value);
    }
}

fn limit_or_none(facts: &mut Facts, tick: &mut Tick<'_>, metric: &'static Metric, text: &[u8]) {
    match parse::u64(parse::trim(text)).filter(|&limit| limit < NO_LIMIT) {
        Some(limit) => facts.set(tick, metric, limit),
        None => facts.unregister_one(tick.sink, metric),
    }
}

/// Returns the pairs "name number" of `text`, a pair on each line.
fn pairs(text: &[u8]) -> impl Iterator<Item = (&[u8], u64)> {
    parse::lines(text).filter_map(|line| {
        let mut words = parse::words(line);
        Some((words.next()?, parse::u64(words.next()?)?))
    })
}

fn cpu_stat(facts: &mut Facts, tick: &mut Tick<'_>, text: &[u8]) {
    for (name, value) in pairs(text) {
        let seconds = value as f64 / 1e6;
        match name {
            b"usage_usec" => facts.set(tick, &CPU_SECONDS_TOTAL, seconds),
            b"user_usec" => facts.set(tick, &CPU_USER_SECONDS_TOTAL, seconds),
            b"system_usec" => facts.set(tick, &CPU_SYSTEM_SECONDS_TOTAL, seconds),
            b"nr_throttled" => facts.set(tick, &CPU_THROTTLED_PERIODS_TOTAL, value),
            b"throttled_usec" => facts.set(tick, &CPU_THROTTLED_SECONDS_TOTAL, seconds),
            _ => {}
        }
    }
}

fn cpu_stat_v1(facts: &mut Facts, tick: &mut Tick<'_>, text: &[u8]) {
    for (name, value) in pairs(text) {
        match name {
            b"nr_throttled" => facts.set(tick, &CPU_THROTTLED_PERIODS_TOTAL, value),
            b"throttled_time" => {
                facts.set(tick, &CPU_THROTTLED_SECONDS_TOTAL, value as f64 / 1e9);
            }
            _ => {}
        }
    }
}

fn cpuacct_usage(facts: &mut Facts, tick: &mut Tick<'_>, text: &[u8]) {
    if let Some(nanos) = parse::u64(parse::trim(text)) {
        facts.set(tick, &CPU_SECONDS_TOTAL, nanos as f64 / 1e9);
    }
}

fn cpuacct_stat(facts: &mut Facts, tick: &mut Tick<'_>, text: &[u8]) {
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    for (name, ticks) in pairs(text) {
        match name {
            b"user" => facts.set(tick, &CPU_USER_SECONDS_TOTAL, ticks as f64 / per_second),
            b"system" => facts.set(tick, &CPU_SYSTEM_SECONDS_TOTAL, ticks as f64 / per_second),
            _ => {}
        }
    }
}

fn oom_kills(facts: &mut Facts, tick: &mut Tick<'_>, text: &[u8]) {
    if let Some((_, kills)) = pairs(text).find(|(name, _)| *name == b"oom_kill") {
        facts.set(tick, &MEMORY_OOM_KILLS_TOTAL, kills);
    }
}

/// Reads "8:0 rbytes=1459200 wbytes=314773504 rios=192 ...", a line for each device.
fn io_stat(facts: &mut Facts, tick: &mut Tick<'_>, text: &[u8]) {
    let value_of = |name: &[u8]| {
        let words = parse::lines(text).flat_map(parse::words);
        let values = words.filter_map(|word| parse::u64(word.strip_prefix(name)?));
        values.reduce(u64::wrapping_add)
    };
    set_io(facts, tick, value_of(b"rbytes="), value_of(b"wbytes="));
}

/// Reads "8:0 Read 1459200", a line for each device and direction, then a total, which is 0 without
/// devices.
fn blkio_bytes(facts: &mut Facts, tick: &mut Tick<'_>, text: &[u8]) {
    let value_of = |direction: &[u8]| {
        let values = parse::lines(text).filter_map(|line| {
            let mut words = parse::words(line).skip(1);
            (words.next()? == direction).then(|| parse::u64(words.next()?))?
        });
        values.reduce(u64::wrapping_add)
    };
    set_io(facts, tick, value_of(b"Read"), value_of(b"Write"));
}

fn set_io(facts: &mut Facts, tick: &mut Tick<'_>, read: Option<u64>, written: Option<u64>) {
    if let Some(bytes) = read {
        facts.set(tick, &IO_READ_BYTES_TOTAL, bytes);
    }
    if let Some(bytes) = written {
        facts.set(tick, &IO_WRITTEN_BYTES_TOTAL, bytes);
    }
}

//! Swapping: memory of the job moved to storage and back.

use skopos_model::task::amount;

use super::numbers::MIN_WALL_SECONDS;
use super::rule::Rule;
use super::verdict::{Evidence, Found, Judging, Severity, Verdict};
use super::view::JobView;

/// The least memory in swap: pages that a program does not use any more may lie there for good.
const MIN_SWAP_BYTES: f64 = 64.0 * 1024.0 * 1024.0;

/// The least share of the job's memory that is in swap.
const MIN_SWAP_SHARE: f64 = 0.05;

/// The share of the wall time that threads wait for memory, and their share of the time in which they work or wait for
/// it: many threads that each wait for a moment have a long wait in total.
const MIN_DELAY_SHARE: f64 = 0.1;

/// The rate at which a node reads pages back from swap, in bytes a second: a thousandth of what memory gives already
/// costs a job most of its speed.
const MIN_SWAP_IN: f64 = 4.0 * 1024.0 * 1024.0;

pub(super) static RULE: Rule = Rule {
    name: "swapping",
    condition: "64 MiB and 5 % of the job's memory were in swap, its threads waited for memory for 10 % of the wall time and of `cpu_seconds + memory_delay_seconds`, or a node read 4 MiB a second from swap",
    inputs: "`swap_bytes_max` or `memory_delay_seconds` with `cpu_seconds` of the reports, or a series of `swap_bytes` or of `swap/NAME/in_bytes_total`",
    advice: "request more memory, run fewer processes on a node, or work on less data at one time",
    judge,
};

fn judge(view: &JobView) -> Judging {
    let largest = view.series_of(&["swap_bytes"]).flat_map(|series| series.points());
    let largest = largest.map(|(_, value)| *value).reduce(f64::max);
    let reported = view.used("swap_bytes_max").map(|swap| swap.value);
    let swapped = reported.as_ref().ok().copied().into_iter().chain(largest).reduce(f64::max);
    let resident = view.sum("resident_bytes_max").map_or(0.0, |resident| resident.value);
    let delay = view.sum("memory_delay_seconds").map(|delay| delay.value);
    let wall = view.wall_seconds();
    let cpu = view.sum("cpu_seconds").map(|cpu| cpu.value);
    let reads = view.series_of(&["in_bytes_total"]).filter(|series| series.metric.contains("swap"));
    let reads = reads.filter(|series| series.seconds() >= MIN_WALL_SECONDS);
    let rate = reads.map(|series| series.growth() / series.seconds()).reduce(f64::max);
    let found = |what: String, evidence| {
        Ok(Verdict::Found(Found { severity: Severity::Warning, what, evidence }))
    };
    if let Some(swap) = swapped
        && swap >= MIN_SWAP_BYTES
        && swap >= MIN_SWAP_SHARE * (resident + swap)
    {
        return found(
            format!("{} of the job's memory were in swap", amount(swap, "bytes")),
            vec![
                Evidence::new("memory in swap", swap, "bytes"),
                Evidence::new("resident memory", resident, "bytes"),
            ],
        );
    }
    if let (Ok(delay), Ok(wall), Ok(cpu)) = (&delay, &wall, &cpu)
        && *delay >= MIN_DELAY_SHARE * wall
        && *delay >= MIN_DELAY_SHARE * (cpu + delay)
    {
        return found(
            format!("threads waited for memory for {}", amount(*delay, "seconds")),
            vec![
                Evidence::new("wait for memory", *delay, "seconds"),
                Evidence::new("wall time", *wall, "seconds"),
                Evidence::new("processor time", *cpu, "seconds"),
            ],
        );
    }
    if let Some(rate) = rate.filter(|rate| *rate >= MIN_SWAP_IN) {
        return found(
            format!("a node of the job read {} a second from swap", amount(rate, "bytes")),
            vec![Evidence::new("swap read in a second", rate, "bytes")],
        );
    }
    match (swapped.is_some() || rate.is_some(), reported) {
        (true, _) => Ok(Verdict::Absent),
        (false, Err(why)) => Err(why),
        (false, Ok(_)) => Ok(Verdict::Absent),
    }
}

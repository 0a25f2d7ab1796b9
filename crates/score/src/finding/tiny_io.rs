//! Input and output in tiny pieces: many calls that move few bytes each.

use skopos_model::task::amount;

use super::rule::Rule;
use super::verdict::{Evidence, Found, Judging, Severity, Verdict};
use super::view::JobView;

/// The size below which a call is tiny: a page, which is the least that a file system moves.
const MAX_BYTES: f64 = 4096.0;

/// The least number of calls: starting a script interpreter takes some thousand calls.
const MIN_CALLS: f64 = 20_000.0;

/// The least rate, in calls a second. Less costs less than a hundredth of the time of a core.
const MIN_RATE: f64 = 2_000.0;

pub(super) static RULE: Rule = Rule {
    name: "tiny_io",
    condition: "at least 20,000 reads or writes, at least 2,000 a second, move fewer than 4,096 bytes each on average",
    inputs: "`read_calls` and `read_bytes`, or `write_calls` and `written_bytes`; 2 s of wall time",
    advice: "use a buffer of some MiB (`setvbuf`, `BufWriter`, larger records), or collective I/O for ranks that write one file",
    judge,
};

fn judge(view: &JobView) -> Judging {
    let wall = view.wall_seconds()?;
    let ways = [("reads", "read_calls", "read_bytes"), ("writes", "write_calls", "written_bytes")];
    let (mut worst, mut missing): (Option<(f64, Found)>, Option<Verdict>) = (None, None);
    for (what, calls, bytes) in ways {
        let (calls, bytes) = match (view.sum(calls), view.sum(bytes)) {
            (Ok(calls), Ok(bytes)) => (calls.value, bytes.value),
            (Err(why), _) | (_, Err(why)) => {
                missing = Some(why);
                continue;
            }
        };
        let (each, rate) = (bytes / calls.max(1.0), calls / wall);
        if calls < MIN_CALLS || rate < MIN_RATE || each >= MAX_BYTES {
            continue;
        }
        let found = Found {
            severity: Severity::Warning,
            what: format!("{calls:.0} {what} move {} each", amount(each, "bytes")),
            evidence: vec![
                Evidence::new(format!("bytes of one of the {what}"), each, "bytes"),
                Evidence::new(what, calls, ""),
                Evidence::new(format!("{what} in a second"), rate, ""),
            ],
        };
        if worst.as_ref().is_none_or(|(known, _)| rate > *known) {
            worst = Some((rate, found));
        }
    }
    match (worst, missing) {
        (Some((_, found)), _) => Ok(Verdict::Found(found)),
        (None, Some(why)) => Err(why),
        (None, None) => Ok(Verdict::Absent),
    }
}

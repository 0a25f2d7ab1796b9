//! Prints the findings of a trace: `cargo run -p skopos-rpc --example findings -- FOLDER`.

use std::path::Path;

use skopos_rpc::analysis::finding::{NodeFacts, Verdict, judge};
use skopos_rpc::analysis::profile::{Unaccounted, profile};
use skopos_rpc::analysis::trace::Trace;
use skopos_rpc::folder::FolderLoader;

fn main() -> Result<(), skopos_rpc::Error> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let loader = FolderLoader::open(Path::new(&folder))?;
    let trace = Trace::open(&loader)?;
    for (text, count) in trace.counts().defects() {
        println!("{count} {text}");
    }
    for path in profile(&trace)?.paths.iter().take(5) {
        let summary = path.end_to_end.summary();
        let unaccounted = match &path.unaccounted {
            Unaccounted::Measured { share, .. } => format!("{:.1} %", 100.0 * share),
            Unaccounted::Unknown { reason } => reason.clone(),
        };
        println!(
            "{:<50} {:>7} calls, mean {:>10.0} ns, p99 {:>10} ns, unaccounted {unaccounted}",
            path.names.join(" → "),
            path.calls,
            summary.mean,
            summary.p99
        );
    }
    for judged in judge(&trace, &NodeFacts::default())?.findings {
        match &judged.verdict {
            Verdict::Found(found) => {
                println!("{}: {}, saves {:.2}", judged.finding, found.what, found.saves.value);
                for evidence in &found.evidence {
                    println!("    {} = {:.3} {}", evidence.name, evidence.value, evidence.unit);
                }
                for fix in &found.fixes {
                    let gain = fix.gain.map_or((0.0, 0.0, 0.0), |g| (g.value, g.low, g.high));
                    let now = fix.now.as_deref().unwrap_or("?");
                    println!("    {} {now} → {}: {gain:.2?}", fix.key, fix.value);
                }
            }
            Verdict::Absent => println!("{}: absent", judged.finding),
            Verdict::Unknown { reason } => println!("{}: not judged: {reason}", judged.finding),
        }
    }
    Ok(())
}

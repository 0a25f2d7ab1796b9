//! `skopos-bench tiers`: time and stalls of placement, prefetching and replication on real tiers, with round robin and with
//! the policy of Skopos, as in section 4.4.2 of the Apollo paper, at a ten-thousandth of its sizes.
//!
//! Tiers are tmpfs and disks of the lab, which are calibrated as a user would do it. An agent watches them, and `live`
//! reads its facts from shared memory. Other programs load one device and fill the shared one (`others`). `work` has the
//! applications, `runs` one run of a middleware, `rows` the statistics. Root, FUSE and `mkfs.ext4` are needed.

mod names;
mod live;
mod setting;
mod others;
mod work;
mod runs;
mod rows;

use skopos_term::Failure;

use self::rows::Results;
use self::runs::{Choice, Middleware, Scene};
use self::setting::Setting;
use super::machine::Machine;
use super::outcome::Outcome;
use super::plan::Plan;
use super::report::{Better, Figure, Report, Row};

/// Seeds of the judged runs. They were written down before any of them ran. Seeds 9101 to 9103 judged an earlier policy, on a
/// run of prefetching that was half as long.
const JUDGED: [u64; 3] = [9201, 9202, 9203];
/// Seeds on which sizes, speeds and policies were tried. A short run takes them.
const TUNING: [u64; 2] = [1, 2];
/// Exponents of the Zipf distribution of sizes and of accesses.
const SKEWS: [f64; 3] = [0.0, 0.6, 1.2];
/// Rounds of each seed and skew: with three seeds, an interval for each skew.
const ROUNDS: usize = 2;

pub(super) fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut report = Report::new("tiers", Machine::this());
    if let Err(e) = measure(plan, &mut report) {
        let unknown = Figure::Unknown(e.to_string());
        report.add([Row::of("tiers", "result", "", unknown, Better::Neither)]);
    }
    Ok(report)
}

fn measure(plan: &Plan, report: &mut Report) -> Outcome<()> {
    plan.say("building tiers, and calibrating them …");
    let setting = Setting::new()?;
    let (seeds, skews, rounds) = match (plan.is_short, plan.pairs) {
        (true, 0) => (&TUNING[..1], &SKEWS[..1], 1),
        (true, _) => (&TUNING[..], &SKEWS[1..2], 1),
        (false, _) => (&JUDGED[..], &SKEWS[..], ROUNDS),
    };
    let (mut results, mut meter) = (Results::default(), setting.meter());
    let mut turn = 0;
    for round in 0..rounds {
        for seed in seeds {
            let equal = [Scene::Equal { seed: *seed }];
            let loaded = skews.iter().map(|skew| Scene::Loaded { seed: *seed, skew: *skew });
            for scene in loaded.chain(equal) {
                plan.say(&format!("{scene:?}, round {round} …"));
                for middleware in Middleware::ALL {
                    turns(&setting, (middleware, scene, round), turn, &mut results)?;
                    turn += 1;
                }
            }
        }
    }
    meter.look();
    let agent = meter.stop().map(|usage| usage.cpu_seconds_per_second * 100.0);
    report.add(results.rows(skews, agent));
    notes(&setting, seeds, report);
    Ok(())
}

/// Runs the choices of one scene one after the other. The first one changes with each scene.
fn turns(
    setting: &Setting,
    place: (Middleware, Scene, usize),
    turn: usize,
    results: &mut Results,
) -> Outcome<()> {
    let (middleware, scene, round) = place;
    let mut choices = match scene {
        Scene::Equal { .. } => vec![Choice::RoundRobin, Choice::Skopos],
        Scene::Loaded { .. } => vec![Choice::RoundRobin, Choice::Blind, Choice::Skopos],
    };
    let first = turn % choices.len();
    choices.rotate_left(first);
    // The slow tier alone is three times as slow, and not a rival: once is enough.
    if round == 0 && matches!(scene, Scene::Loaded { .. }) {
        choices.push(Choice::Direct);
    }
    for choice in choices {
        results.add(place, choice, runs::run(setting, middleware, scene, choice)?);
    }
    Ok(())
}

fn notes(setting: &Setting, seeds: &[u64], report: &mut Report) {
    report.note(format!(
        "sizes are those of the paper by 10,000: four processes write 64 files of 2 MB in mean, in 16 steps (VPIC-IO; 1 MB \
         each with two replicas), read them (BD-CATS), or read 128 images of 0.64 MB in 32 steps (Montage; the paper has 16, \
         which would be as short as a burst of the load). Buffers: 4.8 MB of memory, \
         9.6 MB of the fast disk, 100 MB of shared disks, of which others take 20 to 50 %. seeds {seeds:?}; the policies were \
         tried on {TUNING:?}"
    ));
    report.note(format!(
        "disks of the lab: {}; memory {:.0} MB/s. A load writes to one device, by the seed the fast or the shared one, for \
         0.6 to 1.2 s with rests of 0.2 to 0.5 s",
        setting.disks(),
        setting.memory_mb()
    ));
    report.note(
        "time of input and output: of the slowest process in each step, summed over steps. skew: the exponent of a Zipf \
         distribution, of the sizes of files and of the accesses. no telemetry: the policy of Skopos without facts, a round \
         robin that passes over full tiers. less time: of each pair of runs with one seed, skew and round",
    );
}

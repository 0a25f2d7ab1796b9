//! Jobs of the usual size, for measurements.

use skopos_model::SplitMix64;
use skopos_model::job::{JobEnd, JobId, JobStart, JobState};
use skopos_model::task::{ExitType, RESOURCES};

use super::super::super::entry::{Dated, JobEntry};
use super::super::super::part::PartRef;

/// Number of users of a million jobs: 5,000 jobs a user.
pub const USERS: usize = 200;
/// Number of their nodes.
pub const NODES: usize = 1000;
/// A day in nanoseconds. A million jobs take a hundred days.
pub const DAY: i64 = 86_400_000_000_000;

/// Returns a job with the metadata of SLAte's profile: about 2.4 kB.
pub fn usual_job(number: usize, random: &mut SplitMix64) -> JobEntry {
    let id = JobId::new((4_000_000 + number).to_string(), 0).expect("an id");
    let mut entry = JobEntry::new("hpc1", id);
    let started = number as i64 * (100 * DAY / 1_000_000);
    let ended = started + random.below(7_200) as i64 * 1_000_000_000;
    let user = random.below(USERS);
    let nodes = (0..1 + random.below(3)).map(|_| format!("n{:04}", random.below(NODES)));
    entry.nodes = nodes.collect();
    let amount = |random: &mut SplitMix64| random.below(1 << 30) as f64;
    let start = JobStart {
        user: format!("user{user:03}"),
        project: format!("project{:02}", user % 40),
        name: format!("run-{}-{}", random.below(50), number),
        application: ["gromacs", "openfoam", "python", "vasp"][random.below(4)].to_owned(),
        queue: ["batch", "gpu", "debug"][random.below(3)].to_owned(),
        launcher: "slurm".to_owned(),
        command: (0..12).map(|at| format!("--option-{at}=value-{}", random.below(1000))).collect(),
        folder: format!("/home/user{user:03}/projects/run-{number}"),
        nodes: entry.nodes.clone(),
        tags: [format!("study{}", random.below(100))].into(),
        requested: ["cores", "resident_bytes_max", "wall_seconds"]
            .map(|name| (name.to_owned(), amount(random)))
            .into(),
        submit_seconds: Some(started as f64 * 1e-9 - 60.0),
        start_seconds: None,
        details: (0..16)
            .map(|at| (format!("detail_{at}"), format!("setting-{}-{at}", random.below(100))))
            .collect(),
    };
    let used = RESOURCES.iter().take(12);
    entry.used = used.map(|r| (r.name.to_owned(), amount(random))).collect();
    entry.start = Some(Dated { at: started, value: start });
    let end = JobEnd {
        state: [JobState::Completed, JobState::Failed][usize::from(random.below(10) == 0)],
        exit_type: Some(ExitType::Normal),
        ..JobEnd::default()
    };
    entry.end = Some(Dated { at: ended, value: end });
    entry.times = Some((started, ended));
    entry.samples = 80;
    entry.parts =
        vec![PartRef { number: 0, segment: format!("segment-{:06}", number / 500), rows: 83 }];
    entry
}

//! Jobs without a fault, of many shapes: some are near to a fault.

use super::case::{Cases, Job, Run};
use super::work::{Doing, Shape};

pub(super) fn add(cases: &mut Cases) {
    alone(cases);
    together(cases);
}

fn alone(cases: &mut Cases) {
    let compute = |threads, share| Doing::Compute { threads, share };
    let memory = |shape, mib| Doing::Memory { shape, mib };
    let write = |bytes, rate| Doing::Write { bytes, rate };
    let shapes: Vec<(&str, Doing, &'static str)> = match cases.is_held_out() {
        false => vec![
            ("one thread on one core", compute(1, 1.0), "cores=1"),
            ("two threads on two cores", compute(2, 1.0), "cores=2"),
            ("nearly two cores", compute(2, 0.8), "cores=2"),
            ("sleeps and requests nothing", Doing::Sleep, ""),
            ("loads and works", memory(Shape::Load(0.3), 300.0), "memory=600MiB"),
            ("holds its memory", memory(Shape::Hold, 200.0), "memory=400MiB"),
            ("goes up and down", memory(Shape::Wave(4.0), 200.0), ""),
            ("fills a cache", memory(Shape::Cache, 300.0), ""),
            ("one step", memory(Shape::StepAt(0.6), 300.0), ""),
            ("writes large blocks", write(1 << 20, 200.0), ""),
            ("writes a log", write(80, 200.0), ""),
            ("reads large blocks", Doing::Read { bytes: 1 << 20, rate: 300.0 }, ""),
            ("some files", Doing::Files { bytes: 1_000, rate: 50.0 }, ""),
            ("short processes", Doing::Spawn { rate: 50.0 }, ""),
            ("within its limits", compute(1, 1.0), "wall=60s,memory=300MiB"),
            ("some processes", Doing::Fork { processes: 8 }, "processes=20"),
        ],
        true => vec![
            ("a small request", memory(Shape::Hold, 10.0), "memory=300MiB"),
            ("two threads and a bit", compute(3, 0.6), "cores=2"),
            ("one core, half busy", compute(1, 0.5), "cores=1"),
            ("waits for something", Doing::Sleep, "memory=100MiB"),
            ("loads for half of the time", memory(Shape::Load(0.5), 400.0), ""),
            ("a third of its request", memory(Shape::Hold, 350.0), "memory=1GiB"),
            ("saw teeth", memory(Shape::Saw(8.0), 250.0), ""),
            ("slow waves", memory(Shape::Wave(1.5), 150.0), ""),
            ("a late step", memory(Shape::StepAt(0.85), 200.0), ""),
            ("writes pages", write(8_192, 0.0), ""),
            ("writes lines now and then", write(100, 1_000.0), ""),
            ("reads blocks of 64 KiB", Doing::Read { bytes: 65_536, rate: 0.0 }, ""),
            ("large files", Doing::Files { bytes: 1 << 20, rate: 20.0 }, ""),
            ("a few hundred files again and again", Doing::Open { files: 300 }, ""),
            ("many short processes", Doing::Spawn { rate: 200.0 }, ""),
            ("well below its wall time", Doing::Sleep, "wall=20s"),
        ],
    };
    for (what, doing, limits) in shapes {
        let run = Run::of(doing, cases.seconds()).limits(limits);
        cases.add(what, &[], Job::Run(run));
    }
    let run = Run { status: 1, ..Run::of(Doing::Sleep, 2.5) };
    cases.add("fails", &[], Job::Run(run));
    let free = Run { cpu_max: Some(1.9), ..Run::of(compute(1, 1.0), cases.seconds()) };
    cases.add("below the limit of its group", &[], Job::Run(free));
}

fn together(cases: &mut Cases) {
    let shares: [&[f64]; 2] = match cases.is_held_out() {
        false => [&[0.4, 0.4, 0.4, 0.4], &[0.8, 0.7]],
        true => [&[0.5, 0.4, 0.45], &[0.02, 0.3, 0.3, 0.3, 0.3]],
    };
    for shares in shares {
        let seconds = cases.seconds();
        let rank = |share: &f64| vec![(Doing::Compute { threads: 1, share: *share }, seconds)];
        cases.add("balanced ranks", &[], Job::Ranks(shares.iter().map(rank).collect()));
    }
    let (before, again) = match cases.is_held_out() {
        false => (Doing::Compute { threads: 1, share: 1.0 }, 0.4),
        true => (Doing::Memory { shape: Shape::Hold, mib: 120.0 }, 0.4),
    };
    let doing = vec![(before, again)];
    let run = Run { doing: doing.clone(), ..Run::default() };
    cases.add("like its class", &[], Job::Class { before: doing, times: 10, run });
}

//! Jobs with faults that this machine can make. Each set has three shapes of a fault.

use super::case::{Cases, Job, Run};
use super::work::{Doing, Shape};

pub(super) fn add(cases: &mut Cases) {
    cores(cases);
    memory(cases);
    input_and_output(cases);
    ends(cases);
    ranks(cases);
    classes(cases);
}

fn cores(cases: &mut Cases) {
    let idle: [(Doing, &'static str); 3] = match cases.is_held_out() {
        false => [
            (Doing::Compute { threads: 1, share: 1.0 }, "cores=2"),
            (Doing::Compute { threads: 1, share: 1.0 }, "cores=4"),
            (Doing::Sleep, "cores=2"),
        ],
        true => [
            (Doing::Compute { threads: 2, share: 0.4 }, "cores=2"),
            (Doing::Compute { threads: 2, share: 1.0 }, "cores=8"),
            (Doing::Write { bytes: 1 << 20, rate: 50.0 }, "cores=3"),
        ],
    };
    for (doing, limits) in idle {
        let run = Run::of(doing, cases.seconds()).limits(limits);
        cases.add("idle cores", &["idle_cores"], Job::Run(run));
    }
    let throttled: [(usize, f64, f64); 3] = match cases.is_held_out() {
        false => [(1, 1.0, 0.5), (2, 1.0, 1.0), (2, 1.0, 0.4)],
        true => [(1, 1.0, 0.7), (2, 0.9, 1.2), (4, 1.0, 0.9)],
    };
    for (threads, share, most) in throttled {
        let run = Run::of(Doing::Compute { threads, share }, cases.seconds());
        let run = Run { cpu_max: Some(most), ..run };
        cases.add("throttled", &["cpu_throttled"], Job::Run(run));
    }
}

fn memory(cases: &mut Cases) {
    let far: [(Shape, f64, &'static str); 3] = match cases.is_held_out() {
        false => [
            (Shape::Hold, 100.0, "memory=4GiB"),
            (Shape::Load(0.3), 300.0, "memory=8GiB"),
            (Shape::Hold, 20.0, "memory=1GiB"),
        ],
        true => [
            (Shape::Wave(3.0), 200.0, "memory=2GiB"),
            (Shape::StepAt(0.7), 400.0, "memory=16GiB"),
            (Shape::Saw(5.0), 60.0, "memory=800MiB"),
        ],
    };
    for (shape, mib, limits) in far {
        let run = Run::of(Doing::Memory { shape, mib }, cases.seconds()).limits(limits);
        cases.add("memory far below the request", &["memory_request"], Job::Run(run));
    }
    let leaks: [(Shape, f64); 4] = match cases.is_held_out() {
        false => [
            (Shape::Leak(200.0), 200.0),
            (Shape::Leak(60.0), 600.0),
            (Shape::LeakOver(1.0), 300.0),
            (Shape::Leak(30.0), 100.0),
        ],
        true => [
            (Shape::LeakWave(15.0), 300.0),
            (Shape::LeakOver(2.0), 500.0),
            (Shape::Leak(16.0), 250.0),
            (Shape::Leak(500.0), 90.0),
        ],
    };
    for (shape, mib) in leaks {
        let seconds = cases.seconds() + 1.0;
        let run = Run::of(Doing::Memory { shape, mib }, seconds);
        cases.add("leak", &["memory_leak"], Job::Run(run));
    }
}

fn input_and_output(cases: &mut Cases) {
    let tiny: [Doing; 4] = match cases.is_held_out() {
        false => [
            Doing::Write { bytes: 16, rate: 0.0 },
            Doing::Write { bytes: 512, rate: 0.0 },
            Doing::Read { bytes: 8, rate: 0.0 },
            Doing::Read { bytes: 1024, rate: 0.0 },
        ],
        true => [
            Doing::Write { bytes: 1, rate: 0.0 },
            Doing::Write { bytes: 2000, rate: 0.0 },
            Doing::Read { bytes: 100, rate: 0.0 },
            Doing::Write { bytes: 64, rate: 20_000.0 },
        ],
    };
    for doing in tiny {
        let run = Run::of(doing, cases.seconds());
        cases.add("tiny pieces", &["tiny_io"], Job::Run(run));
    }
    let storms: [Doing; 3] = match cases.is_held_out() {
        false => [
            Doing::Files { bytes: 10, rate: 0.0 },
            Doing::Files { bytes: 2_000, rate: 0.0 },
            Doing::Open { files: 5_000 },
        ],
        true => [
            Doing::Files { bytes: 30_000, rate: 0.0 },
            Doing::Files { bytes: 0, rate: 800.0 },
            Doing::Open { files: 2_500 },
        ],
    };
    for doing in storms {
        let run = Run::of(doing, cases.seconds());
        cases.add("metadata storm", &["metadata_storm"], Job::Run(run));
    }
}

fn ends(cases: &mut Cases) {
    let memory = |mib| Doing::Memory { shape: Shape::Load(1.0), mib };
    let killed: [(Doing, &'static str); 3] = match cases.is_held_out() {
        false => [
            (memory(400.0), "memory=150MiB"),
            (Doing::Fork { processes: 40 }, "processes=10"),
            (memory(900.0), "memory=600MiB"),
        ],
        true => [
            (Doing::Memory { shape: Shape::StepAt(0.5), mib: 300.0 }, "memory=200MiB"),
            (Doing::Fork { processes: 15 }, "processes=12"),
            (Doing::Write { bytes: 1 << 20, rate: 40.0 }, "written=30MiB"),
        ],
    };
    for (doing, limits) in killed {
        let run = Run::of(doing, 4.0).limits(limits);
        cases.add("killed by a limit", &["limit"], Job::Run(run));
    }
    let late: [(Doing, &'static str); 3] = match cases.is_held_out() {
        false => [
            (Doing::Sleep, "wall=2s"),
            (Doing::Compute { threads: 1, share: 1.0 }, "wall=3s"),
            (Doing::Compute { threads: 2, share: 1.0 }, "wall=1s"),
        ],
        true => [
            (Doing::Write { bytes: 1 << 20, rate: 20.0 }, "wall=2500ms"),
            (Doing::Memory { shape: Shape::Hold, mib: 50.0 }, "wall=3s"),
            (Doing::Spawn { rate: 20.0 }, "wall=2s"),
        ],
    };
    for (doing, limits) in late {
        let run = Run::of(doing, 30.0).limits(limits);
        cases.add("ended at wall time", &["wall_time"], Job::Run(run));
    }
}

fn ranks(cases: &mut Cases) {
    let shares: [&[f64]; 3] = match cases.is_held_out() {
        false => [&[1.0, 0.1, 0.1, 0.1], &[0.9, 0.2], &[0.8, 0.1, 0.2, 0.1]],
        true => [&[0.1, 0.2, 0.9], &[0.8, 0.8, 0.1, 0.1, 0.1], &[0.15, 0.7]],
    };
    for shares in shares {
        let seconds = cases.seconds();
        let rank = |share: &f64| vec![(Doing::Compute { threads: 1, share: *share }, seconds)];
        let job = Job::Ranks(shares.iter().map(rank).collect());
        cases.add("imbalance of ranks", &["imbalance"], job);
    }
}

fn classes(cases: &mut Cases) {
    let compute = |seconds| vec![(Doing::Compute { threads: 1, share: 1.0 }, seconds)];
    let hold = |mib| vec![(Doing::Memory { shape: Shape::Hold, mib }, 0.4)];
    let write = |bytes| vec![(Doing::Write { bytes, rate: 100.0 }, 0.5)];
    type Doings = Vec<(Doing, f64)>;
    let pairs: [(Doings, Doings); 3] = match cases.is_held_out() {
        false => [
            (compute(0.4), compute(3.0)),
            (hold(60.0), hold(300.0)),
            (write(10_000), write(1_000_000)),
        ],
        true => {
            [(compute(0.3), compute(2.5)), (hold(150.0), hold(20.0)), (write(500_000), write(50))]
        }
    };
    for (before, doing) in pairs {
        let job = Job::Class { before, times: 10, run: Run { doing, ..Run::default() } };
        cases.add("unlike its class", &["unlike_class"], job);
    }
}

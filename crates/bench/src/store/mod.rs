//! `skopos-bench store`: the storage of jobs under the loads of SLAte's evaluation.
//!
//! `sts` sends records to a hub and waits for their acknowledgements; `lts` seals, verifies and reads segments; `download`
//! fetches jobs from two hubs; `together` asks one to three hubs; `mds` fills and searches the catalogue. `peers` puts the same records into what one would use instead. `slate` makes the jobs.

mod slate;
mod hub;
mod sts;
mod lts;
mod download;
mod together;
mod mds;
mod peers;

use skopos_hub::catalogue::{PostgresCatalogue, PostgresUrl};
use skopos_store::jobs::SqliteCatalogue;
use skopos_term::Failure;
use tokio::runtime::{Builder, Runtime};

use self::download::{Sites, Turn};
use self::hub::{Hub, Setup};
use self::sts::Load;
use self::together::Together;
use crate::machine::Machine;
use crate::plan::Plan;
use crate::query::postgres::{self, Postgres};
use crate::report::{Better, Figure, Goal, Report, Row};
use crate::scratch::Scratch;
use crate::stats::median;

/// Streams of the loads, and records of a batch.
const STREAMS: usize = 8;
const BATCH: usize = 500;

/// Records a second of the steady load.
const STEADY: f64 = 100_000.0;

/// Records a second at the peak of SLAte's evaluation: 276 jobs of 8 hours with 80 records each begin within 15 hours, so at
/// most some 190 run at once.
const PEAK: f64 = 190.0 * 80.0 / (8.0 * 3600.0);

/// Factor by which time runs faster than in the evaluation.
const FASTER: f64 = 60.0;

/// Runs all parts.
pub(crate) fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut machine = Machine::this();
    if let Some(version) = postgres::version() {
        machine.version_is("postgresql", version);
    }
    machine.version_is("sqlite", rusqlite::version().to_owned());
    let mut report = Report::new("store", machine);
    report.note(
        "acknowledgements are those of the level disk; every peer syncs each transaction or file",
    );
    let scratch = Scratch::on_disk()?;
    let server = postgres::serve(&scratch.dir("postgres")?, &["-c", "shared_buffers=1GB"]);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|e| Failure::new("no runtime").because(&e))?;
    plan.say("short-time storage …");
    short_time(plan, (&scratch, &runtime), &server, &mut report)?;
    plan.say("long-time storage …");
    long_time(plan, &scratch, &mut report)?;
    plan.say("downloads …");
    downloads(plan, (&scratch, &runtime), &mut report)?;
    plan.say("several hubs …");
    several_hubs(plan, (&scratch, &runtime), &mut report)?;
    plan.say("metadata …");
    metadata(plan, &scratch, &server, &mut report)?;
    Ok(report)
}

/// The results of the rounds of one load.
#[derive(Debug, Default)]
struct Rounds {
    per_second: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
}

fn short_time(
    plan: &Plan,
    (scratch, runtime): (&Scratch, &Runtime),
    server: &Result<Postgres, String>,
    report: &mut Report,
) -> Result<(), Failure> {
    let hub = Hub::start(&scratch.dir("sts")?, runtime, Setup::default())?;
    let (mut first, mut epoch) = (0, 1);
    let mut measure = |load: &Load| {
        let mut rounds = Rounds::default();
        for _ in 0..plan.rounds {
            let taken = sts::send(&hub, runtime, load, (first, epoch, slate::PROFILES[0]))?;
            first += taken.jobs as u64;
            epoch += 1;
            rounds.per_second.push(taken.per_second);
            rounds.p50.push(taken.latencies.percentile(50.0) / 1e6);
            rounds.p99.push(taken.latencies.percentile(99.0) / 1e6);
        }
        Ok::<_, Failure>(rounds)
    };
    let records = if plan.is_short { 200_000 } else { 600_000 };
    let most =
        Load { streams: STREAMS, rows: BATCH, records, per_second: None, window: 4, jobs: 50 };
    let rounds = measure(&most)?;
    let (of_sqlite, of_postgres) = peers_of(plan, scratch, server, &most)?;
    let case = "records, as many as it takes";
    let per_second = median(&rounds.per_second);
    let row = Row::new(case, "durable records a second", "1/s", per_second, Better::Higher)
        .peer("sqlite", figure(&of_sqlite))
        .peer("postgresql", figure(&of_postgres))
        .goal(Goal::AtLeast(STEADY))
        .rounds("skopos", &rounds.per_second);
    report.add([row]);
    report.add([
        Row::new(case, "acknowledgement p50", "ms", median(&rounds.p50), Better::Lower),
        Row::new(case, "acknowledgement p99", "ms", median(&rounds.p99), Better::Lower)
            .rounds("skopos", &rounds.p99),
    ]);
    let seconds = if plan.is_short { 3.0 } else { 10.0 };
    let scaled = |factor: f64| PEAK * FASTER * factor;
    let loads = [
        (format!("{STEADY:.0} records a second"), STEADY, BATCH, STREAMS),
        ("SLAte's peak, time x60".to_owned(), scaled(1.0), 1, 1),
        ("SLAte's peak x100, time x60".to_owned(), scaled(100.0), 10, STREAMS),
        ("SLAte's peak x1000, time x60".to_owned(), scaled(1000.0), 100, STREAMS),
    ];
    for (case, rate, rows, streams) in loads {
        let records = ((rate * seconds) as usize).div_ceil(rows * streams) * rows * streams;
        let per_second = Some(rate);
        // No stream waits for its window: a batch is sent when it is due.
        let load = Load { streams, rows, records, per_second, window: usize::MAX >> 4, jobs: 50 };
        let rounds = measure(&load)?;
        report.add([
            Row::new(&case, "acknowledgement p50", "ms", median(&rounds.p50), Better::Lower),
            Row::new(&case, "acknowledgement p99", "ms", median(&rounds.p99), Better::Lower)
                .goal(Goal::AtMost(50.0))
                .rounds("skopos", &rounds.p99),
        ]);
    }
    Ok(())
}

/// The records a second of each round.
type Rates = Vec<Result<f64, String>>;

/// Puts a quarter of the records of one stream into each peer.
fn peers_of(
    plan: &Plan,
    scratch: &Scratch,
    server: &Result<Postgres, String>,
    load: &Load,
) -> Result<(Rates, Rates), Failure> {
    let rows = sts::rows(&Load { streams: 1, ..*load }, &mut 0, slate::PROFILES[0]);
    let rows = &rows[..rows.len() / 4];
    let (mut of_sqlite, mut of_postgres) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        let dir = scratch.dir(&format!("sqlite-{round}"))?;
        of_sqlite.push(peers::sqlite(&dir, rows, BATCH).map_err(|e| e.to_string()));
        of_postgres.push(match server {
            Ok(server) => peers::postgres(server, rows, (STREAMS, BATCH)),
            Err(why) => Err(why.clone()),
        });
    }
    Ok((of_sqlite, of_postgres))
}

/// The median of a peer, or the reason of its first failure.
fn figure(results: &[Result<f64, String>]) -> Figure {
    match results.iter().cloned().collect::<Result<Vec<f64>, String>>() {
        Ok(values) => Figure::Known(median(&values)),
        Err(why) => Figure::Unknown(why),
    }
}

fn long_time(plan: &Plan, scratch: &Scratch, report: &mut Report) -> Result<(), Failure> {
    let count = if plan.is_short { 1000 } else { 3000 };
    for samples in slate::PROFILES {
        let (mut sealed, mut files) = (Vec::new(), Vec::new());
        for round in 0..plan.rounds {
            let dir = scratch.dir(&format!("lts-{samples}-{round}"))?;
            sealed.push(lts::seal(&dir.join("jobs"), count, samples)?);
            files.push(lts::files(&dir, count / 4, samples).map_err(|e| e.to_string()));
            let _ = std::fs::remove_dir_all(dir);
        }
        let of = |field: fn(&lts::Sealed) -> f64| sealed.iter().map(field).collect::<Vec<f64>>();
        let peer = |field: fn(&(f64, f64, f64)) -> f64| {
            let all: Vec<_> =
                files.iter().map(|one| one.as_ref().map(field).map_err(Clone::clone)).collect();
            figure(&all)
        };
        let case = format!("jobs with {samples} measurements");
        let rates = of(|it| it.jobs_per_second);
        report.add([
            Row::new(&case, "durable jobs a second", "1/s", median(&rates), Better::Higher)
                .peer("a JSON file each", peer(|it| it.0))
                .goal(Goal::AtLeast(500.0))
                .rounds("skopos", &rates),
            Row::new(
                &case,
                "size of a job",
                "B",
                median(&of(|it| it.bytes_per_job)),
                Better::Lower,
            )
            .peer("a JSON file each", peer(|it| it.1)),
            Row::new(&case, "reading a job", "ms", median(&of(|it| it.read_ms)), Better::Lower)
                .peer("a JSON file each", peer(|it| it.2)),
            Row::new(
                &case,
                "verified jobs a second",
                "1/s",
                median(&of(|it| it.verified_per_second)),
                Better::Higher,
            ),
        ]);
    }
    Ok(())
}

fn downloads(
    plan: &Plan,
    (scratch, runtime): (&Scratch, &Runtime),
    report: &mut Report,
) -> Result<(), Failure> {
    let counts: &[usize] = if plan.is_short { &[1000] } else { &[1000, 10_000] };
    for &count in counts {
        let sites = Sites::start((scratch, &format!("download-{count}")), count, runtime)?;
        let turns: Result<Vec<Turn>, Failure> =
            (0..plan.rounds).map(|_| sites.turn(scratch)).collect();
        let turns = turns?;
        let of = |field: fn(&Turn) -> f64| turns.iter().map(field).collect::<Vec<f64>>();
        let shares = of(|it| it.copied / it.fetched);
        let case = format!("{count} jobs from two hubs, {:.0} MB", sites.bytes as f64 / 1e6);
        report.add([
            Row::new(&case, "download", "s", median(&of(|it| it.fetched)), Better::Lower)
                .peer("copy of the files", Figure::Known(median(&of(|it| it.copied))))
                .peer("files read", Figure::Known(median(&of(|it| it.read))))
                .rounds("skopos", &of(|it| it.fetched)),
            Row::new(&case, "rate, as a share of the copy's", "", median(&shares), Better::Higher)
                .goal(Goal::AtLeast(0.8))
                .rounds("skopos", &shares),
            Row::new(
                &case,
                "download of some kinds",
                "s",
                median(&of(|it| it.records)),
                Better::Lower,
            )
            .rounds("skopos", &of(|it| it.records)),
            Row::new(
                &case,
                "download of starts and ends",
                "s",
                median(&of(|it| it.metadata)),
                Better::Lower,
            )
            .rounds("skopos", &of(|it| it.metadata)),
        ]);
    }
    Ok(())
}

fn several_hubs(
    plan: &Plan,
    (scratch, runtime): (&Scratch, &Runtime),
    report: &mut Report,
) -> Result<(), Failure> {
    let jobs = if plan.is_short { 1000 } else { 5000 };
    let together = Together::start(scratch, jobs, runtime)?;
    let mut seconds = [const { Vec::new() }; 3];
    for _ in 0..plan.rounds {
        for (hubs, seconds) in (1..).zip(&mut seconds) {
            seconds.push(together.turn(hubs)?);
        }
    }
    let millions = together.values as f64 / 1e6;
    for (hubs, seconds) in (1..).zip(&seconds) {
        let names = ["one hub", "two hubs", "three hubs"];
        let case = format!("mean of {millions:.0} million values, {}", names[hubs - 1]);
        report
            .add([Row::new(&case, "time", "s", median(seconds), Better::Lower)
                .rounds("skopos", seconds)]);
    }
    Ok(())
}

fn metadata(
    plan: &Plan,
    scratch: &Scratch,
    server: &Result<Postgres, String>,
    report: &mut Report,
) -> Result<(), Failure> {
    let count = if plan.is_short { 20_000 } else { 1_000_000 };
    let failed = |e: skopos_store::jobs::catalogue::Error| {
        Failure::new("the catalogue cannot be opened").because(&e)
    };
    let path = scratch.dir("mds")?.join("catalogue.sqlite");
    let sqlite = mds::fill(&SqliteCatalogue::open(&path).map_err(failed)?, count)?;
    add_catalogue(report, &format!("SQLite, {count} jobs"), &sqlite);
    let count = if plan.is_short { 20_000 } else { 200_000 };
    let case = format!("PostgreSQL, {count} jobs");
    match server {
        Ok(server) => {
            let url: PostgresUrl = server
                .url()
                .parse()
                .map_err(|_| Failure::new("the URL of the server is not valid"))?;
            let filled = mds::fill(&PostgresCatalogue::new(&url).map_err(failed)?, count)?;
            add_catalogue(report, &case, &filled);
        }
        Err(why) => {
            let unknown = Figure::Unknown(why.clone());
            report.add([Row::of(case, "upserts a second", "1/s", unknown, Better::Higher)]);
        }
    }
    Ok(())
}

fn add_catalogue(report: &mut Report, case: &str, filled: &mds::Filled) {
    let ms = |percent| filled.searches.percentile(percent) / 1e6;
    report.add([
        Row::new(
            case,
            "durable upserts a second",
            "1/s",
            filled.upserts_per_second,
            Better::Higher,
        )
        .goal(Goal::AtLeast(7000.0)),
        Row::new(case, "search by user and day, p50", "ms", ms(50.0), Better::Lower)
            .goal(Goal::AtMost(10.0)),
        Row::new(case, "search by user and day, p99", "ms", ms(99.0), Better::Lower),
        Row::new(case, "jobs that a search found", "", filled.found, Better::Neither),
    ]);
}

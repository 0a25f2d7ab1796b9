//! `skopos job fetch ID… --out DIR`: downloads jobs, several portions at a time, and verifies them.

mod args;
mod task;
mod folder;
mod question;
mod arrival;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use skopos_hub::client::{flight_url, reach};
use skopos_serve::fetch::HubAddress;
use skopos_term::format::printable;
use skopos_term::{Failure, Global, Out, Style};

pub(crate) use self::args::FetchArgs;
use self::folder::Folder;
use self::question::ask;
use self::task::{Missing, OfSite};

/// Time for the answer of the hub of this machine.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The most times in a row that the places of what is missing are asked for without a sealed part in between. Tickets end, and
/// segments are joined, while a long download runs.
const IDLE_ROUNDS: usize = 3;

/// The most missing things that are named. Further ones are counted.
const MAX_NAMED: usize = 20;

/// `docs/json/job_fetch.schema.json`.
#[derive(Default, Serialize)]
struct Fetched {
    /// Jobs whose places were found.
    jobs: u64,
    /// Parts of jobs that were there already.
    kept_parts: u64,
    /// Parts of jobs that were downloaded.
    fetched_parts: u64,
    /// Records that were downloaded, and their bytes in binary form.
    records: u64,
    bytes: u64,
    seconds: f64,
    /// Sites that answered.
    sites: Vec<String>,
    /// Jobs, sites, copies and portions of jobs that are missing.
    missing: Vec<Missing>,
}

pub(crate) fn run(global: &Global, args: &FetchArgs) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    let mut addresses = addresses_of(global, args)?;
    let records = skopos_hub::jobs::Wanted {
        kinds: args.kind.iter().cloned().collect(),
        schemas: args.schema.iter().cloned().collect(),
        ..skopos_hub::jobs::Wanted::default()
    };
    folder::check_conditions(&args.out, &records)?;
    let mut fetched = Fetched::default();
    let mut folders: BTreeMap<String, Arc<Folder>> = BTreeMap::new();
    let (mut round, mut idle) = (0, 0);
    while idle < IDLE_ROUNDS {
        let mut seen = BTreeSet::new();
        let (found, done) = workers::run(args.parallel, |tasks| {
            let mut visit = |of: OfSite| -> Result<(), Failure> {
                let folder = match folders.get(&of.site) {
                    Some(folder) => folder.clone(),
                    None => Arc::new(Folder::open(&args.out, &of.site, &records)?),
                };
                folders.insert(of.site.clone(), folder.clone());
                let is_first = seen.insert(of.site.clone());
                match round {
                    0 => fetched.kept_parts += folder.kept(&of.endpoints),
                    // Records that this round has fetched stay.
                    _ if is_first => folder.forget_running()?,
                    _ => {}
                }
                folder.tasks(of).into_iter().try_for_each(|task| tasks.push(task, &folder))
            };
            // A damaged segment has other jobs that are whole, which a round after one without progress gets one by one.
            ask(&addresses, args, (&records, idle == 0), &mut visit)
        })?;
        (fetched.jobs, fetched.sites) = (found.jobs, found.sites.into_iter().collect());
        fetched.fetched_parts += done.parts;
        fetched.records += done.records;
        fetched.bytes += done.bytes;
        fetched.missing = found.missing;
        fetched.missing.extend(done.missing);
        if !done.is_worth_another_round && !found.is_cut {
            break;
        }
        addresses.rotate_left(found.next);
        (idle, round) = (if done.is_ahead { 0 } else { idle + 1 }, round + 1);
    }
    fetched.missing.sort();
    fetched.seconds = began.elapsed().as_secs_f64();
    let mut out = Out::new(global.style());
    show(&fetched, &mut out)?;
    out.flush()?;
    Ok(if fetched.missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Returns the addresses that the user gave, else that of the hub of this machine.
fn addresses_of(global: &Global, args: &FetchArgs) -> Result<Vec<HubAddress>, Failure> {
    if !args.hub.is_empty() {
        let (authority, files) = (args.authority.as_deref(), &args.token_file);
        if files.len() > 1 && files.len() != args.hub.len() {
            let (hubs, files) = (args.hub.len(), files.len());
            return Err(Failure::new(format!("{files} files of tokens are given for {hubs} hubs"))
                .hint("give one for all of them, or one for each `--hub` in the same order"));
        }
        let token = |at: usize| files.get(at).or(files.first()).map(PathBuf::as_path);
        let hubs = args.hub.iter().enumerate();
        return hubs.map(|(at, url)| HubAddress::new(url, authority, token(at))).collect();
    }
    let dir = global.dir.clone().unwrap_or_else(skopos_shm::runtime_dir);
    let stream = reach(&dir, TIMEOUT)?.ok_or_else(|| {
        Failure::new("jobs are kept and read by a hub, and no hub runs on this machine")
            .hint("name one with `--hub URL`, or start one with `skopos up` or `skopos hub`")
    })?;
    let found = flight_url(&stream)?;
    Ok(vec![HubAddress::new(&found.url, found.authority.as_deref(), None)?])
}

fn show(fetched: &Fetched, out: &mut Out) -> Result<(), Failure> {
    match out.style {
        Style::Json => return Ok(out.json(fetched)?),
        Style::Plain => {
            out.line(format!(
                "{}\t{}\t{}\t{}\t{}",
                fetched.jobs,
                fetched.kept_parts,
                fetched.fetched_parts,
                fetched.records,
                fetched.missing.len()
            ))?;
        }
        Style::Human => {
            out.line(format!(
                "{} jobs: {} parts fetched with {} records, {} were here",
                fetched.jobs, fetched.fetched_parts, fetched.records, fetched.kept_parts
            ))?;
        }
    }
    for missing in fetched.missing.iter().take(MAX_NAMED) {
        let jobs = missing.jobs.join(", ");
        let site = missing.site.as_deref().map_or(String::new(), |site| format!(" of {site}"));
        let what = if jobs.is_empty() { "jobs".to_owned() } else { printable(&jobs) };
        out.line(format!("missing: {what}{}: {}", printable(&site), printable(&missing.why)))?;
    }
    if fetched.missing.len() > MAX_NAMED {
        out.line(format!("{} more are missing", fetched.missing.len() - MAX_NAMED))?;
    }
    Ok(())
}

//! Asks one hub where jobs lie, and the hubs of other sites if the user wants that.

use std::collections::{BTreeMap, BTreeSet};

use skopos_hub::jobs::Wanted;
use skopos_serve::downloads::{JobName, PlacesCommand, VERSION};
use skopos_serve::fetch::{Fetcher, HubAddress};
use skopos_term::Failure;

use super::args::{FetchArgs, OfSite as OfSiteFile};
use super::task::{Missing, OfSite, SiteHubs};

/// The most ids of one command.
const MAX_IDS: usize = 500;

/// The most answers to one question: ten million jobs.
const MAX_ANSWERS: usize = 10_000;

/// All places.
pub(super) struct Found {
    pub(super) sites: BTreeMap<String, OfSite>,
    pub(super) missing: Vec<Missing>,
    /// Number of jobs.
    pub(super) jobs: u64,
}

/// An id as the user typed it, which may end with the number of a run.
fn names_of(typed: &str) -> Vec<JobName> {
    let whole = JobName { job: typed.to_owned(), generation: None };
    let run = typed.rsplit_once(".g").and_then(|(job, run)| {
        let is_number = run.bytes().all(|byte| byte.is_ascii_digit());
        let generation = run.parse().ok().filter(|_| is_number && !job.is_empty())?;
        Some(JobName { job: job.to_owned(), generation: Some(generation) })
    });
    std::iter::once(whole).chain(run).collect()
}

/// Asks where the jobs lie, and with `segments` for the files of whole segments. One hub of the addresses must answer; another
/// site that does not is missing, and so are parts that an answer lacks.
pub(super) fn ask(
    addresses: &[HubAddress],
    args: &FetchArgs,
    records: &Wanted,
    segments: bool,
) -> Result<Found, Failure> {
    let commands: Vec<PlacesCommand> = match &args.condition {
        Some(condition) => vec![PlacesCommand {
            skopos_jobs: VERSION,
            condition: Some(condition.clone()),
            records: records.clone(),
            segments,
            partial: true,
            ..PlacesCommand::default()
        }],
        None => args
            .ids
            .chunks(MAX_IDS)
            .map(|ids| PlacesCommand {
                skopos_jobs: VERSION,
                jobs: ids.iter().flat_map(|id| names_of(id)).collect(),
                records: records.clone(),
                segments,
                partial: true,
                ..PlacesCommand::default()
            })
            .collect(),
    };
    let mut found = Found { sites: BTreeMap::new(), missing: Vec::new(), jobs: 0 };
    let (address, others) = ask_first(addresses, &commands, &mut found)?;
    for of in found.sites.values_mut() {
        of.hubs.named = addresses.to_vec();
    }
    if args.all_sites {
        let named = args.site_token.iter().chain(&args.site_authority);
        if let Some(unknown) = named.map(|of| &of.site).find(|site| !others.contains_key(*site)) {
            let known: Vec<&str> = others.keys().map(String::as_str).collect();
            return Err(Failure::new(format!("the hub knows no site {unknown:?}"))
                .hint(format!("sites that it knows: {}", known.join(", "))));
        }
        for (site, url) in others {
            if found.sites.contains_key(&site) {
                continue;
            }
            let of = |files: &[OfSiteFile]| {
                files.iter().find(|of| of.site == site).map(|of| of.file.clone())
            };
            let (authority, token) = (of(&args.site_authority), of(&args.site_token));
            let there = address.elsewhere(&url);
            let there = there.with_files(authority.as_deref(), token.as_deref())?;
            if let Err(e) = ask_one(&there, &commands, &mut found) {
                let (why, jobs) = (e.in_one_line(), Vec::new());
                found.missing.push(Missing { site: Some(site), jobs, why });
            }
        }
    }
    found.missing.extend(unknown(&args.ids, &found));
    Ok(found)
}

/// Asks the first of some hubs that answers. Returns it, and the other sites that it knows.
fn ask_first<'a>(
    addresses: &'a [HubAddress],
    commands: &[PlacesCommand],
    found: &mut Found,
) -> Result<(&'a HubAddress, BTreeMap<String, String>), Failure> {
    let mut failure = None;
    for address in addresses {
        match ask_one(address, commands, found) {
            Ok(others) => return Ok((address, others)),
            Err(e) => failure = failure.or(Some(e)),
        }
    }
    Err(failure.unwrap_or_else(|| Failure::new("there is no hub to ask")))
}

/// Asks one hub all commands. Returns the other sites that it knows.
fn ask_one(
    address: &HubAddress,
    commands: &[PlacesCommand],
    found: &mut Found,
) -> Result<BTreeMap<String, String>, Failure> {
    let mut hub = Fetcher::connect(address)?;
    let (mut others, mut endpoints, mut site, mut jobs) = (BTreeMap::new(), Vec::new(), None, 0);
    let mut missing = BTreeSet::new();
    for command in commands {
        let mut command = command.clone();
        for _ in 0..MAX_ANSWERS {
            let (metadata, places) = hub.places(&command).map_err(|e| e.into_failure())?;
            others = metadata.sites;
            jobs += metadata.jobs;
            site = Some(metadata.site);
            missing.extend(metadata.missing);
            endpoints.extend(places);
            command.after = metadata.after;
            if command.after.is_none() {
                break;
            }
        }
    }
    found.jobs += jobs;
    let lacks = |why| Missing { site: site.clone(), jobs: Vec::new(), why };
    found.missing.extend(missing.into_iter().map(lacks));
    if let Some(site) = site {
        let hubs = SiteHubs { asked: address.clone(), named: Vec::new() };
        let of = OfSite { site: site.clone(), hubs, endpoints };
        found.sites.insert(site, of);
    }
    Ok(others)
}

/// Returns the typed ids that no site has.
fn unknown(typed: &[String], found: &Found) -> Vec<Missing> {
    let is_known = |name: &JobName| {
        let endpoints = found.sites.values().flat_map(|site| &site.endpoints);
        endpoints
            .flat_map(|endpoint| &endpoint.metadata.jobs)
            .any(|of| of.job == name.job && name.generation.is_none_or(|run| run == of.generation))
    };
    let unknown = typed.iter().filter(|id| !names_of(id).iter().any(is_known));
    let why = "there is no such job that you may read".to_owned();
    unknown.map(|id| Missing { site: None, jobs: vec![id.clone()], why: why.clone() }).collect()
}

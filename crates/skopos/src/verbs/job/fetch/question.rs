//! Asks one hub where jobs lie, and the hubs of other sites if the user wants that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use skopos_hub::jobs::Wanted;
use skopos_serve::downloads::{JobName, PlacesCommand, VERSION};
use skopos_serve::fetch::{FetchError, Fetcher, HubAddress};
use skopos_term::Failure;

use super::args::{FetchArgs, OfSite as OfSiteFile};
use super::task::{Missing, OfSite, SiteHubs};

/// The most ids of one command.
const MAX_IDS: usize = 500;

/// The most answers to one question: ten million jobs.
const MAX_ANSWERS: usize = 10_000;

/// The longest pause between two questions of one connection. A hub closes a connection whose client does not answer a ping within
/// 50 seconds, and the client answers none while it waits until places are taken.
const CONNECTED: Duration = Duration::from_secs(20);

/// The answers, without the places.
#[derive(Default)]
pub(super) struct Found {
    /// Names of the sites that answered.
    pub(super) sites: BTreeSet<String>,
    pub(super) missing: Vec<Missing>,
    /// Number of jobs.
    pub(super) jobs: u64,
    /// True if a hub stopped in the midst of its answers. The others can be asked for again.
    pub(super) is_cut: bool,
    /// The place of the address that is asked first in the next round: the one after a hub of the user's site that stopped.
    pub(super) next: usize,
    /// The jobs, if the user typed ids.
    named: BTreeSet<(String, u32)>,
}

/// Takes the places of one answer. They are downloaded while the next answers are asked for.
pub(super) type Visit<'v> = dyn FnMut(OfSite) -> Result<(), Failure> + 'v;

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

/// Asks where the jobs lie, and with `segments` for the files of whole segments. Each answer is passed to `visit` at once. One hub
/// of the addresses must answer; another site that does not is missing, and so are parts that an answer lacks.
pub(super) fn ask(
    addresses: &[HubAddress],
    args: &FetchArgs,
    (records, segments): (&Wanted, bool),
    visit: &mut Visit<'_>,
) -> Result<Found, Failure> {
    let commands = commands(args, records, segments);
    let of_sites = of_sites(args)?;
    let mut asking = Asking { commands: &commands, args, visit, found: Found::default() };
    let (address, others) = asking.first(addresses)?;
    if args.all_sites {
        for (site, url) in others {
            if asking.found.sites.contains(&site) {
                continue;
            }
            let mut there = address.elsewhere(&url);
            if let Some(of) = of_sites.get(site.as_str()) {
                there.authority = of.authority.clone().or(there.authority);
                there.token = of.token.clone();
            }
            match asking.one(&there, &[]) {
                Err(FetchError::Local(e)) => return Err(e),
                Err(e) => {
                    let (why, jobs) = (e.into_failure().in_one_line(), Vec::new());
                    asking.found.missing.push(Missing { site: Some(site), jobs, why });
                }
                Ok(_) => {}
            }
        }
    }
    let mut found = asking.found;
    found.missing.extend(unknown(&args.ids, &found.named));
    Ok(found)
}

/// Reads the tokens and certificates that the user named for other sites: a mistake is told before anything is downloaded.
fn of_sites(args: &FetchArgs) -> Result<BTreeMap<&str, HubAddress>, Failure> {
    let mut sites = BTreeMap::new();
    for OfSiteFile { site, .. } in args.site_token.iter().chain(&args.site_authority) {
        let of = |files: &[OfSiteFile]| {
            files.iter().find(|of| of.site == *site).map(|of| of.file.clone())
        };
        let (authority, token) = (of(&args.site_authority), of(&args.site_token));
        let address = HubAddress::new("", authority.as_deref(), token.as_deref())?;
        sites.insert(site.as_str(), address);
    }
    Ok(sites)
}

/// Refuses files for a site that the hub does not know.
fn check_sites(args: &FetchArgs, known: &BTreeMap<String, String>) -> Result<(), Failure> {
    let mut named = args.site_token.iter().chain(&args.site_authority).map(|of| &of.site);
    let Some(unknown) = named.find(|site| !known.contains_key(*site)) else { return Ok(()) };
    let known: Vec<&str> = known.keys().map(String::as_str).collect();
    Err(Failure::new(format!("the hub knows no site {unknown:?}"))
        .hint(format!("sites that it knows: {}", known.join(", "))))
}

/// Advises what to do about a hub that does not know a field of the command.
fn advised(failure: Failure) -> Failure {
    if failure.message().contains("is not one about jobs: unknown field") {
        return failure.hint("update the hub: it is of an earlier version than this program");
    }
    failure
}

/// Returns the commands that ask for the jobs which the user named.
fn commands(args: &FetchArgs, records: &Wanted, segments: bool) -> Vec<PlacesCommand> {
    let base = PlacesCommand {
        skopos_jobs: VERSION,
        records: records.clone(),
        segments,
        // A hub of an earlier version does not know it.
        filters: segments && !records.is_all(),
        partial: true,
        ..PlacesCommand::default()
    };
    match &args.condition {
        Some(condition) => vec![PlacesCommand { condition: Some(condition.clone()), ..base }],
        None => {
            let jobs = |ids: &[String]| -> Vec<JobName> {
                ids.iter().flat_map(|id| names_of(id)).collect()
            };
            let chunks = args.ids.chunks(MAX_IDS);
            chunks.map(|ids| PlacesCommand { jobs: jobs(ids), ..base.clone() }).collect()
        }
    }
}

/// A question to several hubs.
struct Asking<'a, 'v> {
    commands: &'a [PlacesCommand],
    args: &'a FetchArgs,
    visit: &'a mut Visit<'v>,
    found: Found,
}

/// The answers of one hub.
#[derive(Default)]
struct Answered {
    site: Option<String>,
    /// Addresses of the other sites that it knows.
    others: BTreeMap<String, String>,
    missing: BTreeSet<String>,
}

impl Asking<'_, '_> {
    /// Asks the first of some hubs that answers. Returns it, and the other sites that it knows.
    fn first<'h>(
        &mut self,
        addresses: &'h [HubAddress],
    ) -> Result<(&'h HubAddress, BTreeMap<String, String>), Failure> {
        let mut failure = None;
        for (at, address) in addresses.iter().enumerate() {
            match self.one(address, addresses) {
                Ok(others) => {
                    if self.found.is_cut {
                        self.found.next = at + 1;
                    }
                    return Ok((address, others));
                }
                Err(FetchError::Local(e)) => return Err(e),
                Err(e) => failure = failure.or(Some(e.into_failure())),
            }
        }
        Err(failure.unwrap_or_else(|| Failure::new("there is no hub to ask")))
    }

    /// Asks one hub all commands. `named` are the hubs of its site that the user named. Returns the other sites that it knows.
    ///
    /// # Errors
    /// The hub has given no answer, or an answer could not be visited ([`FetchError::Local`]).
    fn one(
        &mut self,
        address: &HubAddress,
        named: &[HubAddress],
    ) -> Result<BTreeMap<String, String>, FetchError> {
        let mut hub = Fetcher::connect(address).map_err(FetchError::Failed)?;
        let hubs = SiteHubs { asked: address.clone(), named: named.to_vec() };
        let mut answered = Answered::default();
        let result = self.answers(&mut hub, &hubs, &mut answered);
        let Answered { site, others, missing } = answered;
        let lacks = |why| Missing { site: site.clone(), jobs: Vec::new(), why };
        self.found.missing.extend(missing.into_iter().map(lacks));
        match result {
            Err(FetchError::Local(e)) => return Err(FetchError::Local(e)),
            Err(e) if site.is_none() => return Err(FetchError::Failed(e.into_failure())),
            // Its first answers are downloaded already, so another hub of its site must not answer for them a second time.
            Err(e) => {
                self.found.is_cut = true;
                self.found.missing.push(lacks(e.into_failure().in_one_line()));
            }
            Ok(()) => {}
        }
        self.found.sites.extend(site);
        Ok(others)
    }

    /// Passes the answers of a hub on.
    fn answers(
        &mut self,
        hub: &mut Fetcher,
        hubs: &SiteHubs,
        answered: &mut Answered,
    ) -> Result<(), FetchError> {
        for command in self.commands {
            let mut command = command.clone();
            for _ in 0..MAX_ANSWERS {
                let places = hub.places(&command);
                // Also a token that cannot be sent: it belongs to this hub, and another hub may answer.
                let (metadata, endpoints) =
                    places.map_err(|e| FetchError::Failed(advised(e.into_failure())))?;
                answered.others = metadata.sites;
                if self.found.sites.is_empty() && answered.site.is_none() {
                    // It is the first answer of all, and nothing is downloaded yet.
                    check_sites(self.args, &answered.others).map_err(FetchError::Local)?;
                }
                if self.found.sites.contains(&metadata.site) {
                    // Another hub has answered for this site.
                    return Ok(());
                }
                self.found.jobs += metadata.jobs;
                answered.missing.extend(metadata.missing);
                answered.site = Some(metadata.site.clone());
                if self.args.condition.is_none() {
                    let jobs = endpoints.iter().flat_map(|endpoint| &endpoint.metadata.jobs);
                    self.found.named.extend(jobs.map(|of| (of.job.clone(), of.generation)));
                }
                let of = OfSite { site: metadata.site, hubs: hubs.clone(), endpoints };
                let begun = Instant::now();
                (self.visit)(of).map_err(FetchError::Local)?;
                command.after = metadata.after;
                if command.after.is_none() {
                    break;
                }
                if begun.elapsed() > CONNECTED {
                    *hub = Fetcher::connect(&hubs.asked).map_err(FetchError::Failed)?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the typed ids that no site has.
fn unknown(typed: &[String], named: &BTreeSet<(String, u32)>) -> Vec<Missing> {
    let is_known = |name: &JobName| {
        let mut runs = named.range((name.job.clone(), 0)..=(name.job.clone(), u32::MAX));
        runs.any(|(_, run)| name.generation.is_none_or(|wanted| wanted == *run))
    };
    let unknown = typed.iter().filter(|id| !names_of(id).iter().any(is_known));
    let why = "there is no such job that you may read".to_owned();
    unknown.map(|id| Missing { site: None, jobs: vec![id.clone()], why: why.clone() }).collect()
}

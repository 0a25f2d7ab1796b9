//! `skopos mds rebuild|dump|verify|promote`: the catalogue of jobs, and the copy of a lost hub, while no hub uses the jobs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use skopos_agent::config::Config;
use skopos_hub::catalogue::CataloguePlace;
use skopos_hub::config::HubConfig;
use skopos_hub::jobs::{Mds, MdsError, SegmentsPlace, TakeOverError, take_over};
use skopos_store::jobs::catalogue;
use skopos_term::{EXIT_NO, Failure, Global, Out, state, tell};

#[derive(Debug, Args)]
pub(crate) struct MdsArgs {
    /// Read this configuration file, which names the database of the catalogue
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    verb: MdsVerb,
}

#[derive(Debug, Subcommand)]
enum MdsVerb {
    /// Make the catalogue again from the segments and the records that are not sealed
    #[command(before_help = "Example: skopos mds rebuild")]
    Rebuild,
    /// Print the content of the catalogue: a line for each segment and each job, in a fixed order
    #[command(before_help = "Example: skopos mds dump | sha256sum")]
    Dump,
    /// Read every byte of the segments, and name what is damaged or differs from the catalogue
    #[command(before_help = "Example: skopos mds verify")]
    Verify,
    /// Take over the copy of another hub's jobs, which that hub has lost. Hubs that have it as replica must not run
    #[command(before_help = "Example: skopos mds promote hub1")]
    Promote {
        /// Name of the hub that is lost
        hub: String,
        /// Folder of state of the hub that takes over, if it is not the one of SKOPOS_STATE
        #[arg(long, value_name = "FOLDER")]
        into: Option<PathBuf>,
    },
}

pub(crate) fn run(global: &Global, args: &MdsArgs) -> Result<ExitCode, Failure> {
    let config = HubConfig::of(&Config::load(args.config.as_deref())?)?;
    let folder = state::jobs().ok_or_else(|| {
        Failure::new("the place of jobs is not known").hint("set SKOPOS_STATE to a folder")
    })?;
    let place = CataloguePlace::new(&folder, config.catalogue.as_ref());
    let segments = SegmentsPlace::new(&folder, config.jobs.s3.as_ref());
    let open = || Mds::open(&folder, &segments).map_err(failure);
    let mut out = Out::new(global.style());
    let code = match &args.verb {
        MdsVerb::Rebuild => rebuild(&open()?, &place, &mut out)?,
        MdsVerb::Dump => dump(&place, &mut out)?,
        MdsVerb::Verify => verify(&open()?, &place, &mut out)?,
        MdsVerb::Promote { hub, into } => promote(&folder, hub, into.as_deref(), &mut out)?,
    };
    out.flush()?;
    Ok(code)
}

fn failure(e: MdsError) -> Failure {
    if let MdsError::NoJobs(_) = e {
        return Failure::no(e.to_string())
            .hint("SKOPOS_STATE names the folder that has the folder `jobs`");
    }
    let failure = Failure::new("the catalogue cannot be worked on").because(&e);
    match e {
        MdsError::Busy(_) => failure.hint("stop the hub first (`skopos hub` or `skopos up`)"),
        MdsError::Catalogue(catalogue::Error::Newer { .. }) => failure.hint(
            "`skopos mds rebuild` makes a file of SQLite again, in the format of this version",
        ),
        _ => failure,
    }
}

fn rebuild(mds: &Mds, place: &CataloguePlace, out: &mut Out) -> Result<ExitCode, Failure> {
    let rebuilt = mds.rebuild(place).map_err(failure)?;
    let (jobs, segments) = (rebuilt.jobs, rebuilt.segments);
    out.line(format!("made the catalogue again: {jobs} jobs of {segments} segments, in {place}"))?;
    for (id, why) in &rebuilt.unreadable {
        tell(format!(
            "warning: the catalogue does not have the job {id}, because a part of the job cannot be read: {why}"
        ));
    }
    Ok(answer(rebuilt.unreadable.is_empty()))
}

fn dump(place: &CataloguePlace, out: &mut Out) -> Result<ExitCode, Failure> {
    if !place.exists() {
        return Err(Failure::no(format!("there is no catalogue in {place}"))
            .hint("`skopos mds rebuild` makes it again from the segments"));
    }
    let catalogue = place.open().map_err(|e| failure(e.into()))?;
    catalogue.dump(out.writer()).map_err(|e| match e {
        // A reader that closes the pipe has seen enough.
        catalogue::Error::Dump(e) => Failure::from(e),
        e => failure(e.into()),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn verify(mds: &Mds, place: &CataloguePlace, out: &mut Out) -> Result<ExitCode, Failure> {
    let mut written = Ok(());
    let verified = mds.verify(place, &mut |difference| {
        if written.is_ok() {
            written = out.line(difference.to_string());
        }
    });
    let verified = verified.map_err(failure)?;
    written?;
    let (jobs, segments) = (verified.jobs, verified.segments);
    match verified.differences {
        0 => out.line(format!("{jobs} jobs and {segments} segments agree with the catalogue"))?,
        differences => {
            tell(format!("{differences} differences in {jobs} jobs and {segments} segments"))
        }
    }
    Ok(answer(verified.differences == 0))
}

fn promote(
    folder: &Path,
    hub: &str,
    into: Option<&Path>,
    out: &mut Out,
) -> Result<ExitCode, Failure> {
    let jobs = into.map_or_else(|| folder.to_path_buf(), |state| state.join("jobs"));
    match take_over(folder, hub, &jobs) {
        Ok(()) => {
            let jobs = jobs.display();
            out.line(format!(
                "the jobs of {hub} are in {jobs}; the next hub there answers for them"
            ))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(e) => {
            let hint = match &e {
                TakeOverError::Missing { .. } => {
                    "`[hub.jobs] replica` of the other hub names the hub that keeps the copy"
                }
                TakeOverError::Taken(_) => {
                    "--into names the folder of state of another hub, on the same file system"
                }
                TakeOverError::Failed(_) => "stop the hub first (`skopos hub` or `skopos up`)",
            };
            Err(Failure::new("the copy cannot be taken over").because(&e).hint(hint))
        }
    }
}

fn answer(is_yes: bool) -> ExitCode {
    if is_yes { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NO) }
}

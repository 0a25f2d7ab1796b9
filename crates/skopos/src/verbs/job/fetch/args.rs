//! The options of `skopos job fetch`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use skopos_model::job::Kind;

/// The most downloads at a time: a hub gives one client no more.
const MAX_PARALLEL: u8 = 8;

#[derive(Debug, Args)]
pub(crate) struct FetchArgs {
    /// Ids of jobs; `ID.g1` is the second run alone
    #[arg(value_name = "ID", required_unless_present = "condition")]
    pub(super) ids: Vec<String>,
    /// Jobs that fulfil a condition of SQL on the table `jobs`
    #[arg(long = "where", value_name = "CONDITION", conflicts_with = "ids")]
    pub(super) condition: Option<String>,
    /// Folder for the files, with a folder for each site
    #[arg(long, short, value_name = "DIR")]
    pub(super) out: PathBuf,
    /// Downloads at a time
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_PARALLEL)))]
    pub(super) parallel: u8,
    /// Only records of this kind
    #[arg(long, value_name = "KIND", value_parser = kinds())]
    pub(super) kind: Vec<String>,
    /// Of the measurements, only those of this schema
    #[arg(long, value_name = "NAME")]
    pub(super) schema: Vec<String>,
    /// Ask the other sites too that the hub knows
    #[arg(long)]
    pub(super) all_sites: bool,
    /// URL of a hub's Flight listener; repeat it for a hub of the same site that is asked if the first one does not answer
    /// [default: the hub of this machine]
    #[arg(long, value_name = "URL")]
    pub(super) hub: Vec<String>,
    /// Certificate of the authority of the hub's site, for `grpc+tls`
    #[arg(long, value_name = "FILE", requires = "hub")]
    pub(super) authority: Option<PathBuf>,
    /// File with a token of the user; repeat it for each `--hub`, in the same order, if they have different tokens
    #[arg(long, value_name = "FILE", requires = "hub")]
    pub(super) token_file: Vec<PathBuf>,
    /// File with a token of the user at another site
    #[arg(long, value_name = "SITE=FILE", requires = "all_sites", value_parser = of_site)]
    pub(super) site_token: Vec<OfSite>,
    /// Certificate of the authority of another site [default: the one of `--authority`]
    #[arg(long, value_name = "SITE=FILE", requires = "all_sites", value_parser = of_site)]
    pub(super) site_authority: Vec<OfSite>,
}

/// A file for one site.
#[derive(Clone, Debug)]
pub(super) struct OfSite {
    pub(super) site: String,
    pub(super) file: PathBuf,
}

fn of_site(text: &str) -> Result<OfSite, String> {
    match text.split_once('=') {
        Some((site, file)) if !site.is_empty() && !file.is_empty() => {
            Ok(OfSite { site: site.to_owned(), file: file.into() })
        }
        _ => Err("write it like `south=token.txt`".to_owned()),
    }
}

fn kinds() -> PossibleValuesParser {
    PossibleValuesParser::new(Kind::ALL.map(Kind::name))
}

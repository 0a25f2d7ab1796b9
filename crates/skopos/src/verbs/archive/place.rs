//! The archive that an option names, the tasks that it selects, and their failures.

use std::path::PathBuf;

use clap::Args;
use skopos_model::nearest_name;
use skopos_store::archive::{Archive, ConditionError, Conditions, Error, FIELDS};
use skopos_term::{Failure, state};

/// The option that names an archive.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Archive [default: tasks.sqlite in $SKOPOS_STATE, else /var/lib/skopos for root and
    /// ~/.local/state/skopos for others]
    #[arg(long, value_name = "FILE")]
    archive: Option<PathBuf>,
}

/// The option that selects tasks.
#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// Select the tasks that fulfil all conditions: memory>1GiB,host=n01,name=make*,monitor=…,set=…,
    /// exit=normal,status=0; the operators are = != < <= > >=
    #[arg(long = "where", value_name = "CONDITION,…")]
    conditions: Vec<String>,
}

impl Place {
    /// Opens the archive; creates it if it does not exist.
    pub(crate) fn create(&self) -> Result<Archive, Failure> {
        create(self.archive.clone())
    }

    /// Opens the archive, which must exist.
    pub(crate) fn open(&self) -> Result<Archive, Failure> {
        open(self.archive.clone())
    }
}

/// Opens the named archive or the default one; creates it if it does not exist.
pub(crate) fn create(named: Option<PathBuf>) -> Result<Archive, Failure> {
    Archive::create(&place(named)?).map_err(|e| failure(&e))
}

/// Opens the named archive or the default one, which must exist.
pub(crate) fn open(named: Option<PathBuf>) -> Result<Archive, Failure> {
    Archive::open(&place(named)?).map_err(|e| failure(&e))
}

/// Opens the named archive or the default one, which must exist, for reading.
pub(crate) fn read(named: Option<PathBuf>) -> Result<Archive, Failure> {
    Archive::read(&place(named)?).map_err(|e| failure(&e))
}

fn place(named: Option<PathBuf>) -> Result<PathBuf, Failure> {
    named.or_else(state::archive).ok_or_else(|| {
        Failure::new("the place of the archive is unknown").hint("name it with `--archive FILE`")
    })
}

impl Selection {
    pub(crate) fn conditions(&self) -> Result<Conditions, Failure> {
        let mut all = Conditions::default();
        for text in &self.conditions {
            all.and(text).map_err(|e| wrong(&e))?;
        }
        Ok(all)
    }
}

fn wrong(e: &ConditionError) -> Failure {
    let failure = Failure::new(format!("--where: {e}"));
    let ConditionError::Unknown(name) = e else { return failure };
    let resources = skopos_model::task::RESOURCES.iter().flat_map(|r| [r.alias, r.name]);
    match nearest_name(name, FIELDS.into_iter().chain(resources)) {
        Some(nearest) => failure.hint(format!("did you mean `{nearest}`?")),
        None => failure.hint(format!(
            "possible are {} and every resource of a report, such as `memory`",
            FIELDS.join(", ")
        )),
    }
}

/// The failure that no task of this class fulfils the conditions.
pub(crate) fn no_class(archive: &Archive, class: &str) -> Failure {
    let failure =
        Failure::no(format!("{} has no matching task of `{class}`", archive.path().display()));
    let classes = archive.classes(&Conditions::default()).unwrap_or_default();
    let names: Vec<&str> = classes.iter().map(|class| class.name.as_str()).collect();
    match nearest_name(class, names.iter().copied().filter(|name| *name != class)) {
        _ if names.contains(&class) => {
            failure.hint("the class has tasks that do not fulfil the conditions")
        }
        Some(nearest) => failure.hint(format!("did you mean `{nearest}`?")),
        None => failure.hint("`skopos archive ls` lists the classes"),
    }
}

pub(crate) fn failure(e: &Error) -> Failure {
    let failure = match e {
        // A missing archive is the answer "no"; any other error prevents an answer.
        Error::Missing(_) => Failure::no(e.to_string()),
        _ => Failure::new(e.to_string()),
    };
    let failure = match std::error::Error::source(e) {
        Some(source) => failure.because(source),
        None => failure,
    };
    match e {
        Error::Missing(_) => {
            failure.hint("`skopos archive import DIR` or `skopos run --archive` creates it")
        }
        Error::NotAnArchive(_) => failure.hint("name another file as the archive"),
        Error::Newer { .. } => failure.hint("use the version of Skopos that wrote it"),
        Error::Sql { .. } => failure,
    }
}

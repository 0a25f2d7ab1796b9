//! The copies of other hubs' jobs, for which this hub is the replica.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use skopos_access::{Action, Caller, Denied, is_segment, may};
use skopos_model::unpoisoned;
use skopos_store::jobs::IntakeLimits;
use skopos_store::jobs::replica::{Keeper, Keeping, Message, Reply, TakeError};
use thiserror::Error;

use super::replication::random;
use super::shared::{described, now};
use super::store::JobsLimits;

/// The folder of copies, beside that of jobs.
const FOLDER: &str = "replicas";

/// The most hubs whose jobs are copied here: each has logs of some gigabytes.
const MAX_COPIES: usize = 8;

/// The copies in a folder. Each is opened when its hub connects.
#[derive(Debug)]
pub struct Copies {
    folder: Option<PathBuf>,
    site: String,
    limits: IntakeLimits,
    open: Mutex<BTreeMap<String, Arc<OpenCopy>>>,
}

#[derive(Debug)]
struct OpenCopy {
    storage: u64,
    keeper: Mutex<Keeper>,
    /// Number of the latest stream. An earlier one ends.
    stream: AtomicU64,
}

/// The copy of a hub's jobs, for one stream of that hub.
#[derive(Clone, Debug)]
pub struct Copy {
    open: Arc<OpenCopy>,
    stream: u64,
}

/// The reason why a copy is not kept.
#[derive(Debug, Error)]
pub enum CopyError {
    /// The policy refuses.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The name, the site or the message is not valid.
    #[error("{0}")]
    Invalid(String),
    /// The copy cannot be opened or written, or another stream has begun.
    #[error("{0}")]
    Failed(String),
}

impl Copies {
    /// Returns the copies beside a folder of jobs.
    pub(super) fn new(jobs: Option<&Path>, site: &str, limits: &JobsLimits) -> Self {
        let folder = jobs.map(|jobs| jobs.with_file_name(FOLDER));
        // The replica forgets a silent producer before its primary does. If the producer comes back with an earlier epoch,
        // the primary takes its records as new ones, and so must the replica.
        let forget_after = limits.intake.forget_after / 2;
        let limits = IntakeLimits { forget_after, ..limits.intake };
        Self { folder, site: site.to_owned(), limits, open: Mutex::default() }
    }

    /// Begins a stream of a hub of a site, and returns the first answer. An earlier stream of the hub ends. Blocks.
    ///
    /// # Errors
    /// The policy refuses, the site is another one, or the copy cannot be opened.
    pub fn begin(
        &self,
        caller: &Caller,
        (hub, site): (&str, &str),
        storage: u64,
    ) -> Result<(Copy, Reply), CopyError> {
        may(caller, Action::Replicate { hub })?;
        if !is_segment(hub) || hub.starts_with('.') {
            return Err(CopyError::Invalid("the name of the hub is not one of a hub".to_owned()));
        }
        if site != self.site {
            let own = &self.site;
            let why = format!("the hub is one of the site `{site}`, and this one of `{own}`");
            return Err(CopyError::Invalid(why));
        }
        let mut all = unpoisoned(self.open.lock());
        if all.get(hub).is_some_and(|open| open.storage != storage) {
            // It must be compared with the files.
            all.remove(hub);
        }
        let open = match all.get(hub) {
            Some(open) => open.clone(),
            None if all.len() >= MAX_COPIES => {
                let why = format!("this hub keeps the copies of {MAX_COPIES} hubs already");
                return Err(CopyError::Failed(why));
            }
            None => {
                let folder = self.folder.as_ref();
                let unknown = || CopyError::Failed("the place of copies is not known".to_owned());
                let folder = folder.ok_or_else(unknown)?.join(hub);
                let failed = |e: &dyn std::error::Error| CopyError::Failed(described(e));
                let id = random().map_err(|e| failed(&e))?;
                let keeping = Keeping { site, storage, id };
                let keeper = Keeper::open(&folder, keeping, self.limits, now());
                let keeper = Mutex::new(keeper.map_err(|e| failed(&e))?);
                let open = Arc::new(OpenCopy { storage, keeper, stream: AtomicU64::new(0) });
                all.insert(hub.to_owned(), open.clone());
                open
            }
        };
        drop(all);
        let mut keeper = unpoisoned(open.keeper.lock());
        let stream = open.stream.fetch_add(1, Ordering::Relaxed) + 1;
        let welcome = keeper.begin();
        drop(keeper);
        Ok((Copy { open, stream }, welcome))
    }
}

impl Copy {
    /// Takes messages, and makes their records durable. Blocks.
    ///
    /// # Errors
    /// The stream must end.
    pub fn take(&self, messages: &[Message]) -> Result<Vec<Reply>, CopyError> {
        let failed = |e: &dyn std::error::Error| CopyError::Failed(described(e));
        let mut keeper = unpoisoned(self.open.keeper.lock());
        if self.open.stream.load(Ordering::Relaxed) != self.stream {
            return Err(CopyError::Failed("another stream of this hub has begun".to_owned()));
        }
        let mut replies = Vec::new();
        for message in messages {
            match keeper.take(message, now()) {
                Ok(answers) => replies.extend(answers),
                Err(TakeError::Invalid(why)) => return Err(CopyError::Invalid(why.to_owned())),
                Err(TakeError::Storage(e)) => return Err(failed(&e)),
            }
        }
        replies.extend(keeper.commit(now()).map_err(|e| failed(&e))?);
        Ok(replies)
    }
}

/// The reason why a copy is not taken over.
#[derive(Debug, Error)]
pub enum TakeOverError {
    /// There is no copy.
    #[error("there is no copy of the jobs of {hub} in {folder}")]
    Missing {
        /// Name of the hub.
        hub: String,
        /// The folder of copies.
        folder: String,
    },
    /// The hub that takes over has jobs of its own.
    #[error("{0} exists; the jobs of two hubs are not merged")]
    Taken(String),
    /// The copy is in use, or cannot be moved.
    #[error("{0}")]
    Failed(String),
}

/// Moves the copy of a hub's jobs, beside the folder `jobs`, to the folder `to`, where a hub opens it as its own.
///
/// # Errors
/// There is no copy, `to` exists, or the copy is in use or cannot be moved. Then nothing changes.
pub fn take_over(jobs: &Path, hub: &str, to: &Path) -> Result<(), TakeOverError> {
    let failed = |e: &dyn std::error::Error| TakeOverError::Failed(described(e));
    let folder = jobs.with_file_name(FOLDER);
    let copy = folder.join(hub);
    if !is_segment(hub) || hub.starts_with('.') || !copy.join("replica").exists() {
        let folder = folder.display().to_string();
        return Err(TakeOverError::Missing { hub: hub.to_owned(), folder });
    }
    if to.exists() {
        return Err(TakeOverError::Taken(to.display().to_string()));
    }
    // The locks show that no hub uses it.
    Keeper::settle(&copy).map_err(|e| failed(&e))?;
    let parent = to.parent().unwrap_or(Path::new("."));
    let moved = DirBuilder::new().recursive(true).mode(0o700).create(parent);
    let moved = moved.and_then(|()| fs::rename(&copy, to));
    let synced = moved.and_then(|()| {
        // It is the storage of another hub from now on.
        let _ = fs::remove_file(to.join("replica"));
        fs::File::open(to)?.sync_all()?;
        fs::File::open(&folder)?.sync_all()?;
        fs::File::open(parent)?.sync_all()
    });
    synced.map_err(|e| failed(&e))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use skopos_access::{Invitation, Names, Role, User};

    use super::*;

    fn node(name: &str, is_hub: bool) -> Caller {
        Caller::Node(Names { site: "s".to_owned(), node: name.to_owned(), is_hub })
    }

    fn begin(
        copies: &Copies,
        caller: &Caller,
        (hub, site): (&str, &str),
        storage: u64,
    ) -> Result<Copy, String> {
        let begun = copies.begin(caller, (hub, site), storage);
        begun.map(|(copy, _)| copy).map_err(|e| e.to_string())
    }

    #[test]
    fn a_hub_keeps_its_own_copy_and_nobody_else_does() {
        let folder = tempfile::tempdir().expect("a folder");
        let copies = Copies::new(Some(&folder.path().join("jobs")), "s", &JobsLimits::default());
        let admin = User { name: "ida".to_owned(), role: Role::Admin, leads: BTreeSet::new() };
        for caller in [
            node("hub1", false),
            node("hub2", true),
            Caller::User(admin),
            Caller::Anybody,
            Caller::Stranger,
            Caller::Invited(Invitation::default()),
        ] {
            let why = begin(&copies, &caller, ("hub1", "s"), 7).expect_err("refused");
            assert!(why.contains("may not keep a copy of the jobs of the hub hub1"), "{why}");
        }
        let own = node("hub1", true);
        for (name, caller) in [("hub1", &own), ("..", &Caller::Owner), ("a/b", &Caller::Owner)] {
            begin(&copies, caller, (name, "other"), 7).expect_err(name);
        }
        for name in ["..", ".hidden", "a/b", "", "*"] {
            begin(&copies, &Caller::Owner, (name, "s"), 7).expect_err(name);
        }
        assert!(!folder.path().join("replicas").exists(), "a refused caller makes no file");
        begin(&copies, &own, ("hub1", "s"), 7).expect("its own");
        begin(&copies, &Caller::Owner, ("hub1", "s"), 7).expect("the owner may do all");
        let other = begin(&copies, &own, ("hub1", "s"), 8).expect_err("another storage");
        assert!(other.contains("another storage") || other.contains("another process"), "{other}");
    }

    #[test]
    fn the_latest_stream_of_a_hub_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let copies = Copies::new(Some(&folder.path().join("jobs")), "s", &JobsLimits::default());
        let own = node("hub1", true);
        let first = begin(&copies, &own, ("hub1", "s"), 7).expect("begun");
        let list = || vec![Message::List { names: Vec::new(), is_last: true }];
        assert_eq!(first.take(&list()).expect("taken").len(), 1);
        let second = begin(&copies, &own, ("hub1", "s"), 7).expect("begun");
        let why = first.take(&list()).expect_err("it has ended").to_string();
        assert!(why.contains("another stream"), "{why}");
        assert_eq!(second.take(&list()).expect("taken").len(), 1);
        let wrong = Message::Fetch { name: "../site".to_owned(), at: 0 };
        let replies = second.take(&[wrong]).expect("taken");
        assert!(matches!(&replies[..], [Reply::NoCopy { .. }]), "{replies:?}");
        let listed = Message::List { names: vec!["../site".to_owned()], is_last: true };
        second.take(&[listed]).expect_err("not the name of a segment");
    }
}

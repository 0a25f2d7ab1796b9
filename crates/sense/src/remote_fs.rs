//! `remote_fs`: file systems that another machine or process serves (NFS, Lustre, FUSE, ...), from
//! `/proc/self/mountinfo` (proc(5)) and statvfs(3). Each file system is one instance, as in `fs`,
//! named after its mount point.
//!
//! The server decides when statvfs returns, if ever. So threads of their own ask (`askers`). A poll
//! sends one question to each mount whose last question was answered, and waits for at most
//! [`PATIENCE`]. A mount that does not answer in that time does not delay the others; its late
//! answer is used at the next poll. While a mount hangs, its facts stay and grow old, `responding`
//! is 0, and it is not asked again.

mod askers;
#[cfg(test)]
mod tests;

use std::ffi::{CStr, CString};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use skopos_model::schema::Family;
use skopos_model::schema::remote_fs::{self, *};
use skopos_model::{Structured, escape_segment};

use self::askers::{Answered, Ask, Askers, MAX_MOUNTS};
use crate::capacity::{Capacity, CapacityMetrics};
use crate::file::KernelFile;
use crate::instances::{Instance, Instances};
use crate::local::{self, FileSystems};
use crate::mounts::{self, Mount};
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};

/// Each question is a request to the server, and a thousand nodes ask the same server. At this
/// interval they send two hundred requests a second, which a metadata server hardly notices. The
/// free space of a parallel file system changes within minutes.
const INTERVAL: Duration = Duration::from_secs(5);

/// The longest time that a poll waits for answers. A healthy server takes milliseconds, a busy one
/// a fraction of a second.
const PATIENCE: Duration = Duration::from_secs(1);

/// A mount is reported as hanging once a question has waited this long since an earlier poll.
const HANGS_AFTER: Duration = Duration::from_secs(3);

/// The most mounts without facts that are reported by name.
const MAX_NAMED: usize = 8;

static METRICS: CapacityMetrics = CapacityMetrics {
    total_bytes: &TOTAL_BYTES,
    free_bytes: &FREE_BYTES,
    available_bytes: &AVAILABLE_BYTES,
    used_ratio: &USED_RATIO,
    inodes: &INODES,
    inodes_free: &INODES_FREE,
    readonly: &READONLY,
};

const SIZELESS: &str = "does not report a size; FUSE reports it only to the user that mounted it, \
                        or with `allow_other` to all users";

/// The identity of a mount.
#[derive(PartialEq)]
struct Identity {
    device: Box<[u8]>,
    path: Arc<CStr>,
    kind: Structured,
    server: Structured,
}

/// A file system that is asked.
struct Remote {
    identity: Identity,
    mount_point: Structured,
    label: Vec<u8>,
    /// The number of the question that is not answered yet, and the time when it was sent.
    question: Option<(u64, Duration)>,
    /// The answer that came since the last poll.
    news: Option<Answered>,
    state: State,
}

/// The state of a file system.
#[derive(Clone, Copy)]
enum State {
    /// Nothing to report beyond its facts.
    Fine,
    /// It has not answered for this time.
    Hangs(Duration),
    /// It has no blocks to fill.
    Sizeless,
    Refused(Errno),
}

pub(crate) struct RemoteFs {
    mountinfo: KernelFile,
    table: Vec<Remote>,
    askers: Askers,
    patience: Duration,
    /// Number of mounts beyond [`MAX_MOUNTS`].
    unasked: usize,
    known: Instances<()>,
}

impl RemoteFs {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        Self::with(root, Box::new(Capacity::ask))
    }

    fn with(root: &Root, ask: Ask) -> Result<Self, Skip> {
        let path = root.proc.join("self/mountinfo");
        let mut sensor = Self {
            mountinfo: KernelFile::open_or_skip(&path, "remote_fs")?,
            table: Vec::new(),
            askers: Askers::new(ask),
            patience: root.patience.min(PATIENCE),
            unasked: 0,
            known: Instances::new(&remote_fs::FAMILY, MAX_MOUNTS),
        };
        match sensor.read_table() {
            Ok(()) => Ok(sensor),
            Err(e) => Err(Skip::new("remote_fs", format!("{}: {e}", path.display()))),
        }
    }

    /// Reads the table of mounts. A file system that is still mounted keeps its open question, so
    /// that it is not asked again while it hangs.
    fn read_table(&mut self) -> io::Result<()> {
        let mounts = mounts::visible(self.mountinfo.read()?);
        let FileSystems { remote, .. } = local::file_systems(&mounts);
        self.unasked = remote.len().saturating_sub(MAX_MOUNTS);
        let mut old = std::mem::take(&mut self.table);
        let asked = remote.into_iter().take(MAX_MOUNTS).filter_map(Remote::new);
        self.table = asked
            .map(|new| match old.iter().position(|known| known.identity == new.identity) {
                Some(at) => old.swap_remove(at),
                None => new,
            })
            .collect();
        Ok(())
    }

    /// Receives late answers, asks every mount without an open question, and waits for the answers.
    fn ask(&mut self, now: Duration) {
        let Self { table, askers, patience, .. } = self;
        askers.collect(0, Duration::ZERO, |answered| deliver(table, answered));
        let mut count = 0;
        for remote in table.iter_mut().filter(|remote| remote.question.is_none()) {
            remote.question = Some((askers.ask(&remote.identity.path), now));
            count += 1;
        }
        askers.collect(count, *patience, |answered| deliver(table, answered));
    }
}

/// Assigns an answer to the mount that was asked. The answer of a mount that is gone is dropped.
fn deliver(table: &mut [Remote], answered: &Answered) {
    let asked = |remote: &&mut Remote| remote.question.is_some_and(|(n, _)| n == answered.number);
    if let Some(remote) = table.iter_mut().find(asked) {
        remote.question = None;
        remote.news = Some(*answered);
    }
}

impl Remote {
    fn new(mount: &Mount<'_>) -> Option<Self> {
        let text = |bytes: &[u8]| Structured::text(&String::from_utf8_lossy(bytes));
        Some(Self {
            identity: Identity {
                device: mount.device.into(),
                path: CString::new(mount.point.as_slice()).ok()?.into(),
                kind: text(mount.kind),
                server: text(&mount.source),
            },
            mount_point: text(&mount.point),
            label: mount.point.clone(),
            question: None,
            news: None,
            state: State::Fine,
        })
    }

    /// Updates the state by the latest answer, or by the time without an answer.
    fn judge(&mut self, now: Duration) -> Option<Answered> {
        let waited = self.question.map(|(_, since)| now.saturating_sub(since));
        let news = self.news.take();
        self.state = match (&news, waited) {
            (Some(Answered { answer: Ok(Some(_)), .. }), _) => State::Fine,
            (Some(Answered { answer: Ok(None), .. }), _) => State::Sizeless,
            (Some(Answered { answer: Err(errno), .. }), _) => State::Refused(*errno),
            (None, Some(waited)) if waited >= HANGS_AFTER => State::Hangs(waited),
            (None, _) => self.state,
        };
        news
    }

    fn set_facts(&self, instance: &mut Instance<()>, tick: &mut Tick<'_>, news: Option<&Answered>) {
        instance.set_structured(tick, &MOUNT_POINT, &self.mount_point);
        instance.set_structured(tick, &TYPE, &self.identity.kind);
        instance.set_structured(tick, &SERVER, &self.identity.server);
        if let State::Hangs(_) = self.state {
            instance.set(tick, &RESPONDING, 0_u64);
        }
        let Some(Answered { answer, took, .. }) = news else { return };
        instance.set(tick, &RESPONDING, 1_u64);
        instance.set(tick, &ANSWER_SECONDS, took.as_secs_f64());
        match answer {
            Ok(Some(capacity)) => capacity.set(instance, tick, &METRICS),
            _ => METRICS.unset(instance, tick),
        }
    }

    /// Returns the reason why it has no facts, or old ones.
    fn trouble(&self) -> Option<Skip> {
        let path = self.identity.path.to_string_lossy();
        let reason = match self.state {
            State::Fine => return None,
            State::Hangs(waited) => format!("has not answered for {} s", waited.as_secs()),
            State::Sizeless => SIZELESS.to_owned(),
            State::Refused(errno) => format!("statvfs {path}: {errno}"),
        };
        let mut segment = String::new();
        escape_segment(&self.label, &mut segment);
        Some(Skip::new(format!("remote_fs/{segment}"), reason))
    }
}

impl Sensor for RemoteFs {
    fn family(&self) -> &'static Family {
        &remote_fs::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        if mounts::changed(&self.mountinfo)? {
            self.read_table()?;
        }
        self.ask(tick.monotonic);
        self.known.begin();
        for remote in &mut self.table {
            let news = remote.judge(tick.monotonic);
            if matches!(remote.state, State::Sizeless) {
                continue;
            }
            let Identity { device, .. } = &remote.identity;
            if let Some(instance) = self.known.see_as(tick.sink, device, &remote.label, || ()) {
                remote.set_facts(instance, tick, news.as_ref());
            }
        }
        self.known.end(tick.sink);
        Ok(())
    }

    fn interval_hint(&self) -> Option<Duration> {
        Some(INTERVAL)
    }

    // It waits for answers, but not for ever.
    fn may_block(&self) -> bool {
        true
    }

    fn skips(&self) -> Vec<Skip> {
        let mut skips: Vec<_> = self.table.iter().filter_map(Remote::trouble).collect();
        let unnamed = skips.len().saturating_sub(MAX_NAMED);
        skips.truncate(MAX_NAMED);
        for (count, what) in [
            (unnamed, "more without facts, or with old ones".to_owned()),
            (self.unasked, format!("mounts beyond the first {MAX_MOUNTS}")),
            (
                self.askers.waiting(),
                "not asked, because all threads wait for mounts that hang".to_owned(),
            ),
        ] {
            if count > 0 {
                skips.push(Skip::new("remote_fs/*", format!("{count} {what}")));
            }
        }
        skips.extend(self.known.skips());
        skips
    }
}

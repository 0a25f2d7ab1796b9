//! The free and used space of a file system, from statvfs(3): the same facts for local and remote
//! ones.

use std::ffi::CStr;

use rustix::fs::{StatVfs, StatVfsMountFlags};
use rustix::io::Errno;
use skopos_model::schema::Metric;

use crate::instances::Instance;
use crate::sensor::Tick;

/// The result of statvfs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    total_bytes: u64,
    free_bytes: u64,
    available_bytes: u64,
    /// `None` if there are no blocks that could be filled.
    used_ratio: Option<f64>,
    /// The number of inodes and of free ones; `None` if there is no limit.
    inodes: Option<(u64, u64)>,
    readonly: bool,
}

/// The metrics of these facts in one family.
pub(crate) struct CapacityMetrics {
    pub(crate) total_bytes: &'static Metric,
    pub(crate) free_bytes: &'static Metric,
    pub(crate) available_bytes: &'static Metric,
    pub(crate) used_ratio: &'static Metric,
    pub(crate) inodes: &'static Metric,
    pub(crate) inodes_free: &'static Metric,
    pub(crate) readonly: &'static Metric,
}

impl Capacity {
    /// Asks the file system that is mounted at `path`. Returns `None` if it has no blocks to fill;
    /// df does not show such a file system either. The call may hang with the server or device
    /// behind it.
    pub(crate) fn ask(path: &CStr) -> Result<Option<Self>, Errno> {
        rustix::fs::statvfs(path).map(|stat| (stat.f_blocks > 0).then(|| Self::of(&stat)))
    }

    fn of(stat: &StatVfs) -> Self {
        let block = if stat.f_frsize == 0 { stat.f_bsize } else { stat.f_frsize };
        let bytes = |blocks: u64| blocks.saturating_mul(block);
        let used = stat.f_blocks.saturating_sub(stat.f_bfree);
        let fillable = used.saturating_add(stat.f_bavail);
        Self {
            total_bytes: bytes(stat.f_blocks),
            free_bytes: bytes(stat.f_bfree),
            available_bytes: bytes(stat.f_bavail),
            used_ratio: (fillable > 0).then(|| used as f64 / fillable as f64),
            inodes: (stat.f_files > 0).then_some((stat.f_files, stat.f_ffree)),
            readonly: stat.f_flag.contains(StatVfsMountFlags::RDONLY),
        }
    }

    /// Sets these facts of `instance`.
    pub(crate) fn set<T>(
        &self,
        instance: &mut Instance<T>,
        tick: &mut Tick<'_>,
        metrics: &CapacityMetrics,
    ) {
        instance.set(tick, metrics.total_bytes, self.total_bytes);
        instance.set(tick, metrics.free_bytes, self.free_bytes);
        instance.set(tick, metrics.available_bytes, self.available_bytes);
        if let Some(ratio) = self.used_ratio {
            instance.set(tick, metrics.used_ratio, ratio);
        }
        if let Some((all, free)) = self.inodes {
            instance.set(tick, metrics.inodes, all);
            instance.set(tick, metrics.inodes_free, free);
        }
        instance.set(tick, metrics.readonly, u64::from(self.readonly));
    }
}

impl CapacityMetrics {
    /// Removes these facts of `instance`, which no longer reports them.
    pub(crate) fn unset<T>(&self, instance: &mut Instance<T>, tick: &mut Tick<'_>) {
        for metric in [
            self.total_bytes,
            self.free_bytes,
            self.available_bytes,
            self.used_ratio,
            self.inodes,
            self.inodes_free,
            self.readonly,
        ] {
            instance.unset(tick, metric);
        }
    }
}

//! The lab: three hosts with a disk each, and one for the client.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use skopos_net::lab::Lab;

use super::cells::Cell;
use crate::ending;
use crate::outcome::Outcome;

/// The nodes, the fast one first. Requests go to the second.
pub(super) const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// The node that coordinates all requests.
pub(super) const COORDINATOR: &str = "n2";

/// The host of the client.
pub(super) const CLIENT: &str = "y";

/// Disks of 1 to 2 ms and 5 to 15 MB/s, as the paper has them, and one without seeks; each has room for all rows, twice.
const LAB: &str = "
[[host]]
name = 'n1'
[[host]]
name = 'n2'
[[host]]
name = 'n3'
[[host]]
name = 'y'
[[switch]]
name = 's'
[[link]]
ends = ['n1', 's']
delay_ms = 1
[[link]]
ends = ['n2', 's']
[[link]]
ends = ['n3', 's']
[[link]]
ends = ['y', 's']
[[disk]]
name = 'n1'
host = 'n1'
size_mb = 400
seek_ms = 0
[[disk]]
name = 'n2'
host = 'n2'
size_mb = 400
seek_ms = 2
rate_mb = 15
[[disk]]
name = 'n3'
host = 'n3'
size_mb = 400
seek_ms = 2
rate_mb = 15
";

/// Time between two looks at pages that shall not stay in memory. A slow replica holds more data than memory.
const DROP_EVERY: Duration = Duration::from_secs(1);

/// The lab with its disks.
pub(super) struct Place {
    pub(super) lab: Lab,
}

impl Place {
    pub(super) fn up() -> Outcome<Self> {
        let text = format!("name = 'cass{}'\n{LAB}", std::process::id());
        let place = Self { lab: ending::lab(&text)? };
        place.set_delay(0.0)?;
        Ok(place)
    }

    /// Returns the address of a host.
    pub(super) fn address(&self, host: &str) -> Outcome<String> {
        Ok(self.lab.addresses(host)?.0.to_string())
    }

    /// Returns the folder on the disk of a node.
    pub(super) fn disk(&self, node: &str) -> Outcome<PathBuf> {
        Ok(self.lab.disk(node)?)
    }

    /// Returns the name of the block device of a node's disk.
    pub(super) fn device(&self, node: &str) -> Outcome<String> {
        let folder = self.disk(node)?;
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let of = |line: &str| {
            let mut words = line.split(' ');
            let device = words.next()?;
            (Path::new(words.next()?) == folder).then(|| device.to_owned())
        };
        let device = mounts.lines().find_map(of).ok_or("the disk is not mounted")?;
        Ok(device.trim_start_matches("/dev/").to_owned())
    }

    /// Sets what the link to the fast node adds in each direction.
    pub(super) fn set_delay(&self, delay_ms: f64) -> Outcome<()> {
        Ok(self.lab.set_delay(["n1", "s"], delay_ms)?)
    }

    /// Sets the time of a seek of the slow disks.
    pub(super) fn set_seek(&self, seek_ms: f64) -> Outcome<()> {
        for node in NODES.iter().filter(|node| **node != "n1") {
            self.lab.set_seek(node, seek_ms)?;
        }
        Ok(())
    }

    /// Runs `work` while pages of the slow replicas, and of the fast one where the case says so, leave memory each second.
    pub(super) fn without_caches<T>(
        &self,
        cell: Cell,
        work: impl FnOnce() -> Outcome<T>,
    ) -> Outcome<T> {
        let ends = AtomicBool::new(false);
        let drops = |node: &str| node != "n1" || !cell.is_cached;
        let drop_all = || -> Outcome<()> {
            for node in NODES.iter().filter(|node| drops(node)) {
                self.lab.drop_cache(node)?;
            }
            Ok(())
        };
        drop_all()?;
        thread::scope(|scope| {
            let dropper = scope.spawn(|| -> Outcome<()> {
                let mut due = Instant::now() + DROP_EVERY;
                while !ends.load(Ordering::Relaxed) {
                    if Instant::now() >= due {
                        drop_all()?;
                        due += DROP_EVERY;
                    }
                    thread::sleep(Duration::from_millis(20));
                }
                Ok(())
            });
            let result = work();
            ends.store(true, Ordering::Relaxed);
            dropper.join().map_err(|_| "the thread that drops pages ended")??;
            result
        })
    }
}

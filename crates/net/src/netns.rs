//! Network namespaces: run code inside of one.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::{panic, thread};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::Error;

/// The folder in which `ip netns` keeps named namespaces.
pub const NAMED: &str = "/run/netns";

/// An open network namespace. It lives as long as this value, even without a process and a name.
#[derive(Debug)]
pub struct Namespace {
    path: PathBuf,
    file: File,
}

impl Namespace {
    /// Opens the namespace of the calling thread.
    ///
    /// # Errors
    /// Procfs is not mounted.
    pub fn current() -> Result<Self, Error> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// Opens the namespace that `ip netns add NAME` made.
    ///
    /// # Errors
    /// There is no namespace of this name.
    pub fn named(name: &str) -> Result<Self, Error> {
        Self::open(&Path::new(NAMED).join(name))
    }

    fn open(path: &Path) -> Result<Self, Error> {
        let failed = Error::system(format!("open the network namespace {}", path.display()));
        let file = File::open(path).map_err(failed)?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Returns the number that the kernel gave the namespace: its inode.
    ///
    /// # Errors
    /// The kernel does not return the state of the file.
    pub fn number(&self) -> Result<u32, Error> {
        let failed = Error::system(format!("stat {}", self.path.display()));
        let inode = self.file.metadata().map_err(failed)?.ino();
        u32::try_from(inode)
            .map_err(|_| Error::malformed("a namespace", format!("its inode is {inode}")))
    }

    /// Runs `work` inside of the namespace: on a thread of its own, or on this one if it is there already. Sockets that it
    /// opens stay there.
    ///
    /// # Errors
    /// The thread may not enter the namespace (CAP_SYS_ADMIN), or `work` failed.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
        if Self::current()?.number()? == self.number()? {
            return work();
        }
        let inside = || {
            let entered =
                move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network));
            let doing = format!("enter the network namespace {}", self.path.display());
            entered.map_err(|e| Error::system(doing)(e.into()))?;
            work()
        };
        let joined = thread::scope(|scope| scope.spawn(inside).join());
        joined.unwrap_or_else(|cause| panic::resume_unwind(cause))
    }
}

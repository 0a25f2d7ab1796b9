//! In the place of the programs, where they were left out of the build.

use std::io;
use std::os::fd::BorrowedFd;

use super::Totals;
use super::tables::Tables;
use crate::sys::Pid;

/// There is none.
pub(super) enum Kernel {}

impl Kernel {
    pub(super) fn open(_most: Option<u64>, _with_files: bool) -> io::Result<Self> {
        Err(io::Error::other(env!("SKOPOS_BPF_MISSING")))
    }

    pub(super) fn tables(&self) -> Option<Tables> {
        match *self {}
    }

    pub(super) fn put(&mut self, _pid: Pid) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn take(&mut self, _record: impl FnMut(&[u8])) {
        match *self {}
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        match *self {}
    }

    pub(super) fn totals(&self) -> io::Result<Totals> {
        match *self {}
    }
}

//! The documents of a report that both a task and a job have, and the end of each file.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};

use serde::Serialize;

/// The whole report.
pub(super) const SUMMARY: &str = "summary.json";
/// The report as a page for people.
pub(super) const PAGE: &str = "report.html";

/// The accesses to each file, if they were counted.
pub(super) const FILES: &str = "files.json";

/// Writes a document to the end of its file.
pub(super) fn end_of_json(mut file: BufWriter<File>, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut file, value)?;
    file.write_all(b"\n")?;
    end(file)
}

/// File systems that may report a full disk only at the end: NFS, CIFS, SMB, Lustre, FUSE.
const TOLD_LATE: [i64; 5] = [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x0bd0_0bd0, 0x6573_5546];

/// Makes sure that all data is written, as far as the file system reports errors.
pub(super) fn end(file: BufWriter<File>) -> io::Result<()> {
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    let kind = rustix::fs::fstatfs(&file).map(|about| about.f_type);
    if kind.is_ok_and(|kind| TOLD_LATE.contains(&kind)) {
        return file.sync_data();
    }
    Ok(())
}

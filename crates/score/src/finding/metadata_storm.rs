//! Metadata storm: the job opens many small files in a short time.

use skopos_model::task::amount;

use super::rule::Rule;
use super::verdict::{Evidence, Found, Judging, Severity, Verdict};
use super::view::JobView;

/// The least number of distinct files: large programs load some hundred.
const MIN_FILES: f64 = 1_000.0;

/// The least rate, in files a second. A metadata server of a parallel file system answers some ten thousand requests a
/// second to all of its clients.
const MIN_RATE: f64 = 100.0;

/// The most bytes for each file: more, and the data costs more than opening it.
const MAX_BYTES: f64 = 64.0 * 1024.0;

pub(super) static RULE: Rule = Rule {
    name: "metadata_storm",
    condition: "at least 1,000 distinct files are opened, at least 100 a second, and fewer than 64 KiB are moved for each",
    inputs: "`opened_files` (counted by `skopos run --level 3`), `read_bytes`, `written_bytes`; 2 s of wall time",
    advice: "pack small files into one (HDF5, tar, SQLite), keep them on a local disk, and write one file for many results",
    judge,
};

fn judge(view: &JobView) -> Judging {
    let wall = view.wall_seconds()?;
    let files = view.sum("opened_files")?;
    let opened = files.value;
    let rate = opened / wall;
    // The table of a monitor has room for so many files. Fewer than there were would be too few, or too large.
    let is_less = |what: &str| match files.is_lower_bound {
        true => Err(Verdict::unknown(format!("{what}, but not all opened files are counted"))),
        false => Ok(Verdict::Absent),
    };
    if opened < MIN_FILES || rate < MIN_RATE {
        return is_less("few files are opened");
    }
    let bytes = view.sum("read_bytes")?.value + view.sum("written_bytes")?.value;
    let each = bytes / opened;
    if each >= MAX_BYTES {
        return is_less("the files are large");
    }
    Ok(Verdict::Found(Found {
        severity: Severity::Warning,
        what: format!("{opened:.0} files are opened for {} each", amount(each, "bytes")),
        evidence: vec![
            Evidence::new("distinct files", opened, ""),
            Evidence::new("files in a second", rate, ""),
            Evidence::new("bytes for each file", each, "bytes"),
        ],
    }))
}

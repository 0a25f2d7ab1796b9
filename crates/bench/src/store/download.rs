//! Downloads of jobs from two hubs at once, beside copies of the same files: what the disk gives.
//!
//! The files are not in the page cache when a turn begins. `skopos job fetch` is a process of its own; its start, its questions,
//! and its check and sync of each file count.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::fs::{Advice, fadvise};
use serde_json::Value as Json;
use skopos_shm::now;
use skopos_store::jobs::{JobPart, Lts};
use skopos_term::Failure;
use tokio::runtime::Runtime;

use super::hub::{Hub, Setup};
use super::lts::BATCH;
use super::slate::{Job, PROFILES};
use crate::programs;
use crate::scratch::Scratch;

/// Bytes that a copy reads at a time.
const COPY_BYTES: usize = 1 << 20;

/// Time between the starts of two jobs, in nanoseconds. The list of jobs is sorted by their starts, which differ at every site.
const APART: i64 = 1_000_000_000;

/// The names of the two sites.
const SITES: [&str; 2] = ["a", "b"];

fn failed(e: &dyn std::error::Error) -> Failure {
    Failure::new("downloads cannot be measured").because(e)
}

/// Two hubs of two sites with sealed jobs.
pub(super) struct Sites {
    first: Hub,
    _second: Hub,
    jobs: usize,
    files: Vec<PathBuf>,
    /// Bytes of all files.
    pub(super) bytes: u64,
}

/// Seconds of one turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// A download of all jobs in whole segments.
    pub(super) fetched: f64,
    /// A download of all of their records but one kind, which the client writes anew.
    pub(super) records: f64,
    /// A download of the starts and ends alone, which the hubs filter.
    pub(super) metadata: f64,
    /// A copy of the files, each synced.
    pub(super) copied: f64,
    /// The files read once.
    pub(super) read: f64,
}

impl Sites {
    /// Seals `count` jobs, one half at each site, and starts the hubs.
    pub(super) fn start(
        (scratch, name): (&Scratch, &str),
        count: usize,
        runtime: &Runtime,
    ) -> Result<Self, Failure> {
        let mut files = Vec::new();
        let mut dirs = Vec::new();
        for (at, site) in SITES.iter().enumerate() {
            let dir = scratch.dir(&format!("{name}-{site}"))?;
            let folder = dir.join("state/jobs/lts");
            let lts = Lts::open(&folder).map_err(|e| failed(&e))?;
            let half = at * count / 2..(at + 1) * count / 2;
            for begin in half.clone().step_by(BATCH) {
                let numbers = begin..(begin + BATCH).min(half.end);
                let job = |number: usize| {
                    Job::new(number as u64, PROFILES[1], number as i64 * APART).part()
                };
                let parts: Vec<JobPart> = numbers.map(job).collect();
                lts.seal(&parts, now()).map_err(|e| failed(&e))?;
            }
            drop(lts);
            let listed = fs::read_dir(&folder).map_err(|e| failed(&e))?;
            let paths = listed.filter_map(|entry| Some(entry.ok()?.path()));
            files.extend(paths.filter(|path| path.extension() == Some("parquet".as_ref())));
            rebuild(&dir, site)?;
            dirs.push(dir);
        }
        let second = Hub::start(&dirs[1], runtime, Setup { site: SITES[1], ..Setup::default() })?;
        let sites = format!("[hub.jobs]\nsites = {{ {} = \"{}\" }}\n", SITES[1], second.url());
        let first = Hub::start(&dirs[0], runtime, Setup { site: SITES[0], config: &sites })?;
        let length = |path: &PathBuf| fs::metadata(path).map(|it| it.len());
        let bytes = files.iter().map(length).sum::<io::Result<u64>>().map_err(|e| failed(&e))?;
        Ok(Self { first, _second: second, jobs: count, files, bytes })
    }

    /// Measures one turn of each, the files uncached.
    pub(super) fn turn(&self, scratch: &Scratch) -> Result<Turn, Failure> {
        let fetched = self.fetch(scratch, &[])?;
        let kinds = ["--kind", "sample", "--kind", "start", "--kind", "end"];
        let records = self.fetch(scratch, &kinds)?;
        let metadata = self.fetch(scratch, &kinds[2..])?;
        self.forget().map_err(|e| failed(&e))?;
        let to = scratch.dir("copies")?;
        let begun = Instant::now();
        for path in &self.files {
            copy(path, Some(&to)).map_err(|e| failed(&e))?;
        }
        let copied = begun.elapsed().as_secs_f64();
        fs::remove_dir_all(&to).map_err(|e| failed(&e))?;
        self.forget().map_err(|e| failed(&e))?;
        let begun = Instant::now();
        for path in &self.files {
            copy(path, None).map_err(|e| failed(&e))?;
        }
        let read = begun.elapsed().as_secs_f64();
        Ok(Turn { fetched, records, metadata, copied, read })
    }

    /// Downloads all jobs with further options. Returns the seconds.
    fn fetch(&self, scratch: &Scratch, options: &[&str]) -> Result<f64, Failure> {
        self.forget().map_err(|e| failed(&e))?;
        let out = scratch.dir("fetched")?;
        let mut command = Command::new(programs::skopos()?);
        command.args(["job", "fetch", "--json", "--all-sites", "--where", "true", "--hub"]);
        command.arg(self.first.url()).args(options).arg("--out").arg(&out);
        let begun = Instant::now();
        let ran = command.stdin(Stdio::null()).output().map_err(|e| failed(&e))?;
        let seconds = begun.elapsed().as_secs_f64();
        let document: Json = serde_json::from_slice(&ran.stdout).unwrap_or_default();
        let is_whole = ran.status.success() && document["fetched_parts"] == self.jobs;
        fs::remove_dir_all(&out).map_err(|e| failed(&e))?;
        match is_whole {
            true => Ok(seconds),
            false => Err(Failure::new(format!(
                "not all jobs were fetched: {document} {}",
                String::from_utf8_lossy(&ran.stderr)
            ))),
        }
    }

    /// Drops the files from the page cache.
    fn forget(&self) -> io::Result<()> {
        for path in &self.files {
            fadvise(File::open(path)?, 0, None, Advice::DontNeed)?;
        }
        Ok(())
    }
}

/// Makes the catalogue of a hub of a site, which does not run.
pub(super) fn rebuild(dir: &Path, site: &str) -> Result<(), Failure> {
    fs::write(dir.join("state/jobs/site"), site).map_err(|e| failed(&e))?;
    let mut command = Command::new(programs::skopos()?);
    command.args(["mds", "rebuild", "--dir"]).arg(dir.join("run"));
    command.env("SKOPOS_STATE", dir.join("state")).stdin(Stdio::null());
    let ran = command.output().map_err(|e| failed(&e))?;
    match ran.status.success() {
        true => Ok(()),
        false => Err(Failure::new("the catalogue cannot be made")
            .hint(String::from_utf8_lossy(&ran.stderr).trim().to_owned())),
    }
}

/// Reads a file, and writes and syncs a copy in a folder.
fn copy(path: &Path, folder: Option<&Path>) -> io::Result<()> {
    let from = File::open(path)?;
    let name = path.file_name().unwrap_or_default();
    let mut to = folder.map(|folder| File::create(folder.join(name))).transpose()?;
    let (mut buffer, mut at) = (vec![0; COPY_BYTES], 0);
    loop {
        let read = from.read_at(&mut buffer, at)?;
        if read == 0 {
            break;
        }
        at += read as u64;
        if let Some(to) = &mut to {
            to.write_all(&buffer[..read])?;
        }
    }
    to.map_or(Ok(()), |to| to.sync_data())
}

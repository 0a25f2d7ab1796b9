//! PostgreSQL: a row for each topic, which is the primary key, over a UNIX socket. Its own
//! `pgbench` asks with prepared statements, and its own `psql` feeds it.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::feed::{Feed, Row};
use super::load::{Load, Slice, Store};
use super::question::Question;
use crate::child::{Process, finish, not_started, wait_for};
use crate::stats::Latencies;

/// The folder in which Debian keeps the programs of each version.
const PROGRAMS: &str = "/usr/lib/postgresql";
/// The longest time until the first answer of a new server.
const START: Duration = Duration::from_secs(60);
/// The shortest run of pgbench, which counts in whole seconds.
const SHORTEST: u64 = 1;
const USER: &str = "skopos";

const TABLE: &str = "CREATE TABLE latest (topic text PRIMARY KEY, time bigint, value float8)";

/// A private server.
pub(crate) struct Postgres {
    programs: PathBuf,
    dir: PathBuf,
    _process: Process,
}

/// The folder with the newest version's programs.
pub(super) fn programs() -> Result<PathBuf, String> {
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let entries = fs::read_dir(PROGRAMS).into_iter().flatten().flatten();
    let newest = entries.map(|entry| entry.path()).filter(|p| p.join("bin/pgbench").exists());
    let newest = newest.max_by_key(version).map(|path| path.join("bin"));
    newest.ok_or_else(|| "postgresql is not installed".to_owned())
}

/// The version of the server, if it is installed.
pub(crate) fn version() -> Option<String> {
    let mut command = Command::new(programs().ok()?.join("postgres"));
    let output = command.arg("--version").stdin(Stdio::null()).output().ok()?;
    // "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().nth(2).map(str::to_owned)
}

/// Starts it with its files in `dir`, and the table of latest values.
pub(super) fn start(dir: &Path) -> Result<(Postgres, Feed), String> {
    // The other stores do not sync their files either.
    let postgres = serve(dir, &["-c", "fsync=off"])?;
    psql(&postgres.programs, dir, TABLE)?;
    let feed = feed(&postgres.programs, dir)?;
    Ok((postgres, feed))
}

/// Starts it with its files in `dir`. It listens at a UNIX socket there.
pub(crate) fn serve(dir: &Path, options: &[&str]) -> Result<Postgres, String> {
    let programs = programs()?;
    let broken = |e: std::io::Error| format!("{}: {e}", dir.display());
    let owner = owner();
    if let Some((user, group)) = owner {
        chown(dir, Some(user), Some(group)).map_err(broken)?;
        // It needs the right to pass through the folder above, not to list it.
        let above = dir.parent().unwrap_or(dir);
        fs::set_permissions(above, Permissions::from_mode(0o711)).map_err(broken)?;
    }
    let as_owner = |name: &str| {
        let mut command = Command::new(programs.join(name));
        if let Some((user, group)) = owner {
            command.uid(user).gid(group);
        }
        command.current_dir(dir);
        command
    };
    let (data, logs) = (dir.join("data"), dir.join("logs"));
    fs::create_dir(&logs).map_err(broken)?;
    let mut make = as_owner("initdb");
    make.args(["--auth=trust", "--no-sync", "--encoding=UTF8", "--no-locale"]);
    finish(make.args(["--username", USER, "--pgdata"]).arg(&data), &logs, START)?;
    let mut serve = as_owner("postgres");
    serve.arg("-D").arg(&data).arg("-k").arg(dir).args(["-h", ""]).args(options);
    serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = Process::start(&mut serve).map_err(|e| not_started("postgres", &e))?;
    let ready = || psql(&programs, dir, "SELECT 1").ok();
    wait_for(&mut process, START, ready).map_err(|why| format!("postgres: {why}"))?;
    Ok(Postgres { programs, dir: dir.to_path_buf(), _process: process })
}

impl Postgres {
    /// Runs statements, and returns the answer, a line for each row.
    pub(crate) fn run(&self, sql: &str) -> Result<String, String> {
        psql(&self.programs, &self.dir, sql)
    }

    /// Returns a psql that reads statements from its input.
    pub(crate) fn reader(&self) -> Command {
        reader(&self.programs, &self.dir)
    }

    /// Returns the URL of its database.
    pub(crate) fn url(&self) -> String {
        format!("postgresql://{USER}@/postgres?host={}", self.dir.display())
    }
}

fn reader(programs: &Path, dir: &Path) -> Command {
    let mut command = client(programs, dir, "psql");
    command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "postgres"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The user and group of the server, which refuses to run as root: its own, or `nobody`.
fn owner() -> Option<(u32, u32)> {
    /// `nobody` and `nogroup`, if the server does not have a user of its own.
    const NOBODY: (u32, u32) = (65534, 65534);
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let of = |line: &str| {
        let fields: Vec<&str> = line.strip_prefix("postgres:")?.split(':').collect();
        Some((fields.get(1)?.parse().ok()?, fields.get(2)?.parse().ok()?))
    };
    Some(users.lines().find_map(of).unwrap_or(NOBODY))
}

fn client(programs: &Path, dir: &Path, name: &str) -> Command {
    let mut command = Command::new(programs.join(name));
    command.arg("-h").arg(dir).args(["-U", USER]);
    command
}

/// The answer of a statement, a line for each row.
fn psql(programs: &Path, dir: &Path, sql: &str) -> Result<String, String> {
    let mut command = client(programs, dir, "psql");
    let command = command.args(["-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql, "postgres"]);
    finish(command, &dir.join("logs"), START)
}

/// A psql that writes all rows.
fn feed(programs: &Path, dir: &Path) -> Result<Feed, String> {
    let mut process =
        Process::start(&mut reader(programs, dir)).map_err(|e| not_started("psql", &e))?;
    let mut input = process.inner().stdin.take().ok_or("psql without input")?;
    Ok(Box::new(move |rows| {
        if rows.is_empty() {
            return Ok(());
        }
        let written = input.write_all(upsert(rows).as_bytes()).and_then(|()| input.flush());
        match process.runs() {
            true => written.map_err(|e| e.to_string()),
            false => Err("psql has ended".to_owned()),
        }
    }))
}

fn upsert(rows: &[Row]) -> String {
    let values: Vec<String> = rows
        .iter()
        .map(|Row { topic, time, value }| format!("('{topic}', {time}, {value})"))
        .collect();
    format!(
        "INSERT INTO latest VALUES {} ON CONFLICT (topic) DO UPDATE SET time = EXCLUDED.time, \
         value = EXCLUDED.value;\n",
        values.join(", ")
    )
}

impl Store for Postgres {
    fn measure(&self, load: &Load<'_>) -> Result<Slice, String> {
        let logs = self.dir.join("logs");
        let broken = |e: std::io::Error| format!("{}: {e}", logs.display());
        for entry in fs::read_dir(&logs).map_err(broken)?.flatten() {
            fs::remove_file(entry.path()).map_err(broken)?;
        }
        let mut command = client(&self.programs, &self.dir, "pgbench");
        command.args(["--no-vacuum", "--protocol=prepared", "--log", "--log-prefix"]);
        command.arg(logs.join("latency")).current_dir(&logs);
        let threads = load.clients.min(std::thread::available_parallelism().map_or(1, usize::from));
        command.args(["--client", &load.clients.to_string(), "--jobs", &threads.to_string()]);
        command.args(["--time", &load.slice.as_secs().max(SHORTEST).to_string()]);
        for (at, question) in load.questions.iter().enumerate() {
            let file = logs.join(format!("question-{at}.sql"));
            fs::write(&file, question.keyed() + ";\n").map_err(broken)?;
            command.arg("--file").arg(&file);
        }
        let said = finish(command.arg("postgres"), &logs, START)?;
        let mut latencies = Latencies::new();
        for entry in fs::read_dir(&logs).map_err(broken)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with("latency") {
                let log = fs::read_to_string(entry.path()).map_err(broken)?;
                log.lines().filter_map(nanos).for_each(|nanos| latencies.record(nanos));
            }
        }
        Ok(Slice { latencies, per_second: rate(&said).ok_or("pgbench tells no rate")? })
    }

    fn values(&self, question: &Question) -> Result<Vec<f64>, String> {
        let answer = psql(&self.programs, &self.dir, &question.keyed())?;
        Ok(answer.lines().filter_map(|line| line.split_once('|')?.1.parse().ok()).collect())
    }
}

/// Of a line `client transaction microseconds script seconds microseconds`.
fn nanos(line: &str) -> Option<u64> {
    line.split(' ').nth(2)?.parse::<u64>().ok()?.checked_mul(1000)
}

/// Of the line `tps = 12345.678 (without initial connection time)`.
fn rate(said: &str) -> Option<f64> {
    said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_pgbench_is_parsed() {
        assert_eq!(nanos("0 199 2241 0 1175850568 995598"), Some(2_241_000));
        assert_eq!(nanos("0 200 skipped 0 1175850568 995598"), None);
        let said = "latency average = 0.05 ms\ntps = 19876.5 (without initial connection time)\n";
        assert_eq!(rate(said), Some(19876.5));
        assert_eq!(rate("pgbench: error"), None);
    }
}

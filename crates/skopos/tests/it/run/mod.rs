//! `skopos run`: its report is true, and the task is unaffected.

mod attach;
mod bpf;
mod bpf_files;
mod connector;
mod exact;
mod harmless;
mod limits;
mod members;
mod mistyped;
mod nested;
mod places;
mod programs;
mod ranks;
mod seccomp;
mod spikes;
mod splice;
mod started;
mod terminal;
mod truth;
mod watched;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value as Json;

/// Variables that say to a monitor that it is a rank of a job: the tests may run in a job themselves.
const OF_JOBS: [&str; 11] = [
    "SLURM_JOB_ID",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_JOBID",
    "PMIX_NAMESPACE",
    "PBS_JOBID",
    "LSB_JOBID",
];

/// Returns the monitor with these arguments.
pub(crate) fn monitor(args: &[&str]) -> Command {
    let mut command = crate::support::program(env!("CARGO_BIN_EXE_skopos"));
    command.arg("run").args(args);
    for name in OF_JOBS {
        command.env_remove(name);
    }
    command
}

/// The outcome of a monitored run, with its report as JSON.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    stdout: String,
    pub(crate) summary: Json,
}

impl Outcome {
    pub(crate) fn value(&self, name: &str) -> f64 {
        let reading = &self.summary["resources"][name];
        reading["value"].as_f64().unwrap_or_else(|| panic!("{name}: {reading}"))
    }

    fn of(&self, name: &str, what: &str) -> &Json {
        &self.summary["resources"][name][what]
    }
}

fn measure(args: &[&str]) -> Outcome {
    let mut all = vec!["--json"];
    all.extend(args);
    measure_by(monitor(&all))
}

pub(crate) fn measure_by(mut command: Command) -> Outcome {
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    let stderr = String::from_utf8_lossy(&stderr);
    let last = stderr.lines().last().unwrap_or_default();
    let summary = serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {stderr}"));
    Outcome { code: status.code(), stdout: String::from_utf8_lossy(&stdout).into_owned(), summary }
}

/// Compiles a C program of this folder, once for all tests, and returns its path.
fn program(name: &str) -> PathBuf {
    built(name, &[])
}

/// Does the same with more flags, which are part of the program's name.
fn built(name: &str, more: &[&str]) -> PathBuf {
    compiled(&Path::new("tests/it/run").join(format!("{name}.c")), more)
}

/// Compiles a C program of this crate, once for all tests, and returns its path.
pub(crate) fn compiled(source: &Path, more: &[&str]) -> PathBuf {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        set_mode_of_all(folder.path());
        folder
    });
    let name = source.file_stem().and_then(std::ffi::OsStr::to_str).expect("a name");
    let name = [&[name], more].concat().concat();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let (target, partial) = (
        folder.path().join(&name),
        folder.path().join(format!("{name}.{:?}", std::thread::current().id())),
    );
    if !target.exists() {
        let flags = ["-O1", "-pthread", "-o"];
        let done = Command::new("cc").args(more).args(flags).arg(&partial).arg(source).status();
        assert!(done.expect("a C compiler").success());
        set_mode_of_all(&partial);
        // The rename makes the program appear whole: another test may compile it, too.
        std::fs::rename(partial, &target).expect("renamed");
    }
    target
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Lets other users run a program, or enter a folder, whatever the umask is.
fn set_mode_of_all(path: &Path) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path, mode).expect("it is ours");
}

/// Returns the binary as a user that may not kill the processes of others.
fn as_user() -> Option<Command> {
    let exe = env!("CARGO_BIN_EXE_skopos");
    let user = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", exe]);
        command
    };
    let may = user().arg("--version").output().is_ok_and(|output| output.status.success());
    if !may {
        eprintln!("skipped: the user cannot be changed, or the other user may not run the program");
    }
    may.then(user)
}

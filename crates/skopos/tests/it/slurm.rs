//! Jobs of a real Slurm, whose prolog and epilog are those of Skopos.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use serde_json::{Value as Json, json};

use crate::slurm_cluster::{Cluster, write_program};
use crate::support::{Running, eventually, runtime_dir, skopos};

/// Returns an agent with a hub.
fn hub() -> Running {
    Running::start_as("up", &[])
}

/// Makes the prolog and the epilog of the cluster in `folder` those of Skopos, with the hub and the state of `dir`.
pub(crate) fn connect(folder: &Path, dir: &Path) {
    for verb in ["prolog", "epilog"] {
        let script = format!(
            "export SLURM_CONF={folder}/slurm.conf SKOPOS_DIR={dir} SKOPOS_STATE={dir}/state\n\
             exec {program} slurm {verb} 2>>{folder}/skopos.log",
            folder = folder.display(),
            dir = dir.display(),
            program = env!("CARGO_BIN_EXE_skopos"),
        );
        write_program(&folder.join(verb), &script);
    }
}

pub(crate) fn submit(cluster: &Cluster, name: &str, script: &str, more: &[&str]) -> String {
    write_program(&cluster.path(name), script);
    let program = cluster.path(name).display().to_string();
    let name = format!("--job-name={name}");
    let options = ["--parsable", "--output=/dev/null", "--ntasks=1", "--mem=100", &name];
    let job = cluster.run("sbatch", &[&options[..], more, &[&program]].concat());
    assert!(job.trim().parse::<u32>().is_ok(), "sbatch said `{job}`");
    job.trim().to_owned()
}

/// Returns columns of a job; `null` if it is not found.
fn job(hub: &Running, columns: &str, id: &str) -> Json {
    let sql = format!("SELECT {columns} FROM jobs WHERE job = '{id}'");
    let ran = hub.run(&["sql", "--json", &sql]);
    ran.json()["rows"][0].clone()
}

/// Returns the line of a job in the dump of the catalogue, which has its whole start and end.
fn entry(hub: &Running, id: &str) -> String {
    let dump = hub.run(&["mds", "dump"]).stdout;
    let quoted = format!("\"{id}\"");
    dump.lines().find(|line| line.contains(&quoted)).unwrap_or_default().to_owned()
}

#[test]
fn a_job_of_slurm_is_found_while_it_runs_and_after_it() {
    let mut hub = hub();
    let lines = "PrologSlurmctld=FOLDER/prolog\nEpilogSlurmctld=FOLDER/epilog\n";
    let cluster = match Cluster::start(lines, &|folder| connect(folder, hub.path())) {
        Ok(cluster) => cluster,
        Err(e) if e.starts_with("no ") => panic!("{e}"),
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "skipped: {e}");
            return;
        }
    };
    let waiting =
        format!("while [ ! -e {} ]; do sleep 0.1; done\nexit 3", cluster.path("end").display());
    let id = submit(&cluster, "solve", &waiting, &["--time=00:10:00"]);
    let log = || fs::read_to_string(cluster.path("skopos.log")).unwrap_or_default();
    let running = "state, \"user\", application, queue";
    let expected = json!({
        "state": "running", "user": "root", "application": "solve", "queue": "all"
    });
    eventually("the running job is found", || job(&hub, running, &id) == expected);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host = host.split('.').next().unwrap_or_default();
    let dumped = entry(&hub, &id);
    assert!(dumped.contains(&format!("\"nodes\":[\"{host}\"]")), "{dumped}: {}", log());
    let requested = "requested_bytes, nodes";
    let expected = json!({"requested_bytes": 100 << 20, "nodes": 1});
    assert_eq!(job(&hub, requested, &id), expected, "{}", log());

    fs::write(cluster.path("end"), "").expect("writable");
    let ended = "state, exit";
    let failed = json!({"state": "failed", "exit": "normal"});
    eventually("the failed job is found", || job(&hub, ended, &id) == failed);
    assert!(entry(&hub, &id).contains("\"status\":3"), "{}", entry(&hub, &id));
    let id = submit(&cluster, "fine", "exit 0", &[]);
    let completed = json!({"state": "completed", "exit": "normal"});
    eventually("the completed job is found", || job(&hub, ended, &id) == completed);

    // Slurm shows that a job was cancelled only after its epilog.
    let id = submit(&cluster, "long", "exec sleep 1000", &[]);
    eventually("the third job runs", || job(&hub, "state", &id) == json!({"state": "running"}));
    cluster.run("scancel", &[&id]);
    eventually("it is cancelled", || job(&hub, "state", &id) == json!({"state": "cancelled"}));

    // The end of a run that is requeued does not end the next one.
    let id = submit(&cluster, "again", "exec sleep 1000", &["--requeue"]);
    eventually("the fourth job runs", || job(&hub, "state", &id) == json!({"state": "running"}));
    cluster.run("scontrol", &["requeue", &id]);
    eventually("its first run has ended", || {
        job(&hub, "state", &id) == json!({"state": "unknown"})
    });

    // Without a hub jobs run as before, and are found when it is back.
    hub.kill();
    let id = submit(&cluster, "alone", "exit 0", &[]);
    let spool = hub.path().join("state/spool");
    let batches = || {
        let files = fs::read_dir(&spool).into_iter().flatten();
        files
            .filter(|f| f.as_ref().is_ok_and(|f| f.path().extension() == Some("batch".as_ref())))
            .count()
    };
    eventually("start and end are spooled", || batches() >= 2);
    assert!(log().contains("records of the job wait in"), "{}", log());
    hub.restart_as("up", &[]);
    eventually("it is found", || job(&hub, ended, &id) == completed);
}

#[test]
fn a_prolog_fails_on_wrong_usage_alone() {
    let dir = runtime_dir();
    let run = |id: Option<&str>, state: &str| {
        let mut command = skopos(dir.path(), &["slurm", "prolog", "--scontrol", "/bin/false"]);
        id.map(|id| command.env("SLURM_JOB_ID", id));
        let output =
            command.env("SKOPOS_STATE", dir.path().join(state)).output().expect("it starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, _, stderr) = run(None, "state");
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("SLURM_JOB_ID is not set"), "{stderr}");
    let (code, stdout, stderr) = run(Some("7"), "state");
    assert_eq!((code, stdout.as_str()), (Some(0), ""), "{stderr}");
    assert!(stderr.contains("/bin/false does not show it"), "{stderr}");
    assert!(stderr.contains("records of the job wait in"), "{stderr}");
    // A state that cannot be written does not keep the job from running.
    fs::write(dir.path().join("file"), "").expect("writable");
    let (code, _, stderr) = run(Some("7"), "file");
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("records of the job are lost"), "{stderr}");
}

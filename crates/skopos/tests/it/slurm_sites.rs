//! A job of a real Slurm: the agent of its node delivers facts of its control group, and another site finds and downloads it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value as Json, json};
use skopos_serve::downloads::{JobName, PlacesCommand, VERSION};
use skopos_serve::fetch::{Fetcher, HubAddress};

use crate::certificates::Site;
use crate::fetch::{fetched, records};
use crate::job_facts::{DELIVERS, number};
use crate::slurm::{connect, submit};
use crate::slurm_cluster::Cluster;
use crate::support::{Running, eventually, run, runtime_dir, skopos};

/// Bytes of memory that the job holds, and bytes that it writes.
const BYTES: u64 = 8_000_000;

/// The user that submits the job: the one that runs this test.
const USER: &str = "root";

/// The hierarchies of control groups v1 in which Slurm makes groups.
const HIERARCHIES: [&str; 2] = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/freezer"];

fn skipped(why: impl std::fmt::Display) {
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("skipped: {why}\n"));
}

/// Returns the lines of slurm.conf with which Slurm gives jobs control groups, or the reason for which it cannot.
fn groups_of_jobs() -> Result<&'static str, String> {
    let is_v2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let folders = if is_v2 { &["/sys/fs/cgroup"][..] } else { &HIERARCHIES };
    for folder in folders {
        let probe = Path::new(folder).join(format!("skopos-test-{}", std::process::id()));
        fs::create_dir(&probe)
            .and_then(|()| fs::remove_dir(&probe))
            .map_err(|e| format!("Slurm cannot make control groups: {}: {e}", probe.display()))?;
    }
    Ok("ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup\n")
}

/// Removes the empty groups that Slurm leaves. Those of another cluster are not empty.
fn remove_groups() {
    let entries = HIERARCHIES.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    for entry in
        entries.flatten().filter(|it| it.file_name().as_encoded_bytes().starts_with(b"slurm"))
    {
        let _ = fs::remove_dir(entry.path().join("uid_0"));
        let _ = fs::remove_dir(entry.path());
    }
}

/// Starts Slurm with the prolog and epilog of Skopos. The number of its first job is one that no other cluster of this machine
/// has, because the names of control groups have it.
fn cluster(hub: &Path, groups: &str) -> Option<Cluster> {
    let first = 10_000 + std::process::id() % 1_000_000;
    let lines = format!(
        "PrologSlurmctld=FOLDER/prolog\nEpilogSlurmctld=FOLDER/epilog\nFirstJobId={first}\n{groups}"
    );
    let prepare = |folder: &Path| {
        connect(folder, hub);
        let lines = "IgnoreSystemd=yes\nConstrainRAMSpace=yes\n";
        fs::write(folder.join("cgroup.conf"), lines).expect("writable");
    };
    match Cluster::start(&lines, &prepare) {
        Ok(cluster) => Some(cluster),
        Err(e) if e.starts_with("no ") => panic!("{e}"),
        Err(e) => {
            skipped(e);
            None
        }
    }
}

/// Starts the agent of this machine, which delivers to the hub of a site.
fn agent(site: &Site, cluster: &Cluster) -> Running {
    let dir = runtime_dir();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host = host.split('.').next().unwrap_or_default().to_owned();
    let token = site.token(&["token", "--for", "10m"]);
    let joined = site.join(dir.path(), &host, &token);
    assert_eq!(joined.code, 0, "{joined:?}");
    let config = dir.path().join("agent.toml");
    fs::write(&config, DELIVERS).expect("written");
    let config = config.display().to_string();
    let args = ["agent", "--live", "--connect", &site.live, "--config", &config];
    let mut command = skopos(dir.path(), &args);
    command.env("SLURM_CONF", cluster.path("slurm.conf")).stdout(Stdio::null());
    let child = command.spawn().expect("it starts");
    Running { dir, child, _stdout: None }
}

/// A user with tokens at the site that has the job and at the other one, who asks the hub of the other one.
struct Asker<'s> {
    home: &'s Site,
    far: &'s Site,
    /// Files with the tokens at `home` and `far`.
    tokens: [PathBuf; 2],
    out: PathBuf,
}

impl<'s> Asker<'s> {
    fn new(user: &str, home: &'s Site, far: &'s Site) -> Self {
        let tokens = [home, far].map(|site| {
            let file = site.dir.path().join(format!("{user}.token"));
            fs::write(&file, site.token(&["user", user])).expect("written");
            file
        });
        Self { home, far, tokens, out: far.dir.path().join(format!("of-{user}")) }
    }

    fn address(&self, at: usize) -> HubAddress {
        let site = [self.home, self.far][at];
        let url = format!("grpc+tls://{}", site.flight);
        HubAddress::new(&url, Some(&site.authority()), Some(&self.tokens[at])).expect("an address")
    }

    /// Downloads from all sites what `args` name. Returns the exit code and the document.
    fn fetch(&self, args: &[&str]) -> (i32, Json) {
        let text = |path: &Path| path.display().to_string();
        let url = format!("grpc+tls://{}", self.far.flight);
        let (authority, token) = (text(&self.far.authority()), text(&self.tokens[1]));
        let at_home = [text(&self.tokens[0]), text(&self.home.authority())];
        let [home_token, home_authority] = at_home.map(|file| format!("home={file}"));
        let out = text(&self.out);
        let first = ["job", "fetch", "--json", "--out", &out, "--all-sites", "--hub", &url];
        let own = ["--authority", &authority, "--token-file", &token];
        let others = ["--site-token", &home_token, "--site-authority", &home_authority];
        // Nothing of the machine of the other site is needed.
        let dir = runtime_dir();
        fetched(&run(dir.path(), &[&first[..], &own, &others, args].concat()))
    }
}

/// Checks that the owner finds and downloads the job from the other site, by its state, and that another user does not.
fn check_from_far([owner, other]: [&Asker<'_>; 2], id: &str, state: &str) {
    let condition = format!("application = 'solve' AND state = '{state}'");
    let (code, document) = owner.fetch(&["--where", &condition]);
    let sites = json!(["far", "home"]);
    assert_eq!((code, &document["jobs"], &document["sites"]), (0, &json!(1), &sites), "{document}");
    let (code, document) = other.fetch(&["--where", &condition]);
    assert_eq!((code, &document["jobs"], &document["sites"]), (0, &json!(0), &sites), "{document}");
    let (code, document) = other.fetch(&[id]);
    let missing = &document["missing"][0];
    let why = json!("there is no such job that you may read");
    assert_eq!((code, &missing["jobs"], &missing["why"]), (1, &json!([id]), &why), "{document}");
    // The tickets of the owner are of no use to the other user.
    let jobs = vec![JobName { job: id.to_owned(), generation: None }];
    let command = PlacesCommand { skopos_jobs: VERSION, jobs, ..PlacesCommand::default() };
    let connected = |asker: &Asker<'_>| Fetcher::connect(&asker.address(0)).expect("a hub");
    let (_, places) =
        connected(owner).places(&command).map_err(|e| e.into_failure()).expect("told");
    assert!(!places.is_empty());
    for place in places {
        let refused = connected(other).get(&place.ticket, &mut |_| Ok(()));
        let why = refused.map(|_| ()).map_err(|e| e.into_failure().in_one_line());
        let why = why.expect_err("refused");
        assert!(why.contains("given to another caller") && !why.contains(id), "{why}");
    }
    for folder in ["home", "home/running"] {
        assert_eq!(records(&other.out.join(folder), id), 0);
    }
}

/// Waits for the facts that the agent delivers, of the job `id`.
fn wait_for_facts(hub: &Path, id: &str, has_groups: bool) {
    let of_slurm = ("job/node_written_bytes_total", BYTES);
    let of_group = ("job/memory_bytes", BYTES);
    let of_node = ("load/load_1m", 0);
    let wanted = [of_node, of_slurm].into_iter().chain(has_groups.then_some(of_group));
    for (metric, least) in wanted {
        let sql = format!(
            "SELECT count(*) AS n FROM job_samples WHERE job = '{id}' AND metric = '{metric}' \
             AND value >= {least}"
        );
        eventually(metric, || number(hub, &sql) > 1);
    }
}

#[test]
fn a_job_of_slurm_is_found_and_downloaded_from_another_site_by_its_owner_alone() {
    // The hub itself records nothing.
    let home = Site::named("home", "[hub.jobs]\nfacts = []\n");
    let groups = groups_of_jobs();
    if let Err(why) = &groups {
        skipped(why);
    }
    let hub = home.dir.path();
    let Some(cluster) = cluster(hub, groups.as_ref().unwrap_or(&"")) else { return };
    let agent = agent(&home, &cluster);
    let url = format!("grpc+tls://{}", home.flight);
    let far = Site::named("far", &format!("[hub.jobs]\nsites = {{ home = \"{url}\" }}\n"));
    let (owner, other) = (Asker::new(USER, &home, &far), Asker::new("eve", &home, &far));

    let folder = cluster.path("").display().to_string();
    let script = format!(
        "held=$(head -c {BYTES} /dev/zero | tr '\\0' x)\n\
         head -c {BYTES} /dev/zero >FOLDER/written\n\
         while [ ! -e FOLDER/end ]; do sleep 0.1; done\n\
         [ ${{#held}} = {BYTES} ]"
    );
    let script = script.replace("FOLDER", folder.trim_end_matches('/'));
    let id = submit(&cluster, "solve", &script, &["--time=00:10:00"]);
    let state = |state: &str| {
        let of = format!("job = '{id}' AND \"user\" = '{USER}' AND state = '{state}'");
        number(hub, &format!("SELECT count(*) AS n FROM jobs WHERE {of}"))
    };
    eventually("the job runs", || state("running") == 1);
    wait_for_facts(hub, &id, groups.is_ok());
    check_from_far([&owner, &other], &id, "running");
    assert!(records(&owner.out.join("home").join("running"), &id) > 3);

    fs::write(cluster.path("end"), "").expect("writable");
    eventually("the job has ended", || state("completed") == 1);
    let delivered = || agent.run(&["get", "--json", "self/delivery/agent/jobs"]).json();
    eventually("the agent delivers nothing for it", || delivered()["readings"][0]["value"] == 0);
    check_from_far([&owner, &other], &id, "completed");
    let sealed = hub.join("state/jobs/lts");
    eventually("all records are sealed and downloaded", || {
        let all = records(&sealed, &id);
        all > 3 && owner.fetch(&[&id]).0 == 0 && records(&owner.out.join("home"), &id) == all
    });
    let lost = format!("SELECT count(*) AS n FROM jobs WHERE job = '{id}' AND lost = 0");
    assert_eq!(number(hub, &lost), 1, "nothing is lost");
    drop(cluster);
    remove_groups();
}

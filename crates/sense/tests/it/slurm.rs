//! Jobs of Slurm: recorded output of scontrol, a scontrol that fails in several ways, and a cluster
//! of one node that this test starts and ends.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use skopos_sense::Root;

use crate::slurm_cluster::{Cluster, PATIENCE, write_program};
use crate::support::{Host, Table, Tree};

fn skipped(reason: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "skipped: {reason}");
}

fn only_slurm(root: &Root) -> Host {
    let mut host = Host::open(root);
    host.sensors.retain(|s| s.family().name == "slurm");
    host
}

/// Returns a tree with processes, and a scontrol that prints recorded answers.
fn recorded() -> Tree {
    let tree = Tree::empty();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/slurm");
    fs::copy(data.join("listpids.txt"), tree.path("listpids.txt")).expect("readable");
    let (folder, data) = (tree.folder.path().display(), data.display());
    let script = format!(
        "case \"$TZ $*\" in\n\
         'UTC0 listpids') cat {folder}/listpids.txt; exit 1 ;;\n\
         'UTC0 -o -d show job '*) echo $5 >>{folder}/asked; cat {data}/show-job-$5.txt ;;\n\
         esac"
    );
    write_program(&tree.path("bin/scontrol"), &script);
    // The script of job 5 started the others; 30242 has ended by now.
    for (pid, parent, bytes) in
        [(30134, 30120, 1000), (30232, 30200, 50), (30235, 30232, 7), (30262, 30240, 3)]
    {
        process(&tree, pid, parent, bytes);
    }
    tree
}

/// Writes a process whose four counts are `bytes` and one, two and three more.
fn process(tree: &Tree, pid: u32, parent: u32, bytes: u64) {
    let stat = format!("{pid} (a) b) S {parent} {} 77 0", "0 ".repeat(16));
    let io = format!(
        "rchar: {bytes}\nwchar: {}\nsyscr: 9\nsyscw: 9\nread_bytes: {}\nwrite_bytes: {}\n\
         cancelled_write_bytes: 0\n",
        bytes + 1,
        bytes + 2,
        bytes + 3
    );
    tree.write(&format!("proc/{pid}/stat"), stat).write(&format!("proc/{pid}/io"), io);
}

#[test]
fn jobs_of_this_node_and_their_bytes() {
    let tree = recorded();
    let mut host = only_slurm(&tree.root());
    let table = host.poll(10.0);
    assert_eq!(table.instances("slurm/"), ["3", "5"]);
    let texts = ["state", "user", "name"].map(|fact| table.text(&format!("slurm/3/{fact}")));
    assert_eq!(texts, [Some("RUNNING"), Some("root"), Some("climate")]);
    let given = table.json("slurm/3/allocation").expect("a record");
    assert_eq!((&given["node_list"], &given["tasks"]), (&"n[2-4],vm".into(), &5.into()));
    assert_eq!(given["distribution"][0]["cpus"], 2);
    for (topic, value) in [
        ("3/nodes", 4.0),
        ("3/cpus", 5.0),
        ("3/tasks", 5.0),
        ("3/memory_bytes", 2800.0 * 1_048_576.0),
        ("3/time_limit_seconds", 93_840.0),
        ("3/node_tasks", 1.0),
        ("3/node_processes", 1.0),
        ("3/node_read_bytes_total", 1000.0),
        ("5/nodes", 1.0),
        ("5/node_tasks", 1.0),
        ("5/node_processes", 3.0),
        ("5/node_read_bytes_total", 60.0),
        ("5/node_written_bytes_total", 63.0),
        ("5/node_storage_read_bytes_total", 66.0),
        ("5/node_storage_written_bytes_total", 69.0),
    ] {
        assert_eq!(table.value(&format!("slurm/{topic}")), value, "{topic}");
    }
    assert_eq!(table.get("slurm/5/time_limit_seconds"), None, "it has no limit");
}

#[test]
fn the_controller_is_asked_every_third_poll_and_bytes_never_fall() {
    let tree = recorded();
    let mut host = only_slurm(&tree.root());
    host.poll(10.0);
    // 30235 ends. Its parent, which waited for it, has its bytes now.
    fs::remove_dir_all(tree.path("proc/30235")).expect("ours");
    process(&tree, 30232, 30200, 62);
    assert_eq!(host.poll(10.0).value("slurm/5/node_read_bytes_total"), 65.0);
    // 30262 ends. Its parent belongs to Slurm.
    fs::remove_dir_all(tree.path("proc/30262")).expect("ours");
    assert_eq!(host.poll(10.0).value("slurm/5/node_read_bytes_total"), 65.0);
    host.poll(10.0);
    let asked = fs::read_to_string(tree.path("asked")).expect("it was asked");
    assert_eq!(asked, "3\n5\n3\n5\n", "at the first and at the fourth poll");
    tree.write("listpids.txt", "PID      JOBID    STEPID   LOCALID GLOBALID\n");
    assert_eq!(host.poll(10.0).topics(""), Vec::<&str>::new(), "jobs end");
}

#[test]
fn a_job_that_imitates_fields_is_a_skip() {
    let tree = recorded();
    tree.write("listpids.txt", "PID JOBID STEPID LOCALID GLOBALID\n30134 4 batch 0 0\n");
    let mut host = only_slurm(&tree.root());
    let table = host.poll(10.0);
    assert_eq!(table.text("slurm/4/state"), None);
    assert_eq!(
        table.value("slurm/4/node_read_bytes_total"),
        1000.0,
        "its bytes are known all the same"
    );
    let reason = host.skip("slurm/4").expect("a reason");
    assert!(reason.contains("`JobState=`"), "{reason}");
}

#[test]
fn a_silent_controller_does_not_hide_local_facts() {
    let tree = recorded();
    let script = fs::read_to_string(tree.path("bin/scontrol")).expect("written");
    write_program(&tree.path("bin/scontrol"), &script.replace("echo $5", "sleep 1000; echo $5"));
    // Long enough for the list on a busy machine.
    let patience = Duration::from_secs(5);
    let mut host = only_slurm(&Root { patience, ..tree.root() });
    let table = host.poll(10.0);
    assert_eq!(table.value("slurm/5/node_read_bytes_total"), 60.0);
    assert_eq!(table.text("slurm/5/state"), None);
    let reason = host.skip("slurm/3").expect("a reason");
    assert!(reason.contains("took longer than 5 s and was killed"), "{reason}");
    assert_eq!(host.skip("slurm/5"), None, "no other question follows");
    assert!(host.sensors[0].may_block());
    assert_eq!(host.sensors[0].interval_hint(), Some(Duration::from_secs(10)));
    let all = host.sensors[0].patience();
    assert!(all > 9 * patience, "a list and eight questions: {all:?}");
    let longer = Root { patience: patience + Duration::from_secs(2), ..tree.root() };
    let longer = only_slurm(&longer).sensors[0].patience();
    assert!(longer >= all + Duration::from_secs(2 * 9), "each of them");
}

#[test]
fn without_a_cluster_there_is_a_reason_and_another_attempt_later() {
    let tree = recorded();
    let reason = Tree::empty().host().skip("slurm").expect("a reason");
    assert!(reason.contains("No such file"), "{reason}");
    let list = fs::read(tree.path("listpids.txt")).expect("recorded");
    tree.write("listpids.txt", "");
    let reason = tree.host().skip("slurm").expect("a reason");
    assert!(reason.contains("no slurm.conf"), "{reason}");
    tree.write("listpids.txt", &list);
    let mut host = only_slurm(&tree.root());
    tree.write("listpids.txt", "");
    assert_eq!(host.poll(10.0).topics(""), Vec::<&str>::new());
    tree.write("listpids.txt", &list);
    let polls = (1..20).find(|_| !host.poll(10.0).topics("").is_empty());
    assert_eq!(polls, Some(6), "it does not run for a while");
}

/// Polls until `is_so`, and checks that the bytes of the job never fall.
fn poll_until(host: &mut Host, job: &str, what: &str, is_so: impl Fn(&Table) -> bool) {
    let start = Instant::now();
    let topic = format!("slurm/{job}/node_written_bytes_total");
    let mut written = 0.0;
    loop {
        let table = host.poll(10.0);
        let now = table.get(&topic).unwrap_or(written);
        assert!(now >= written, "{now} bytes after {written}");
        written = now;
        if is_so(table) {
            return;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "{what}: {:?} {:?}",
            table.snapshot(),
            host.skip("slurm")
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_real_job_of_a_real_cluster() {
    let cluster = match Cluster::start("", &|_| {}) {
        Ok(cluster) => cluster,
        Err(e) if e.starts_with("no ") => panic!("{e}"),
        Err(e) => return skipped(e),
    };
    let script = "\
        dd if=/dev/zero of=FOLDER/a bs=1M count=20 2>FOLDER/dd\n\
        exec 3>FOLDER/b\n\
        touch FOLDER/begun\n\
        while [ ! -e FOLDER/end ]; do head -c 100000 /dev/zero >&3; sleep 0.1; done";
    let folder = cluster.path("").display().to_string();
    write_program(&cluster.path("job"), &script.replace("FOLDER", &folder));
    let script = cluster.path("job").display().to_string();
    let arguments = ["--parsable", "--output=/dev/null", "--ntasks=1", "--mem=200"];
    let more = ["--time=00:10:00", "--job-name=a writer", &script];
    let job = cluster.run("sbatch", &[&arguments[..], &more[..]].concat()).trim().to_owned();
    assert!(job.parse::<u32>().is_ok(), "sbatch said `{job}`");
    let root = Root { scontrol: cluster.path("bin/scontrol"), ..Root::default() };
    let mut host = only_slurm(&root);
    assert_eq!(host.sensors.len(), 1, "{:?}", host.skips);

    cluster.wait_for("bytes", |c| c.path("begun").exists()).expect("the job runs");
    let fact = |name: &str| format!("slurm/{job}/{name}");
    poll_until(&mut host, &job, "state", |t| t.text(&fact("state")) == Some("RUNNING"));
    let table = &host.table;
    assert_eq!(table.instances("slurm/"), [job.as_str()]);
    assert_eq!(
        [table.text(&fact("user")), table.text(&fact("name"))],
        [Some("root"), Some("a writer")]
    );
    assert_eq!(table.value(&fact("nodes")), 1.0);
    assert_eq!(table.value(&fact("tasks")), 1.0);
    assert_eq!(table.value(&fact("node_tasks")), 1.0);
    assert_eq!(table.value(&fact("memory_bytes")), f64::from(200 << 20));
    assert_eq!(table.value(&fact("time_limit_seconds")), 600.0);
    let (start, end) = (table.value(&fact("start_seconds")), table.value(&fact("end_seconds")));
    assert_eq!(end - start, 600.0);
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64();
    assert!((now - 600.0..=now + 1.0).contains(&start), "{start} is in UTC, and now is {now}");
    // dd has ended. The shell that waited for it has its 20 MiB, and starts children of its own.
    let written = f64::from(20 << 20);
    let more =
        |table: &Table, than: f64| table.get(&fact("node_written_bytes_total")) >= Some(than);
    poll_until(&mut host, &job, "bytes of dd", |t| more(t, written));
    poll_until(&mut host, &job, "bytes of more", |t| more(t, written + 1e6));
    // No byte is counted twice: the files hold what was written, less what is under way.
    let published = host.table.value(&fact("node_written_bytes_total"));
    let in_files = ["a", "b"].map(|f| fs::metadata(cluster.path(f)).expect("written").len());
    let in_files = in_files.iter().sum::<u64>() as f64;
    assert!(published <= in_files + 10_000.0, "{published} published, {in_files} in files");
    fs::write(cluster.path("end"), "").expect("writable");
    poll_until(&mut host, &job, "the end", |t| t.topics("slurm/").is_empty());
}

//! Sensors whose programs run in the kernel, beside its own counts: a loop device, tasks that share a core, a slow queue
//! in a network namespace of the test, and a file system on a loop device.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use skopos_sense::Root;

use crate::loop_device::{Loop, MIB, run, skipped};
use crate::support::{Host, Tree};

/// Ends a test that hangs. A busy machine needs a hundredth of it.
const LIMIT: Duration = Duration::from_secs(60);

/// Opens one family, or says why that is not possible here.
fn open(family: &str) -> Option<Host> {
    let root = Root { page_cache_hits: true, ..Root::default() };
    let mut host = Host::open(&root);
    host.sensors.retain(|s| s.family().name == family);
    if host.sensors.is_empty() {
        skipped(host.skip(family).expect("a reason"));
        return None;
    }
    Some(host)
}

/// Polls until `is_there` is true.
fn wait_for(host: &mut Host, mut is_there: impl FnMut(&mut Host) -> bool) {
    let start = Instant::now();
    loop {
        host.poll(1.0);
        if is_there(host) {
            return;
        }
        assert!(start.elapsed() < LIMIT, "{:#?}", host.table.snapshot());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Completed reads and writes of a device in `/proc/diskstats`.
fn diskstats(device: &str) -> (f64, f64) {
    let text = fs::read_to_string("/proc/diskstats").expect("readable");
    let line = text.lines().find(|line| line.split_whitespace().nth(2) == Some(device));
    let words: Vec<&str> = line.expect("it is listed").split_whitespace().collect();
    (words[3].parse().expect("a number"), words[7].parse().expect("a number"))
}

#[test]
fn requests_to_a_device_are_those_of_diskstats_and_their_latencies_are_in_order() {
    let Some(mut host) = open("block_latency") else { return };
    let disk = match Loop::new(64 * MIB) {
        Ok(disk) => disk,
        Err(reason) => return skipped(reason),
    };
    let topic = |metric: &str| format!("block_latency/{}/{metric}", disk.name());
    disk.access(false, 1, 1);
    host.poll(1.0);
    let before = diskstats(disk.name());
    let ours = |host: &Host| {
        let total = |metric| host.table.get(&topic(metric)).unwrap_or(0.0);
        (total("read_requests_total"), total("write_requests_total"))
    };
    let first = ours(&host);
    disk.access(false, 5, 500);
    disk.access(true, 40, 300);
    host.poll(1.0);
    let (now, after) = (ours(&host), diskstats(disk.name()));
    // Programs that look at a new disk read between the two sources.
    for (found, counted, least) in
        [(now.0 - first.0, after.0 - before.0, 500.0), (now.1 - first.1, after.1 - before.1, 300.0)]
    {
        assert!(found >= least && counted >= least, "{found} {counted}");
        assert!((found - counted).abs() <= least / 10.0, "{found} beside {counted}");
    }
    for kind in ["read_latency", "write_latency", "read_wait", "write_wait"] {
        let [p50, p99, max] =
            ["p50", "p99", "max"].map(|p| host.table.value(&topic(&format!("{kind}_seconds_{p}"))));
        assert!(0.0 <= p50 && p50 <= p99 && p99 <= max && max < 60.0, "{kind}: {p50} {p99} {max}");
    }
    assert!(host.table.value(&topic("read_latency_seconds_p50")) > 0.0);
    // The device has no facts without its file.
    let facts = format!("block_latency/{}/", disk.name());
    drop(disk);
    wait_for(&mut host, |host| host.table.topics(&facts).is_empty());
}

#[test]
fn tasks_that_share_a_core_wait_for_it() {
    let Some(mut host) = open("runqueue") else { return };
    if !host.skips.iter().all(|skip| skip.what != "runqueue/wait_seconds_p99") {
        return skipped("no programs in the kernel");
    }
    host.poll(1.0);
    let before = host.table.value("runqueue/waits_total");
    let ours = sched_getaffinity(None).expect("readable");
    let first = (0..CpuSet::MAX_CPU).find(|&core| ours.is_set(core)).expect("a core");
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut core = CpuSet::new();
                core.set(first);
                sched_setaffinity(None, &core).expect("a core that is ours");
                while !is_done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // The kernel lets a task run for about a millisecond or longer before the next one.
        wait_for(&mut host, |host| {
            host.table.get("runqueue/wait_seconds_max").is_some_and(|max| max > 1e-3)
        });
        is_done.store(true, Ordering::Relaxed);
    });
    host.poll(1.0);
    assert!(host.table.value("runqueue/waits_total") > before + 2.0);
    let value = |metric: &str| host.table.value(&format!("runqueue/wait_seconds_{metric}"));
    let all = [value("p50"), value("p99"), value("max")];
    assert!(all.is_sorted() && value("mean") <= value("max"), "{all:?}");
}

/// Moves this thread into a network namespace of its own, in which the loopback interface sends 0.5 MB/s.
fn slow_loopback() -> Result<(), String> {
    let flags = rustix::thread::UnshareFlags::NEWNET;
    // SAFETY: the namespace of the network has no effect on memory.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(|e| format!("unshare: {e}"))?;
    run("ip", &["link", "set", "lo", "up", "mtu", "1500"])?;
    let queue = ["qdisc", "add", "dev", "lo", "root", "tbf"];
    let rate = ["rate", "4mbit", "burst", "3000", "limit", "1000000"];
    run("tc", &[&queue[..], &rate].concat()).map(drop)
}

#[test]
fn packets_wait_in_a_slow_queue_for_as_long_as_its_rate_says() {
    let test = || {
        if let Err(reason) = slow_loopback() {
            return skipped(reason);
        }
        let Some(mut host) = open("qdisc_sojourn") else { return };
        host.poll(1.0);
        let to = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let from = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = to.local_addr().expect("bound");
        // 60 packets of 1,042 bytes take 125 ms; the last one waits for nearly as long. More would not fit a socket.
        for _ in 0..60 {
            from.send_to(&[0; 1000], address).expect("sent");
        }
        to.set_read_timeout(Some(LIMIT)).expect("valid");
        for _ in 0..60 {
            to.recv(&mut [0; 1000]).expect("received");
        }
        host.poll(1.0);
        let value = |metric: &str| host.table.value(&format!("qdisc_sojourn/lo/{metric}"));
        assert!(
            (55.0..=65.0).contains(&value("queued_packets_total")),
            "{:?}",
            host.table.snapshot()
        );
        let [p50, p99, max] = ["p50", "p99", "max"].map(|p| value(&format!("sojourn_seconds_{p}")));
        assert!(p50 <= p99 && p99 <= max, "{p50} {p99} {max}");
        assert!((0.02..2.0).contains(&p50) && (0.05..4.0).contains(&p99), "{p50} {p99}");
        // An interface that is gone has no facts.
        for command in [
            "link add gone0 type veth peer name gone1",
            "address add 198.51.100.1/24 dev gone0",
            "link set gone1 up",
            "link set gone0 up",
        ] {
            run("ip", &command.split(' ').collect::<Vec<_>>()).expect("the namespace is ours");
        }
        let queue = ["qdisc", "add", "dev", "gone0", "root", "tbf", "rate", "4mbit"];
        run("tc", &[&queue[..], &["burst", "3000", "limit", "1000000"]].concat()).expect("ours");
        wait_for(&mut host, |host| {
            // The kernel asks for the address of the other end, again and again.
            let _ =
                UdpSocket::bind("0.0.0.0:0").and_then(|s| s.send_to(&[0; 10], "198.51.100.2:9"));
            host.table.has("qdisc_sojourn/gone0/queued_packets_total")
        });
        run("ip", &["link", "delete", "gone0"]).expect("ours");
        wait_for(&mut host, |host| host.table.topics("qdisc_sojourn/gone0/").is_empty());
        assert_eq!(host.skip("qdisc_sojourn/*"), None);
    };
    std::thread::scope(|scope| scope.spawn(test).join()).expect("the test passes");
}

/// A file system on a loop device, mounted in a folder of the test.
struct Mounted {
    folder: tempfile::TempDir,
    disk: Loop,
}

impl Mounted {
    fn new() -> Result<Self, String> {
        let (folder, disk) = (tempfile::tempdir().expect("a folder"), Loop::new(64 * MIB)?);
        run("mkfs.ext4", &["-q", "-F", &disk.device])?;
        let mounted = Self { folder, disk };
        mounted.mount().map(|()| mounted)
    }

    fn mount(&self) -> Result<(), String> {
        run("mount", &[&self.disk.device, &self.path().display().to_string()]).map(drop)
    }

    fn unmount(&self) -> Result<(), String> {
        run("umount", &[&self.path().display().to_string()]).map(drop)
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(e) = self.unmount() {
            eprintln!("{e}");
        }
    }
}

/// Rounds of a test that a busy machine disturbs.
const ROUNDS: usize = 6;

#[test]
fn the_second_read_of_a_file_hits_the_page_cache() {
    let Some(mut host) = open("page_cache_hits") else { return };
    let mounted = match Mounted::new() {
        Ok(mounted) => mounted,
        Err(reason) => return skipped(reason),
    };
    let mut name = String::new();
    skopos_model::escape_segment(mounted.path().as_os_str().as_encoded_bytes(), &mut name);
    let topic = |metric: &str| format!("page_cache_hits/{name}/{metric}");
    let file = mounted.path().join("file");
    let bytes = 8 * MIB;
    fs::write(&file, vec![7; bytes as usize]).expect("room");
    host.poll(1.0);
    let value = |host: &Host, metric: &str| host.table.get(&topic(metric)).unwrap_or(0.0);
    let written = value(&host, "written_bytes_total");
    assert!((0.9..1.2).contains(&(written / bytes as f64)), "{written} of {bytes}");
    // Read-ahead and reclaim of a busy machine disturb a round; of several, one is as on a quiet machine.
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        // Without a file system there are no pages of it, and no facts.
        mounted.unmount().expect("ours");
        host.poll(1.0);
        assert!(host.table.topics(&topic("")).is_empty());
        mounted.mount().expect("ours");
        let mut read = || {
            assert_eq!(fs::read(&file).expect("readable").len() as u64, bytes);
            host.poll(1.0);
            let total = |metric| value(&host, metric) / bytes as f64;
            let hits = host.table.value(&topic("hit_ratio"));
            (total("requested_bytes_total"), total("added_bytes_total"), hits)
        };
        let ((requested, added, cold), (_, _, warm)) = (read(), read());
        if (0.9..1.5).contains(&requested)
            && (0.5..5.0).contains(&added)
            && cold < 0.5
            && warm > 0.9
        {
            return;
        }
        rounds.push([requested, added, cold, warm]);
    }
    panic!("requested, added, cold, warm: {rounds:?}");
}

#[test]
fn a_read_that_ends_where_the_one_before_ended_counts_its_own_pages() {
    let Some(mut host) = open("page_cache_hits") else { return };
    let mounted = match Mounted::new() {
        Ok(mounted) => mounted,
        Err(reason) => return skipped(reason),
    };
    let mut name = String::new();
    skopos_model::escape_segment(mounted.path().as_os_str().as_encoded_bytes(), &mut name);
    let topic = format!("page_cache_hits/{name}/requested_bytes_total");
    let bytes = MIB as usize;
    let file = mounted.path().join("file");
    fs::write(&file, vec![7; bytes]).expect("room");
    let file = fs::File::open(&file).expect("readable");
    let mut buffer = vec![0; bytes];
    let mut read = |from: usize| {
        let part = &mut buffer[from..];
        std::os::unix::fs::FileExt::read_exact_at(&file, part, from as u64).expect("readable");
    };
    read(0);
    host.poll(1.0);
    let before = host.table.value(&topic);
    // Each of them begins behind the one before, and ends with the same page.
    for part in 0..4 {
        read(part * bytes / 4);
    }
    host.poll(1.0);
    let requested = (host.table.value(&topic) - before) / bytes as f64;
    let expected = 1.0 + 0.75 + 0.5 + 0.25;
    assert!((expected - 0.1..expected + 0.1).contains(&requested), "{requested}");
}

#[test]
fn without_privileges_each_family_says_what_is_lost() {
    let root = Tree::empty();
    let host = root.host();
    for (family, instead) in [
        ("block_latency", "`block`"),
        ("qdisc_sojourn", "`qdisc`"),
        ("page_cache_hits", "`vmstat`"),
        ("runqueue", "/proc/schedstat"),
    ] {
        let reason = host.skip(family).expect("a reason");
        assert!(reason.contains(instead), "{reason}");
    }
    // The lower tier of waits for a processor.
    root.write("proc/schedstat", "version 15\ncpu0 0 0 0 0 0 0 9 2000000000 1000\n");
    let mut host = root.host();
    assert!(host.skip("runqueue/wait_seconds_p99").expect("a reason").contains("mean"));
    host.poll(1.0);
    root.write("proc/schedstat", "version 15\ncpu0 0 0 0 0 0 0 9 2300000000 1100\n");
    host.poll(1.0);
    assert_eq!(host.table.value("runqueue/wait_seconds_mean"), 0.003);
    assert_eq!(host.table.value("runqueue/waits_total"), 1100.0);
    assert!(!host.table.has("runqueue/wait_seconds_p99"));
}

/// A process that holds the programs until it is killed: this test's own program, with an argument for one test.
#[test]
fn nothing_stays_in_the_kernel_after_a_kill() {
    const HOLD: &str = "SKOPOS_TEST_HOLDS_PROGRAMS";
    let Some(host) = open("runqueue") else { return };
    if let Some(file) = std::env::var_os(HOLD) {
        fs::write(file, std::process::id().to_string()).expect("writable");
        std::thread::sleep(LIMIT);
        drop(host);
        return;
    }
    drop(host);
    let folder = tempfile::tempdir().expect("a folder");
    let ready = folder.path().join("ready");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "in_kernel::nothing_stays_in_the_kernel_after_a_kill"])
        .env(HOLD, &ready)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let start = Instant::now();
    while !ready.exists() {
        assert!(start.elapsed() < LIMIT, "the child does not come up");
        std::thread::sleep(Duration::from_millis(10));
    }
    let owned = owned_programs(child.id());
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert!(!owned.is_empty(), "the child has no program");
    // The kernel frees programs after a moment.
    let start = Instant::now();
    let is_there =
        |id: &u32| aya::programs::loaded_programs().filter_map(Result::ok).any(|p| p.id() == *id);
    while owned.iter().any(is_there) {
        assert!(start.elapsed() < LIMIT, "programs {owned:?} stay");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the numbers of the programs to which a process has descriptors, by its links (`/proc/PID/fdinfo`).
fn owned_programs(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("it runs");
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    let ids = texts.filter_map(|text| {
        let id = text.lines().find_map(|line| line.strip_prefix("prog_id:"))?;
        id.trim().parse().ok()
    });
    ids.collect()
}

//! Labs on this machine.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use skopos_net::lab::{Lab, Topology, down};
use skopos_net::netns::Namespace;

use crate::chain::cannot;

fn topology(name: &str, rest: &str) -> Topology {
    // Tests of several processes and of one process run at once.
    let text = format!(
        "name = '{name}{}'\n[[host]]\nname = 'a'\n[[host]]\nname = 'b'\n[[switch]]\nname = 's'\n{rest}",
        std::process::id()
    );
    Topology::parse(&text).expect("good")
}

const LINKS: &str = "[[link]]\nends = ['a', 's']\n[[link]]\nends = ['s', 'b']\n";

/// Sends datagrams from `a` to `b` and back, and returns the shortest time.
fn round_trip(lab: &Lab) -> Duration {
    let address = lab.addresses("b").expect("a host").0;
    let server = lab
        .namespace("b")
        .expect("a host")
        .run(|| Ok(UdpSocket::bind((address, 0))))
        .expect("runs");
    let client = lab
        .namespace("a")
        .expect("a host")
        .run(|| Ok(UdpSocket::bind(("0.0.0.0", 0))))
        .expect("runs");
    let (server, client) = (server.expect("a port"), client.expect("a port"));
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    }
    // Not a fixed port: a process that another test is starting may still hold the socket of an
    // earlier round trip.
    client.connect(server.local_addr().expect("bound")).expect("a route");
    let trip = || {
        let (begin, mut buffer) = (Instant::now(), [0; 8]);
        client.send(b"there").expect("sent");
        let (bytes, from) = server.recv_from(&mut buffer).expect("arrived");
        server.send_to(&buffer[..bytes], from).expect("sent");
        client.recv(&mut buffer).expect("came back");
        begin.elapsed()
    };
    (0..5).map(|_| trip()).min().expect("five trips")
}

fn left(topology: &Topology) -> usize {
    let prefix = format!("skopos-{}-", topology.name);
    let Ok(entries) = fs::read_dir("/run/netns") else { return 0 };
    entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .count()
}

#[test]
fn hosts_of_a_lab_reach_each_other_and_nothing_is_left_of_it() {
    if cannot() {
        return;
    }
    let topology = topology("plain", LINKS);
    let lab = Lab::up(topology.clone())
        .unwrap_or_else(|e| panic!("{e}: {:?}", std::error::Error::source(&e)));
    round_trip(&lab);
    let ports = lab.ports("s");
    let names: Vec<_> = ports.iter().map(|port| (&*port.interface, &*port.peer)).collect();
    assert_eq!(names, [("p1", "a"), ("p2", "b")]);
    assert!(
        lab.exec("c", "true", &[])
            .expect_err("no such node")
            .to_string()
            .contains("it has a, b, s")
    );
    assert!(lab.exec("a", "false", &[]).is_err());
    let output = lab.exec("a", "ip", &["-br", "address", "show", "eth0"]).expect("runs");
    assert!(String::from_utf8_lossy(&output.stdout).contains("10.77.0.1/24"));
    assert_eq!(left(&topology), 3);
    lab.down().expect("removed");
    assert_eq!(left(&topology), 0);
}

#[test]
fn a_link_with_a_delay_delays_each_way() {
    if cannot() {
        return;
    }
    let links = LINKS.replacen("'s']", "'s']\ndelay_ms = 20", 1);
    let lab = Lab::up(topology("delay", &links)).expect("up");
    let trip = round_trip(&lab);
    assert!(trip >= Duration::from_millis(40), "{trip:?}");
    lab.set_delay(["s", "a"], 60.0).expect("it has a delay");
    let trip = round_trip(&lab);
    assert!(trip >= Duration::from_millis(120), "{trip:?}");
    assert!(lab.set_delay(["a", "s"], -1.0).is_err());
    assert!(lab.set_delay(["b", "s"], 1.0).is_err(), "this link has no delay line");
    assert_eq!(lab.dropped_frames(), 0);
}

#[test]
fn a_link_with_a_rate_queues() {
    if cannot() {
        return;
    }
    let links = LINKS.replacen("'s']", "'s']\nrate_mbit = 8", 1);
    let lab = Lab::up(topology("rate", &links)).expect("up");
    let (address, _) = lab.addresses("b").expect("a host");
    let receiver = lab
        .namespace("b")
        .expect("a host")
        .run(|| Ok(UdpSocket::bind((address, 7000))))
        .expect("runs");
    let receiver = receiver.expect("a port");
    receiver.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    let sender = lab
        .namespace("a")
        .expect("a host")
        .run(|| Ok(UdpSocket::bind(("0.0.0.0", 0))))
        .expect("runs");
    let sender = sender.expect("a port");
    let begin = Instant::now();
    for _ in 0..100 {
        sender.send_to(&[0; 1000], (address, 7000)).expect("sent");
    }
    let mut buffer = [0; 2000];
    for _ in 0..100 {
        receiver.recv(&mut buffer).expect("arrived");
    }
    // 100 frames of 1042 bytes take 104 ms at 1 MB/s; the first 3200 bytes pass at once.
    assert!(begin.elapsed() > Duration::from_millis(90), "{:?}", begin.elapsed());
}

#[test]
fn remains_of_a_killed_process_are_removed() {
    if cannot() {
        return;
    }
    let topology = topology("left", LINKS);
    let lab = Lab::up(topology.clone()).expect("up");
    // A process that is killed runs no destructor.
    std::mem::forget(lab);
    assert_eq!(left(&topology), 3);
    let lab = Lab::up(topology.clone()).expect("up again");
    assert_eq!(left(&topology), 3);
    std::mem::forget(lab);
    down(&topology.name).expect("removed");
    assert_eq!(left(&topology), 0);
    down(&topology.name).expect("nothing to remove");
    assert!(Namespace::named(&format!("skopos-{}-a", topology.name)).is_err());
}

#[test]
fn a_disk_seeks_where_an_access_does_not_follow_the_last_one() {
    if cannot() {
        return;
    }
    if Command::new("mkfs.ext4").arg("-V").output().is_err()
        || !std::path::Path::new("/dev/fuse").exists()
    {
        println!("skipped: needs mkfs.ext4 (Debian: e2fsprogs) and /dev/fuse");
        return;
    }
    let disk = "[[disk]]\nname = 'slow'\nhost = 'b'\nsize_mb = 32\nseek_ms = 5\n";
    let topology = topology("disk", &format!("{LINKS}{disk}"));
    let lab = Lab::up(topology.clone())
        .unwrap_or_else(|e| panic!("{e}: {:?}", std::error::Error::source(&e)));
    let path = lab.disk("slow").expect("a disk").join("file");
    let content: Vec<u8> = (0..4_000_000u32).map(|at| (at / 7) as u8).collect();
    let mut file = fs::File::create(&path).expect("a file");
    file.write_all(&content).expect("written");
    file.sync_all().expect("synced");
    lab.drop_cache("slow").expect("dropped");
    assert!(fs::read(&path).expect("read") == content);
    // From memory no arm moves.
    let before = lab.seeks("slow").expect("a disk");
    assert!(fs::read(&path).expect("read") == content);
    assert_eq!(lab.seeks("slow").expect("a disk"), before);
    lab.drop_cache("slow").expect("dropped");
    let (mut file, begin) = (fs::File::open(&path).expect("the file"), Instant::now());
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).expect("advised");
    let mut page = [0; 4096];
    for at in [3_000_000u32, 100_000, 2_000_000, 500_000, 1_500_000] {
        file.seek(SeekFrom::Start(u64::from(at))).expect("seeks");
        file.read_exact(&mut page).expect("read");
        assert_eq!(page[..], content[at as usize..at as usize + 4096]);
    }
    let seeks = lab.seeks("slow").expect("a disk") - before;
    assert!(seeks >= 5, "{seeks}");
    assert!(begin.elapsed() >= Duration::from_millis(25), "{:?}", begin.elapsed());
    lab.set_seek("slow", 100.0).expect("a disk");
    lab.drop_cache("slow").expect("dropped");
    let begin = Instant::now();
    file.seek(SeekFrom::Start(2_500_000)).expect("seeks");
    file.read_exact(&mut page).expect("read");
    assert!(begin.elapsed() >= Duration::from_millis(100), "{:?}", begin.elapsed());
    assert!(lab.set_seek("slow", -1.0).is_err() && lab.set_seek("fast", 1.0).is_err());
    drop(file);
    let folder = lab.disk("slow").expect("a disk");
    drop(lab);
    assert!(!folder.exists());
    let mounts = fs::read_to_string("/proc/self/mounts").expect("procfs");
    assert!(!mounts.contains(&topology.name), "{mounts}");
}

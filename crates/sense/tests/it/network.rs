//! Sockets, queues and cards of this machine, beside `ss`, `tc`, `ip` and procfs.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};

use crate::live::{Around, Outcome, compare, run, skipped};
use crate::support::Host;

/// Seconds between two polls.
const SECOND: f64 = 1.0;

/// The number of attempts: other programs use the network meanwhile.
const ATTEMPTS: u32 = 8;

fn numbers_after<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(word)?;
    rest.split(|c: char| !c.is_ascii_digit()).find(|part| !part.is_empty())
}

#[test]
fn softnet_against_procfs() {
    compare("softnet", &["cat", "/proc/net/softnet_stat"], |text, ours| {
        for (column, topic) in [(0, "handled_total"), (1, "dropped_total"), (2, "squeezed_total")] {
            let word = |line: &str| u64::from_str_radix(line.split(' ').nth(column)?, 16).ok();
            let sum: u64 = text.lines().filter_map(word).sum();
            ours.between(&format!("softnet/{topic}"), sum as f64, 0.0)?;
        }
        Ok(())
    });
}

#[test]
fn queues_against_tc() {
    compare("qdisc", &["tc", "-s", "qdisc", "show"], |text, ours| {
        // "qdisc mq 0: dev eth0 root", then " Sent 1234 bytes 56 pkt (dropped 0, overlimits 0 requeues 0)".
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.windows(2) {
            let (Some(device), " Sent ") =
                (pair[0].split("dev ").nth(1), pair[1].get(..6).unwrap_or(""))
            else {
                continue;
            };
            let mut words = device.split(' ');
            let (Some(name), Some("root")) = (words.next(), words.next()) else { continue };
            if pair[0].starts_with("qdisc noqueue") {
                continue;
            }
            let number = |word| {
                let number = numbers_after(pair[1], word).and_then(|n| n.parse::<f64>().ok());
                number.ok_or_else(|| format!("no {word} in {}", pair[1]))
            };
            for (word, metric) in [
                ("Sent ", "sent_bytes_total"),
                ("bytes ", "sent_packets_total"),
                ("dropped ", "drops_total"),
                ("overlimits ", "overlimits_total"),
                ("requeues ", "requeues_total"),
            ] {
                ours.between(&format!("qdisc/{name}.root/{metric}"), number(word)?, 0.0)?;
            }
        }
        Ok(())
    });
}

#[test]
fn cards_against_ip() {
    compare("nic", &["ip", "-s", "-s", "link", "show", "dev", "lo"], |text, ours| {
        let (_, rest) = text.split_once("mtu ").ok_or("no mtu")?;
        let mtu: f64 = rest.split(' ').next().and_then(|n| n.parse().ok()).ok_or("no mtu")?;
        ours.between("nic/lo/mtu_bytes", mtu, 0.0)?;
        ours.between("nic/lo/receive_crc_errors_total", 0.0, 0.0)
    });
}

#[test]
fn errors_of_cards_against_sysfs() {
    let folder = std::path::Path::new("/sys/class/net");
    let mut host = match Host::live("nic") {
        Ok(host) => host,
        Err(skips) => return skipped(skips),
    };
    let before = host.poll(SECOND).snapshot();
    let after = host.poll(SECOND).snapshot();
    let ours = Around { before, after };
    let interfaces: Vec<String> =
        host.table.instances("nic").into_iter().map(str::to_owned).collect();
    for name in interfaces {
        for (file, metric) in [
            ("rx_missed_errors", "receive_missed_total"),
            ("rx_length_errors", "receive_length_errors_total"),
            ("rx_nohandler", "receive_unhandled_total"),
        ] {
            let text = std::fs::read_to_string(folder.join(&name).join("statistics").join(file));
            let Ok(text) = text else { return skipped(format!("{name} is gone")) };
            let number: f64 = text.trim().parse().expect("a number");
            let (_, after) = ours.values(&format!("nic/{name}/{metric}")).expect("it is measured");
            assert!(number >= after, "{name} {metric}: {number}, ours {after}");
        }
    }
}

#[test]
fn connections_that_wait_and_bytes_that_nobody_reads() {
    let listening = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listening.local_addr().expect("bound");
    let mut listeners = match Host::live("listener") {
        Ok(host) => host,
        Err(skips) => return skipped(skips),
    };
    let topic = |metric: &str| format!("listener/127.0.0.1.{}/{metric}", address.port());
    assert_eq!(listeners.poll(SECOND).value(&topic("accept_queue")), 0.0);
    let clients: Vec<TcpStream> =
        (0..3).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    let table = listeners.poll(SECOND);
    assert_eq!(table.value(&topic("accept_queue")), 3.0);
    assert_eq!(table.value(&topic("sockets")), 1.0);
    if let Some(text) = run(&["ss", "-Hltn", "sport", "=", &format!(":{}", address.port())]) {
        let limit: f64 = text.split_whitespace().nth(2).and_then(|n| n.parse().ok()).expect("ss");
        assert_eq!(table.value(&topic("accept_queue_limit")), limit, "{text}");
    }
    let mut peers = Host::live("tcp_peer").expect("as the listeners");
    let bytes =
        |peers: &mut Host| peers.poll(SECOND).value("tcp_peer/127.0.0.1/receive_queue_bytes");
    let before = bytes(&mut peers);
    (&clients[0]).write_all(&[0; 10_000]).expect("it fits into the buffers");
    // Other tests read what they were sent meanwhile.
    let grew = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        bytes(&mut peers) >= before.min(1e9) + 9000.0
    });
    assert!(grew, "{before}");
    drop(listening);
    let gone = (0..100).any(|_| !listeners.poll(SECOND).has(&topic("accept_queue")));
    assert!(gone);
}

#[test]
fn connections_against_ss() {
    // All but those that `tcp_peer` leaves out.
    let states = "state all exclude listening exclude time-wait exclude closed exclude syn-recv";
    let mut tool = vec!["ss", "-Htn"];
    tool.extend(states.split(' '));
    let mut host = match Host::live("tcp_peer") {
        Ok(host) => host,
        Err(skips) => return skipped(skips),
    };
    for attempts_left in (0..ATTEMPTS).rev() {
        let before = host.poll(SECOND).snapshot();
        let Some(text) = run(&tool) else { return };
        let after = host.poll(SECOND).snapshot();
        let ours = Around { before, after };
        let outcome: Outcome =
            ours.between("tcp_peer/all/connections", text.lines().count() as f64, 0.0);
        match outcome {
            Ok(()) => return,
            Err(e) => assert!(attempts_left > 0, "{e}\n{text}"),
        }
    }
}

#[test]
fn every_connection_is_in_the_sum_of_all() {
    let mut host = match Host::live("tcp_peer") {
        Ok(host) => host,
        Err(skips) => return skipped(skips),
    };
    let table = host.poll(SECOND);
    let instances = table.instances("tcp_peer").into_iter().filter(|name| *name != "all");
    let of = |name: &str| table.value(&format!("tcp_peer/{name}/connections"));
    let sum: f64 = instances.map(of).sum();
    assert_eq!(
        sum,
        table.value("tcp_peer/all/connections"),
        "there is room for every address here"
    );
}

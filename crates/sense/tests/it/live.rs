//! This machine, compared with independent tools: the sensor polls, the tool runs, the sensor polls
//! again. A counter of the tool must lie between the two polls, a gauge near them. Other programs
//! run on the machine, so a comparison may be repeated before it fails.
//!
//! If a tool or a source is absent, stderr has a line `skipped: reason`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::support::{Host, Table};

/// The number of attempts at a comparison before the test fails.
const ATTEMPTS: u32 = 8;

/// Writes to the real stderr, which the test harness does not capture.
pub(crate) fn skipped(reason: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "skipped: {reason}");
}

/// Returns the output of a tool; `None` if the tool does not exist.
pub(crate) fn run(tool: &[&str]) -> Option<String> {
    // The user's variables change the columns and units of some tools.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut command = Command::new(tool[0]);
    command.args(&tool[1..]).env_clear().env("PATH", path).env("LC_ALL", "C");
    let output = command.output();
    match output {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{tool:?}: {text}");
            Some(text)
        }
        Err(e) => {
            skipped(format!("{}: {e}", tool[0]));
            None
        }
    }
}

/// A family's facts before and after the tool ran.
pub(crate) struct Around {
    pub(crate) before: BTreeMap<String, f64>,
    pub(crate) after: BTreeMap<String, f64>,
}

pub(crate) type Outcome = Result<(), String>;

impl Around {
    pub(crate) fn values(&self, topic: &str) -> Result<(f64, f64), String> {
        match (self.before.get(topic), self.after.get(topic)) {
            (Some(&before), Some(&after)) => Ok((before, after)),
            _ => Err(format!("no {topic}")),
        }
    }

    /// Checks that the tool's `value` lies between ours, up to its rounding.
    pub(crate) fn between(&self, topic: &str, value: f64, rounding: f64) -> Outcome {
        let (before, after) = self.values(topic)?;
        let (low, high) = (before.min(after) - rounding, before.max(after) + rounding);
        let fits = (low..=high).contains(&value);
        fits.then_some(()).ok_or_else(|| format!("{topic}: {value}, ours {before} and {after}"))
    }
}

/// Seconds between two polls on the sensors' clock: longer than any source is left unread.
const SECONDS: f64 = 100.0;

/// Compares a family with a tool.
pub(crate) fn compare(family: &str, tool: &[&str], check: impl Fn(&str, &Around) -> Outcome) {
    let mut host = match Host::live(family) {
        Ok(host) => host,
        Err(skips) => return skipped(skips),
    };
    for attempts_left in (0..ATTEMPTS).rev() {
        let before = host.poll(SECONDS).snapshot();
        let Some(text) = run(tool) else { return };
        let after = host.poll(SECONDS).snapshot();
        match check(&text, &Around { before, after }) {
            Ok(()) => return,
            Err(e) => assert!(attempts_left > 0, "{family} against {tool:?}: {e}\n{text}"),
        }
    }
}

/// Returns the number in front of `what` in a line of `vmstat -s`.
fn before_words(text: &str, what: &str) -> Result<f64, String> {
    let mut numbers = text.lines().filter_map(|line| line.trim().strip_suffix(what));
    let number = numbers.next().ok_or_else(|| format!("no line `{what}`"))?;
    number.trim().parse().map_err(|e| format!("{what}: {e}"))
}

fn numbers(line: &str) -> Vec<f64> {
    line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn cpu_against_vmstat() {
    compare("cpu", &["vmstat", "-s"], |text, ours| {
        let per_second = rustix::param::clock_ticks_per_second() as f64;
        for (words, topic) in [
            ("non-nice user cpu ticks", "user"),
            (" nice user cpu ticks", "nice"),
            (" system cpu ticks", "system"),
            (" idle cpu ticks", "idle"),
            (" IO-wait cpu ticks", "iowait"),
            (" IRQ cpu ticks", "irq"),
            (" softirq cpu ticks", "softirq"),
            (" stolen cpu ticks", "steal"),
        ] {
            let seconds = before_words(text, words)? / per_second;
            ours.between(&format!("cpu/total/{topic}_seconds_total"), seconds, 0.001)?;
        }
        let switches = before_words(text, " CPU context switches")?;
        ours.between("cpu/total/context_switches_total", switches, 0.0)?;
        ours.between("cpu/total/forks_total", before_words(text, " forks")?, 0.0)
    });
}

#[test]
fn cores_against_getconf() {
    compare("cpu", &["getconf", "_NPROCESSORS_ONLN"], |text, ours| {
        let cores = ours.after.keys().filter(|t| t.ends_with("/idle_seconds_total")).count() - 1;
        let expected: usize = text.trim().parse().map_err(|e| format!("{text}: {e}"))?;
        if cores == expected { Ok(()) } else { Err(format!("ours {cores}")) }
    });
}

#[test]
fn busy_ratio_against_sar() {
    compare("cpu", &["sar", "-u", "2", "1"], |text, ours| {
        let average = text.lines().find(|l| l.starts_with("Average:")).ok_or("no average")?;
        // %user %nice %system %iowait %steal %idle
        let shares = numbers(average);
        let [.., iowait, _steal, idle] = shares[..] else { return Err("columns".into()) };
        let busy = 1.0 - (iowait + idle) / 100.0;
        let (_, after) = ours.values("cpu/total/busy_ratio")?;
        let near = (busy - after).abs() < 0.15;
        near.then_some(()).ok_or_else(|| format!("{busy}, ours {after}"))
    });
}

#[test]
fn load_against_uptime() {
    compare("load", &["uptime"], |text, ours| {
        let (_, averages) = text.trim().rsplit_once("average: ").ok_or("no average")?;
        for (topic, word) in ["1m", "5m", "15m"].iter().zip(averages.split(", ")) {
            let average = word.parse().map_err(|e| format!("{word}: {e}"))?;
            ours.between(&format!("load/load_{topic}"), average, 0.001)?;
        }
        Ok(())
    });
}

#[test]
fn pressure_against_sar() {
    for (resource, option) in [("cpu", "CPU"), ("memory", "MEM"), ("io", "IO")] {
        compare("psi", &["sar", "-q", option, "1", "1"], |text, ours| {
            let row = text.lines().rfind(|line| numbers(line).len() >= 4);
            let percent = numbers(row.ok_or("no row")?)[0];
            ours.between(&format!("psi/{resource}/some_avg10_ratio"), percent / 100.0, 0.0002)
        });
    }
}

#[test]
fn processes_against_ps() {
    // ps counts itself, although it did not exist at either of our polls.
    compare("process", &["ps", "-e", "-o", "state="], |text, ours| {
        let states: Vec<&str> = text.split_whitespace().collect();
        ours.between("process/processes", states.len() as f64 - 1.0, 1.0)?;
        for (letters, topic, slack) in
            [("Z", "zombie", 2.0), ("T", "stopped", 1.0), ("I", "idle", 4.0)]
        {
            let count = states.iter().filter(|s| letters.contains(**s)).count();
            ours.between(&format!("process/{topic}_processes"), count as f64, slack)?;
        }
        Ok(())
    });
}

#[test]
fn threads_against_ps() {
    compare("load", &["ps", "-eL", "--no-headers"], |text, ours| {
        ours.between("load/tasks", text.lines().count() as f64 - 1.0, 2.0)
    });
}

#[test]
fn interrupts_against_awk() {
    let program = "NR == 1 { cores = NF; next } /ERR|MIS/ { next } \
                   { for (i = 2; i <= cores + 1; i++) core[i] += $i } \
                   /LOC:/ { for (i = 2; i <= cores + 1; i++) local += $i } \
                   END { printf \"%d %d\\n\", core[2], local }";
    compare("interrupts", &["awk", program, "/proc/interrupts"], |text, ours| {
        let [first, local] = numbers(text)[..] else { return Err("two numbers".into()) };
        ours.between("interrupts/cpu0/handled_total", first, 0.0)?;
        ours.between("interrupts/loc/handled_total", local, 0.0)
    });
    compare("interrupts", &["vmstat", "-s"], |text, ours| {
        ours.between("interrupts/total/handled_total", before_words(text, " interrupts")?, 0.0)
    });
    let program = "NR > 1 { for (i = 2; i <= NF; i++) sum[$1] += $i } \
                   END { print sum[\"TIMER:\"], sum[\"NET_RX:\"], sum[\"RCU:\"] }";
    compare("softirqs", &["awk", program, "/proc/softirqs"], |text, ours| {
        for (kind, sum) in ["timer", "net_rx", "rcu"].iter().zip(numbers(text)) {
            ours.between(&format!("softirqs/{kind}/handled_total"), sum, 0.0)?;
        }
        Ok(())
    });
}

#[test]
fn memory_against_free() {
    compare("mem", &["free", "-b"], |text, ours| {
        let row = text.lines().find_map(|l| l.strip_prefix("Mem:")).ok_or("no row")?;
        let [total, _used, free, shared, _cache, available] = numbers(row)[..] else {
            return Err("columns".into());
        };
        ours.between("mem/total_bytes", total, 0.0)?;
        let slack = 0.01 * total;
        ours.between("mem/free_bytes", free, slack)?;
        ours.between("mem/available_bytes", available, slack)?;
        ours.between("mem/shared_bytes", shared, 0.0)?;
        ours.between("mem/used_ratio", 1.0 - available / total, 0.01)
    });
}

#[test]
fn swap_against_free_and_swapon() {
    compare("swap", &["free", "-b"], |text, ours| {
        let row = text.lines().find_map(|l| l.strip_prefix("Swap:")).ok_or("no row")?;
        let [total, used, _free] = numbers(row)[..] else { return Err("columns".into()) };
        ours.between("swap/total/size_bytes", total, 0.0)?;
        ours.between("swap/total/used_bytes", used, 0.0)
    });
    let tool = ["swapon", "--show=NAME,SIZE", "--bytes", "--noheadings"];
    compare("swap", &tool, |text, ours| {
        let sizes = ours.after.keys().filter(|t| t.ends_with("/size_bytes")).count() - 1;
        let areas = text.lines().count();
        if sizes == areas { Ok(()) } else { Err(format!("ours {sizes}, theirs {areas}")) }
    });
}

#[test]
fn vmstat_against_vmstat() {
    compare("vmstat", &["vmstat", "-s"], |text, ours| {
        let paged_in = before_words(text, " K paged in")? * 1024.0;
        ours.between("vmstat/paged_in_bytes_total", paged_in, 0.0)?;
        let paged_out = before_words(text, " K paged out")? * 1024.0;
        ours.between("vmstat/paged_out_bytes_total", paged_out, 0.0)
    });
}

#[test]
fn page_faults_against_sar() {
    compare("vmstat", &["sar", "-B", "1", "1"], |text, ours| {
        // pgpgin/s pgpgout/s fault/s majflt/s ...
        let average = text.lines().find(|l| l.starts_with("Average:")).ok_or("no average")?;
        let faults = *numbers(average).get(2).ok_or("columns")?;
        let (before, after) = ours.values("vmstat/page_faults_total")?;
        // Its second lies within ours.
        let fits = faults <= after - before + 1.0;
        fits.then_some(()).ok_or_else(|| format!("{faults}, ours {before} and {after}"))
    });
}

#[test]
fn numa_against_numastat() {
    compare("numa", &["numastat"], |text, ours| {
        for (word, topic) in [("numa_hit", "hits"), ("local_node", "local")] {
            let row = text.lines().find_map(|l| l.strip_prefix(word)).ok_or("no row")?;
            for (node, count) in numbers(row).into_iter().enumerate() {
                ours.between(&format!("numa/{node}/{topic}_total"), count, 0.0)?;
            }
        }
        Ok(())
    });
}

/// Returns true for a device whose medium was removed, which the tools still list, and for a loop
/// device: other tests attach and detach its file.
fn may_lack_medium(device: &str) -> bool {
    let size = std::fs::read_to_string(format!("/sys/class/block/{device}/size"));
    device.starts_with("loop") || size.is_ok_and(|size| size.trim() == "0")
}

#[test]
fn block_against_vmstat() {
    compare("block", &["vmstat", "-d"], |text, ours| {
        let mut devices = 0;
        for line in text.lines() {
            let Some((name, rest)) = line.split_once(' ') else { continue };
            let [reads, _, read, read_ms, writes, _, written, written_ms, _, _] = numbers(rest)[..]
            else {
                continue;
            };
            if reads + writes == 0.0 || may_lack_medium(name) {
                continue;
            }
            let topic = |metric: &str| format!("block/{name}/{metric}_total");
            ours.between(&topic("read_requests"), reads, 0.0)?;
            ours.between(&topic("read_bytes"), read * 512.0, 0.0)?;
            ours.between(&topic("read_seconds"), read_ms / 1e3, 1e-6)?;
            ours.between(&topic("written_requests"), writes, 0.0)?;
            ours.between(&topic("written_bytes"), written * 512.0, 0.0)?;
            ours.between(&topic("written_seconds"), written_ms / 1e3, 1e-6)?;
            devices += 1;
        }
        if devices > 0 { Ok(()) } else { Err("no device".into()) }
    });
}

/// Compares iostat's second with the same second of ours, while a program reads and writes.
#[test]
fn block_intervals_against_iostat() {
    let Some(text) = run(&["iostat", "-d"]) else { return };
    let names = text.lines().skip(3).filter_map(|l| l.split_whitespace().next());
    let mut devices = names.filter(|name| !may_lack_medium(name));
    let Some(device) = devices.next() else { return skipped("no block device") };
    let mut host = Host::live("block").expect("there is a block device");
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    for attempts_left in (0..ATTEMPTS).rev() {
        let path = format!("of={}", file.path().display());
        let mut load = Command::new("dd")
            .args(["if=/dev/zero", &path, "bs=64k", "count=20000", "oflag=dsync"])
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("dd");
        host.poll(1.0);
        let start = std::time::Instant::now();
        // %util is the last column, aqu-sz the last but one.
        let text = run(&["iostat", "-dxy", device, "2", "1"]).expect("it ran before");
        host.poll(start.elapsed().as_secs_f64());
        load.kill().expect("our own child");
        load.wait().expect("our own child");
        let row = text.lines().find_map(|l| l.strip_prefix(device)).unwrap_or_default();
        let columns = numbers(row);
        let [.., depth, util] = columns[..] else { panic!("columns of iostat: {text}") };
        let (writes, latency) = (columns[6], columns[10] / 1e3);
        let ours = |metric: &str| host.table.value(&format!("block/{device}/{metric}"));
        let near = |a: f64, b: f64, slack: f64| (a - b).abs() <= slack + 0.2 * a.abs().max(b.abs());
        let fits = near(ours("busy_ratio"), util / 100.0, 0.05)
            && near(ours("queue_depth_mean"), depth, 0.1)
            && (writes == 0.0 || near(ours("write_latency_seconds"), latency, 0.000_05));
        if fits {
            return;
        }
        let facts = host.table.snapshot();
        assert!(attempts_left > 0, "{facts:#?}\n{text}");
    }
}

#[test]
fn file_systems_against_df() {
    let columns = "--output=size,avail,pcent,itotal,iavail,fstype,source,target";
    compare("fs", &["df", "-B1", columns], |text, ours| {
        let mut found = 0;
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [size, available, percent, inodes, inodes_free, kind, source, ..] = words[..]
            else {
                return Err("columns".into());
            };
            if kind.starts_with("fuse") || kind.starts_with("nfs") || kind == "9p" {
                continue;
            }
            let mut instance = String::new();
            let label = match source.strip_prefix("/dev/") {
                Some(device) => device.to_owned(),
                None => words[7..].join(" "),
            };
            skopos_model::escape_segment(label.as_bytes(), &mut instance);
            let value = |word: &str| word.parse::<f64>().map_err(|e| format!("{word}: {e}"));
            let topic = |metric: &str| format!("fs/{instance}/{metric}");
            ours.between(&topic("total_bytes"), value(size)?, 0.0)?;
            ours.between(&topic("available_bytes"), value(available)?, 0.0)?;
            if inodes != "0" && inodes != "-" {
                ours.between(&topic("inodes"), value(inodes)?, 0.0)?;
                ours.between(&topic("inodes_free"), value(inodes_free)?, 0.0)?;
            }
            let (_, ratio) = ours.values(&topic("used_ratio"))?;
            if (ratio * 100.0).ceil() != value(percent.trim_end_matches('%'))? {
                return Err(format!("{instance}: {percent}, ours {ratio}"));
            }
            found += 1;
        }
        let all = ours.after.keys().filter(|t| t.ends_with("/total_bytes")).count();
        if found == all { Ok(()) } else { Err(format!("{all} here, {found} in df")) }
    });
}

/// A pair of interfaces, removed on drop.
struct Pair(String);

impl Pair {
    fn new() -> Option<Self> {
        let name = format!("sk{}", std::process::id());
        let pair = Self(name.clone());
        let made = pair.ip(&["link", "add", &name, "type", "veth", "peer", "name", &pair.peer()]);
        made.then_some(pair)
    }

    fn peer(&self) -> String {
        format!("{}p", self.0)
    }

    fn ip(&self, args: &[&str]) -> bool {
        let mut command = Command::new("ip");
        command.args(args).stderr(std::process::Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.ip(&["link", "del", &self.0]);
    }
}

/// The state is not read at each poll: the kernel says that it changed.
#[test]
fn a_link_that_goes_down_is_seen_at_the_next_poll() {
    let Some(pair) = Pair::new() else { return skipped("no interface can be made") };
    let peer = pair.peer();
    assert!(pair.ip(&["link", "set", &pair.0, "up"]) && pair.ip(&["link", "set", &peer, "up"]));
    let mut host = Host::live("netdev").expect("there are interfaces");
    let up = format!("netdev/{}/up", pair.0);
    // The kernel sends the first packets for IPv6, and reports a carrier a moment after it is there.
    for attempts_left in (0..600).rev() {
        if host.poll(1.0).get(&up) == Some(1.0) {
            break;
        }
        if attempts_left == 0 {
            return skipped("the interface carries no packet");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    host.poll(1.0);
    assert!(pair.ip(&["link", "set", &pair.0, "down"]));
    assert_eq!(host.poll(1.0).get(&up), Some(0.0));
}

#[test]
fn network_against_ip() {
    let program = "ip -s -j link | jq -r '.[] | [.ifname, .operstate, (.stats64 | .rx.bytes, \
                   .rx.packets, .rx.errors, .rx.multicast, .tx.bytes, .tx.packets, .tx.errors, \
                   .tx.dropped)] | @tsv'";
    if run(&["jq", "--version"]).is_none() || run(&["ip", "-V"]).is_none() {
        return;
    }
    compare("netdev", &["sh", "-c", program], |text, ours| {
        for line in text.lines() {
            let mut words = line.split('\t');
            let (Some(name), Some(state)) = (words.next(), words.next()) else { continue };
            let counters: Vec<f64> = words.filter_map(|w| w.parse().ok()).collect();
            if counters.iter().all(|&n| n == 0.0) {
                continue;
            }
            let metrics = [
                "receive_bytes_total",
                "receive_packets_total",
                "receive_errors_total",
                "receive_multicast_total",
                "transmit_bytes_total",
                "transmit_packets_total",
                "transmit_errors_total",
                "transmit_drops_total",
            ];
            for (metric, count) in metrics.iter().zip(counters) {
                ours.between(&format!("netdev/{name}/{metric}"), count, 0.0)?;
            }
            let up = f64::from(u8::from(matches!(state, "UP" | "UNKNOWN")));
            ours.between(&format!("netdev/{name}/up"), up, 0.0)?;
        }
        Ok(())
    });
}

/// Returns a value from the lines `name value rate` of nstat.
fn nstat(text: &str, name: &str) -> Result<f64, String> {
    let mut rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row[0] == name).ok_or_else(|| format!("no {name}"))?;
    row[1].parse().map_err(|e| format!("{name}: {e}"))
}

#[test]
fn tcp_and_udp_against_nstat() {
    let tool = ["nstat", "-asz"];
    compare("tcp", &tool, |text, ours| {
        for (name, topic) in [
            ("TcpActiveOpens", "active_opens_total"),
            ("TcpPassiveOpens", "passive_opens_total"),
            ("TcpAttemptFails", "attempt_failures_total"),
            ("TcpEstabResets", "established_resets_total"),
            ("TcpInSegs", "received_segments_total"),
            ("TcpOutSegs", "sent_segments_total"),
            ("TcpRetransSegs", "retransmitted_segments_total"),
            ("TcpOutRsts", "sent_resets_total"),
            ("TcpExtListenOverflows", "listen_overflows_total"),
            ("TcpExtTCPTimeouts", "timeouts_total"),
            ("TcpExtTCPSynRetrans", "syn_retransmits_total"),
            ("TcpExtTCPOFOQueue", "out_of_order_total"),
            ("TcpExtTCPMemoryPressures", "memory_pressures_total"),
        ] {
            ours.between(&format!("tcp/{topic}"), nstat(text, name)?, 0.0)?;
        }
        Ok(())
    });
    compare("udp", &tool, |text, ours| {
        for (name, topic) in [
            ("UdpInDatagrams", "v4/received_datagrams_total"),
            ("UdpOutDatagrams", "v4/sent_datagrams_total"),
            ("UdpNoPorts", "v4/no_port_total"),
            ("UdpRcvbufErrors", "v4/receive_buffer_errors_total"),
            ("Udp6InDatagrams", "v6/received_datagrams_total"),
            ("Udp6OutDatagrams", "v6/sent_datagrams_total"),
        ] {
            ours.between(&format!("udp/{topic}"), nstat(text, name)?, 0.0)?;
        }
        Ok(())
    });
}

#[test]
fn sockets_against_ss() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    compare("sockets", &["ss", "-s"], |text, ours| {
        let number_after = |word: &str| {
            let (_, rest) = text.split_once(word).ok_or_else(|| format!("no {word}"))?;
            let digits = rest.trim_start().split(|c: char| !c.is_ascii_digit()).next();
            digits.unwrap_or_default().parse::<f64>().map_err(|e| format!("{word}: {e}"))
        };
        // ss itself has a socket at that time.
        ours.between("sockets/used", number_after("Total:")?, 1.0)?;
        ours.between("sockets/tcp_orphaned", number_after("orphaned")?, 0.0)?;
        ours.between("sockets/tcp_time_wait", number_after("timewait")?, 0.0)
    });
    drop(listener);
}

#[test]
fn established_connections_are_counted() {
    let mut host = Host::live("tcp").expect("there is TCP");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let before = host.poll(1.0).snapshot();
    let connections: Vec<_> = (0..50)
        .map(|_| {
            let client = std::net::TcpStream::connect(address).expect("we listen");
            (client, listener.accept().expect("we connected"))
        })
        .collect();
    let after = host.poll(1.0).snapshot();
    let growth = |topic: &str| after[topic] - before[topic];
    assert!(growth("tcp/active_opens_total") >= 50.0);
    assert!(growth("tcp/passive_opens_total") >= 50.0);
    // Both ends are on this machine; other connections may have ended meanwhile.
    assert!(growth("tcp/established") >= 50.0);
    drop(connections);
}

#[test]
fn hwmon_against_sensors() {
    compare("hwmon", &["sensors", "-u"], |text, ours| {
        let inputs = text.lines().filter(|l| l.contains("temp") && l.contains("_input:")).count();
        let temperatures = ours.after.keys().filter(|t| t.ends_with("_celsius")).count();
        if inputs == temperatures { Ok(()) } else { Err(format!("ours {temperatures}")) }
    });
}

/// A control group of this test, with a child that uses processor time in it.
struct OwnGroup {
    folder: PathBuf,
    child: Child,
}

impl OwnGroup {
    fn start(hierarchy: &Path) -> std::io::Result<Self> {
        let folder = hierarchy.join(format!("skopos-test-{}", std::process::id()));
        fs::create_dir(&folder)?;
        let child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn()?;
        let group = Self { folder, child };
        fs::write(group.folder.join("cgroup.procs"), group.child.id().to_string())?;
        Ok(group)
    }
}

impl Drop for OwnGroup {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Returns the mount points of v2 and of v1's `cpuacct`.
fn cpu_hierarchies() -> Vec<(PathBuf, &'static str)> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("readable");
    let mounts = table.lines().filter_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let point = PathBuf::from(mount.split(' ').nth(4)?);
        match file_system.split(' ').next()? {
            "cgroup2" => Some((point, "cpu.stat")),
            "cgroup" if file_system.contains("cpuacct") => Some((point, "cpuacct.usage")),
            _ => None,
        }
    });
    mounts.collect()
}

#[test]
fn devices_against_lsblk() {
    let columns = "NAME,SIZE,LOG-SEC,PHY-SEC,ROTA,RO";
    compare("device", &["lsblk", "-b", "-d", "-n", "-r", "-o", columns], |text, ours| {
        let mut found = 0;
        for line in text.lines() {
            let (name, values) = line.split_once(' ').ok_or("no values")?;
            let values = numbers(values);
            // A device without a size has no facts.
            if values.len() < 5 || values[0] == 0.0 {
                continue;
            }
            let names = [
                "size_bytes",
                "logical_block_bytes",
                "physical_block_bytes",
                "rotational",
                "readonly",
            ];
            for (metric, value) in names.into_iter().zip(values) {
                ours.between(&format!("device/{name}/{metric}"), value, 0.0)?;
            }
            found += 1;
        }
        let known = ours.after.keys().filter(|topic| topic.ends_with("/size_bytes")).count();
        if known == found { Ok(()) } else { Err(format!("ours are {known} devices")) }
    });
}

#[test]
fn the_root_file_system_against_findmnt_and_stat() {
    let Some(found) = run(&["findmnt", "-n", "-r", "-o", "FSTYPE,MAJ:MIN", "/"]) else { return };
    let Some(block) = run(&["stat", "-f", "-c", "%S", "/"]) else { return };
    let (kind, number) = found.trim().split_once(' ').expect("two columns");
    let Ok(device) = fs::read_link(Path::new("/sys/dev/block").join(number)) else {
        return skipped(format!("no block device holds the {kind} at /"));
    };
    let device = device.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
    let mut host = match Host::live("fsinfo") {
        Ok(host) => host,
        Err(skips) => return skipped(skips),
    };
    let table = host.poll(1.0);
    assert_eq!(table.text(&format!("fsinfo/{device}/type")), Some(kind));
    let block: f64 = block.trim().parse().expect("a number");
    assert_eq!(table.value(&format!("fsinfo/{device}/block_bytes")), block);
    let whole = table.text(&format!("fsinfo/{device}/device")).expect("a device holds it");
    assert!(device.starts_with(whole), "{device} is {whole} or a partition of it");
}

#[test]
fn a_new_group_is_measured_until_it_is_removed() {
    let hierarchies = cpu_hierarchies();
    if hierarchies.is_empty() {
        return skipped("no cgroup hierarchy that knows CPU time");
    }
    for (hierarchy, file) in hierarchies {
        let mut host = Host::live("cgroup").expect("a hierarchy is mounted");
        let own = match OwnGroup::start(&hierarchy) {
            Ok(own) => own,
            Err(e) => {
                skipped(format!("making a group in {}: {e}", hierarchy.display()));
                continue;
            }
        };
        let name = own.folder.file_name().expect("a name").to_str().expect("ASCII");
        let topic = format!("cgroup/{name}/cpu_seconds_total");
        poll_until(&mut host, |table| table.get(&topic).is_some_and(|seconds| seconds > 0.05));
        let theirs = || {
            let text = fs::read_to_string(own.folder.join(file)).expect("readable");
            match file {
                "cpu.stat" => numbers(text.lines().next().expect("a line"))[0] / 1e6,
                _ => numbers(&text)[0] / 1e9,
            }
        };
        let before = theirs();
        // On a node with many groups a tick reads only some of them.
        let seen = host.table.value(&topic);
        poll_until(&mut host, |table| table.value(&topic) > seen.max(before));
        let (ours, after) = (host.table.value(&topic), theirs());
        assert!((before..=after).contains(&ours), "{before} {ours} {after}");
        drop(own);
        poll_until(&mut host, |table| table.get(&topic).is_none());
    }
}

/// Polls until `done`, for several times as many ticks as a full table of groups needs.
fn poll_until(host: &mut Host, done: impl Fn(&Table) -> bool) {
    for _ in 0..2000 {
        if done(host.poll(1.0)) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("not within 2000 polls: {:#?}", host.table.snapshot());
}

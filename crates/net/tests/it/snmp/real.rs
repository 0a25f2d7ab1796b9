//! Real agents: `snmpd` of the distribution, and recordings of switches that snmpsim plays.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use skopos_net::snmp::{DeviceSettings, Poller};

use super::{Facts, run, v2c, v3};
use crate::ports::free_port;

/// A child that ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns an address of the loopback with a free port.
fn free() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

fn first_of(candidates: Vec<PathBuf>, missing: &str) -> Option<PathBuf> {
    let found = candidates.into_iter().find(|path| path.exists());
    if found.is_none() {
        println!("skipped: {missing}; `scripts/setup test` installs it");
    }
    found
}

/// Polls until the device has answered `polls` times. The program may still be starting, so the first polls may fail.
fn polled(settings: DeviceSettings, polls: u64, faster: u32) -> (Facts, Poller) {
    let answers = format!("snmp_device/{}/answers", settings.name);
    let mut poller = Poller::new(&[settings]).expect("a poller");
    let mut facts = Facts::default();
    run(&mut poller, &mut facts, faster, |poller, facts| {
        facts.known.get(&answers) == Some(&1.0) && poller.counts().polls >= polls
    });
    (facts, poller)
}

const PASSPHRASES: (&str, &str) = ("a long passphrase", "another passphrase");

/// Starts `snmpd` with a community and users.
fn snmpd(folder: &Path) -> Option<(Program, SocketAddr)> {
    let places = ["/usr/sbin/snmpd", "/usr/local/sbin/snmpd"].map(PathBuf::from).to_vec();
    let program = first_of(places, "there is no snmpd here")?;
    let address = free();
    let config = folder.join("snmpd.conf");
    let (auth, privacy) = PASSPHRASES;
    let text = format!(
        "rocommunity public 127.0.0.1\nsysName a-switch\n\
         createUser one SHA \"{auth}\" AES \"{privacy}\"\nrouser one priv\n\
         createUser two SHA-256 \"{auth}\" AES \"{privacy}\"\nrouser two priv\n\
         createUser three SHA-256 \"{auth}\"\nrouser three auth\n"
    );
    std::fs::write(&config, text).expect("written");
    let child = Command::new(program)
        .args(["-f", "-Lo", "-C", "-c"])
        .arg(&config)
        .arg(format!("udp:{address}"))
        .env("SNMP_PERSISTENT_DIR", folder)
        .env("MIBS", "")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("snmpd was found");
    Some((Program(child), address))
}

fn check_loopback(facts: &Facts) {
    let known = |topic: &str| {
        *facts.known.get(topic).unwrap_or_else(|| panic!("{topic}: {:?}", facts.unknown.get(topic)))
    };
    let device =
        facts.structured.keys().find(|topic| topic.starts_with("snmp_device")).expect("one");
    assert!(facts.structured[device].contains("a-switch"), "{}", facts.structured[device]);
    let name = device.split('/').nth(1).expect("an instance");
    let interface = format!("snmp_interface/{name}:lo");
    assert_eq!(known(&format!("{interface}/up")), 1.0);
    assert!(known(&format!("{interface}/receive_bytes_total")) > 0.0);
    assert!(known(&format!("snmp_device/{name}/memory_bytes")) > 0.0);
    let memory =
        facts.known.iter().find(|(topic, value)| topic.ends_with("/memory") && **value == 1.0);
    assert!(memory.is_some(), "main memory");
}

#[test]
fn snmpd_is_polled_with_a_community_and_gives_rates() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((_program, address)) = snmpd(folder.path()) else { return };
    let mut settings = v2c("sw1", address, folder.path(), "public");
    settings.interval = Duration::from_secs(5);
    // With the clock of the agent: a faster one would make its uptime lag behind, as a restart does.
    let (facts, poller) = polled(settings, 2, 1);
    check_loopback(&facts);
    assert!(
        facts.known.contains_key("snmp_interface/sw1:lo/receive_bytes_per_second"),
        "{:?}",
        facts.unknown
    );
    assert_eq!(poller.counts().refused, 0);
    // The kernel's own numbers beside those of the agent: they only grow.
    let kernel: f64 = std::fs::read_to_string("/sys/class/net/lo/statistics/rx_bytes")
        .expect("the loopback")
        .trim()
        .parse()
        .expect("a number");
    assert!(facts.known["snmp_interface/sw1:lo/receive_bytes_total"] <= kernel);
}

#[test]
fn snmpd_is_polled_by_users_with_tags_and_ciphers() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((_program, address)) = snmpd(folder.path()) else { return };
    let (auth, privacy) = PASSPHRASES;
    for (user, digest, privacy) in [
        ("one", "sha1", Some(privacy)),
        ("two", "sha256", Some(privacy)),
        ("three", "sha256", None),
    ] {
        let settings = v3(address, folder.path(), user, digest, (auth, privacy));
        let (facts, _) = polled(settings, 1, 10);
        check_loopback(&facts);
    }
}

#[test]
fn a_wrong_passphrase_gets_no_facts() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((_program, address)) = snmpd(folder.path()) else { return };
    let (auth, privacy) = PASSPHRASES;
    // The right one works, so the agent has started.
    polled(v3(address, folder.path(), "two", "sha256", (auth, Some(privacy))), 1, 10);
    let wrong = v3(address, folder.path(), "two", "sha256", ("not the passphrase", Some(privacy)));
    let mut poller = Poller::new(&[wrong]).expect("a poller");
    let mut facts = Facts::default();
    run(&mut poller, &mut facts, 10, |poller, _| poller.counts().failed_polls > 0);
    assert_eq!(facts.known["snmp_device/sw3/answers"], 0.0);
    assert!(poller.counts().refused > 0);
    assert!(!facts.known.keys().any(|topic| topic.starts_with("snmp_interface")));
}

/// The recordings that are played, by their place in snmpsim-data.
const RECORDINGS: [&str; 3] = [
    "cloud/arista-dcs-7150s-52-cl.snmprec.bz2",
    "network/switch/cisco-n5000.snmprec.bz2",
    "network/switch/dlink-des3200.snmprec.bz2",
];

/// Plays recordings. The name of each is its community.
fn snmpsim(folder: &Path) -> Option<(Program, SocketAddr)> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || Some(Path::new(&std::env::var_os("HOME")?).join(".cache"));
    let root = cache.or_else(home)?.join("skopos/snmpsim");
    let program =
        first_of(vec![root.join("bin/snmpsim-command-responder")], "there is no snmpsim here")?;
    let script = "import sys, bz2, snmpsim_data, os\n\
                  root = os.path.join(snmpsim_data.__path__[0], 'data')\n\
                  for name in sys.argv[2:]:\n\
                  \x20   text = bz2.open(os.path.join(root, name)).read()\n\
                  \x20   open(os.path.join(sys.argv[1], os.path.basename(name)[:-4]), 'wb').write(text)\n";
    let data = folder.join("data");
    std::fs::create_dir(&data).expect("made");
    let unpacked = Command::new(root.join("bin/python"))
        .args(["-c", script])
        .arg(&data)
        .args(RECORDINGS)
        .output()
        .expect("Python was found");
    if !unpacked.status.success() {
        println!(
            "skipped: snmpsim-data is not there: {}",
            String::from_utf8_lossy(&unpacked.stderr)
        );
        return None;
    }
    let address = free();
    let mut command = Command::new(program);
    // Started by root, it wants a user; another one may not be allowed to read this Python.
    if rustix::process::geteuid().is_root() {
        command.args(["--process-user=root", "--process-group=root"]);
    }
    let child = command
        .arg(format!("--data-dir={}", data.display()))
        .arg(format!("--cache-dir={}", folder.join("cache").display()))
        .arg(format!("--agent-udpv4-endpoint={address}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("snmpsim was found");
    Some((Program(child), address))
}

#[test]
fn recordings_of_switches_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((_program, address)) = snmpsim(folder.path()) else { return };
    let play = |community: &str| {
        let mut settings = v2c("sw1", address, folder.path(), community);
        // The simulator takes seconds to index its recordings; a request before that is lost, and sent again.
        settings.timeout = Duration::from_secs(5);
        settings.interval = Duration::from_secs(600);
        polled(settings, 1, 1).0
    };
    let ending = |facts: &Facts, end: &str| {
        facts
            .known
            .iter()
            .filter(|(topic, _)| topic.ends_with(end))
            .map(|(_, value)| *value)
            .collect::<Vec<_>>()
    };
    let arista = play("arista-dcs-7150s-52-cl");
    assert!(
        ending(&arista, "/temperature_celsius")
            .iter()
            .any(|celsius| (10.0..90.0).contains(celsius))
    );
    assert!(ending(&arista, "/receive_bytes_total").len() > 40);
    let cisco = play("cisco-n5000");
    assert!(
        ending(&cisco, "/power_dbm").iter().any(|dbm| (-40.0..10.0).contains(dbm)),
        "optical levels"
    );
    assert!(ending(&cisco, "/voltage_volts").iter().any(|volts| (2.0..15.0).contains(volts)));
    let dlink = play("dlink-des3200");
    assert!(ending(&dlink, "/transmit_drops_total").len() > 20);
}

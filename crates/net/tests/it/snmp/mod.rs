//! The poller of devices: `hostile` has agents that misbehave, `real` has `snmpd` and recordings of switches.

mod hostile;
mod real;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use skopos_model::schema::{Family, Metric};
use skopos_model::{Scalar, Structured};
use skopos_net::collector::FactSink;
use skopos_net::snmp::{DeviceSettings, Poller, Stop};

/// A limit that only ends a hang.
const HANG: Duration = Duration::from_secs(60);

/// The facts, and the reasons of those that are unknown.
#[derive(Default)]
struct Facts {
    known: BTreeMap<String, f64>,
    structured: BTreeMap<String, String>,
    unknown: BTreeMap<String, String>,
}

fn topic(metric: &Metric, instance: &str) -> String {
    let between = if instance.is_empty() { "" } else { "/" };
    let topic = format!("{}{between}{instance}/{}", metric.path, metric.name);
    assert!(skopos_model::Topic::new(&format!("n01/{topic}")).is_ok(), "{topic}");
    topic
}

impl FactSink for Facts {
    fn set(&mut self, metric: &'static Metric, instance: &str, value: Scalar) {
        assert_eq!(value.value_type(), metric.value_type, "{}", metric.name);
        let topic = topic(metric, instance);
        self.unknown.remove(&topic);
        let number = match value {
            Scalar::F64(number) => number,
            Scalar::I64(number) => number as f64,
            Scalar::U64(number) => number as f64,
        };
        self.known.insert(topic, number);
    }

    fn set_structured(&mut self, metric: &'static Metric, instance: &str, value: &Structured) {
        self.structured.insert(topic(metric, instance), value.as_json().to_string());
    }

    fn set_unknown(&mut self, metric: &'static Metric, instance: &str, reason: &str) {
        self.unknown.insert(topic(metric, instance), reason.to_owned());
    }

    fn remove(&mut self, family: &'static Family, instance: &str) {
        let prefix = format!("{}/{instance}/", family.path);
        self.known.retain(|topic, _| !topic.starts_with(&prefix));
    }
}

/// Polls until `done`, with a clock that runs `faster` times.
fn run(
    poller: &mut Poller,
    facts: &mut Facts,
    faster: u32,
    mut done: impl FnMut(&Poller, &Facts) -> bool,
) {
    let stop = Stop::new().expect("a descriptor");
    let begin = Instant::now();
    while begin.elapsed() < HANG {
        let wait = poller.turn(begin.elapsed() * faster, facts).expect("a turn");
        if done(poller, facts) {
            return;
        }
        poller.wait(wait / faster, &stop).expect("waited");
    }
    panic!("not done: {:?} {:?} {:?}", poller.counts(), facts.structured, facts.known.len());
}

/// Writes a secret, and returns its file.
fn secret(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    std::fs::write(&file, text).expect("written");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&file, mode).expect("changed");
    file
}

/// Returns the settings of a device with version 2c.
fn v2c(name: &str, address: SocketAddr, folder: &Path, community: &str) -> DeviceSettings {
    let file = secret(folder, &format!("{name}.community"), community);
    let text = format!(
        "name = \"{name}\"\naddress = \"{address}\"\nversion = \"2c\"\ncommunity_file = {file:?}\n\
         interval = \"20s\"\n"
    );
    toml::from_str(&text).expect("settings")
}

/// Returns the settings of a device with version 3.
fn v3(
    address: SocketAddr,
    folder: &Path,
    user: &str,
    auth: &str,
    passphrases: (&str, Option<&str>),
) -> DeviceSettings {
    let auth_file = secret(folder, "auth", passphrases.0);
    let mut text = format!(
        "name = \"sw3\"\naddress = \"{address}\"\nversion = \"3\"\nuser = \"{user}\"\nauth = \"{auth}\"\n\
         auth_file = {auth_file:?}\ninterval = \"20s\"\n"
    );
    if let Some(passphrase) = passphrases.1 {
        let file = secret(folder, "privacy", passphrase);
        text += &format!("privacy = \"aes128\"\nprivacy_file = {file:?}\n");
    }
    toml::from_str(&text).expect("settings")
}

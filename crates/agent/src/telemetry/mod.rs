//! The agent's part in the telemetry of a network, as `[telemetry]` configures it: a data plane that writes telemetry into
//! packets, a collector of reports, probes with
//! traces, a sender and a receiver of anomaly reports, a poller of devices by SNMP.
//!
//! Each part is a sensor whose source is a library of `net`, so its facts, their ages and its failures are those of any
//! sensor. What must not wait for the next poll (datagrams, events of the data plane) is taken by a thread of the part.
//!
//! # Invariants
//! - A listener parses no byte of a datagram that admission refuses.
//! - Without `[telemetry]` there is no socket, no program and no thread.
//! - A part that this machine refuses is a skip with its reason, and the others work.
//!
//! Read in this order: `causes`, `worker` (the thread of a part), `facts` (the destination of facts), then a file for each part.

mod causes;
mod worker;
mod facts;
mod collector;
mod node;
mod ioam_node;
mod anomaly_report;
mod reports;
mod devices;

use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use skopos_net::anomaly::SiteKey;
use skopos_net::int::DOMAIN;
use skopos_net::{Key, MIN_KEY_BYTES};
use skopos_sense::{Sensor, Skip};
use skopos_term::Failure;

use crate::config::Config;
use crate::config::telemetry::read_key;

pub(crate) use reports::AnomalyReports;

/// The parts that were opened.
#[derive(Default)]
pub(crate) struct Parts {
    /// The sensors of the parts.
    pub(crate) sensors: Vec<Box<dyn Sensor>>,
    /// The parts that this machine refuses, by their families.
    pub(crate) skips: Vec<Skip>,
    /// The sender of anomaly reports.
    pub(crate) reports: Option<AnomalyReports>,
}

impl Parts {
    fn add<S: Sensor + 'static>(&mut self, part: Result<S, Skip>) {
        match part {
            Ok(sensor) => self.sensors.push(Box::new(sensor)),
            Err(skip) => self.skips.push(skip),
        }
    }
}

/// Opens the parts that are configured, of the node with this name.
///
/// # Errors
/// A bound is exceeded, or a key cannot be read.
pub(crate) fn open(node: &str, config: &Config) -> Result<Parts, Failure> {
    let in_file = |failure: Failure| failure.in_file(config.path.as_deref());
    let telemetry = &config.telemetry;
    telemetry.check().map_err(in_file)?;
    let key_file = telemetry.key_file.as_deref().map(|path| beside(config, path));
    let secret = key_file.as_deref().map(read_key).transpose()?;
    let key = key_file.as_deref().zip(secret.as_deref());
    let key =
        key.map(|(file, bytes)| Key::new(bytes).ok_or_else(|| too_short(file))).transpose()?;
    let site = secret.as_deref().map(SiteKey::new).transpose();
    let site = site.map_err(|e| Failure::new("[telemetry]").because(&e))?;
    let domain = telemetry.domain.map_or(DOMAIN, NonZeroU16::get);
    let mut parts = Parts::default();
    if let Some(collector) = &telemetry.collector {
        parts.add(collector::Telemetry::open(collector, domain, key.clone()));
    }
    if let (Some(ioam), Some(key)) = (&telemetry.ioam, &key) {
        parts.add(ioam_node::Probes::open(ioam, domain, key));
    }
    if let Some(own) = &telemetry.node {
        parts.add(node::DataPlane::open(own, domain, key));
    }
    if !telemetry.devices.is_empty() {
        let own = |file: &PathBuf| beside(config, file);
        let devices = telemetry.devices.iter().map(|device| device.with_files(own));
        parts.add(devices::Devices::open(&devices.collect::<Vec<_>>()));
    }
    let Some(anomalies) = &telemetry.anomalies else { return Ok(parts) };
    if let (Some(listen), Some(site)) = (anomalies.listen, &site) {
        parts.add(anomaly_report::Heard::open(listen, site.clone()));
    }
    if let Some(to) = anomalies.send_to {
        let secret = match (&anomalies.secret_file, &site) {
            (Some(path), _) => node_secret(&beside(config, path))?,
            (None, Some(site)) => site.node_secret(node),
            (None, None) => return Ok(parts),
        };
        match AnomalyReports::open(to, &secret, node, anomalies.interval) {
            Ok((reports, sensor)) => {
                parts.reports = Some(reports);
                parts.sensors.push(Box::new(sensor));
            }
            Err(skip) => parts.skips.push(skip),
        }
    }
    Ok(parts)
}

/// Returns a path of the configuration: relative ones are beside its file.
fn beside(config: &Config, path: &Path) -> PathBuf {
    config.path.as_deref().and_then(Path::parent).unwrap_or(Path::new("")).join(path)
}

fn too_short(file: &Path) -> Failure {
    Failure::new(format!("the key of the site in {} is too short", file.display()))
        .hint(format!("it needs at least {MIN_KEY_BYTES} bytes: head -c 32 /dev/urandom | base64"))
}

/// Reads the secret of a node: 64 hexadecimal digits.
fn node_secret(path: &Path) -> Result<[u8; 32], Failure> {
    let text = read_key(path)?;
    parse_secret(&text).ok_or_else(|| {
        Failure::new(format!("{} is not the secret of a node", path.display())).hint(
            "it has 64 hexadecimal digits; docs/reference/anomaly-report.md says how it is made",
        )
    })
}

fn parse_secret(text: &[u8]) -> Option<[u8; 32]> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() == 64 && text.is_ascii())?;
    let mut secret = [0; 32];
    for (at, byte) in secret.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_64_digits() {
        let good = "00ff".repeat(16);
        assert_eq!(parse_secret(good.as_bytes()).expect("good")[..3], [0, 255, 0]);
        for bad in ["", "00", &"0g".repeat(32), &"00".repeat(33), &"é".repeat(32)] {
            assert_eq!(parse_secret(bad.as_bytes()), None, "{bad}");
        }
    }

    /// `docs/howto/watch-the-network.md` makes the secret of a node with openssl; this one came from there.
    #[test]
    fn the_secret_of_a_node_is_that_of_the_documentation() {
        let site = SiteKey::new(b"0123456789abcdef").expect("long enough");
        let text = b"b8af88307b509d693cf83198e0c67676b111efd0eeb10aa52dee4566a13a624d";
        assert_eq!(parse_secret(text), Some(site.node_secret("n01")));
    }

    #[test]
    fn without_a_table_nothing_is_opened_and_a_bad_one_is_a_failure() {
        let parts = open("n01", &Config::default()).expect("nothing to open");
        assert!(parts.sensors.is_empty() && parts.skips.is_empty() && parts.reports.is_none());
        let of = |text: &str| {
            let config = toml::from_str::<Config>(text).expect("TOML");
            open("n01", &config).err().map_or_else(String::new, |e| e.in_one_line())
        };
        let text =
            "[telemetry]\nkey_file = '/nothere'\n[telemetry.collector]\nlisten = '127.0.0.1:0'";
        assert!(of(text).contains("cannot read the key /nothere"), "{}", of(text));
        let folder = tempfile::tempdir().expect("a folder");
        let short = folder.path().join("site.key");
        std::fs::write(&short, "short\n").expect("written");
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&short, permissions).expect("set");
        let why = of(&text.replace("/nothere", short.to_str().expect("UTF-8")));
        assert!(why.contains("site.key is too short"), "{why}");
        assert!(
            of("[telemetry.collector]\nlisten = '127.0.0.1:0'")
                .contains("neither sources nor a key")
        );
    }
}

//! Polls the devices of a file by SNMP, and prints their facts.
//!
//! ```text
//! snmp_poll FILE SECONDS
//! ```
//!
//! The file has `[[snmp]]` tables (docs/howto/watch-switches-with-snmp.md).

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;
use std::{env, fs, thread};

use serde::Deserialize;
use skopos_model::schema::{Family, Metric};
use skopos_model::{Scalar, Structured};
use skopos_net::collector::FactSink;
use skopos_net::snmp::{DeviceSettings, Stop, poll};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "snmp")]
    devices: Vec<DeviceSettings>,
}

/// The latest facts.
#[derive(Default)]
struct Facts(BTreeMap<String, String>);

impl Facts {
    fn put(&mut self, metric: &Metric, instance: &str, value: String) {
        self.0.insert(format!("{}/{instance}/{}", metric.path, metric.name), value);
    }
}

impl FactSink for Facts {
    fn set(&mut self, metric: &'static Metric, instance: &str, value: Scalar) {
        let number = match value {
            Scalar::F64(number) => number.to_string(),
            Scalar::I64(number) => number.to_string(),
            Scalar::U64(number) => number.to_string(),
        };
        self.put(metric, instance, format!("{number} {}", metric.unit));
    }

    fn set_structured(&mut self, metric: &'static Metric, instance: &str, value: &Structured) {
        self.put(metric, instance, value.as_json().to_string());
    }

    fn set_unknown(&mut self, metric: &'static Metric, instance: &str, reason: &str) {
        self.put(metric, instance, format!("unknown: {reason}"));
    }

    fn remove(&mut self, family: &'static Family, instance: &str) {
        let prefix = format!("{}/{instance}/", family.path);
        self.0.retain(|topic, _| !topic.starts_with(&prefix));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [file, seconds] = &words[..] else { return Err("usage: snmp_poll FILE SECONDS".into()) };
    let file: File = toml::from_str(&fs::read_to_string(file)?)?;
    let seconds = seconds.parse()?;
    let stop = Stop::new()?;
    let timer = stop.clone();
    thread::spawn(move || {
        thread::sleep(Duration::from_secs(seconds));
        timer.stop();
    });
    let mut facts = Facts::default();
    poll(&file.devices, &mut facts, &stop)?;
    for (topic, value) in &facts.0 {
        println!("{topic:60} {value}");
    }
    Ok(())
}

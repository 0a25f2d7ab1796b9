//! Devices that are polled by SNMP: the families `snmp_device`, `snmp_interface`, `snmp_storage`, `snmp_processor`,
//! `snmp_sensor` and `snmp_poller`. A thread polls; the sensor publishes the facts of polls that ended since its last poll.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use skopos_model::schema::{Family, Metric, snmp_poller};
use skopos_model::{Scalar, Structured};
use skopos_net::Error;
use skopos_net::collector::FactSink;
use skopos_net::snmp::{DeviceSettings, Poller, Stop};
use skopos_sense::{Sensor, Skip, Tick};

use super::causes::with_causes;
use super::facts::FactTable;

/// The devices as a sensor.
pub(super) struct Devices {
    shared: Arc<Mutex<Shared>>,
    facts: FactTable,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

/// The work of the thread that is not published yet.
#[derive(Default)]
struct Shared {
    latest: Latest,
    /// The reason why the thread ended.
    failure: Option<String>,
}

/// The latest facts. A fact that is set twice before it is published has its last value, so the number of facts is at most
/// that of the devices' rows.
#[derive(Default)]
struct Latest {
    values: HashMap<Instance, HashMap<&'static str, (&'static Metric, Value)>>,
    removed: HashSet<Instance>,
    families: HashMap<&'static str, &'static Family>,
}

/// The path of a family, and an instance of it.
type Instance = (&'static str, Box<str>);

enum Value {
    Number(Scalar),
    Record(Structured),
}

impl Devices {
    /// Starts to poll the devices. One whose secret cannot be read has no values, and the reason is in its fact `about`.
    ///
    /// # Errors
    /// An entry is wrong, or there are no descriptors or threads left.
    pub(super) fn open(settings: &[DeviceSettings]) -> Result<Self, Skip> {
        let skip = |e: &Error| Skip::new(snmp_poller::FAMILY.name, with_causes(e));
        let poller = Poller::new(settings).map_err(|e| skip(&e))?;
        let stop = Stop::new().map_err(|e| skip(&e))?;
        let shared = Arc::new(Mutex::new(Shared::default()));
        let (own, stopped) = (Arc::clone(&shared), stop.clone());
        let work = move || serve(poller, &own, &stopped);
        let builder = thread::Builder::new().name("skopos-snmp".into());
        let thread = builder.spawn(work).map_err(|e| {
            Skip::new(snmp_poller::FAMILY.name, format!("its thread cannot start: {e}"))
        })?;
        Ok(Self { shared, facts: FactTable::default(), stop, thread: Some(thread) })
    }
}

/// Polls devices until it is stopped.
fn serve(mut poller: Poller, shared: &Mutex<Shared>, stop: &Stop) {
    let begun = Instant::now();
    let mut fresh = Latest::default();
    let ended = loop {
        let wait = match poller.turn(begun.elapsed(), &mut fresh) {
            Ok(wait) => wait,
            Err(e) => break Err(e),
        };
        let Ok(mut shared) = shared.lock() else { return };
        shared.latest.take(&mut fresh);
        drop(shared);
        match poller.wait(wait, stop) {
            Ok(true) => break Ok(()),
            Ok(false) => {}
            Err(e) => break Err(e),
        }
    };
    if let (Err(e), Ok(mut shared)) = (ended, shared.lock()) {
        shared.failure = Some(with_causes(&e));
    }
}

impl Latest {
    /// Takes what `newer` has, which is empty afterwards.
    fn take(&mut self, newer: &mut Self) {
        for gone in newer.removed.drain() {
            self.values.remove(&gone);
            self.removed.insert(gone);
        }
        self.families.extend(newer.families.drain());
        for (instance, values) in newer.values.drain() {
            self.values.entry(instance).or_default().extend(values);
        }
    }

    /// Hands all over to `sink`, and is empty afterwards.
    fn publish(&mut self, sink: &mut dyn FactSink) {
        for (path, instance) in self.removed.drain() {
            if let Some(family) = self.families.get(path) {
                sink.remove(family, &instance);
            }
        }
        for ((_, instance), values) in self.values.drain() {
            for (metric, value) in values.into_values() {
                match value {
                    Value::Number(number) => sink.set(metric, &instance, number),
                    Value::Record(record) => sink.set_structured(metric, &instance, &record),
                }
            }
        }
    }

    fn put(&mut self, metric: &'static Metric, instance: &str, value: Value) {
        let values = self.values.entry((metric.path, instance.into())).or_default();
        values.insert(metric.name, (metric, value));
    }
}

impl FactSink for Latest {
    fn set(&mut self, metric: &'static Metric, instance: &str, value: Scalar) {
        self.put(metric, instance, Value::Number(value));
    }

    fn set_structured(&mut self, metric: &'static Metric, instance: &str, value: &Structured) {
        self.put(metric, instance, Value::Record(value.clone()));
    }

    fn remove(&mut self, family: &'static Family, instance: &str) {
        let key = (family.path, Box::from(instance));
        self.values.remove(&key);
        self.families.insert(family.path, family);
        self.removed.insert(key);
    }
}

impl Sensor for Devices {
    fn family(&self) -> &'static Family {
        &snmp_poller::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let ended = || io::Error::other("its thread ended");
        let mut shared = self.shared.lock().map_err(|_| ended())?;
        let (mut latest, failure) = (std::mem::take(&mut shared.latest), shared.failure.clone());
        // The thread polls on while the facts are published.
        drop(shared);
        let mut sink = self.facts.at(tick.sink);
        latest.publish(&mut sink);
        let left_out = sink.left_out();
        sink.set(&snmp_poller::LEFT_OUT, "", left_out.into());
        match failure {
            Some(failure) => Err(io::Error::other(failure)),
            None if self.thread.as_ref().is_none_or(JoinHandle::is_finished) => Err(ended()),
            None => Ok(()),
        }
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::telemetry::facts::tests::Recorded;

    #[test]
    fn a_device_that_does_not_answer_is_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let community = folder.path().join("community");
        std::fs::write(&community, "public\n").expect("written");
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&community, permissions).expect("set");
        let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = silent.local_addr().expect("bound");
        let settings: DeviceSettings = toml::from_str(&format!(
            "name = 'sw1'\naddress = '{address}'\nversion = '2c'\ncommunity_file = '{}'\ntimeout = '50ms'",
            community.display()
        ))
        .expect("TOML");
        let mut sensor = Devices::open(&[settings]).expect("it starts");
        let mut facts = Recorded::default();
        facts.poll_until(&mut sensor, |facts| {
            facts.get("snmp_poller/timeouts_total").is_some_and(|count| count > 0)
        });
        assert_eq!(facts.get("snmp_poller/left_out"), Some(0));
        drop(sensor);
    }

    #[test]
    fn a_fact_that_was_removed_and_came_back_is_published_anew() {
        use skopos_model::schema::snmp_interface::{FAMILY, UP};
        let (mut table, mut sink, mut latest) =
            (FactTable::default(), Recorded::default(), Latest::default());
        latest.set(&UP, "sw1:a", 1_u64.into());
        latest.set(&UP, "sw1:b", 1_u64.into());
        latest.publish(&mut table.at(&mut sink));
        let mut newer = Latest::default();
        newer.remove(&FAMILY, "sw1:a");
        newer.remove(&FAMILY, "sw1:b");
        newer.set(&UP, "sw1:b", 0_u64.into());
        latest.take(&mut newer);
        latest.publish(&mut table.at(&mut sink));
        assert_eq!(sink.get("snmp_interface/sw1:a/up"), None);
        assert_eq!(sink.get("snmp_interface/sw1:b/up"), Some(0));
    }

    #[test]
    fn a_device_without_its_secret_is_polled_in_vain_and_counted() {
        let text =
            "name = 'sw1'\naddress = '127.0.0.1'\nversion = '2c'\ncommunity_file = '/nothere'";
        let mut sensor = Devices::open(&[toml::from_str(text).expect("TOML")]).expect("it starts");
        let mut facts = Recorded::default();
        facts.poll_until(&mut sensor, |facts| {
            facts.get("snmp_poller/failed_polls_total") == Some(1)
        });
        assert_eq!(facts.get("snmp_device/sw1/answers"), Some(0));
        assert_eq!(facts.get("snmp_poller/requests_total"), Some(0));
    }
}

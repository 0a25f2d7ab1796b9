//! The collector of telemetry reports: the families `path`, `port`, `int_node` and `telemetry`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use skopos_model::schema::{Family, telemetry};
use skopos_net::Key;
use skopos_net::collector::{Collector, CollectorCounts, CollectorSettings, FactSink as _};
use skopos_sense::{Sensor, Skip, Tick};

use super::causes::with_causes;
use super::facts::FactTable;
use super::worker::{Work, Worker};
use crate::config::telemetry::{CollectorConfig, Network};

/// The networks of all addresses, for a collector whose key decides alone.
const ALL: [Network; 2] =
    [Network(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0), Network(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0)];

/// The collector as a sensor.
pub(super) struct Telemetry {
    state: Arc<Mutex<State>>,
    facts: FactTable,
    /// Stops before the state goes.
    _worker: Worker,
}

/// The collector, and the reason why its thread could not receive.
struct State {
    collector: Collector,
    failure: Option<String>,
}

impl Telemetry {
    /// Listens, and starts the thread that receives.
    ///
    /// # Errors
    /// The address is in use or is not of this machine.
    pub(super) fn open(
        config: &CollectorConfig,
        domain: u16,
        key: Option<Key>,
    ) -> Result<Self, Skip> {
        let skip = |reason: String| Skip::new(telemetry::FAMILY.name, reason);
        let networks = if config.sources.is_empty() { &ALL[..] } else { &config.sources };
        let sources = networks.iter().map(|Network(address, bits)| (*address, *bits)).collect();
        let mut settings = CollectorSettings { key, domain, ..CollectorSettings::new(sources) };
        settings.datagrams_per_second =
            config.datagrams_per_second.unwrap_or(settings.datagrams_per_second);
        settings.int_port = config.int_port.unwrap_or(settings.int_port);
        let collector =
            Collector::new(config.listen, settings).map_err(|e| skip(with_causes(&e)))?;
        let state = Arc::new(Mutex::new(State { collector, failure: None }));
        let own = Arc::clone(&state);
        let work = move || own.lock().map_or(Work::Failed, |mut state| state.receive());
        let worker = match state.lock() {
            Ok(state) => Worker::serve(&state.collector, work),
            Err(_) => Err(io::Error::other("the collector is broken")),
        };
        let worker = worker.map_err(|e| skip(format!("it cannot receive: {e}")))?;
        Ok(Self { state, facts: FactTable::default(), _worker: worker })
    }
}

impl State {
    /// Takes the datagrams that wait.
    fn receive(&mut self) -> Work {
        let before = self.collector.counts();
        let now = Duration::from_nanos(skopos_shm::boottime());
        match self.collector.receive(now) {
            Ok(count) => {
                let refused = refused(&self.collector.counts()) - refused(&before);
                if refused * 2 > count as u64 { Work::Refused } else { Work::Useful }
            }
            Err(e) => {
                self.failure = Some(with_causes(&e));
                Work::Failed
            }
        }
    }
}

/// Returns the number of datagrams that were refused, or of no use.
fn refused(counts: &CollectorCounts) -> u64 {
    counts.refused_sources
        + counts.over_quota
        + counts.bad_tags
        + counts.replays
        + counts.malformed
        + counts.foreign_domains
}

impl Sensor for Telemetry {
    fn family(&self) -> &'static Family {
        &telemetry::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let mut state = self.state.lock().map_err(|_| io::Error::other("its thread panicked"))?;
        let mut sink = self.facts.at(tick.sink);
        state.collector.publish(&mut sink);
        let left_out = sink.left_out();
        sink.set(&telemetry::LEFT_OUT, "", left_out.into());
        state.failure.take().map_or(Ok(()), |failure| Err(io::Error::other(failure)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};

    use skopos_net::int::{
        DOMAIN, Field, Group, Hop, Inner, Instructions, Report, write_group, write_report,
    };

    use super::*;
    use crate::telemetry::facts::tests::Recorded;

    /// A report of node 7, whose port 3 holds a megabyte.
    fn datagram(sequence: u32) -> Vec<u8> {
        let hop = Hop {
            ingress_port: Some(1),
            egress_port: Some(3),
            queue: Some(0),
            queue_bytes: Some(1_000_000),
            ..Hop::default()
        };
        let (dropped, congested, tracked, intermediate) = (false, false, true, true);
        let inner = Inner::None;
        let domain = 0;
        let report = Report { dropped, congested, tracked, intermediate, domain, hop, inner };
        let mut datagram = Vec::new();
        write_group(&Group { hardware: 0, sequence, node: 7 }, &mut datagram);
        write_report(&report, Instructions::of(&[Field::Ports, Field::Queue]), &mut datagram);
        datagram
    }

    /// Opens a collector at a free port, and returns it with its address.
    fn listening(key: &Key) -> (Telemetry, SocketAddr) {
        let config = toml::from_str("listen = '127.0.0.1:0'").expect("TOML");
        let sensor = Telemetry::open(&config, DOMAIN, Some(key.clone())).expect("it listens");
        let listen = sensor.state.lock().expect("it lives").collector.address().expect("bound");
        (sensor, listen)
    }

    #[test]
    fn reports_with_a_tag_become_facts_and_others_are_counted() {
        let key = Key::new(b"a key of the site").expect("long enough");
        let (mut sensor, listen) = listening(&key);
        let config = toml::from_str(&format!("listen = '{listen}'")).expect("TOML");
        let again =
            Telemetry::open(&config, DOMAIN, Some(key.clone())).err().expect("it is in use");
        assert!(again.reason.contains(&listen.to_string()), "{again:?}");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        for sequence in 0..3 {
            let mut tagged = datagram(sequence);
            key.append(&mut tagged);
            socket.send_to(&tagged, listen).expect("sent");
            socket.send_to(&datagram(sequence), listen).expect("sent");
        }
        let mut facts = Recorded::default();
        facts.poll_until(&mut sensor, |facts| facts.get("telemetry/datagrams_total") == Some(6));
        assert_eq!(facts.get("telemetry/bad_tags_total"), Some(3));
        assert_eq!(facts.get("telemetry/left_out"), Some(0));
        assert_eq!(facts.get("int_node/7/reports_total"), Some(3));
        assert_eq!(facts.get("port/7-3/queue_bytes"), Some(1_000_000));
    }

    #[test]
    fn a_flood_of_forged_datagrams_rests_the_thread() {
        // The kernel drops what comes from other addresses; a tag is for the thread to check.
        let key = Key::new(b"a key of the site").expect("long enough");
        let (sensor, listen) = listening(&key);
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        // The lock keeps the thread from taking the datagrams first.
        let mut state = sensor.state.lock().expect("it lives");
        for _ in 0..10 {
            socket.send_to(&datagram(1), listen).expect("sent");
        }
        assert_eq!(state.receive(), Work::Refused);
        assert_eq!(state.receive(), Work::Useful, "nothing came, nothing was refused");
    }
}

//! The data plane of this node: the programs at its interfaces, and the reports of its sink. The family `self_int`.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use skopos_model::schema::{Family, Metric, self_int};
use skopos_net::Key;
use skopos_net::collector::FactSink as _;
use skopos_net::netns::Namespace;
use skopos_net::plane::{
    self, Direction, Plane, PlaneSettings, Port, Reporter, ReporterCounts, Watch,
};
use skopos_sense::{Sensor, Skip, Tick};

use super::causes::with_causes;
use super::facts::FactTable;
use super::worker::{Work, Worker};
use crate::config::telemetry::{InterfaceConfig, Mode, Network, NodeConfig, WatchConfig, Way};

/// Time between two looks at the events of a node that reports. Its buffer of a mebibyte has room for the packets of this
/// time at 80,000 a second.
const REPORT_EVERY: Duration = Duration::from_millis(20);

/// Time between two settings of the clock of a node that does not report.
const CLOCK_EVERY: Duration = Duration::from_secs(1);

/// The data plane as a sensor.
pub(super) struct DataPlane {
    state: Arc<Mutex<State>>,
    facts: FactTable,
    /// Stops before the state goes.
    _worker: Worker,
}

struct State {
    plane: Plane,
    reporter: Option<Reporter>,
    failure: Option<String>,
}

impl DataPlane {
    /// Loads the programs, and starts the thread that reports.
    ///
    /// # Errors
    /// The kernel refuses the programs, or an interface does not exist.
    pub(super) fn open(config: &NodeConfig, domain: u16, key: Option<Key>) -> Result<Self, Skip> {
        let skip = |reason: String| Skip::new(self_int::FAMILY.name, reason);
        let refused = |e: skopos_net::Error| skip(refused(&e));
        let here = Namespace::current().map_err(refused)?;
        let plane = Plane::open(&here, settings(config, domain)).map_err(refused)?;
        let open = |collector| Reporter::open(&here, (config.id, domain), collector, key);
        let reporter = config.collector.map(open).transpose();
        let reporter = reporter.map_err(|e| skip(with_causes(&e)))?;
        let every = if reporter.is_some() { REPORT_EVERY } else { CLOCK_EVERY };
        let state = Arc::new(Mutex::new(State { plane, reporter, failure: None }));
        let own = Arc::clone(&state);
        let work = move || own.lock().map_or(Work::Failed, |mut state| state.report());
        let worker = Worker::each(every, work).map_err(|e| skip(format!("no thread: {e}")))?;
        Ok(Self { state, facts: FactTable::default(), _worker: worker })
    }
}

/// Returns the reason for which packets get no telemetry. Rights help against a refusal of the system, and not against
/// settings that are wrong.
fn refused(e: &skopos_net::Error) -> String {
    let needs = match e {
        skopos_net::Error::System { .. } => {
            "; it needs Linux 6.6 and root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
        }
        _ => "",
    };
    format!("packets get no telemetry: {}{needs}", with_causes(e))
}

impl State {
    /// Sends the events that wait, and tells the programs the time of the day.
    fn report(&mut self) -> Work {
        let Self { plane, reporter, failure } = self;
        let done = match reporter {
            Some(reporter) => reporter.poll(plane).map(drop),
            None => plane.set_clock(),
        };
        match done {
            Ok(()) => Work::Useful,
            Err(e) => {
                *failure = Some(with_causes(&e));
                Work::Failed
            }
        }
    }
}

impl Sensor for DataPlane {
    fn family(&self) -> &'static Family {
        &self_int::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let mut state = self.state.lock().map_err(|_| io::Error::other("its thread panicked"))?;
        let counts = state.plane.counts().map_err(|e| io::Error::other(with_causes(&e)))?;
        let reporter = state.reporter.as_ref().map_or(ReporterCounts::default(), Reporter::counts);
        let mut sink = self.facts.at(tick.sink);
        let all: [(&'static Metric, u64); 12] = [
            (&self_int::SOURCED_TOTAL, counts.sourced),
            (&self_int::TRANSITED_TOTAL, counts.transited),
            (&self_int::SUNK_TOTAL, counts.sunk),
            (&self_int::MTU_EXCEEDED_TOTAL, counts.mtu_exceeded),
            (&self_int::HOPS_EXCEEDED_TOTAL, counts.hops_exceeded),
            (&self_int::SEGMENTS_TOTAL, counts.segments),
            (&self_int::MALFORMED_TOTAL, counts.malformed),
            (&self_int::REFUSED_TOTAL, counts.refused),
            (&self_int::DISCARDED_TOTAL, counts.discarded),
            (&self_int::EVENTS_LOST_TOTAL, counts.events_lost),
            (&self_int::REPORTS_TOTAL, reporter.reports),
            (&self_int::DATAGRAMS_FAILED_TOTAL, reporter.failed),
        ];
        for (metric, value) in all {
            sink.set(metric, "", value.into());
        }
        state.failure.take().map_or(Ok(()), |failure| Err(io::Error::other(failure)))
    }
}

/// Returns the settings of the data plane.
fn settings(config: &NodeConfig, domain: u16) -> PlaneSettings {
    let defaults = PlaneSettings::new(config.id);
    PlaneSettings {
        int_port: config.int_port.unwrap_or(defaults.int_port),
        domain,
        hops: config.hops.unwrap_or(defaults.hops),
        mode: match config.mode {
            Mode::Md => plane::Mode::EmbedData,
            Mode::Mx => plane::Mode::EmbedInstructions,
            Mode::Xd => plane::Mode::Export,
        },
        watches: config.watch.iter().map(watch).collect(),
        ports: config.interfaces.iter().map(port).collect(),
        ..defaults
    }
}

fn watch(config: &WatchConfig) -> Watch {
    let network = |network: Option<Network>| network.map(|Network(address, bits)| (address, bits));
    Watch {
        protocol: config.protocol.map(|protocol| protocol.number()),
        source: network(config.source),
        destination: network(config.destination),
        source_port: config.source_port,
        destination_port: config.destination_port,
    }
}

fn port(config: &InterfaceConfig) -> Port {
    let direction = |way: Way| match way {
        Way::Ingress => Direction::Ingress,
        Way::Egress => Direction::Egress,
    };
    Port {
        interface: config.name.clone(),
        id: config.port,
        // Checked: at most ten million.
        rate_bytes_per_second: config.rate_mbit.map(|rate| (rate * 125_000.0) as u64),
        source: config.source.map(direction),
        transit: config.transit,
        sink: config.sink.map(direction),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_a_hint_to_a_refusal_of_the_system_alone() {
        let why = "there is no interface `eth9`".to_owned();
        let missing = skopos_net::Error::Malformed { what: "the settings", why };
        let missing = refused(&missing);
        assert!(missing.ends_with("the settings: there is no interface `eth9`"), "{missing}");
        let source = io::Error::from(io::ErrorKind::PermissionDenied);
        let denied = skopos_net::Error::System { doing: "load".to_owned(), source };
        assert!(refused(&denied).contains("it needs Linux 6.6 and root"));
    }
}

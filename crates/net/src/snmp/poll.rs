//! One poll of a device: the requests in their order, and the snapshot that their responses give. It has no socket and no
//! clock.

use std::time::Duration;

use super::counter::Uptime;
use super::host::{self, Processor, Storage};
use super::interfaces::{self, History, Interface};
use super::oid::Oid;
use super::pdu::{Request, Response};
use super::sensors::{self, Sensor};
use super::unknown::{Reading, Unknown};
use super::value::Value;
use super::walk::{self, Walk};

const SYS_UPTIME: &[u32] = &[1, 3, 6, 1, 2, 1, 1, 3, 0];
const SYS_NAME: &[u32] = &[1, 3, 6, 1, 2, 1, 1, 5, 0];
const MEMORY_SIZE: &[u32] = &[1, 3, 6, 1, 2, 1, 25, 2, 2, 0];

/// The places of the walks. The stage before them reads the system.
const INTERFACES: usize = 0;
const NARROW: usize = 1;
const STORAGE: usize = 2;
const PROCESSORS: usize = 3;
const SENSORS: usize = 4;
const CISCO: usize = 5;
const NAMES: usize = 6;

/// The names of the walks for people.
const TABLES: [&str; 7] =
    ["interfaces", "interfaces", "storage", "processors", "sensors", "sensors", "names of sensors"];

/// The state of a device, as one poll found it.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The name of the device in the configuration.
    pub device: String,
    /// The name that the device has for itself (`sysName`).
    pub name: Reading<String>,
    /// Seconds since the start of its agent, modulo 497 days.
    pub up_seconds: Reading<f64>,
    /// The size of its memory.
    pub memory_bytes: Reading<u64>,
    /// True if it restarted since the last poll.
    pub began_anew: bool,
    /// Its interfaces.
    pub interfaces: Vec<Interface>,
    /// Its memories and file systems.
    pub storages: Vec<Storage>,
    /// Its processors.
    pub processors: Vec<Processor>,
    /// Its sensors.
    pub sensors: Vec<Sensor>,
    /// Tables that were not read to their ends, with the reasons.
    pub faults: Vec<(&'static str, Unknown)>,
}

/// The memory of a device from poll to poll.
#[derive(Debug, Default)]
pub(super) struct Memory {
    interfaces: History,
    uptime: Option<Uptime>,
}

/// A poll that runs.
#[derive(Debug)]
pub(super) struct Poll {
    system: Option<(Response, Duration)>,
    failed: Option<Unknown>,
    walks: [Walk; 7],
    stage: usize,
    /// True if the walk of the stage is wanted and has begun.
    has_begun: bool,
}

impl Poll {
    /// Begins a poll.
    pub(super) fn new() -> Self {
        let walks = [
            Walk::new(&interfaces::COLUMNS),
            Walk::new(&interfaces::NARROW_COLUMNS),
            Walk::new(&host::STORAGE_COLUMNS),
            Walk::new(&host::PROCESSOR_COLUMNS),
            Walk::new(&sensors::COLUMNS),
            Walk::new(&sensors::CISCO_COLUMNS),
            Walk::new(&sensors::NAME_COLUMNS),
        ];
        Self { system: None, failed: None, walks, stage: INTERFACES, has_begun: false }
    }

    /// Returns the next request; `None` at the end.
    pub(super) fn request(&mut self) -> Option<Request> {
        if self.failed.is_some() {
            return None;
        }
        if self.system.is_none() {
            let oids = [SYS_UPTIME, SYS_NAME, MEMORY_SIZE].map(Oid::from).to_vec();
            return Some(Request { oids, repetitions: None });
        }
        while self.stage < self.walks.len() {
            // Once for each walk: it looks at all rows of another one, of which there may be thousands.
            self.has_begun = self.has_begun || self.is_wanted();
            if self.has_begun
                && let Some(request) = self.walks[self.stage].request()
            {
                return Some(request);
            }
            self.stage += 1;
            self.has_begun = false;
        }
        None
    }

    /// False for walks whose rows other walks made needless.
    fn is_wanted(&self) -> bool {
        let has_rows = |walk: usize| self.walks[walk].has_rows();
        match self.stage {
            NARROW => interfaces::needs_narrow(&self.walks[INTERFACES]),
            CISCO => !has_rows(SENSORS),
            NAMES => has_rows(SENSORS) || has_rows(CISCO),
            _ => true,
        }
    }

    /// Takes the response to the last request.
    pub(super) fn take(&mut self, response: Response, at: Duration) {
        if self.system.is_none() {
            self.system = Some((response, at));
        } else if let Some(walk) = self.walks.get_mut(self.stage) {
            walk.take(response, at);
        }
    }

    /// Ends the poll; what is not read yet is unknown for this reason.
    pub(super) fn fail(&mut self, why: Unknown) {
        self.failed = Some(why);
        for walk in &mut self.walks[self.stage.min(NAMES)..] {
            walk.fail(why);
        }
    }

    /// Returns true if the device answered a request.
    pub(super) fn is_answered(&self) -> bool {
        self.system.is_some()
    }

    /// Returns the reason for which the poll was ended before its end.
    pub(super) fn failed(&self) -> Option<Unknown> {
        self.failed
    }

    /// Makes the snapshot; `None` if the device answered nothing.
    pub(super) fn finish(
        &self,
        device: &str,
        boots: Option<u32>,
        memory: &mut Memory,
    ) -> Option<Snapshot> {
        let (system, at) = self.system.as_ref()?;
        let value = |oid: &[u32]| -> Reading<&Value> {
            let found = system.bindings.iter().find(|(name, _)| name.parts() == oid);
            found
                .map(|(_, value)| value)
                .filter(|value| value.is_there())
                .ok_or(Unknown::NotOffered)
        };
        let ticks = value(SYS_UPTIME).and_then(|value| match value {
            Value::Ticks(ticks) => Ok(*ticks),
            _ => Err(Unknown::WrongType),
        });
        let uptime = ticks.ok().map(|ticks| Uptime::new(ticks, *at, boots));
        let began_anew = match (&memory.uptime, &uptime) {
            (Some(before), Some(now)) => before.began_anew(now),
            _ => false,
        };
        memory.uptime = uptime.or(memory.uptime);
        let kilobytes =
            value(MEMORY_SIZE).and_then(|value| value.unsigned().ok_or(Unknown::WrongType));
        let walks = &self.walks;
        let sensors = if walks[SENSORS].has_rows() { SENSORS } else { CISCO };
        let faults =
            walks.iter().zip(TABLES).filter_map(|(walk, name)| Some((name, walk.fault()?)));
        Some(Snapshot {
            device: device.to_owned(),
            name: value(SYS_NAME).and_then(walk::text),
            up_seconds: ticks.map(|ticks| f64::from(ticks) / 100.0),
            memory_bytes: kilobytes.map(|kilobytes| kilobytes.saturating_mul(1024)),
            began_anew,
            interfaces: memory.interfaces.interfaces(
                &walks[INTERFACES],
                &walks[NARROW],
                began_anew,
            ),
            storages: host::storages(&walks[STORAGE]),
            processors: host::processors(&walks[PROCESSORS]),
            sensors: sensors::sensors(&walks[sensors], &walks[NAMES]),
            faults: faults.collect(),
        })
    }
}

//! The view of an engine: facts and insights of an agent, read from its segment.

use std::path::Path;
use std::time::{Duration, Instant};

use skopos_model::schema::{Metric, block, device, insight};
use skopos_shm::{Host, Vertex};
use skopos_steer::place::{Aged, Telemetry};
use skopos_steer::tiers::{TierSpec, View};

use super::names::{NODE, POLL, RATES};
use crate::outcome::Outcome;

/// The vertices of the tiers of an engine.
pub(super) struct Live(Vec<Vertices>);

/// The vertices of a tier. A machine need not have all of them: a loop device has no health.
struct Vertices {
    remaining: Option<Vertex>,
    read: Option<Vertex>,
    write: Option<Vertex>,
    access: Option<Vertex>,
    /// Rates of all programs: insights of the benchmark's own, because loop devices have no built-in ones.
    moved: [Option<Vertex>; 2],
    busy: Option<Vertex>,
    /// The speed of memory, which Skopos does not measure: it is declared.
    declared: Option<f64>,
}

impl Live {
    /// Finds the vertices in the segments of a folder; `devices` has the device of each tier, if it is one.
    ///
    /// # Errors
    /// The load, the speed or the capacity of a tier is not known within `patience`.
    pub(super) fn open(
        dir: &Path,
        tiers: &[TierSpec],
        devices: &[Option<String>],
        memory_speed: f64,
        patience: Duration,
    ) -> Outcome<Self> {
        let begun = Instant::now();
        loop {
            let host = Host::open_dirs(vec![dir.to_owned()])?;
            let both = tiers.iter().zip(devices);
            let found: Vec<Vertices> = both
                .map(|(tier, device)| {
                    Vertices::find(&host, &tier.name, device.as_deref(), memory_speed)
                })
                .collect();
            let live = Self(found);
            let Some(missing) = live.missing() else { return Ok(live) };
            if begun.elapsed() > patience {
                return Err(format!(
                    "{}: {missing} is not known",
                    tiers[live.first_unknown()].name
                )
                .into());
            }
            std::thread::sleep(POLL);
        }
    }

    fn first_unknown(&self) -> usize {
        self.0.iter().position(|tier| tier.missing().is_some()).unwrap_or(0)
    }

    fn missing(&self) -> Option<&'static str> {
        self.0.iter().find_map(Vertices::missing)
    }
}

impl Vertices {
    fn find(host: &Host, tier: &str, of: Option<&str>, memory_speed: f64) -> Self {
        let find = |metric: &Metric, instance: &str| {
            metric.topic(NODE, instance).ok().and_then(|topic| host.find(&topic).ok())
        };
        let of_device = |metric| of.and_then(|name| find(metric, name));
        Self {
            remaining: find(&insight::TIER_REMAINING_CAPACITY_BYTES, tier),
            read: of_device(&device::MAX_READ_BYTES_PER_SECOND),
            write: of_device(&device::MAX_WRITE_BYTES_PER_SECOND),
            access: of_device(&device::IDLE_READ_LATENCY_SECONDS),
            moved: RATES.map(|(metric, _)| {
                let topic = format!("{NODE}/insight/{tier}/{metric}")
                    .parse::<skopos_model::Topic>()
                    .ok()?;
                host.find(&topic).ok()
            }),
            busy: of_device(&block::BUSY_RATIO),
            declared: of.is_none().then_some(memory_speed),
        }
    }

    /// The name of a value that every tier of a benchmark must have, and that is not known.
    fn missing(&self) -> Option<&'static str> {
        if self.declared.is_some() {
            return None;
        }
        let needed = [
            ("the remaining capacity", &self.remaining),
            ("the speed of reads", &self.read),
            ("the speed of writes", &self.write),
            ("the rate of reads", &self.moved[0]),
            ("the rate of writes", &self.moved[1]),
            ("the load", &self.busy),
        ];
        let is_unknown = |vertex: &Option<Vertex>| aged(vertex.as_ref()).is_none();
        needed.into_iter().find(|(_, vertex)| is_unknown(vertex)).map(|(name, _)| name)
    }
}

/// Returns the interference factor, by the formula of the insight of that name: rates over their calibrated maxima.
fn interference(
    [read, written]: [Option<Aged>; 2],
    most_read: Option<Aged>,
    most_written: Option<Aged>,
) -> Option<Aged> {
    let (read, written) = (read?, written?);
    let value = read.value / most_read?.value + written.value / most_written?.value;
    Some(Aged { value, age: read.age.max(written.age) })
}

/// Reads a value; `None` if there is no vertex or its value is unknown.
fn aged(vertex: Option<&Vertex>) -> Option<Aged> {
    let reading = vertex?.latest().ok()?;
    let value = reading.as_f64().filter(|value| value.is_finite())?;
    Some(Aged { value, age: reading.age() })
}

impl View for Live {
    fn look(&self, into: &mut [Telemetry]) {
        for (telemetry, tier) in into.iter_mut().zip(&self.0) {
            let declared = tier.declared.map(|value| Aged { value, age: Duration::ZERO });
            let read = declared.or_else(|| aged(tier.read.as_ref()));
            let write = declared.or_else(|| aged(tier.write.as_ref()));
            let moved = [0, 1].map(|at| aged(tier.moved[at].as_ref()));
            *telemetry = Telemetry {
                remaining_bytes: aged(tier.remaining.as_ref()),
                read_bytes_per_second: read,
                write_bytes_per_second: write,
                access_seconds: aged(tier.access.as_ref()),
                interference_ratio: interference(moved, read, write),
                busy_ratio: aged(tier.busy.as_ref()),
                // A loop device has neither.
                health_ratio: None,
                fault_tolerance: None,
                window: POLL,
            };
        }
    }
}

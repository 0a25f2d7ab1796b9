//! Which sensors there are.

use crate::{Root, Sensor, Skip, load, mem};

/// What came of opening every sensor.
pub struct Opened {
    /// Those that this machine can feed, in the order of `skopos_model::schema::FAMILIES`.
    pub sensors: Vec<Box<dyn Sensor>>,
    /// What is not measured, and why.
    pub skips: Vec<Skip>,
}

/// Opens every sensor that this machine can feed.
pub fn open_all(root: &Root) -> Opened {
    let mut opened = Opened { sensors: Vec::new(), skips: Vec::new() };
    opened.add(load::Load::open(root));
    opened.add(mem::Mem::open(root));
    opened
}

impl Opened {
    fn add<S: Sensor + 'static>(&mut self, sensor: Result<S, Skip>) {
        match sensor {
            Ok(sensor) => {
                self.skips.extend(sensor.skips());
                self.sensors.push(Box::new(sensor));
            }
            Err(skip) => self.skips.push(skip),
        }
    }
}

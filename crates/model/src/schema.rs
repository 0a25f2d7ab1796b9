//! The families of facts that Skopos measures, as data.
//!
//! Each family is one file `schema/NAME.toml`. The build turns it into a child module with a constant
//! for each metric (`schema::mem::AVAILABLE_BYTES`), and lists it in [`FAMILIES`]. A sensor registers
//! facts by these constants; every verb takes help, unit, kind and source from here by topic.
//!
//! ```
//! use skopos_model::{Topic, schema};
//! let topic = schema::mem::AVAILABLE_BYTES.topic("n01", "")?;
//! assert_eq!(topic.as_str(), "n01/mem/available_bytes");
//! assert_eq!(schema::lookup(&topic).map(|m| m.unit.as_str()), Some("bytes"));
//! # Ok::<(), skopos_model::Error>(())
//! ```

use std::time::Duration;

use crate::error::Error;
use crate::topic::Topic;
use crate::unit::{Kind, Unit};
use crate::value_type::ValueType;

/// A group of facts that one source yields.
#[derive(Debug)]
pub struct Family {
    /// The family's name: the file's name and the sensor's.
    pub name: &'static str,
    /// The path of its topics under the node: most often the name itself.
    pub path: &'static str,
    /// The word for an instance (`device`, `core`); empty if the node has just one.
    pub instance: &'static str,
    /// One sentence for people.
    pub help: &'static str,
    /// The kernel file or document that the values come from.
    pub source: &'static str,
    /// Its metrics, in the order of the file.
    pub metrics: &'static [&'static Metric],
}

/// One metric of a family.
#[derive(Debug)]
pub struct Metric {
    /// The last segment of its topics; ends in the unit, counters in `_total`.
    pub name: &'static str,
    /// One sentence for people.
    pub help: &'static str,
    /// The unit of its values.
    pub unit: Unit,
    /// The way in which its values move.
    pub kind: Kind,
    /// The type of its values.
    pub value_type: ValueType,
    /// [`Family::path`] of its family.
    pub path: &'static str,
    /// The longest time in seconds between two reads of its source, where the sensor reads that more
    /// rarely than it is polled; else 0.
    pub read_every_seconds: u64,
}

impl Metric {
    /// Returns [`read_every_seconds`](Self::read_every_seconds) as a duration. A value is as old as that
    /// although its sensor works.
    pub const fn read_every(&self) -> Duration {
        Duration::from_secs(self.read_every_seconds)
    }

    /// Returns the topic of this metric on `node`, of `instance` unless that is empty. Both must be
    /// segments already; see [`escape_segment`](crate::escape_segment).
    ///
    /// # Errors
    /// The errors of [`Topic::new`]; in practice only for an instance that is too long.
    pub fn topic(&self, node: &str, instance: &str) -> Result<Topic, Error> {
        if instance.is_empty() {
            Topic::new(&format!("{node}/{}/{}", self.path, self.name))
        } else {
            Topic::new(&format!("{node}/{}/{instance}/{}", self.path, self.name))
        }
    }
}

/// Returns the metric of `topic`, if a family of Skopos has it.
pub fn lookup(topic: &Topic) -> Option<&'static Metric> {
    lookup_in_family(topic).map(|(_, metric)| metric)
}

/// Returns the family and metric of `topic`, if a family of Skopos has it.
pub fn lookup_in_family(topic: &Topic) -> Option<(&'static Family, &'static Metric)> {
    let (_, below_node) = topic.as_str().split_once('/')?;
    let (path, name) = below_node.rsplit_once('/')?;
    FAMILIES.iter().find_map(|family| {
        let instance = match path.strip_prefix(family.path)? {
            "" => "",
            rest => rest.strip_prefix('/')?,
        };
        // A family has an instance in each topic or in none.
        if instance.is_empty() != family.instance.is_empty() || instance.contains('/') {
            return None;
        }
        family.metrics.iter().find(|m| m.name == name).map(|m| (*family, *m))
    })
}

include!(concat!(env!("OUT_DIR"), "/schema.rs"));

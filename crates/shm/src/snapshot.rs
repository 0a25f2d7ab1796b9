//! Snapshots: the facts of one tick together.

use skopos_model::{Sample, Timestamp};

use crate::error::Error;
use crate::sync::AcquireLoad as _;
use crate::vertex::Vertex;

/// Attempts of a snapshot when the ring is overwritten meanwhile.
const ATTEMPTS: u32 = 100;

/// The values of the vertices of one group at the end of one tick.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The time of the tick.
    pub time: Timestamp,
    /// The sample of each vertex, in the order of the arguments; `None` if a vertex had no value at that
    /// tick.
    pub samples: Vec<Option<Sample>>,
}

/// Reads the vertices of one group as of the group's last complete tick. Never waits for a writer: a
/// tick in progress is ignored.
///
/// # Errors
/// [`Error::SnapshotGroup`] unless all vertices are of one group of one segment; [`Error::Empty`]
/// before the first tick; [`Error::Gone`]; [`Error::Busy`] if ticks come faster than this process
/// can read them.
pub fn snapshot(vertices: &[Vertex]) -> Result<Snapshot, Error> {
    let Some(first) = vertices.first() else {
        return Ok(Snapshot { time: Timestamp::default(), samples: Vec::new() });
    };
    let together = |v: &&Vertex| {
        v.group() != 0 && v.group() == first.group() && v.segment().is_same(first.segment())
    };
    if let Some(stranger) = vertices.iter().find(|v| !together(v)) {
        return Err(Error::SnapshotGroup(stranger.topic().clone()));
    }
    let shared = &first.segment().shared;
    let group = shared
        .map
        .group(shared.header.groups_offset, first.group())
        .ok_or_else(|| Error::SnapshotGroup(first.topic().clone()))?;
    let mut busy = None;
    for _ in 0..ATTEMPTS {
        // SYNC: pairs with the Release store in `Tick::commit`.
        let time = Timestamp::from_nanos(group.tick_time.load_acquire());
        if time == Timestamp::default() {
            return Err(Error::Empty(first.topic().clone()));
        }
        match vertices.iter().map(|v| v.as_of(time)).collect() {
            Ok(samples) => return Ok(Snapshot { time, samples }),
            // Newer ticks have overwritten this one.
            Err(e @ (Error::Busy(_) | Error::TooOld { .. })) => busy = Some(e),
            Err(e) => return Err(e),
        }
    }
    Err(busy.map_or_else(
        || Error::Busy(first.topic().clone()),
        |e| match e {
            Error::TooOld { topic, .. } => Error::Busy(topic),
            e => e,
        },
    ))
}

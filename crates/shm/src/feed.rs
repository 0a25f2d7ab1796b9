//! A feed: all new samples of a segment, for readers that follow thousands of vertices.
//!
//! A [`Subscription`](crate::Subscription) looks at its vertex. A feed looks at a group first, and at the vertices of the
//! group only if the group has had a tick since. Its cursors lie side by side in memory.

use skopos_model::{Timestamp, ValueType};

use crate::map::PinnedVertex;
use crate::ring::SlotState;
use crate::segment::Segment;
use crate::subscribe::Delivery;
use crate::sync::AcquireLoad as _;
use crate::vertex::{Vertex, read_sample};

/// Cursors on the vertices of one segment.
#[derive(Debug)]
pub struct Feed {
    segment: Segment,
    /// By id; the vertices without a group are those of group 0.
    groups: Vec<FeedGroup>,
}

/// The cursors of a group.
#[derive(Debug)]
struct FeedGroup {
    id: u32,
    /// Time of the last tick whose samples were taken; `None` if there may be samples of an earlier one.
    taken: Option<i64>,
    /// True if the group may have poll times that were not taken.
    has_checks: bool,
    cursors: Vec<Cursor>,
}

/// A position in one vertex.
#[derive(Debug)]
struct Cursor {
    /// The name that the reader gave it.
    key: u32,
    value_type: ValueType,
    vertex: PinnedVertex,
    owner: u64,
    next: u64,
    /// The latest poll time that was taken, or the time of the latest sample.
    checked_at: i64,
}

/// An event of a feed.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedEvent {
    /// The next sample, or a number of samples that were overwritten before they could be read.
    Delivered(Delivery),
    /// The vertex was unregistered. Its cursor is removed.
    Gone,
}

impl Feed {
    /// Makes a feed of this segment without vertices.
    pub fn new(segment: &Segment) -> Self {
        Self { segment: segment.clone(), groups: Vec::new() }
    }

    /// Returns the segment.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Adds a vertex of the segment. Its latest sample is the first one that [`take`](Self::take) passes on, with this key.
    pub fn add(&mut self, vertex: &Vertex, key: u32) {
        let (pinned, owner) = (vertex.pinned().clone(), vertex.owner());
        let next = vertex.count().saturating_sub(1);
        let value_type = vertex.info().value_type;
        let cursor = Cursor { key, value_type, vertex: pinned, owner, next, checked_at: 0 };
        let at = match self.groups.binary_search_by_key(&vertex.group(), |group| group.id) {
            Ok(at) => at,
            Err(at) => {
                self.groups.insert(at, FeedGroup::new(vertex.group()));
                at
            }
        };
        let group = &mut self.groups[at];
        group.cursors.push(cursor);
        group.taken = None;
        group.has_checks = true;
    }

    /// Removes the vertices with these keys, in one pass. `keys` is in ascending order.
    pub fn remove_all(&mut self, keys: &[u32]) {
        for group in &mut self.groups {
            group.cursors.retain(|cursor| keys.binary_search(&cursor.key).is_err());
        }
    }

    /// Returns true if [`take`](Self::take) would pass on an event of a vertex, or if a group has had a tick since.
    pub fn has_news(&self) -> bool {
        // The groups that have ticks come last, and cost a load each.
        self.groups.iter().rev().any(|group| group.has_news(&self.segment))
    }

    /// Passes every event since the last call to `visit`, with the key of its vertex: those of one vertex in order.
    pub fn take(&mut self, visit: &mut impl FnMut(u32, FeedEvent)) {
        let Self { segment, groups } = self;
        groups.iter_mut().for_each(|group| group.take(segment, visit));
    }

    /// Passes on the poll times that are newer than those that were passed on before, and newer than the sample that was
    /// taken last. A vertex with samples that were not taken is left out, because the poll may have yielded one of them.
    pub fn take_checks(&mut self, visit: &mut impl FnMut(u32, Timestamp)) {
        self.groups.iter_mut().for_each(|group| group.take_checks(visit));
    }
}

impl FeedGroup {
    fn new(id: u32) -> Self {
        Self { id, taken: None, has_checks: true, cursors: Vec::new() }
    }

    /// Returns the time of the last complete tick; `None` for vertices without a group.
    #[inline]
    fn tick(&self, segment: &Segment) -> Option<i64> {
        let shared = &segment.shared;
        let group = (self.id != 0)
            .then(|| shared.map.group(shared.header.groups_offset, self.id))
            .flatten()?;
        // SYNC: pairs with the Release store in `Tick::commit`: a reader that sees this time sees every sample of the tick.
        Some(group.tick_time.load_acquire())
    }

    fn has_news(&self, segment: &Segment) -> bool {
        match self.tick(segment) {
            Some(tick) => self.taken != Some(tick) && !self.cursors.is_empty(),
            None => self.cursors.iter().any(Cursor::is_due),
        }
    }

    fn take(&mut self, segment: &Segment, visit: &mut impl FnMut(u32, FeedEvent)) {
        // The time is read first: the samples of that tick are then seen.
        let tick = self.tick(segment);
        if tick.is_some() && tick == self.taken {
            return;
        }
        self.taken = tick;
        self.has_checks = true;
        self.cursors.retain_mut(|cursor| cursor.take(visit));
    }

    fn take_checks(&mut self, visit: &mut impl FnMut(u32, Timestamp)) {
        // Vertices without a group are polled at any time.
        if !std::mem::replace(&mut self.has_checks, self.id == 0) {
            return;
        }
        for cursor in &mut self.cursors {
            // The time is read first: a sample that existed at that time is then seen.
            let checked_at = cursor.vertex.raw().head.checked().time;
            if cursor.is_due() {
                // Of a tick that has just begun, or ended.
                self.has_checks = true;
            } else if checked_at > cursor.checked_at {
                cursor.checked_at = checked_at;
                visit(cursor.key, Timestamp::from_nanos(checked_at));
            }
        }
    }
}

impl Cursor {
    /// Returns true if the vertex has an event.
    #[inline]
    fn is_due(&self) -> bool {
        self.vertex.raw().is_due(self.owner, self.next)
    }

    /// Passes on the events of the vertex. Returns false if it is gone.
    fn take(&mut self, visit: &mut impl FnMut(u32, FeedEvent)) -> bool {
        let raw = self.vertex.raw();
        // Counted once: a writer that never rests must not keep this reader from its other vertices.
        let end = raw.count();
        while self.next < end {
            match read_sample(&raw, self.owner, self.next, self.value_type) {
                SlotState::Whole(sample) => {
                    self.next += 1;
                    self.checked_at = sample.time.as_nanos();
                    visit(self.key, FeedEvent::Delivered(Delivery::Sample(sample)));
                }
                // Damaged memory does not become whole, and its reader would be woken for ever.
                SlotState::Gone | SlotState::Damaged | SlotState::Absent => {
                    visit(self.key, FeedEvent::Gone);
                    return false;
                }
                // Writers outrun this reader. The next call finds what they left.
                SlotState::Busy => return true,
                SlotState::Lapped => {
                    // At least this sample is lost, see `Subscription::try_next`.
                    let resume = raw.reach(raw.count()).start.max(self.next + 1);
                    let lost = resume - self.next;
                    self.next = resume;
                    visit(self.key, FeedEvent::Delivered(Delivery::Lost(lost)));
                }
            }
        }
        let is_gone = raw.is_gone(self.owner);
        if is_gone {
            visit(self.key, FeedEvent::Gone);
        }
        !is_gone
    }
}

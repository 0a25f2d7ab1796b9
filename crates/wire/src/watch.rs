use skopos_model::{Sample, Timestamp, Topic};

use crate::batch::Description;

/// Receives the changes of a mirror, on the thread that applies them; it should not wait for anything.
/// `()` ignores them.
pub trait MirrorWatcher {
    /// A vertex was added.
    fn added(&mut self, description: &Description);
    /// A vertex has a new sample, later than the one before.
    fn sample(&mut self, topic: &Topic, sample: &Sample);
    /// The source of a vertex was read, and had nothing new.
    fn checked(&mut self, topic: &Topic, at: Timestamp);
    /// A vertex was removed.
    fn removed(&mut self, topic: &Topic);
}

impl MirrorWatcher for () {
    fn added(&mut self, _: &Description) {}
    fn sample(&mut self, _: &Topic, _: &Sample) {}
    fn checked(&mut self, _: &Topic, _: Timestamp) {}
    fn removed(&mut self, _: &Topic) {}
}

//! The maker of a batch, as far as a callback can tell before the batch takes room in the queue.
//!
//! Any node of a site can send a message under the key of any publisher, and send an old batch again. So only a batch with a
//! genuine tag that is newer than all before it takes the room of its publisher and counts as a sign of its life. Every other
//! message takes a room that all of them share: only a publisher itself can fill its own room.

use crate::batch::Batch;
use crate::trust::{Message, Session, Tagged};

/// The maker of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    /// Its publisher. The batch is newer than those before it.
    Publisher,
    /// Its publisher, but any node can have sent it again.
    Repeated,
    /// There is no tag for this follower: any node can have made it.
    Unproven,
    /// Another node.
    Forged,
}

impl Maker {
    /// Returns true if the publisher made the batch, whoever sent it.
    pub(crate) fn is_publisher(self) -> bool {
        matches!(self, Self::Publisher | Self::Repeated)
    }
}

/// A session with a publisher.
#[derive(Debug)]
pub(crate) struct Agreed {
    incarnation: i64,
    session: Session,
    /// The number of the newest batch that came in it.
    newest: Option<u64>,
}

impl Agreed {
    pub(crate) fn new(incarnation: i64, session: Session) -> Self {
        Self { incarnation, session, newest: None }
    }

    /// Checks the tag of a batch of `incarnation`, and notes its number if it is genuine.
    pub(crate) fn maker(&mut self, incarnation: i64, message: &Message) -> Maker {
        if incarnation != self.incarnation {
            return Maker::Unproven;
        }
        let tags = message.proof.as_deref().unwrap_or_default();
        match self.session.check(&message.key, &message.payload, tags) {
            Tagged::Absent => Maker::Unproven,
            Tagged::Forged => Maker::Forged,
            Tagged::Genuine => {
                // A publisher that numbers nothing fills its own room.
                let Some(number) = Batch::sequence_of(&message.payload) else {
                    return Maker::Publisher;
                };
                let is_new = self.newest.is_none_or(|newest| number > newest);
                self.newest = self.newest.max(Some(number));
                if is_new { Maker::Publisher } else { Maker::Repeated }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use skopos_access::Names;

    use super::*;
    use crate::trust::{Exchange, Sessions};

    #[test]
    fn a_batch_is_of_its_publisher_once() {
        let (follower, publisher) = (Exchange::begin(), Exchange::begin());
        let (follower, publisher) = (follower.expect("a key"), publisher.expect("a key"));
        let (theirs, ours) = (follower.public, publisher.public);
        let sessions = Sessions::default();
        let hub = Names { site: "s".to_owned(), node: "hub".to_owned(), is_hub: true };
        let there = publisher.agree(&theirs, &theirs).expect("agreed");
        assert!(sessions.add(&hub, there, std::time::Instant::now()));
        let mut agreed = Agreed::new(7, follower.agree(&ours, &theirs).expect("agreed"));
        let tagged = |payload: Vec<u8>| {
            let proof = Some(sessions.tags("k", &payload));
            Message { key: "k".to_owned(), payload, proof }
        };
        let batch = |sequence| tagged(Batch { sequence, ..Batch::default() }.encode());
        let mut check = |incarnation, message: &Message, expected| {
            assert_eq!(agreed.maker(incarnation, message), expected);
        };
        check(7, &batch(1), Maker::Publisher);
        check(7, &batch(3), Maker::Publisher);
        check(7, &batch(3), Maker::Repeated);
        check(7, &batch(2), Maker::Repeated);
        check(8, &batch(4), Maker::Unproven);
        check(7, &Message { proof: None, ..batch(4) }, Maker::Unproven);
        check(7, &Message { payload: batch(5).payload, ..batch(4) }, Maker::Forged);
        check(7, &batch(4), Maker::Publisher);
        check(7, &tagged(vec![1]), Maker::Publisher);
    }
}

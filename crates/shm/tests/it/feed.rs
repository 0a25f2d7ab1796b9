//! Feeds: all new samples of a segment.

use skopos_model::{Value, ValueType};
use skopos_shm::{Delivery, Feed, FeedEvent, Host, Publisher, VertexWriter};

use crate::support::{publisher, runtime_dir, spec};

/// A publisher with vertices, and a feed of them; the key of a vertex is its number.
struct Feeding {
    writers: Vec<VertexWriter>,
    feed: Feed,
    _publisher: Publisher,
    _dir: tempfile::TempDir,
}

impl Feeding {
    fn of(vertices: u32) -> Self {
        let dir = runtime_dir();
        let publisher = publisher(dir.path(), "app");
        let register = |at| {
            let spec = spec(&format!("test/app/v{at}"), ValueType::U64).slots(8);
            publisher.register(spec).expect("a vertex")
        };
        let writers: Vec<_> = (0..vertices).map(register).collect();
        let host = Host::open_dirs(vec![dir.path().to_path_buf()]).expect("a host");
        let mut feed = Feed::new(&host.segments()[0]);
        for (at, writer) in (0..).zip(&writers) {
            feed.add(&host.find(writer.topic()).expect("a vertex"), at);
        }
        Self { writers, feed, _publisher: publisher, _dir: dir }
    }

    /// Publishes a number in each vertex.
    fn publish(&self, number: u64) {
        for writer in &self.writers {
            writer.publish(number).expect("published");
        }
    }

    /// Takes all events: the keys, and the numbers of samples.
    fn take(&mut self) -> Vec<(u32, u64)> {
        let mut taken = Vec::new();
        self.feed.take(&mut |key, event| {
            if let FeedEvent::Delivered(Delivery::Sample(sample)) = event
                && let Value::U64(number) = sample.value
            {
                taken.push((key, number));
            }
        });
        taken
    }
}

#[test]
fn a_writer_that_never_rests_does_not_keep_a_feed_from_other_vertices() {
    /// More than the samples that the test publishes before.
    const MOST: u64 = 100;
    let mut feeding = Feeding::of(2);
    feeding.publish(1);
    let (busy, mut taken) = (&feeding.writers[0], Vec::new());
    feeding.feed.take(&mut |key, event| {
        let FeedEvent::Delivered(Delivery::Sample(sample)) = event else { return };
        taken.push((key, sample.value));
        // A new sample for each that is taken.
        if key == 0 && (taken.len() as u64) < MOST {
            busy.publish(taken.len() as u64 + 1).expect("published");
        }
    });
    assert_eq!(taken, [(0, Value::U64(1)), (1, Value::U64(1))]);
    assert!(feeding.feed.has_news());
    assert_eq!(feeding.take(), [(0, 2)], "the rest comes with the next call");
}

#[test]
fn removed_vertices_have_no_more_events_and_the_others_keep_theirs() {
    let mut feeding = Feeding::of(5);
    feeding.feed.remove_all(&[0, 3]);
    feeding.publish(7);
    assert_eq!(feeding.take(), [(1, 7), (2, 7), (4, 7)]);
    feeding.feed.remove_all(&[]);
    feeding.publish(8);
    assert_eq!(feeding.take(), [(1, 8), (2, 8), (4, 8)]);
}

//! Changes as server-sent events, for slow clients and for clients that connect again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use skopos_model::{Origin, Sample, Structured, Value, ValueType};
use skopos_shm::{Publisher, VertexSpec};

use crate::client::{Event, Up};
use crate::support::{PATIENCE, eventually};

/// The number of topics that change together, and the number of their changes.
const TOPICS: usize = 8;
const ROUNDS: u64 = 40;

/// The time between two changes. The hub spends at most a tenth of a core on the events of a client,
/// and that must be enough for a debug build on a busy machine.
const PAUSE: Duration = Duration::from_millis(500);

/// The number of changes that memory keeps of each topic: those of some seconds.
const SLOTS: u32 = 8;

/// The size of a value. All changes together are several times what the kernel buffers for a
/// connection.
const TEXT_BYTES: usize = 3800;

/// Returns the number of changes that a client received, and the number that it missed.
fn told(events: impl Iterator<Item = Event>) -> (u64, u64) {
    let (mut told, mut missed, mut last) = (0, 0, 0);
    for Event { name, data, .. } in events {
        match &*name {
            "change" => {
                told += 1;
                last += usize::from(data["value"]["n"] == json!(ROUNDS));
            }
            "lost" => missed += data["samples"].as_u64().expect("a number"),
            other => panic!("{other}: {data}"),
        }
        if last == TOPICS {
            break;
        }
    }
    (told, missed)
}

/// With an unbounded queue for each client, the slow one would miss nothing and cost endless memory.
#[test]
fn a_slow_reader_learns_its_losses_and_delays_no_other() {
    let up = Up::start();
    let publisher = Publisher::builder("fast").dir(up.agent.path()).node("n01").create();
    let publisher = publisher.expect("a segment");
    let writers: Vec<_> = (0..TOPICS)
        .map(|n| {
            let topic = format!("n01/fast/t{n}").parse().expect("a topic");
            let spec = VertexSpec::new(topic, ValueType::Structured).slots(SLOTS);
            publisher.register(spec).expect("registered")
        })
        .collect();
    let publish = |n: u64| {
        let value = Structured::new(json!({ "n": n, "text": "x".repeat(TEXT_BYTES) }));
        let value = Value::Structured(value.expect("short enough"));
        for writer in &writers {
            let (time, origin) = (skopos_shm::now(), Origin::Measured);
            let sample = Sample { time, value: value.clone(), origin };
            writer.publish_sample(&sample).expect("published");
        }
    };
    publish(0);
    let last = format!("/api/v1/get?topic=fast/t{}", TOPICS - 1);
    eventually("the topics are known", || up.get(&last).status == 200);
    let path = "/api/v1/watch?topic=fast/*";
    let narrow = up.narrow();
    narrow.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut slow = up.events(narrow, path, "").peekable();
    let mut fast = up.events(up.connect(), path, "").peekable();
    let is_first = slow.peek().is_some() && fast.peek().is_some();
    assert!(is_first, "they watch before anything changes");
    let is_told = AtomicBool::new(false);
    let (of_fast, of_slow) = std::thread::scope(|scope| {
        let fast = scope.spawn(|| {
            let of_fast = told(fast);
            is_told.store(true, Ordering::Relaxed);
            of_fast
        });
        for n in 1..=ROUNDS {
            publish(n);
            std::thread::sleep(PAUSE);
        }
        eventually("the fast client has all changes", || is_told.load(Ordering::Relaxed));
        assert_eq!(up.get(&last).status, 200);
        (fast.join().expect("it ends"), told(slow))
    });
    // The first values and every change since are either received or counted as missed.
    let all = TOPICS as u64 * (ROUNDS + 1);
    assert_eq!(
        (of_fast.0 + of_fast.1, of_slow.0 + of_slow.1),
        (all, all),
        "{of_fast:?} {of_slow:?}"
    );
    assert!(
        of_slow.1 > of_fast.1 + all / 10,
        "the publisher waited for the slow client: {of_fast:?} {of_slow:?}"
    );
}

#[test]
fn a_client_that_returns_gets_all_events_since_its_last_one() {
    let up = Up::start();
    let publish = |value: &str| {
        assert_eq!(up.agent.run(&["publish", "app/depth", value]).code, 0);
    };
    let path = "/api/v1/watch?topic=app/depth";
    publish("1");
    eventually("the topic is known", || up.get("/api/v1/get?topic=app/depth").status == 200);
    let value = |event: &Event| event.data["value"].as_f64().expect("a number");
    let mut watching = up.events(up.connect(), path, "");
    assert_eq!(value(&watching.next().expect("the current value")), 1.0);
    publish("2");
    let last = watching.next().expect("a change");
    assert_eq!(value(&last), 2.0);
    drop(watching);
    for text in ["3", "4"] {
        publish(text);
    }
    let come_back = |head: &str| -> Vec<f64> {
        let mut values = Vec::new();
        for event in up.events(up.connect(), path, head) {
            values.push(value(&event));
            if values.last() == Some(&4.0) {
                break;
            }
        }
        values
    };
    assert_eq!(come_back(&format!("last-event-id: {}\r\n", last.id)), [3.0, 4.0]);
    assert_eq!(come_back("last-event-id: 1\r\n"), [1.0, 2.0, 3.0, 4.0], "as far as memory reaches");
    for head in ["", "last-event-id: yesterday\r\n"] {
        assert_eq!(come_back(head), [4.0], "the current value");
    }
}

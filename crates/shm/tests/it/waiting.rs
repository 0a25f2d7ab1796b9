//! Sleeping until something is published, in this process and in others.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use skopos_model::{Value, ValueType};
use skopos_shm::{Delivery, Error, Host, Publisher, Segment, Vertex, VertexWriter};

use crate::support::{
    Kill, PATIENCE, at, child_dir, must_end, publisher, runtime_dir, spec, this_binary, topic,
};

fn one(dir: &tempfile::TempDir) -> (Publisher, VertexWriter, Vertex) {
    let publisher = publisher(dir.path(), "bell");
    let writer = publisher.register(spec("test/bell", ValueType::U64).slots(1024)).expect("room");
    let segment = Segment::open(publisher.path()).expect("sound");
    let vertex = segment.find(writer.topic()).expect("registered");
    (publisher, writer, vertex)
}

fn number(delivery: Option<Delivery>) -> Option<u64> {
    match delivery {
        Some(Delivery::Sample(sample)) => match sample.value {
            Value::U64(value) => Some(value),
            other => panic!("{other}"),
        },
        Some(lost) => panic!("{lost:?}"),
        None => None,
    }
}

/// Each round waits for a publish, and takes as long as `PATIENCE` if a wake-up is lost.
#[test]
fn two_threads_wake_each_other_many_times() {
    const ROUNDS: u64 = 5_000;
    let dir = runtime_dir();
    let (publisher, ping, ping_vertex) = one(&dir);
    let pong = publisher.register(spec("test/pong", ValueType::U64).slots(4)).expect("room");
    let pong_vertex = ping_vertex.segment().find(pong.topic()).expect("registered");
    must_end("ping and pong", move || {
        let mut pongs = pong_vertex.subscribe();
        let mut pings = ping_vertex.subscribe();
        let answering = std::thread::spawn(move || {
            for n in 1..=ROUNDS {
                let got = number(pings.next_timeout(PATIENCE).expect("registered"));
                assert_eq!(got, Some(n));
                pong.publish(n).expect("registered");
            }
        });
        for n in 1..=ROUNDS {
            ping.publish(n).expect("registered");
            let got = number(pongs.next_timeout(PATIENCE).expect("registered"));
            assert_eq!(got, Some(n));
        }
        answering.join().expect("the thread does not fail");
    });
    drop(publisher);
}

#[test]
fn all_waiters_are_woken() {
    const WAITERS: u64 = 8;
    let dir = runtime_dir();
    let (publisher, writer, vertex) = one(&dir);
    must_end("eight waiters", move || {
        let ready = Arc::new(std::sync::Barrier::new(WAITERS as usize + 1));
        let waiters: Vec<_> = (0..WAITERS)
            .map(|_| {
                let (mut news, ready) = (vertex.subscribe(), Arc::clone(&ready));
                std::thread::spawn(move || {
                    ready.wait();
                    let sum: u64 = (0..50)
                        .map(|_| number(news.next_timeout(PATIENCE).expect("there")).expect("news"))
                        .sum();
                    assert_eq!(sum, 50 * 51 / 2);
                })
            })
            .collect();
        ready.wait();
        for n in 1..=50u64 {
            writer.publish(n).expect("registered");
            std::thread::sleep(Duration::from_micros(200));
        }
        for waiter in waiters {
            waiter.join().expect("the thread does not fail");
        }
    });
    drop(publisher);
}

#[test]
fn a_wait_without_a_sample_times_out() {
    let dir = runtime_dir();
    let (_publisher, writer, vertex) = one(&dir);
    writer.publish_at(at(1), 1u64).expect("registered");
    let mut news = vertex.subscribe();
    for timeout in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(20)] {
        let started = Instant::now();
        assert_eq!(news.next_timeout(timeout).expect("registered"), None);
        assert!(started.elapsed() >= timeout, "it returned before {timeout:?}");
    }
    // An unchanged value is not a sample.
    writer.publish_at(at(2), 1u64).expect("registered");
    assert_eq!(news.next_timeout(Duration::from_millis(5)).expect("registered"), None);
    writer.publish_at(at(3), 2u64).expect("registered");
    let got = must_end("the longest possible timeout", move || {
        number(news.next_timeout(Duration::MAX).expect("registered"))
    });
    assert_eq!(got, Some(2));
}

#[test]
fn waiters_for_an_unregistered_vertex_get_an_error() {
    let dir = runtime_dir();
    type TakeAway = fn(Publisher, &VertexWriter);
    let ways: [(&str, TakeAway); 2] = [
        ("unregistered", |publisher, writer| {
            publisher.unregister(writer);
            // The segment stays open: only the vertex goes.
            std::mem::forget(publisher);
        }),
        ("closed", |publisher, _| drop(publisher)),
    ];
    for (how, take_away) in ways.into_iter().rev() {
        let (publisher, writer, vertex) = one(&dir);
        let mut news = vertex.subscribe();
        must_end(how, move || {
            let waiter = std::thread::spawn(move || news.next_timeout(PATIENCE));
            std::thread::sleep(Duration::from_millis(20));
            take_away(publisher, &writer);
            let result = waiter.join().expect("the thread does not fail");
            assert!(matches!(result, Err(Error::Gone(_))), "{result:?}");
        });
    }
}

/// A killed waiter leaves its flag up; later waiters are still woken.
#[test]
fn a_reader_in_another_process_is_woken() {
    const ROUNDS: u64 = 200;
    let dir = runtime_dir();
    let (publisher, writer, _) = one(&dir);
    for round in ["killed", "ends"] {
        let mut child = this_binary("waiting::echo_samples", dir.path());
        let child = child.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
        let mut child = Kill(child.expect("this binary runs"));
        let mut lines = BufReader::new(child.0.stdout.take().expect("piped")).lines();
        let mut line = move || lines.next().expect("not ended").expect("UTF-8");
        let (writer, round) = (writer.clone(), round.to_owned());
        let child = must_end("a reader in another process", move || {
            while line() != "echo ready" {}
            for n in 1..=ROUNDS {
                writer.publish(n).expect("registered");
                assert_eq!(line(), format!("echo {n}"));
            }
            if round == "ends" {
                writer.publish(0u64).expect("registered");
                assert!(child.0.wait().expect("our own child").success());
            }
            child
        });
        drop(child);
    }
    drop(publisher);
}

#[test]
#[ignore = "the test above starts this as a separate process"]
fn echo_samples() {
    let Some(dir) = child_dir() else { return };
    let host = Host::open_dirs(vec![dir]).expect("our own directory");
    let mut news = host.find(&topic("test/bell")).expect("registered").subscribe();
    let say = |line: String| {
        let mut out = std::io::stdout();
        out.write_all(line.as_bytes()).and_then(|()| out.flush()).expect("the parent reads");
    };
    say("\necho ready\n".to_owned());
    loop {
        match number(news.next_timeout(PATIENCE).expect("registered")) {
            Some(0) => return,
            Some(value) => say(format!("echo {value}\n")),
            None => panic!("never woken"),
        }
    }
}

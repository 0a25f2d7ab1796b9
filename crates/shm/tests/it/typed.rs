//! Handles with the type of their numbers, and ways to find and wait.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::Duration;

use skopos_model::{Origin, Sample, Value, ValueType};
use skopos_shm::{Error, Host, Publisher, Reader, Segment};

use crate::support::{PATIENCE, at, must_end, publisher, runtime_dir, spec, topic};

#[test]
fn numbers_go_in_and_come_out() {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "typed");
    let mut depth = publisher.writer::<u64>("n01/app/depth").expect("room");
    let mut load = publisher.writer::<f64>("n01/app/load").expect("room");
    let mut balance = publisher.writer::<i64>("n01/app/balance").expect("room");
    let host = Host::open_dirs(vec![dir.path().into()]).expect("ours");
    let reader: Reader<u64> = host.reader("n01/app/depth").expect("registered");
    assert!(matches!(reader.get(), Err(Error::Empty(_))));
    depth.publish(17).expect("registered");
    load.publish(0.5).expect("registered");
    balance.publish(-3).expect("registered");
    assert_eq!(reader.get().expect("published"), 17);
    assert_eq!(host.reader::<f64>("n01/app/load").expect("there").get().expect("published"), 0.5);
    assert_eq!(host.reader::<i64>("n01/app/balance").expect("there").get().expect("published"), -3);
    let wrong = host.reader::<f64>("n01/app/depth");
    assert!(matches!(wrong, Err(Error::WrongType { .. })), "{wrong:?}");
    let wrong = publisher.writer_of::<f64>(spec("n01/app/other", ValueType::U64));
    assert!(matches!(wrong, Err(Error::WrongType { .. })), "{wrong:?}");
    assert!(matches!(publisher.writer::<u64>("No Topic"), Err(Error::Model(_))));
    assert!(matches!(publisher.writer::<u64>("n01/app/depth"), Err(Error::Duplicate(_))));
}

#[test]
fn an_unknown_number_is_an_error_and_not_a_zero() {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "unknown");
    let writer = publisher.register(spec("n01/app/depth", ValueType::U64)).expect("room");
    let host = Host::open_dirs(vec![dir.path().into()]).expect("ours");
    let reader: Reader<u64> = host.reader("n01/app/depth").expect("registered");
    let unknown = Sample { time: at(1), value: Value::U64(0), origin: Origin::Unknown };
    writer.publish_sample(&unknown).expect("registered");
    assert!(matches!(reader.get(), Err(Error::Unknown(_))));
    assert!(matches!(reader.fresh(Duration::MAX), Err(Error::Unknown(_))));
}

#[test]
fn a_dropped_writer_unregisters_its_vertex() {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "dropped");
    let mut writer = publisher.writer::<u64>("n01/app/depth").expect("room");
    writer.publish(1).expect("registered");
    let host = Host::open_dirs(vec![dir.path().into()]).expect("ours");
    let reader: Reader<u64> = host.reader("n01/app/depth").expect("registered");
    drop(writer);
    assert!(matches!(reader.get(), Err(Error::Gone(_))));
    assert!(matches!(host.lookup("n01/app/depth"), Err(Error::NoVertex(_))));
    let mut again = publisher.writer::<u64>("n01/app/depth").expect("the topic is free");
    again.publish(2).expect("registered");
    drop(publisher);
    assert!(matches!(again.publish(3), Err(Error::Gone(_))), "its segment is closed");
}

/// The only writer takes no lock, and its publisher may be dropped by another thread at any time.
#[test]
fn a_publisher_that_is_dropped_during_publishes_ends_them() {
    for _ in 0..50 {
        let dir = runtime_dir();
        let publisher = publisher(dir.path(), "racing");
        let mut writer = publisher.writer::<u64>("test/a").expect("room");
        let vertex = Segment::open(publisher.path()).expect("sound").find(&topic("test/a"));
        let vertex = vertex.expect("registered");
        must_end("publishes into a closed segment", move || {
            let publishing = std::thread::spawn(move || {
                (1..).find_map(|n| writer.publish(n).err()).expect("it ends")
            });
            while vertex.count() < 100 {
                std::thread::yield_now();
            }
            drop(publisher);
            let ended = publishing.join().expect("no panic");
            assert!(matches!(ended, Error::Gone(_)), "{ended}");
            assert!(matches!(vertex.latest(), Err(Error::Gone(_))));
        });
    }
}

#[test]
fn a_topic_is_found_without_the_name_of_the_node() {
    let dir = runtime_dir();
    let publisher = Publisher::builder("agent").dir(dir.path()).node("n01").create().expect("ours");
    let mut writer = publisher.writer::<u64>("n01/mem/available_bytes").expect("room");
    let _app = publisher.writer::<u64>("app/depth").expect("room");
    writer.publish(5).expect("registered");
    let host = Host::open_dirs(vec![dir.path().into()]).expect("ours");
    let found = |text: &str| host.lookup(text).map(|vertex| vertex.topic().to_string());
    assert_eq!(found("mem/available_bytes").expect("below the node"), "n01/mem/available_bytes");
    assert_eq!(found("n01/mem/available_bytes").expect("whole"), "n01/mem/available_bytes");
    assert_eq!(found("app/depth").expect("without a node"), "app/depth");
    assert!(matches!(found("available_bytes"), Err(Error::NoVertex(_))));
    assert!(matches!(found("Mem!"), Err(Error::Model(_))));
}

#[test]
fn a_wait_notices_a_publisher_that_starts_later() {
    let dir = runtime_dir();
    let mut host = Host::open_dirs(vec![dir.path().into()]).expect("ours");
    let missing = host.wait_for("n01/app/depth", Duration::from_millis(5));
    assert!(matches!(missing, Err(Error::NoVertex(_))));
    let path = dir.path().to_owned();
    let starting = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        let publisher = publisher(&path, "later");
        let mut writer = publisher.writer::<u64>("n01/app/depth").expect("room");
        writer.publish(9).expect("registered");
        (publisher, writer)
    });
    let vertex =
        must_end("a wait for a publisher", move || host.wait_for("n01/app/depth", PATIENCE));
    let (_publisher, _writer) = starting.join().expect("no panic");
    assert_eq!(vertex.expect("it came").topic(), &topic("n01/app/depth"));
}

/// Returns true if the descriptor is readable within `timeout`.
fn is_readable(fd: &impl std::os::fd::AsFd, timeout: Duration) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: `poll` outlives the call.
    unsafe { libc::poll(&raw mut poll, 1, timeout.as_millis() as libc::c_int) == 1 }
}

#[test]
fn a_descriptor_is_readable_after_each_publish_until_it_is_cleared() {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "poll");
    let mut writer = publisher.writer::<u64>("test/a").expect("room");
    let host = Host::open_dirs(vec![dir.path().into()]).expect("ours");
    let reader: Reader<u64> = host.reader("test/a").expect("registered");
    let notifier = host.notifier().expect("a descriptor");
    assert!(!is_readable(&notifier.as_fd(), Duration::from_millis(20)), "nothing happened");
    for n in 1..=200 {
        writer.publish(n).expect("registered");
        assert!(is_readable(&notifier.as_fd(), PATIENCE), "publish {n}");
        assert!(is_readable(&notifier.as_fd(), Duration::ZERO), "until it is cleared");
        notifier.clear();
        assert_eq!(reader.get().expect("published"), n);
    }
    assert!(!is_readable(&notifier.as_fd(), Duration::from_millis(20)), "all was cleared");
    // A publisher that starts later is an event too, and so is what it publishes.
    let later = crate::support::publisher(dir.path(), "later");
    assert!(is_readable(&notifier.as_fd(), PATIENCE));
    notifier.clear();
    let mut other = later.writer::<u64>("test/b").expect("room");
    assert!(is_readable(&notifier.as_fd(), PATIENCE));
    notifier.clear();
    while is_readable(&notifier.as_fd(), Duration::from_millis(300)) {
        notifier.clear();
    }
    other.publish(1).expect("registered");
    assert!(is_readable(&notifier.as_fd(), PATIENCE));
    must_end("the end of a notifier", move || drop(notifier));
}

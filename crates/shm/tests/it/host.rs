//! Several segments as one: finding, selecting, waiting, refreshing, changes.

use std::time::{Duration, Instant};

use skopos_model::{TopicPattern, ValueType};
use skopos_shm::{Error, Host, Publisher, SegmentVersions};

use crate::support::{PATIENCE, at, must_end, publisher, runtime_dir, spec, topic};

fn with(publisher: &Publisher, topics: &[&str]) -> Vec<skopos_shm::VertexWriter> {
    let register = |t: &&str| publisher.register(spec(t, ValueType::U64)).expect("room");
    topics.iter().map(register).collect()
}

fn selected(host: &Host, pattern: &str) -> Vec<String> {
    let pattern: TopicPattern = pattern.parse().expect("a pattern");
    host.select(&pattern).iter().map(|v| v.topic().to_string()).collect()
}

#[test]
fn a_host_sees_every_living_segment() {
    let (first_dir, second_dir) = (runtime_dir(), runtime_dir());
    let a = publisher(first_dir.path(), "a");
    let b = publisher(first_dir.path(), "b");
    let c = publisher(second_dir.path(), "a");
    with(&a, &["n1/mem/free", "n1/mem/used"]);
    with(&b, &["n1/app/depth"]);
    with(&c, &["n2/mem/free"]);
    let nowhere = first_dir.path().join("nowhere");
    let dirs = vec![first_dir.path().into(), nowhere, second_dir.path().into()];
    let mut host = Host::open_dirs(dirs).expect("our own directories");
    let names = |host: &Host| -> Vec<String> {
        host.segments().iter().map(|s| s.name().to_owned()).collect()
    };
    assert_eq!(names(&host), ["a", "b", "a"], "the oldest first");
    assert_eq!(selected(&host, "*/mem/free"), ["n1/mem/free", "n2/mem/free"]);
    assert_eq!(selected(&host, "**").len(), 4);
    assert!(selected(&host, "n3/**").is_empty(), "a pattern that matches nothing");
    assert!(matches!(host.find(&topic("n3/a")), Err(Error::NoVertex(t)) if t == topic("n3/a")));

    let found = host.find(&topic("n1/app/depth")).expect("in the second segment");
    drop(b);
    let d = publisher(first_dir.path(), "d");
    with(&d, &["n1/new"]);
    assert_eq!(host.segments().len(), 3, "nothing changes by itself");
    host.refresh().expect("our own directories");
    assert_eq!(names(&host), ["a", "a", "d"]);
    assert!(matches!(found.latest(), Err(Error::Gone(_))));
    assert!(host.find(&topic("n1/app/depth")).is_err());
    assert!(host.find(&topic("n1/new")).is_ok());
    assert!(host.refused().is_empty());
}

#[test]
fn of_two_vertices_with_one_topic_the_oldest_segments_is_found() {
    let dir = runtime_dir();
    let older = publisher(dir.path(), "z");
    let newer = publisher(dir.path(), "a");
    let (first, second) = (with(&older, &["n/x"]), with(&newer, &["n/x"]));
    first[0].publish(1u64).expect("registered");
    second[0].publish(2u64).expect("registered");
    let mut host = Host::open_dirs(vec![dir.path().into()]).expect("ours");
    let value = |host: &Host| host.find(&topic("n/x")).expect("there").latest().expect("published");
    assert_eq!(value(&host).as_f64(), Some(1.0));
    assert_eq!(selected(&host, "n/*").len(), 1, "select and find agree");
    drop(older);
    host.refresh().expect("ours");
    assert_eq!(value(&host).as_f64(), Some(2.0));
}

#[test]
fn a_recreated_segment_is_opened_again() {
    let dir = runtime_dir();
    let before = publisher(dir.path(), "phoenix");
    let mut host = Host::open_dirs(vec![dir.path().into()]).expect("ours");
    drop(before);
    let after = publisher(dir.path(), "phoenix");
    with(&after, &["n/x"]);
    host.refresh().expect("ours");
    assert_eq!(host.segments().len(), 1);
    assert!(host.find(&topic("n/x")).is_ok());
}

#[test]
fn a_registration_shows_at_once() {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "live");
    let host = Host::open_dirs(vec![dir.path().into()]).expect("ours");
    let version = host.segments()[0].directory_version();
    let writers = with(&publisher, &["n/a", "n/b"]);
    assert_ne!(host.segments()[0].directory_version(), version);
    assert_eq!(selected(&host, "**"), ["n/a", "n/b"]);
    let version = host.segments()[0].directory_version();
    publisher.unregister(&writers[0]);
    assert_ne!(host.segments()[0].directory_version(), version);
    assert_eq!(selected(&host, "**"), ["n/b"]);
}

#[test]
fn changes_are_registrations_and_segments_that_came_or_went() {
    let dir = runtime_dir();
    let mut host = Host::open_dirs(vec![dir.path().into()]).expect("ours");
    let mut seen = SegmentVersions::default();
    let mut check = |host: &Host, has_changed: bool, what: &str| {
        let changes = host.changes(&seen);
        assert_eq!(changes.is_some(), has_changed, "{what}");
        seen = changes.unwrap_or_else(|| seen.clone());
        assert_eq!(host.changes(&seen), None, "{what}, the second time");
    };
    check(&host, false, "an empty directory");
    let first = publisher(dir.path(), "first");
    check(&host, false, "a segment before the refresh");
    host.refresh().expect("ours");
    check(&host, true, "a segment that came");
    let writers = with(&first, &["n/a"]);
    check(&host, true, "a vertex that was registered");
    writers[0].publish(1u64).expect("registered");
    host.refresh().expect("ours");
    check(&host, false, "a sample");
    first.unregister(&writers[0]);
    check(&host, true, "a vertex that was unregistered");
    drop((writers, first));
    let again = publisher(dir.path(), "first");
    host.refresh().expect("ours");
    check(&host, true, "another segment of the same name");
    drop(again);
    host.refresh().expect("ours");
    check(&host, true, "a segment that went");
}

/// Waits with one segment and with several, for samples and for a registration.
#[test]
fn a_host_waits_for_any_change() {
    for others in [0, 2] {
        let dir = runtime_dir();
        let publisher = publisher(dir.path(), "main");
        let extra: Vec<_> =
            (0..others).map(|n| crate::support::publisher(dir.path(), &format!("o{n}"))).collect();
        let writer = with(&publisher, &["n/a"]).remove(0);
        let host = Host::open_dirs(vec![dir.path().into()]).expect("ours");
        let vertex = host.find(&topic("n/a")).expect("registered");
        must_end("a host's wait", move || {
            for n in 1..=20u64 {
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        std::thread::sleep(Duration::from_millis(2));
                        writer.publish_at(at(n as i64), n).expect("registered");
                    });
                    let ready = || vertex.count() == n;
                    assert!(host.wait(PATIENCE, ready));
                });
            }
            std::thread::scope(|scope| {
                scope.spawn(|| with(&publisher, &["n/late"]));
                let ready = || host.find(&topic("n/late")).is_ok();
                assert!(host.wait(PATIENCE, ready));
            });
            let started = Instant::now();
            assert!(!host.wait(Duration::from_millis(15), || false));
            assert!(started.elapsed() >= Duration::from_millis(15));
            assert!(host.wait(Duration::ZERO, || true));
        });
        drop(extra);
    }
}

#[test]
fn a_host_without_segments_waits() {
    let dir = runtime_dir();
    let host = Host::open_dirs(vec![dir.path().into()]).expect("ours");
    let mut asked = 0;
    assert!(!host.wait(Duration::from_millis(10), || false));
    let third = || {
        asked += 1;
        asked == 3
    };
    assert!(host.wait(PATIENCE, third));
}

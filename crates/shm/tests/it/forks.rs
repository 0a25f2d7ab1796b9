//! Children after `fork`: they have all handles of their parent, and change nothing of its segment.

use std::process::exit;
use std::time::Duration;

use skopos_model::ValueType;
use skopos_shm::{Delivery, Error, Host, Publisher, Segment};

use crate::support::{
    Kill, at, child_dir, die_with_parent, eventually, must_end, publisher, runtime_dir, spec,
    this_binary, topic,
};

/// Time after which a child that hangs ends by a signal.
const CHILD_SECONDS: u32 = 30;

/// Forks. The child does `work`, which returns true if all is well.
pub(crate) fn fork(work: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: the child calls only `work`, which takes no lock that another thread of the tests may hold, and ends
    // without running anything of the parent's.
    match unsafe { libc::fork() } {
        -1 => panic!("no child: {}", std::io::Error::last_os_error()),
        0 => {
            // SAFETY: the calls take numbers.
            unsafe { libc::alarm(CHILD_SECONDS) };
            let is_well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // SAFETY: as above.
            unsafe { libc::_exit(if matches!(is_well, Ok(true)) { 0 } else { 1 }) }
        }
        child => child,
    }
}

/// Waits for the end of a child and returns its raw status.
pub(crate) fn wait_for(child: libc::pid_t) -> libc::c_int {
    let mut status = 0;
    // SAFETY: the status outlives the call.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(ended, child, "{}", std::io::Error::last_os_error());
    status
}

#[test]
fn a_child_changes_nothing_of_its_parents_segment() {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "parent");
    let alone = publisher.register(spec("test/alone", ValueType::U64)).expect("room");
    let mut group = publisher.group("g").expect("room");
    let member = group.register(spec("test/member", ValueType::U64)).expect("room");
    alone.publish_at(at(1), 1u64).expect("its own");
    let path = publisher.path().to_owned();
    let (vertex, segment) = {
        let segment = Segment::open(&path).expect("sound");
        (segment.find(&topic("test/alone")).expect("registered"), segment)
    };
    // Each handle in turn, then the end of them all.
    let child = fork(|| {
        let forked = |error: Option<Error>| matches!(error, Some(Error::Forked { .. }));
        let mut all = vec![
            forked(alone.publish_at(at(2), 2u64).err()),
            forked(alone.check_at(at(3)).err()),
            forked(publisher.register(spec("test/child", ValueType::U64)).err()),
            forked(publisher.group("child").err()),
        ];
        let mut tick = group.tick(at(4));
        all.push(forked(tick.publish(&member, 4u64).err()));
        tick.commit();
        publisher.unregister(&alone);
        publisher.count_clock_step();
        // SAFETY: the child never uses the parent's copy again, which it leaves without running its destructor.
        drop(unsafe { std::ptr::read(&raw const publisher) });
        all.iter().all(|is_well| *is_well)
    });
    assert_eq!(wait_for(child), 0);
    assert!(segment.is_alive() && path.exists() && segment.clock_steps() == 0);
    assert_eq!(vertex.latest().expect("registered").as_f64(), Some(1.0));
    assert!(
        matches!(
            skopos_shm::snapshot(&[segment.find(&topic("test/member")).expect("there")]),
            Err(Error::Empty(_))
        ),
        "no tick is complete"
    );
    // A child that panics drops what it has.
    let child = fork(|| {
        // SAFETY: as above.
        let _copy = unsafe { std::ptr::read(&raw const publisher) };
        panic!("on purpose");
    });
    assert_ne!(wait_for(child), 0);
    must_end("a publish after a child's end", move || {
        alone.publish_at(at(5), 5u64).expect("the vertex is the parent's");
    });
    assert_eq!(vertex.latest().expect("registered").as_f64(), Some(5.0));
    // A child makes a publisher of its own.
    let own = dir.path().to_owned();
    let child = fork(move || {
        let publisher = Publisher::builder("child").dir(&own).max_vertices(4).create();
        let publisher = publisher.expect("a name of its own");
        let writer = publisher.register(spec("test/own", ValueType::U64)).expect("room");
        let is_well = writer.publish(1u64).is_ok();
        drop(publisher);
        is_well && !own.join("child.seg").exists()
    });
    assert_eq!(wait_for(child), 0);
}

/// A child that was forked inside of a tick has the tick too, and ended it.
#[test]
fn a_child_that_is_forked_inside_of_a_tick_wakes_no_reader() {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "parent");
    let mut group = publisher.group("g").expect("room");
    let member = group.register(spec("test/member", ValueType::U64)).expect("room");
    let mut tick = group.tick(at(1));
    tick.publish(&member, 1u64).expect("its own");
    let epoch = || {
        let bytes = std::fs::read(publisher.path()).expect("readable");
        u32::from_le_bytes(bytes[260..264].try_into().expect("four bytes"))
    };
    let host = Host::open_dirs(vec![dir.path().to_owned()]).expect("ours");
    // A waiter whose time is over leaves its flag up.
    assert!(!host.wait(Duration::from_millis(1), || false));
    let before = epoch();
    let child = fork(|| {
        // SAFETY: the child never uses the parent's copy again, which it leaves without running its destructor.
        drop(unsafe { std::ptr::read(&raw const tick) });
        true
    });
    assert_eq!(wait_for(child), 0);
    assert_eq!(epoch(), before, "the child woke the readers of its parent");
    tick.commit();
    assert_eq!(epoch(), before + 1);
}

/// Children of a middleware that forks for every request.
const REQUESTS: u64 = 60;

#[test]
fn a_trial_of_a_middleware_that_forks_while_it_publishes() {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "middleware");
    let writer = publisher.register(spec("test/served", ValueType::U64)).expect("room");
    let segment = Segment::open(publisher.path()).expect("sound");
    let vertex = segment.find(&topic("test/served")).expect("registered");
    let mut served = vertex.subscribe();
    let mut seen = Vec::new();
    for request in 1..=REQUESTS {
        let child = fork(|| match request % 4 {
            // Drops its copies, as a server that was written for one process does.
            0 => {
                // SAFETY: the child never uses the parent's copies again, which it leaves without a destructor.
                drop(unsafe {
                    (std::ptr::read(&raw const writer), std::ptr::read(&raw const publisher))
                });
                true
            }
            1 => {
                // SAFETY: as above.
                let _copy = unsafe { std::ptr::read(&raw const publisher) };
                panic!("on purpose");
            }
            // Publishes until it is killed.
            2 => loop {
                if writer.publish_at(at(1_000_000), 7u64).is_ok() {
                    break false;
                }
            },
            _ => {
                publisher.unregister(&writer);
                true
            }
        });
        // The parent publishes while its child does that.
        writer.publish_at(at(request.cast_signed()), request).expect("its own");
        if request % 4 == 2 {
            // SAFETY: a child of this test.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        let status = wait_for(child);
        match request % 4 {
            1 => assert_ne!(status, 0, "it panicked"),
            2 => assert!(libc::WIFSIGNALED(status), "request {request}: a child has published"),
            _ => assert_eq!(status, 0, "request {request}"),
        }
        while let Some(delivery) = served.try_next().expect("registered") {
            let Delivery::Sample(sample) = delivery else { panic!("{delivery:?}") };
            seen.push(sample.value.as_f64().expect("a number"));
        }
    }
    let all: Vec<f64> = (1..=REQUESTS).map(|request| request as f64).collect();
    assert_eq!(seen, all, "each sample of the parent came once, and no other");
    assert!(segment.is_alive() && publisher.path().exists());
    must_end("a publish after all children", move || {
        writer.publish_at(at(REQUESTS.cast_signed() + 1), 0u64).expect("its own");
    });
}

/// The process whose child outlives it.
#[test]
#[ignore = "a child process of the test below"]
fn publish_and_fork() {
    let Some(dir) = child_dir() else { return };
    let publisher = publisher(&dir, "parent");
    let writer = publisher.register(spec("test/a", ValueType::U64)).expect("room");
    writer.publish_at(at(1), 1u64).expect("its own");
    let child = fork(|| {
        std::thread::sleep(Duration::from_secs(u64::from(CHILD_SECONDS)));
        true
    });
    std::fs::write(dir.join("child"), child.to_string()).expect("a writable folder");
    die_with_parent();
    std::thread::sleep(Duration::from_secs(600));
    exit(1);
}

#[test]
fn a_killed_parent_is_dead_while_its_child_lives_and_its_vertices_are_gone() {
    let dir = runtime_dir();
    let mut command = this_binary("forks::publish_and_fork", dir.path());
    let mut parent = Kill(command.spawn().expect("this binary runs"));
    let child: libc::pid_t = eventually("the child", || {
        std::fs::read_to_string(dir.path().join("child")).ok()?.parse().ok()
    });
    let segment = Segment::open(&dir.path().join("parent.seg")).expect("sound");
    let vertex = segment.find(&topic("test/a")).expect("registered");
    let mut cursor = vertex.subscribe();
    // A reader whose system calls are filtered has no descriptor of the process.
    let path = dir.path().join("parent.seg");
    let filtered = std::thread::spawn(move || {
        crate::waiting::refuse(libc::SYS_pidfd_open, libc::EPERM);
        Segment::open(&path).expect("sound")
    });
    let filtered = filtered.join().expect("no panic");
    assert!(segment.is_alive() && filtered.is_alive());
    parent.0.kill().expect("our own child");
    parent.0.wait().expect("our own child");
    // SAFETY: the signal 0 only asks whether the process is there.
    assert_eq!(unsafe { libc::kill(child, 0) }, 0, "the child lives, and has the lock");
    assert!(!segment.is_alive());
    assert!(!filtered.is_alive(), "without a descriptor");
    assert_eq!(vertex.latest().expect("it stays").as_f64(), Some(1.0));
    let waited = cursor.next_timeout(Duration::from_millis(10));
    assert!(matches!(waited, Err(Error::Gone(_))), "{waited:?}");
    // The next publisher of the name takes its place, and readers of the old one learn it.
    let again = publisher(dir.path(), "parent");
    let writer = again.register(spec("test/a", ValueType::U64)).expect("room");
    writer.publish_at(at(2), 2u64).expect("its own");
    assert!(matches!(vertex.latest(), Err(Error::Gone(_))));
    assert!(matches!(cursor.try_next(), Err(Error::Gone(_))));
    let found = Segment::open(again.path()).expect("sound").find(&topic("test/a"));
    assert_eq!(found.expect("registered").latest().expect("published").as_f64(), Some(2.0));
    // SAFETY: the child of the process that this test started.
    unsafe { libc::kill(child, libc::SIGKILL) };
}

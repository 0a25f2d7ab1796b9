//! Sleeping until something is published, in this process and in others.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use skopos_model::{Value, ValueType};
use skopos_shm::{Delivery, Error, Host, Publisher, Segment, Vertex, VertexWriter};

use crate::support::{
    Kill, PATIENCE, at, child_dir, must_end, publisher, runtime_dir, skipped, spec, this_binary,
    topic,
};

/// More naps than a waiter that no publisher can wake takes in a second: fifty, after a few short ones at the start.
const NAPS_OF_A_SECOND: u64 = 100;

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

/// Makes the system call `number` fail with `error` in this thread, as the filters of containers do.
pub(crate) fn refuse(number: libc::c_long, error: libc::c_int) {
    answer(number, libc::SECCOMP_RET_ERRNO | error as u32);
}

/// Has the kernel answer a system call of this thread in this way.
fn answer(number: libc::c_long, way: u32) {
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let number = u32::try_from(number).expect("a small number");
    let mut steps = [
        step(LOAD_NUMBER, 0, 0, 0),
        step(IF_EQUAL, 0, 1, number),
        step(RETURN, 0, 0, way),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the calls change this thread alone, and the kernel copies the program.
    let made = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(made, "no filter: {}", std::io::Error::last_os_error());
}

/// Returns how often this thread has gone to sleep. A thread that runs all the time never does.
fn sleeps() -> u64 {
    // SAFETY: all fields are numbers, for which zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the numbers outlive the call.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    usage.ru_nvcsw as u64
}

/// Waits, and checks that this thread sleeps meanwhile, and wakes at most `most` times. A busy machine makes it wake less often.
fn rests(what: &str, most: u64, wait: impl FnOnce()) {
    let before = sleeps();
    wait();
    let slept = sleeps() - before;
    assert!((1..=most).contains(&slept), "{what} slept {slept} times, and may {most} times");
}

#[test]
#[ignore = "a child process of the test below"]
fn wait_under_a_filter() {
    let Some(dir) = child_dir() else { return };
    let both = ["a", "b"].map(|name| publisher(&dir, name));
    let writer = both[0].register(spec("test/a", ValueType::U64)).expect("room");
    let host = Host::open_dirs(vec![dir]).expect("ours");
    let vertex = host.find(&topic("test/a")).expect("registered");
    let second = Duration::from_secs(1);
    refuse(libc::SYS_futex_waitv, libc::EPERM);
    rests("a waiter for two segments", NAPS_OF_A_SECOND, || {
        assert!(!host.wait(second, || false));
    });
    refuse(libc::SYS_futex, libc::EPERM);
    let mut cursor = vertex.subscribe();
    // Each sleep takes a millisecond at least.
    rests("a waiter for a vertex", 1100, || {
        assert!(cursor.next_timeout(second).expect("registered").is_none());
    });
    writer.publish(1u64).expect("registered");
    assert_eq!(number(cursor.next_timeout(second).expect("registered")), Some(1));
    // The harness would wait for this thread, which can wake nobody any more.
    // SAFETY: the call ends this process.
    unsafe { libc::_exit(0) };
}

#[test]
fn a_wait_whose_system_call_is_refused_rests() {
    let dir = runtime_dir();
    let status = this_binary("waiting::wait_under_a_filter", dir.path()).status();
    assert!(status.expect("this binary runs").success());
}

/// Waits for a publisher outside, whose page of flags this process cannot attach.
#[test]
#[ignore = "a child process of the test below"]
fn wait_in_another_ipc_namespace() {
    let Some(dir) = child_dir() else { return };
    let host = Host::open_dirs(vec![dir]).expect("our own directory");
    let mut news = host.find(&topic("test/bell")).expect("registered").subscribe();
    rests("a waiter in another namespace", 2 * NAPS_OF_A_SECOND, || {
        assert!(news.next_timeout(Duration::from_secs(2)).expect("registered").is_none());
    });
    println!("\nwaiting");
    assert_eq!(number(news.next_timeout(PATIENCE).expect("registered")), Some(7));
}

/// Waiting there once took 1.4 % of a core, by a thousand naps a second.
#[test]
fn a_waiter_in_another_ipc_namespace_rests_and_is_served() {
    let dir = runtime_dir();
    let (publisher, writer, _vertex) = one(&dir);
    let me = this_binary("waiting::wait_in_another_ipc_namespace", dir.path());
    let mut unshare = std::process::Command::new("unshare");
    unshare.arg("--ipc").arg(me.get_program()).args(me.get_args());
    unshare.envs(me.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let can = std::process::Command::new("unshare").args(["--ipc", "true"]).status();
    if !can.is_ok_and(|status| status.success()) {
        skipped("a_waiter_in_another_ipc_namespace_rests_and_is_served", "unshare --ipc fails");
        return;
    }
    let mut child = Kill(unshare.stdout(Stdio::piped()).spawn().expect("it ran before"));
    let mut lines = BufReader::new(child.0.stdout.take().expect("piped")).lines();
    must_end("a reader in another namespace", move || {
        while lines.next().expect("not ended").expect("UTF-8") != "waiting" {}
        writer.publish(7u64).expect("registered");
        assert!(child.0.wait().expect("our own child").success());
    });
    drop(publisher);
}

#[test]
#[ignore = "a child process of the test below"]
fn wait_without_membarrier() {
    let Some(dir) = child_dir() else { return };
    let publisher = publisher(&dir, "a");
    let mut writer = publisher.writer::<u64>("test/a").expect("room");
    let bytes = std::fs::read(publisher.path()).expect("readable");
    if bytes[244] == 0 {
        skipped("wait_without_membarrier", "the kernel has no membarrier");
        return;
    }
    refuse(libc::SYS_membarrier, libc::EPERM);
    let host = Host::open_dirs(vec![dir.clone()]).expect("ours");
    let mut cursor = host.find(&topic("test/a")).expect("registered").subscribe();
    rests("a waiter without the fence", NAPS_OF_A_SECOND, || {
        assert!(cursor.next_timeout(Duration::from_secs(1)).expect("registered").is_none());
    });
    let mut flag_is_up = true;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            writer.publish(1).expect("registered");
        });
        assert_eq!(number(cursor.next_timeout(PATIENCE).expect("registered")), Some(1));
        // The epoch counts wake-ups: a waiter without the fence must not rely on one.
        let bytes = std::fs::read(publisher.path()).expect("readable");
        flag_is_up = bytes[260..264] != [0; 4];
    });
    assert!(!flag_is_up, "it raised a flag without the fence");
}

/// Waits in the way that the environment names, once waits are known to work, where the kernel ends the process at the
/// next `membarrier`.
#[test]
#[ignore = "a child process of the test below"]
fn wait_until_membarrier_kills() {
    let Some(dir) = child_dir() else { return };
    let both = ["a", "b"].map(|name| publisher(&dir, name));
    let _writers =
        both.each_ref().map(|publisher| publisher.writer::<u64>("test/a").expect("room"));
    let host = Host::open_dirs(vec![dir]).expect("ours");
    let mut cursor = host.find(&topic("test/a")).expect("registered").subscribe();
    let short = Duration::from_millis(50);
    assert!(cursor.next_timeout(short).expect("registered").is_none());
    answer(libc::SYS_membarrier, libc::SECCOMP_RET_KILL_PROCESS);
    match std::env::var("SKOPOS_TEST_WAIT").as_deref() {
        Ok("vertex") => drop(cursor.next_timeout(short)),
        Ok("host") => drop(host.wait(short, || false)),
        // Without a wait the process goes on.
        _ => {}
    }
}

#[test]
fn a_waiter_makes_the_fence_of_the_publisher() {
    use std::os::unix::process::ExitStatusExt as _;
    let dir = runtime_dir();
    let probe = publisher(dir.path(), "probe");
    if std::fs::read(probe.path()).expect("readable")[244] == 0 {
        skipped("a_waiter_makes_the_fence_of_the_publisher", "the kernel has no membarrier");
        return;
    }
    for (way, signal) in [("vertex", Some(libc::SIGSYS)), ("host", Some(libc::SIGSYS)), ("", None)]
    {
        let dir = runtime_dir();
        let mut child = this_binary("waiting::wait_until_membarrier_kills", dir.path());
        let status = child.env("SKOPOS_TEST_WAIT", way).status().expect("this binary runs");
        assert_eq!(status.signal(), signal, "{way}: {status}");
    }
}

/// A waiter that cannot make the fence that the publisher leaves out could miss a wake-up.
#[test]
fn a_waiter_without_membarrier_polls() {
    let dir = runtime_dir();
    let status = this_binary("waiting::wait_without_membarrier", dir.path()).status();
    assert!(status.expect("this binary runs").success());
}

#[test]
fn a_damaged_count_is_an_error_and_keeps_no_reader_busy() {
    use std::os::unix::fs::FileExt as _;
    let dir = runtime_dir();
    let (publisher, writer, vertex) = one(&dir);
    writer.publish_at(at(1), 1u64).expect("registered");
    let mut cursor = vertex.subscribe();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(publisher.path());
    let file = file.expect("our own file");
    // The word `head` is the second of the vertex, which begins with its owner.
    let bytes = std::fs::read(publisher.path()).expect("readable");
    let heap = u64::from_le_bytes(bytes[56..64].try_into().expect("eight bytes"));
    file.write_all_at(&(1u64 << 40).to_le_bytes(), heap + 8).expect("written");
    must_end("reads of a damaged vertex", move || {
        let gone = |e: Option<Error>| matches!(e, Some(Error::Damaged(_)));
        assert!(gone(vertex.latest().err()));
        assert!(gone(vertex.as_of(at(5)).err()));
        assert!(gone(vertex.range(at(0)..=at(9)).err()));
        assert!(gone(cursor.next_timeout(PATIENCE).err()), "at once");
    });
}

#[test]
fn an_unchanged_value_wakes_nobody() {
    let dir = runtime_dir();
    let (_publisher, writer, vertex) = one(&dir);
    writer.publish(1u64).expect("registered");
    let mut cursor = vertex.subscribe();
    let waiting = std::thread::spawn(move || {
        // It looks ten times a second by itself; each of the publishes would wake it more often.
        rests("a waiter for a change", 20, || {
            let found = cursor.next_timeout(Duration::from_millis(300)).expect("registered");
            assert_eq!(found, None);
        });
    });
    while !waiting.is_finished() {
        writer.publish(1u64).expect("registered");
    }
    waiting.join().expect("it rests");
}

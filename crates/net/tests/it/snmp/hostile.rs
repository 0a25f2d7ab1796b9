//! Agents on the loopback that misbehave.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use skopos_net::snmp::{MAX_ROWS, Poller, Secret};

use super::{Facts, run, v2c};

/// A request, as far as an agent of this test reads it: its number, and its first object.
struct Request {
    id: [u8; 4],
    is_get: bool,
    oid: Vec<u8>,
}

/// Reads a request. Its lengths are short forms, or two bytes long.
fn read(bytes: &[u8]) -> Request {
    let at = bytes.iter().position(|byte| matches!(byte, 0xa0 | 0xa5)).expect("a request");
    let is_get = bytes[at] == 0xa0;
    let content = &bytes[at + if bytes[at + 1] == 0x81 { 3 } else { 2 }..];
    let length = usize::from(content[1]);
    let mut id = [0; 4];
    id[4 - length..].copy_from_slice(&content[2..2 + length]);
    let oid = content.windows(2).position(|pair| pair[0] == 6 && pair[1] < 30).expect("an object");
    let end = oid + 2 + usize::from(content[oid + 1]);
    Request { id, is_get, oid: content[oid + 2..end].to_vec() }
}

fn put(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag, 0x82];
    out.extend((content.len() as u16).to_be_bytes());
    out.extend(content);
    out
}

/// Makes a response with objects and integers.
fn response(id: [u8; 4], community: &[u8], bindings: &[(Vec<u8>, u32)]) -> Vec<u8> {
    let list: Vec<u8> = bindings
        .iter()
        .flat_map(|(oid, value)| {
            let pair = [put(6, oid), put(0x41, &value.to_be_bytes())].concat();
            put(0x30, &pair)
        })
        .collect();
    let pdu = [put(2, &id), put(2, &[0]), put(2, &[0]), put(0x30, &list)].concat();
    put(0x30, &[put(2, &[1]), put(4, community), put(0xa2, &pdu)].concat())
}

/// An agent that gives each request to `answer`, and sends what it returns.
struct Agent {
    poller: Poller,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Agent {
    fn new(answer: impl Fn(Request) -> Vec<Vec<u8>> + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("set");
        let address = socket.local_addr().expect("bound");
        let folder = tempfile::tempdir().expect("a folder");
        let settings = v2c("sw1", address, folder.path(), "public");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !stopped.load(Ordering::Relaxed) {
                let Ok((bytes, from)) = socket.recv_from(&mut buffer) else { continue };
                for datagram in answer(read(&buffer[..bytes])) {
                    let _ = socket.send_to(&datagram, from);
                }
            }
        });
        let poller = Poller::new(&[settings]).expect("a poller");
        Self { poller, stop, thread: Some(thread), _folder: folder }
    }

    /// Polls until the first poll has ended, with a clock that runs ten times as fast.
    fn poll(&mut self) -> Facts {
        let mut facts = Facts::default();
        run(&mut self.poller, &mut facts, 10, |poller, _| {
            poller.counts().polls + poller.counts().failed_polls > 0
        });
        facts
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A good answer to the request for the system, and one that ends all other tables.
fn good(request: &Request) -> Vec<u8> {
    let oid = if request.is_get { request.oid.clone() } else { vec![0x2b, 7] };
    response(request.id, b"public", &[(oid, 5)])
}

fn about(facts: &Facts) -> &str {
    &facts.structured["snmp_device/sw1/about"]
}

#[test]
fn an_agent_with_empty_tables_is_polled_to_the_end() {
    let mut agent = Agent::new(|request| vec![good(&request)]);
    let facts = agent.poll();
    assert_eq!(agent.poller.counts().polls, 1);
    assert_eq!(facts.known["snmp_device/sw1/answers"], 1.0);
    assert!(about(&facts).contains(r#""faults":[]"#), "{}", about(&facts));
    assert!(!facts.known.contains_key("snmp_device/sw1/memory_bytes"));
    assert_eq!(facts.unknown["snmp_device/sw1/memory_bytes"], "the device does not offer it");
}

#[test]
fn a_silent_device_is_given_up_and_asked_more_rarely() {
    let mut agent = Agent::new(|_| Vec::new());
    let facts = agent.poll();
    let counts = agent.poller.counts();
    assert_eq!((counts.requests, counts.timeouts, counts.failed_polls), (3, 3, 1));
    assert_eq!(facts.known["snmp_device/sw1/answers"], 0.0);
    assert!(about(&facts).contains("did not answer"));
    // The next poll begins after twice the interval; nothing is sent before.
    let mut facts = Facts::default();
    agent.poller.turn(Duration::from_secs(39), &mut facts).expect("a turn");
    assert_eq!(agent.poller.counts().requests, 3);
    agent.poller.turn(Duration::from_secs(100), &mut facts).expect("a turn");
    assert_eq!(agent.poller.counts().requests, 4);
}

#[test]
fn a_device_that_is_silent_for_an_interval_did_not_answer() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings = v2c("sw1", socket.local_addr().expect("bound"), folder.path(), "public");
    // Three requests with their timeouts take seven seconds.
    settings.interval = Duration::from_secs(5);
    let mut poller = Poller::new(&[settings]).expect("a poller");
    let mut facts = Facts::default();
    for (at, wait) in [(0, 1), (1, 2), (3, 2)] {
        let next = poller.turn(Duration::from_secs(at), &mut facts).expect("a turn");
        assert_eq!(next, Duration::from_secs(wait), "at {at} s");
    }
    poller.turn(Duration::from_secs(5), &mut facts).expect("a turn");
    let counts = poller.counts();
    assert_eq!((counts.requests, counts.timeouts, counts.failed_polls), (3, 3, 1));
    assert!(about(&facts).contains("did not answer"), "{}", about(&facts));
}

#[test]
fn answers_that_are_not_the_answer_are_refused_and_the_good_one_is_taken() {
    let mut agent = Agent::new(|request| {
        let whole = good(&request);
        let [a, b, c, d] = request.id;
        let mut long = whole.clone();
        // A length that says 4 GiB.
        long.splice(1..4, [0x84, 0xff, 0xff, 0xff, 0xff]);
        vec![
            whole[..whole.len() / 2].to_vec(),
            response([a, b, c, d ^ 1], b"public", &[]),
            response(request.id, b"secret", &[]),
            long,
            vec![],
            whole.clone(),
            whole,
        ]
    });
    let facts = agent.poll();
    let counts = agent.poller.counts();
    assert_eq!((counts.polls, counts.failed_polls, counts.timeouts), (1, 0, 0));
    assert!(counts.refused >= 5 * counts.responses, "{counts:?}");
    assert_eq!(facts.known["snmp_device/sw1/answers"], 1.0);
}

#[test]
fn an_agent_that_repeats_an_object_ends_its_columns_only() {
    let mut agent = Agent::new(|request| {
        if request.is_get {
            return vec![good(&request)];
        }
        // The object after which the poller asks, again and again.
        vec![response(request.id, b"public", &[(request.oid.clone(), 1)])]
    });
    let facts = agent.poll();
    assert_eq!(agent.poller.counts().polls, 1);
    assert!(about(&facts).contains("do not increase"), "{}", about(&facts));
}

#[test]
fn a_walk_without_an_end_is_bounded() {
    let mut agent = Agent::new(|request| {
        if request.is_get {
            return vec![good(&request)];
        }
        // The next objects of the first column, with a last part that has no end.
        let base = request.oid.clone();
        let table = base.len().min(10);
        let below: u32 = base[table..].iter().fold(0, |n, byte| n << 7 | u32::from(byte & 0x7f));
        let bindings: Vec<_> = (1..=200u32)
            .map(|step| {
                let row = below + step;
                let mut oid = base[..table].to_vec();
                oid.extend(
                    (0..4)
                        .rev()
                        .map(|n| (row >> (7 * n) & 0x7f) as u8 | if n == 0 { 0 } else { 0x80 }),
                );
                (oid, row)
            })
            .collect();
        vec![response(request.id, b"public", &bindings)]
    });
    let facts = agent.poll();
    let interfaces = facts.structured.keys().filter(|topic| topic.starts_with("snmp_interface"));
    assert!(interfaces.count() <= MAX_ROWS);
    assert!(about(&facts).contains("reason"), "{}", about(&facts));
}

#[test]
fn a_flood_of_wrong_answers_ends_the_poll() {
    let mut agent = Agent::new(|_| vec![b"x".to_vec(); 100]);
    let facts = agent.poll();
    assert_eq!(agent.poller.counts().failed_polls, 1);
    assert_eq!(facts.known["snmp_device/sw1/answers"], 0.0);
}

#[test]
fn secrets_are_not_printed_and_files_that_others_read_are_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(format!("{:?}", Secret::new(b"public")), "Secret");
    let folder = tempfile::tempdir().expect("a folder");
    let settings = v2c("sw1", ([127, 0, 0, 1], 1).into(), folder.path(), "hush-hush");
    let mut poller = Poller::new(std::slice::from_ref(&settings)).expect("a poller");
    let mut facts = Facts::default();
    poller.turn(Duration::ZERO, &mut facts).expect("a turn");
    assert_eq!(poller.counts().requests, 1, "the secret was read");
    assert!(!format!("{poller:?}").contains("hush"), "{poller:?}");
    let file = settings.community_file.as_ref().expect("set");
    let mode = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(file, mode).expect("changed");
    let mut poller = Poller::new(&[settings]).expect("a poller");
    poller.turn(Duration::ZERO, &mut facts).expect("a turn");
    assert!(about(&facts).contains("hint: chmod 600"), "{}", about(&facts));
}

#[test]
fn a_device_without_its_secret_keeps_no_other_one_from_its_polls() {
    let folder = tempfile::tempdir().expect("a folder");
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("bound");
    let lost = v2c("sw2", address, folder.path(), "public");
    let file = lost.community_file.clone().expect("set");
    std::fs::remove_file(&file).expect("removed");
    let whole = v2c("sw1", address, folder.path(), "public");
    let mut poller = Poller::new(&[lost.clone(), whole]).expect("a poller");
    let mut facts = Facts::default();
    poller.turn(Duration::ZERO, &mut facts).expect("a turn");
    assert_eq!((poller.counts().requests, poller.counts().failed_polls), (1, 1));
    assert_eq!(facts.known["snmp_device/sw2/answers"], 0.0);
    let why = &facts.structured["snmp_device/sw2/about"];
    assert!(why.contains("sw2.community") && why.contains("No such file"), "{why}");
    // It is polled once its secret can be read.
    let mut poller = Poller::new(&[lost]).expect("a poller");
    poller.turn(Duration::ZERO, &mut facts).expect("a turn");
    assert_eq!(poller.counts().requests, 0);
    v2c("sw2", address, folder.path(), "public");
    poller.turn(Duration::from_secs(20), &mut facts).expect("a turn");
    assert_eq!(poller.counts().requests, 1);
}

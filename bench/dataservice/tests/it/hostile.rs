//! Messages that no client of ours sends.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, connect, recv, send, socket,
};
use skopos_dataservice::config::Config;
use skopos_dataservice::message::{HEAD_BYTES, Head, Kind};
use skopos_dataservice::rpcs::Rpc;

use crate::setup::Service;

/// A wait that only ends a hang.
const LONG: Duration = Duration::from_secs(60);

fn raw(path: &Path) -> OwnedFd {
    let descriptor = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    connect(&descriptor, &SocketAddrUnix::new(path).expect("an address")).expect("connected");
    descriptor
}

/// Sends `messages`, and returns whether the server closed the connection.
fn is_refused(path: &Path, messages: &[Vec<u8>]) -> bool {
    let socket = raw(path);
    for message in messages {
        // A server that has closed already is what the test waits for.
        let _ = send(&socket, message, SendFlags::NOSIGNAL);
    }
    let mut buffer = [0; 4096];
    loop {
        match recv(&socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((_, 0)) | Err(rustix::io::Errno::CONNRESET) => return true,
            Ok((_, _)) => {}
            Err(_) => return false,
        }
    }
}

fn hello() -> Vec<u8> {
    [&Head::new(Kind::Hello, 3).to_bytes()[..], b"bad"].concat()
}

#[test]
fn a_hostile_message_ends_its_connection_and_no_other() {
    let service = Service::start(&Config::default());
    let mut unknown = Head::new(Kind::Request, 0);
    unknown.rpc = 99;
    let mut overflow = Head::new(Kind::Request, 1 << 20);
    overflow.rpc = Rpc::Put.number();
    overflow.overflow_at = u64::MAX;
    let full = [&overflow.to_bytes()[..], &[0; 4096]].concat();
    let long = [&Head::new(Kind::Hello, 3).to_bytes()[..], &[0; 100_000]].concat();
    let cases: [(&str, Vec<Vec<u8>>); 9] = [
        ("one byte", vec![vec![1]]),
        ("half a head", vec![hello()[..HEAD_BYTES / 2].to_vec()]),
        ("another program", vec![vec![0xAB; 200]]),
        ("a request before the hello", vec![Head::new(Kind::Request, 0).to_bytes().to_vec()]),
        ("two hellos", vec![hello(), hello()]),
        ("a response", vec![hello(), Head::new(Kind::Response, 0).to_bytes().to_vec()]),
        ("an unknown RPC", vec![hello(), unknown.to_bytes().to_vec()]),
        ("an overflow without a region", vec![hello(), full]),
        ("a message longer than the buffer", vec![long]),
    ];
    for (number, (name, messages)) in (1_u64..).zip(&cases) {
        assert!(is_refused(&service.socket, messages), "{name}");
        let begin = Instant::now();
        while service.probe.gauges().refused_messages.get() < number && begin.elapsed() < LONG {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(service.probe.gauges().refused_messages.get(), number, "{name} is counted");
    }
    let keys = service.keyvalue();
    service.finish(keys.put(None, 0, b"k", b"v")).expect("other connections work");
}

#[test]
fn an_input_that_ends_early_fails_its_call_only() {
    let service = Service::start(&Config::default());
    for rpc in [Rpc::Put, Rpc::Get, Rpc::PutPacked, Rpc::ListKeyvals, Rpc::Create, Rpc::Write] {
        let request = skopos_dataservice::origin::Request::new(0, rpc, None);
        let call = service.caller().call(request, |writer| {
            writer.u32(0);
        });
        assert!(service.finish(call).is_err(), "{rpc:?}");
    }
    // The bulk lies outside of the region, and is longer than any.
    for (at, bytes) in [(u64::MAX, 8), (0, u64::MAX), (1 << 40, 4096)] {
        let request = skopos_dataservice::origin::Request::new(0, Rpc::PutPacked, None);
        let call = service.caller().call(request, |writer| {
            writer.u32(0).u32(1).u64(at).u64(bytes);
        });
        assert!(service.finish(call).is_err(), "{bytes} bytes at {at}");
    }
    service.finish(service.keyvalue().put(None, 0, b"k", b"v")).expect("put");
}

//! Ports for servers that cannot choose one themselves, or cannot say which one they chose. Tests of other crates use it too.

use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns a port of the loopback at which a server can listen by TCP or UDP, another one at each call. The kernel's ephemeral
/// ports begin at 32,768 unless an administrator has changed `ip_local_port_range`. A port below them is taken neither by a
/// connection of another test nor by a listener at port 0 before the server starts.
pub(crate) fn free_port() -> u16 {
    let is_free = |port: u16| {
        let at = ("127.0.0.1", port);
        TcpListener::bind(at).is_ok() && UdpSocket::bind(at).is_ok()
    };
    find_port(is_free).expect("a free port from 12,000 to 31,999")
}

/// Returns the next port that is free; `None` after all were tried.
fn find_port(is_free: impl Fn(u16) -> bool) -> Option<u16> {
    const PORTS: std::ops::Range<u32> = 12_000..32_000;
    static CALLS: AtomicU32 = AtomicU32::new(0);
    // Programs that run at once begin at different ports.
    let first = std::process::id().wrapping_mul(101);
    let ports = std::iter::repeat_with(|| {
        let at = first.wrapping_add(CALLS.fetch_add(1, Ordering::Relaxed));
        (PORTS.start + at % (PORTS.end - PORTS.start)) as u16
    });
    ports.take(PORTS.len()).find(|port| is_free(*port))
}

#[test]
fn the_search_for_a_port_ends_without_a_free_one() {
    assert_eq!(find_port(|_| false), None);
}

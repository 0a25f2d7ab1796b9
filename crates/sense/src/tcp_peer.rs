//! `tcp_peer`: the open TCP connections to each remote address, by [`sock_diag`](crate::sock_diag).
//!
//! The instance `all` has every connection, also those of addresses for which there is no room. Sums are over connections
//! that are open now, so they fall when a connection closes.

use std::io;

use skopos_model::schema::Family;
use skopos_model::schema::tcp_peer::{self, *};

use crate::instances::{Instance, Instances};
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};
use crate::sock_diag::{Socket, Sockets, write_label};

/// The most remote addresses. A node of a job talks to a few dozen; a public server has thousands of clients, of which the
/// first ones are shown.
const MAX_ADDRESSES: usize = 128;

/// The instance of all connections.
const ALL: &[u8] = b"all";

const MICROS_PER_SECOND: f64 = 1e6;

pub(crate) struct TcpPeer {
    sockets: Sockets,
    peers: Instances<Sums>,
    label: Vec<u8>,
}

/// The sums of one instance in this tick.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    connections: u64,
    receive_queue: u64,
    send_queue: u64,
    not_sent: u64,
    retransmits: u64,
    lost: u64,
    pacing: u64,
    /// The sum, the number and the greatest of round-trip times.
    rtt_micros: u64,
    measured: u64,
    rtt_micros_max: u32,
}

impl Sums {
    fn add(&mut self, socket: &Socket) {
        self.connections += 1;
        self.receive_queue += u64::from(socket.receive_queue);
        self.send_queue += u64::from(socket.send_queue);
        let Some(info) = socket.info else { return };
        self.not_sent += u64::from(info.not_sent.unwrap_or(0));
        self.retransmits += u64::from(info.retransmits);
        self.lost += u64::from(info.lost);
        self.pacing = self.pacing.saturating_add(info.pacing.unwrap_or(0));
        // A connection that is being opened has no time yet.
        if info.rtt_micros > 0 {
            self.rtt_micros += u64::from(info.rtt_micros);
            self.measured += 1;
            self.rtt_micros_max = self.rtt_micros_max.max(info.rtt_micros);
        }
    }
}

impl TcpPeer {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        if root.proc != Root::default().proc {
            let reason = "the kernel answers for this machine, not for files";
            return Err(Skip::new("tcp_peer", reason));
        }
        let sockets = Sockets::connected()
            .map_err(|e| Skip::new("tcp_peer", format!("netlink sock_diag: {e}")))?;
        let peers = Instances::new(&tcp_peer::FAMILY, MAX_ADDRESSES + 1);
        Ok(Self { sockets, peers, label: Vec::new() })
    }
}

impl Sensor for TcpPeer {
    fn family(&self) -> &'static Family {
        &tcp_peer::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let Self { sockets, peers, label } = self;
        peers.begin();
        peers.each(|peer| peer.state = Sums::default());
        let mut all = Sums::default();
        // First, so that there is always room for it.
        peers.see(tick.sink, ALL, Sums::default);
        sockets.each(|socket| {
            all.add(socket);
            write_label(label, socket.remote, None);
            if let Some(peer) = peers.see(tick.sink, label, Sums::default) {
                peer.state.add(socket);
            }
        })?;
        if let Some(peer) = peers.see(tick.sink, ALL, Sums::default) {
            peer.state = all;
        }
        peers.end(tick.sink);
        peers.each(|peer| hand_over(peer, tick));
        Ok(())
    }

    fn skips(&self) -> Vec<Skip> {
        self.peers.skips()
    }
}

fn hand_over(peer: &mut Instance<Sums>, tick: &mut Tick<'_>) {
    let sums = peer.state;
    peer.set(tick, &CONNECTIONS, sums.connections);
    peer.set(tick, &RECEIVE_QUEUE_BYTES, sums.receive_queue);
    peer.set(tick, &SEND_QUEUE_BYTES, sums.send_queue);
    peer.set(tick, &NOT_SENT_BYTES, sums.not_sent);
    peer.set(tick, &RETRANSMITTED_SEGMENTS, sums.retransmits);
    peer.set(tick, &LOST_SEGMENTS, sums.lost);
    peer.set(tick, &PACING_BYTES_PER_SECOND, sums.pacing);
    if sums.measured > 0 {
        let mean = sums.rtt_micros as f64 / sums.measured as f64 / MICROS_PER_SECOND;
        peer.set(tick, &RTT_SECONDS_MEAN, mean);
        peer.set(tick, &RTT_SECONDS_MAX, f64::from(sums.rtt_micros_max) / MICROS_PER_SECOND);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::sock_diag::Info;

    #[test]
    fn sums_are_over_connections_and_a_missing_time_is_not_zero() {
        let address = IpAddr::from([192, 0, 2, 1]);
        let info = |rtt_micros| Info {
            lost: 1,
            rtt_micros,
            retransmits: 10,
            pacing: Some(1 << 63),
            not_sent: None,
        };
        let socket = |info| Socket {
            local: (address, 1),
            remote: address,
            receive_queue: 3,
            send_queue: 4,
            info,
        };
        let mut sums = Sums::default();
        for info in [None, Some(info(0)), Some(info(100)), Some(info(300))] {
            sums.add(&socket(info));
        }
        assert_eq!((sums.connections, sums.receive_queue, sums.send_queue), (4, 12, 16));
        assert_eq!((sums.retransmits, sums.lost, sums.pacing), (30, 3, u64::MAX));
        assert_eq!((sums.rtt_micros, sums.measured, sums.rtt_micros_max), (400, 2, 300));
    }
}

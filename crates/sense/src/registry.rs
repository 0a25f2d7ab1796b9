//! The list of all sensors.

use std::sync::Arc;

use crate::peer::endpoint::Endpoint;
use crate::peer::settings::PeerSettings;
use crate::root::Root;
use crate::sensor::{Sensor, Skip};
use crate::shared::Shareable;
use crate::{
    block, block_access, block_latency, cgroup, clock, cpu, device, energy, fs, fsinfo, hwmon,
    interrupts, listener, load, mem, netdev, nic, numa, page_cache, page_cache_hits, peer, process,
    psi, qdisc, qdisc_sojourn, raid, remote_fs, responder, runqueue, slurm, smart, sockets,
    softirqs, softnet, swap, tcp, tcp_peer, udp, vmstat,
};

/// The result of opening every sensor.
pub struct Opened {
    /// The sensors that work on this machine, in the order in which a newcomer should read them.
    pub sensors: Vec<Box<dyn Sensor>>,
    /// Everything that is not measured, with the reasons.
    pub skips: Vec<Skip>,
}

/// Opens every sensor that works on this machine.
pub fn open_all(root: &Root) -> Opened {
    let mut opened = Opened { sensors: Vec::new(), skips: Vec::new() };
    let mut stat = Shareable::at(&root.proc.join("stat"));
    let mut snmp = Shareable::at(&root.proc.join("net/snmp"));
    opened.add(load::Load::open(root));
    opened.add(cpu::Cpu::open(&mut stat));
    opened.add(psi::Psi::open(root));
    opened.add(process::Process::open(root));
    opened.add(interrupts::Interrupts::open(root, &mut stat));
    opened.add(softirqs::Softirqs::open(root, &mut stat));
    opened.add(mem::Mem::open(root));
    opened.add(swap::Swap::open(root));
    opened.add(vmstat::Vmstat::open(root));
    opened.add(numa::Numa::open(root));
    opened.add(block::Block::open(root));
    opened.add(device::Device::open(root));
    opened.add(smart::Smart::open(root));
    opened.add(raid::Raid::open(root));
    opened.add(fs::Fs::open(root));
    opened.add(remote_fs::RemoteFs::open(root));
    opened.add(fsinfo::FsInfo::open(root));
    opened.add(page_cache::PageCache::open(root));
    opened.add(netdev::Netdev::open(root));
    opened.add(nic::Nic::open(root));
    opened.add(softnet::Softnet::open(root));
    opened.add(qdisc::Qdisc::open(root));
    opened.add(tcp::Tcp::open(root, &mut snmp));
    opened.add(udp::Udp::open(root, &mut snmp));
    opened.add(listener::Listener::open(root));
    opened.add(tcp_peer::TcpPeer::open(root));
    opened.add(sockets::Sockets::open(root));
    opened.add(cgroup::Cgroup::open(root));
    opened.add(hwmon::Hwmon::open(root));
    opened.add(energy::Energy::open(root));
    opened.add(clock::Clock::open());
    opened.add(slurm::Slurm::open(root));
    opened.add(block_access::BlockAccess::open(root));
    opened.add(block_latency::BlockLatency::open(root));
    opened.add(runqueue::Runqueue::open(root));
    opened.add(qdisc_sojourn::QdiscSojourn::open(root));
    opened.add(page_cache_hits::PageCacheHits::open(root));
    opened
}

/// Opens the sensors of what agents learn from each other: the families `peer` and `responder`.
/// Without peers and without an address to listen on, it opens no socket and starts no thread.
pub fn open_peers(settings: &PeerSettings) -> Opened {
    let mut opened = Opened { sensors: Vec::new(), skips: Vec::new() };
    if settings.is_empty() {
        opened.skip_peers("no peers are configured, and no address to listen on");
        return opened;
    }
    let endpoint = settings.check().and_then(|()| {
        let at = settings.listen.map_or(String::new(), |address| format!(" on {address}"));
        Endpoint::open(settings).map_err(|e| format!("no UDP socket{at}: {e}"))
    });
    match endpoint {
        Ok(endpoint) => {
            let endpoint = Arc::new(endpoint);
            if !settings.peers.is_empty() {
                opened.sensors.push(Box::new(peer::Peers::new(settings, Arc::clone(&endpoint))));
            }
            opened.sensors.push(Box::new(responder::Responder::new(endpoint)));
        }
        Err(reason) => opened.skip_peers(&reason),
    }
    opened
}

impl Opened {
    fn skip_peers(&mut self, reason: &str) {
        self.skips.push(Skip::new("peer", reason));
        self.skips.push(Skip::new("responder", reason));
    }

    fn add<S: Sensor + 'static>(&mut self, sensor: Result<S, Skip>) {
        match sensor {
            Ok(sensor) => {
                self.skips.extend(sensor.skips());
                self.sensors.push(Box::new(sensor));
            }
            Err(skip) => self.skips.push(skip),
        }
    }
}

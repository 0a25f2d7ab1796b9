//! A configuration with all features of the agent.

use std::net::{Ipv4Addr, UdpSocket};

use skopos_term::Failure;

/// Insights of a user, detectors on some hundred facts, and predictions; the other features are on by default.
const TEXT: &str = r#"
[agent]
node = "bench"

[[insight]]
name = "fs/available_bytes"
sql = "SELECT sum(value) FROM latest WHERE topic LIKE '%/fs/%/available_bytes'"

[[insight]]
name = "fs/fullest_ratio"
sql = "SELECT max(value) FROM latest WHERE topic LIKE '%/fs/%/used_ratio'"

[[insight]]
name = "block/bytes_per_second"
sql = "SELECT sum(rate(value)) FROM latest WHERE topic LIKE '%/block/%/read_bytes_total' OR topic LIKE '%/block/%/written_bytes_total'"

[[insight]]
name = "cpu/busy_p95_ratio"
sql = "SELECT quantile(value, 0.95) FROM latest WHERE topic LIKE '%/cpu/%/busy_ratio'"

[[insight]]
name = "load/mean"
sql = "SELECT ema(value, INTERVAL '5 min') FROM latest WHERE topic = 'bench/load/load_1m'"

[[insight]]
name = "mem/taken_ratio"
sql = "SELECT 1 - sum(value) FILTER (WHERE topic LIKE '%/available_bytes') / sum(value) FILTER (WHERE topic LIKE '%/total_bytes') FROM latest WHERE topic LIKE '%/mem/%_bytes'"

[[anomaly]]
name = "cpu-unusual"
topic = "*/cpu/**"
detector = "robust-z"

[[anomaly]]
name = "block-unusual"
topic = "*/block/**"
detector = "robust-z"

[[anomaly]]
name = "load-shifted"
topic = "*/load/*"
detector = "change-point"

[[anomaly]]
name = "memory-extreme"
topic = "*/mem/*"
detector = "extreme"

[prediction]
topics = ["mem/available_bytes", "cpu/total/*", "block/*/read_bytes_total", "block/*/written_bytes_total"]
every = "1s"
"#;

/// The text of the configuration. The agent is its own peer, so it pays for both ends.
///
/// # Errors
/// There is no free port on the loopback.
pub(super) fn configuration() -> Result<String, Failure> {
    // The port is free now, and another process is unlikely to take it in the next moment.
    let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr());
    let port = port.map_err(|e| Failure::new("no port on the loopback").because(&e))?.port();
    let own = format!("127.0.0.1:{port}");
    Ok(format!("{TEXT}\n[peers]\nlisten = \"{own}\"\nnodes = {{ bench = \"{own}\" }}\n"))
}

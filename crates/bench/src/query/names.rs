//! The names of the stores in the rows.

pub(super) const IN_PROCESS: &str = "in process";
pub(super) const SOCKET: &str = "UNIX socket";
pub(super) const HTTP: &str = "HTTP";
pub(super) const FLIGHT: &str = "Flight SQL";

pub(super) const SQLITE: &str = "sqlite";
pub(super) const DUCKDB: &str = "duckdb";
pub(super) const REDIS: &str = "redis";
pub(super) const POSTGRES: &str = "postgresql";
pub(super) const PROMETHEUS: &str = "prometheus";
pub(super) const VICTORIA: &str = "victoriametrics";

/// Our listeners, and the peers that are reached in the same way.
pub(super) const LISTENERS: [(&str, &[&str]); 4] = [
    (IN_PROCESS, &[SQLITE, DUCKDB]),
    (SOCKET, &[REDIS, POSTGRES]),
    (HTTP, &[PROMETHEUS, VICTORIA]),
    (FLIGHT, &[]),
];

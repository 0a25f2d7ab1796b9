//! The knobs of a process of the service, which are recorded with its trace.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Bound of numbers of threads, databases and processes: far beyond each case, and harmless to start by mistake.
const MAX_COUNT: u32 = 256;

/// Bound of a batch, and of events in one read of the completion queue: the bulk region has room for such a batch.
const MAX_BATCH: u32 = 65_536;

/// The largest eager buffer; a message of the socket must fit its send buffer.
pub const MAX_EAGER_BYTES: u32 = 65_536;

/// Configuration of a process, or of a whole case. Clients and servers take the keys that concern them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Number of client processes.
    pub clients: u32,
    /// Number of server processes.
    pub providers: u32,
    /// Threads of a server that execute the tasks of its pool.
    pub execution_streams: u32,
    /// Databases of all servers together; each lies on one server.
    pub databases: u32,
    /// Events of one put.
    pub batch_size: u32,
    /// Whether a client has a thread for completions; otherwise a task of its only execution stream reads them.
    pub progress_thread: bool,
    /// The most events that one read of the completion queue takes.
    pub max_completion_events: u32,
    /// The most bytes of an input that travel inside of the request; the target pulls the rest.
    pub eager_buffer_bytes: u32,
    /// Time of a transfer of bulk, slept on the execution stream: the latency of a network.
    pub transfer_us: u32,
    /// Time for which a put holds the backend, apart from its keys: the latency of a medium, slept.
    pub commit_us: u32,
    /// Time for which a put holds the backend for each key, in nanoseconds, slept.
    pub insert_ns: u32,
    /// Time that a client needs to read one event from its source, slept on its execution stream.
    pub prepare_us: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            clients: 1,
            providers: 1,
            execution_streams: 4,
            databases: 4,
            batch_size: 64,
            progress_thread: true,
            max_completion_events: 16,
            eager_buffer_bytes: 4096,
            transfer_us: 0,
            commit_us: 0,
            insert_ns: 0,
            prepare_us: 0,
        }
    }
}

impl Config {
    /// Checks all ranges.
    ///
    /// # Errors
    /// A value is outside of its range; the error names it.
    pub fn check(&self) -> Result<()> {
        let within = |key, value: u32, max: u32, range| {
            if (1..=max).contains(&value) {
                Ok(())
            } else {
                Err(Error::Config { key, value: value.into(), range })
            }
        };
        within("clients", self.clients, MAX_COUNT, "1 to 256")?;
        within("providers", self.providers, MAX_COUNT, "1 to 256")?;
        within("execution_streams", self.execution_streams, MAX_COUNT, "1 to 256")?;
        within("databases", self.databases, MAX_COUNT, "1 to 256")?;
        within("batch_size", self.batch_size, MAX_BATCH, "1 to 65536")?;
        within("max_completion_events", self.max_completion_events, MAX_BATCH, "1 to 65536")?;
        within("eager_buffer_bytes", self.eager_buffer_bytes, MAX_EAGER_BYTES, "1 to 65536")
    }

    /// Databases on the server number `server` of `providers`: database `d` lies on server `d % providers`.
    #[must_use]
    pub fn databases_of(&self, server: u32) -> u32 {
        let providers = self.providers.max(1);
        self.databases / providers + u32::from(server % providers < self.databases % providers)
    }

    /// The time of a transfer of bulk.
    #[must_use]
    pub fn transfer(&self) -> Duration {
        Duration::from_micros(self.transfer_us.into())
    }

    /// The time for which a put of `keys` holds the backend.
    #[must_use]
    pub fn hold(&self, keys: usize) -> Duration {
        let keys = u32::try_from(keys).unwrap_or(u32::MAX);
        let inserts = Duration::from_nanos(u64::from(self.insert_ns) * u64::from(keys));
        Duration::from_micros(self.commit_us.into()) + inserts
    }

    /// The keys that a trace records, with their values.
    #[must_use]
    pub fn recorded(&self) -> Vec<(&'static str, String)> {
        vec![
            ("execution_streams", self.execution_streams.to_string()),
            ("databases", self.databases.to_string()),
            ("batch_size", self.batch_size.to_string()),
            ("progress_thread", self.progress_thread.to_string()),
            ("max_completion_events", self.max_completion_events.to_string()),
            ("eager_buffer_bytes", self.eager_buffer_bytes.to_string()),
            ("clients", self.clients.to_string()),
            ("providers", self.providers.to_string()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_database_lies_on_one_server() {
        for (providers, databases) in [(4, 32), (4, 8), (3, 8), (2, 1)] {
            let config = Config { providers, databases, ..Config::default() };
            let sum: u32 = (0..providers).map(|server| config.databases_of(server)).sum();
            assert_eq!(sum, databases, "{providers} servers");
        }
    }

    #[test]
    fn a_server_without_threads_is_refused() {
        let config = Config { execution_streams: 0, ..Config::default() };
        assert!(config.check().is_err());
        assert!(Config::default().check().is_ok());
    }
}

//! Connections, and the runtime on which they work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use skopos_store::jobs::catalogue::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Semaphore;
use tokio_postgres::{Client, Config, NoTls};

use super::connection::Connection;
use super::schema;
use super::tls::Tls;
use super::url::PostgresUrl;

/// The most connections. A server has 100 by default, for all hubs of a database.
const MAX_CONNECTIONS: usize = 8;

/// Time to connect. A server on this machine that does not answer in this time hangs.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time until a connection can be used, its greeting and the check of the tables included.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Time of a change or a question, beyond which the server does not answer any more. The largest change takes seconds,
/// and waits at most for some of other hubs.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);

/// Settings of each connection. A change is on the server's disk when it is acknowledged, whatever the server's own
/// setting is, and a hub that stops in mid-change lets the others go on.
const OPTIONS: &str =
    "-c search_path=skopos -c synchronous_commit=on -c idle_in_transaction_session_timeout=60s";

/// The connections of a catalogue.
pub(super) struct Pool {
    place: String,
    config: Config,
    /// `None` for clear text.
    tls: Option<Tls>,
    /// True once a connection has found the tables in order.
    is_prepared: AtomicBool,
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
    /// `None` while it is dropped.
    runtime: Option<Runtime>,
}

impl Pool {
    /// Makes a pool, and connects to nothing.
    pub(super) fn new(place: &PostgresUrl) -> Result<Self, Error> {
        let mut config = place.config().clone();
        config.application_name("skopos").connect_timeout(CONNECT_TIMEOUT);
        let options = match config.get_options() {
            Some(given) => format!("{given} {OPTIONS}"),
            None => OPTIONS.to_owned(),
        };
        config.options(options);
        let tls = place.authority().map(Tls::new).transpose();
        let place = place.to_string();
        let tls = tls.map_err(|e| {
            Error::database(&place, "the certificate of its authority cannot be read", e)
        })?;
        // The server does the work; one thread carries the messages of all connections.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("catalogue")
            .enable_all()
            .build()
            .map_err(|e| Error::database(&place, "it cannot be opened", e))?;
        Ok(Self {
            place,
            config,
            tls,
            is_prepared: AtomicBool::new(false),
            idle: Mutex::default(),
            permits: Semaphore::new(MAX_CONNECTIONS),
            runtime: Some(runtime),
        })
    }

    /// Runs an action on a connection, and waits for it. A thread that runs async tasks waits for a thread of its own,
    /// because it may not wait for another runtime.
    pub(super) fn run<T: Send>(
        &self,
        action: impl AsyncFnOnce(&mut Connection) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let timed = async |connection: &mut Connection| {
            let within = tokio::time::timeout(CALL_TIMEOUT, action(connection)).await;
            within.unwrap_or_else(|e| Err(Error::database(&self.place, "it does not answer", e)))
        };
        if Handle::try_current().is_err() {
            return self.run_here(timed);
        }
        std::thread::scope(|scope| match scope.spawn(|| self.run_here(timed)).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// Runs an action on a connection for as long as it takes. Not for async tasks.
    pub(super) fn run_here<T>(
        &self,
        action: impl AsyncFnOnce(&mut Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Some(runtime) = &self.runtime else {
            return Err(Error::database(&self.place, "it is closed", "the catalogue was dropped"));
        };
        runtime.block_on(async {
            let _permit = self.permits.acquire().await;
            let mut connection = match self.idle() {
                Some(connection) => connection,
                // A server that accepts connections and is silent must not hold its caller for ever.
                None => match tokio::time::timeout(START_TIMEOUT, self.connect()).await {
                    Ok(connected) => connected?,
                    Err(e) => {
                        return Err(Error::database(&self.place, "it does not answer", e));
                    }
                },
            };
            let result = action(&mut connection).await;
            // After an error a transaction may be open: the connection is dropped, and the server ends it.
            if result.is_ok() {
                self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            }
            result
        })
    }

    /// Returns an idle connection that the server has not closed.
    fn idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::from_fn(|| idle.pop()).find(|connection| !connection.client.is_closed())
    }

    async fn connect(&self) -> Result<Connection, Error> {
        let connected = match &self.tls {
            Some(tls) => started(self.config.connect(tls.clone()).await),
            None => started(self.config.connect(NoTls).await),
        };
        let client =
            connected.map_err(|e| Error::database(&self.place, "it cannot be connected to", e))?;
        let mut connection = Connection::new(&self.place, client);
        // Two connections that prepare at once wait for each other in the database.
        if !self.is_prepared.load(Ordering::Relaxed) {
            schema::prepare(&mut connection).await?;
            self.is_prepared.store(true, Ordering::Relaxed);
        }
        Ok(connection)
    }
}

/// Starts the task that carries the messages of a connection. It ends when the client is dropped; its error reaches the client's
/// calls, too.
fn started<S, T>(
    connected: Result<(Client, tokio_postgres::Connection<S, T>), tokio_postgres::Error>,
) -> Result<Client, tokio_postgres::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (client, messages) = connected?;
    tokio::spawn(messages);
    Ok(client)
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Dropping a runtime in an async task would panic.
            runtime.shutdown_background();
        }
    }
}

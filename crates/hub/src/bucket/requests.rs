//! The calls of an object store, from threads that wait for their answers.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use object_store::{Error, ObjectStore};
use tokio::runtime::{Builder, Runtime};

/// Time of one operation, the repetitions of its requests and all pieces of a segment of 256 MiB included.
const DEADLINE: Duration = Duration::from_secs(300);

/// A client of an object store, with a thread of its own.
#[derive(Debug)]
pub(super) struct Requests {
    store: Arc<dyn ObjectStore>,
    /// `None` once this is dropped.
    runtime: Option<Runtime>,
}

impl Requests {
    /// Starts the thread.
    ///
    /// # Errors
    /// There is no room for a thread.
    pub(super) fn new(store: Arc<dyn ObjectStore>) -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).thread_name("skopos-bucket").enable_all();
        Ok(Self { store, runtime: Some(builder.build()?) })
    }

    /// Waits for an operation, from any thread, one of another runtime too.
    ///
    /// # Errors
    /// The operation failed, or did not end in time.
    pub(super) fn wait<T, F>(
        &self,
        operation: impl FnOnce(Arc<dyn ObjectStore>) -> F,
    ) -> io::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let Some(runtime) = &self.runtime else {
            return Err(io::Error::other("the client has ended"));
        };
        let operation = operation(self.store.clone());
        let (sender, receiver) = mpsc::sync_channel(1);
        runtime.spawn(async move {
            let result = match tokio::time::timeout(DEADLINE, operation).await {
                Ok(result) => result.map_err(|e| of_store(&e)),
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            };
            // Nobody receives if the process ends.
            let _ = sender.send(result);
        });
        receiver.recv().unwrap_or_else(|_| Err(io::Error::other("the client has ended")))
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        // Not `drop`: it waits, and a runtime must not wait inside another one.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Returns the error of a file for an error of an object.
fn of_store(error: &Error) -> io::Error {
    let kind = match error {
        Error::NotFound { .. } => io::ErrorKind::NotFound,
        Error::AlreadyExists { .. } | Error::Precondition { .. } => io::ErrorKind::AlreadyExists,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            io::ErrorKind::PermissionDenied
        }
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error.to_string())
}

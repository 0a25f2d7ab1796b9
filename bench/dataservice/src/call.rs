//! A call on its target: the input, the output, and the steps of the execution between them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::codec::{Reader, Writer};
use crate::error::{Error, Result};
use crate::message::MAX_BODY_BYTES;
use crate::pool::Tasks;
use crate::probe::{Parent, Probe, TargetSpan};
use crate::region::RemoteRegion;
use crate::reply::{Answer, Reply};
use crate::rpcs::Rpc;

use skopos_rpc::Interval;

/// The future of an execution.
pub type Execution<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// A microservice inside of a server process.
pub trait Provider: Send + Sync + std::fmt::Debug {
    /// Whether the provider executes this RPC.
    fn serves(&self, rpc: Rpc) -> bool;

    /// Executes a call: decodes its input, and encodes its output.
    fn execute<'a>(&'a self, rpc: Rpc, call: &'a mut Call) -> Execution<'a>;
}

/// A call that is executed.
#[derive(Debug)]
pub struct Call {
    input: Vec<u8>,
    output: Vec<u8>,
    remote: Option<Arc<RemoteRegion>>,
    span: TargetSpan,
    probe: Arc<Probe>,
    tasks: Tasks,
}

impl Call {
    /// Begins the execution (t5).
    pub(crate) fn begin(
        input: Vec<u8>,
        remote: Option<Arc<RemoteRegion>>,
        mut span: TargetSpan,
        probe: Arc<Probe>,
        tasks: Tasks,
    ) -> Self {
        span.begin(&tasks);
        Self { input, output: Vec::new(), remote, span, probe, tasks }
    }

    /// Deserialises the input with `read` (t6 to t7).
    ///
    /// # Errors
    /// The input does not have the values that `read` expects, or has more.
    pub fn decode<T>(&mut self, read: impl FnOnce(&mut Reader<'_>) -> Result<T>) -> Result<T> {
        let deserialization = self.probe.timer();
        let mut reader = Reader::new(&self.input);
        let value = read(&mut reader)?;
        reader.end()?;
        self.span.interval(Interval::InputDeserialization, deserialization);
        Ok(value)
    }

    /// Pulls `bytes` from the origin's region.
    ///
    /// # Errors
    /// The origin has no such bytes, or they are more than a body may have.
    pub fn pull(&mut self, at: u64, bytes: u64) -> Result<Vec<u8>> {
        self.span.bulk_bytes(bytes);
        self.region()?.pull_bytes(at, bytes)
    }

    /// Pushes `bytes` into the origin's region.
    ///
    /// # Errors
    /// The origin has no region, or not at this place.
    pub fn push(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.span.bulk_bytes(bytes.len() as u64);
        self.region()?.push(at, bytes)
    }

    /// The request, for calls that belong to it.
    #[must_use]
    pub fn parent(&self) -> Parent {
        self.span.parent()
    }

    /// Waits for a call of this execution. Its time does not count as execution of this one.
    ///
    /// # Errors
    /// The call failed.
    pub async fn wait_for(&mut self, reply: Reply) -> Result<Answer> {
        let timer = self.probe.timer();
        let answer = reply.await;
        self.span.exclude(timer);
        answer
    }

    /// Blocks this execution, with its execution stream, until `wait` returns: the wait for a database.
    pub fn wait_for_database<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        let timer = self.probe.timer();
        let result = self.tasks.while_blocked(wait);
        self.span.database_wait(timer);
        result
    }

    /// Sleeps on the execution stream: the latency of a medium.
    pub fn hold(&self, time: Duration) {
        if !time.is_zero() {
            std::thread::sleep(time);
        }
    }

    /// Ends the execution (t8), and serialises the output with `write` (t9 to t10).
    pub fn encode(&mut self, write: impl FnOnce(&mut Writer)) {
        self.span.executed();
        let serialization = self.probe.timer();
        let mut writer = Writer::default();
        write(&mut writer);
        self.output = writer.into_bytes();
        self.span.interval(Interval::OutputSerialization, serialization);
    }

    /// Returns the output and the span, which ends when the response is sent.
    pub(crate) fn finish(mut self, result: &Result<()>) -> (Vec<u8>, TargetSpan) {
        if let Err(error) = result {
            let text = reason(error);
            self.encode(|writer| {
                writer.bytes(text.as_bytes());
            });
            // The text of a failure is the whole output.
            self.output = text.into_bytes();
        }
        if self.output.len() > MAX_BODY_BYTES as usize {
            self.output.clear();
        }
        (self.output, self.span)
    }

    fn region(&self) -> Result<&RemoteRegion> {
        self.remote.as_deref().ok_or(Error::Message("its origin has no region"))
    }
}

/// The text of an error with its causes.
fn reason(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}

//! Sends the jobs of this hub to its replica, over Flight: a stream of `DoPut` that is opened again when it ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{FlightData, FlightDescriptor, PutResult};
use futures_util::stream;
use skopos_access::is_loopback;
use skopos_hub::jobs::replica::Reply;
use skopos_hub::jobs::{JobsPlace, Replicating};
use skopos_term::{Failure, tell};
use skopos_wire::Identity;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Endpoint;
use tonic::{Status, Streaming};

use super::dial::Dial;
use super::pieces::cut;

/// Pause between two looks for segments that were sealed, or removed.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Pause between two checks of a segment.
const CHECK_EVERY: Duration = Duration::from_secs(60);

/// The first pause before a connection is tried again, and the longest.
const RETRY_AFTER: Duration = Duration::from_millis(500);
const RETRY_MOST: Duration = Duration::from_secs(10);

/// Time for a connection, and for the first answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause between pings, and time for their answer: a replica whose machine is gone is noticed then.
const PING_EVERY: Duration = Duration::from_secs(10);

/// Number of pieces that wait for the network.
const WAITING: usize = 8;

/// The task that sends, until this is dropped.
pub(crate) struct ReplicaTask(JoinHandle<()>);

impl Drop for ReplicaTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

impl ReplicaTask {
    /// Sends the jobs of `place` to the Flight listener at `address`. With `is_insecure` it needs no certificate.
    ///
    /// # Errors
    /// The address is not one of the loopback, and this hub has no certificate.
    pub(crate) fn start(
        address: &str,
        (identity, is_insecure): (Option<Arc<Identity>>, bool),
        place: Arc<JobsPlace>,
        runtime: &Handle,
    ) -> Result<Self, Failure> {
        let identity = identity.filter(|_| !is_insecure);
        if identity.is_none() && !is_insecure && !is_loopback(address) {
            let text = format!("jobs would go to the replica {address} in clear text");
            let hint = "make certificates with `skopos pki init`; on this machine write 127.0.0.1; on a network of friends add --insecure";
            return Err(Failure::new(text).hint(hint));
        }
        let scheme = if identity.is_some() { "grpc+tls" } else { "grpc" };
        place.expect_replica(format!("{scheme}://{address}"));
        let hub = match &identity {
            Some(identity) => identity.names().node,
            None => rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase(),
        };
        let task = Task { address: address.to_owned(), hub, identity, place, warned: None };
        Ok(Self(runtime.spawn(task.run())))
    }
}

struct Task {
    address: String,
    hub: String,
    identity: Option<Arc<Identity>>,
    place: Arc<JobsPlace>,
    /// The last warning, which is not printed again as long as it is the same.
    warned: Option<String>,
}

impl Task {
    async fn run(mut self) {
        let mut replicating = loop {
            let place = self.place.clone();
            let opened = blocking(move || match place.get()? {
                Some(jobs) => place.replicate(&jobs).map(Some),
                None => Ok(None),
            });
            match opened.await {
                Ok(Some(replicating)) => break replicating,
                Ok(None) => {}
                Err(e) => self.warn(format!("jobs cannot be sent to the replica: {e}")),
            }
            sleep(LOOK_EVERY).await;
        };
        let mut pause = RETRY_AFTER;
        loop {
            let since = Instant::now();
            replicating.reset(Some(format!("{} does not answer yet", self.address)));
            let (back, ended) = self.stream(replicating).await;
            let Some(back) = back else { return };
            replicating = back;
            let why = match ended {
                Ok(()) => "the stream ended".to_owned(),
                Err(e) => Replicating::described(&e),
            };
            let why = format!("{} keeps no copy now: {why}", self.address);
            self.warn(format!("the replica: {why}"));
            replicating.reset(Some(why));
            if since.elapsed() > RETRY_MOST {
                pause = RETRY_AFTER;
            }
            sleep(pause).await;
            pause = (2 * pause).min(RETRY_MOST);
        }
    }

    fn warn(&mut self, text: String) {
        if self.warned.as_ref() != Some(&text) {
            tell(format!("warning: {text}"));
            self.warned = Some(text);
        }
    }

    /// Sends until the stream ends.
    async fn stream(
        &mut self,
        replicating: Replicating,
    ) -> (Option<Replicating>, Result<(), AnyError>) {
        let mut held = Some(replicating);
        let ended = self.send_all(&mut held).await;
        (held, ended)
    }

    /// Opens a stream: the pieces that go out, and the answers.
    async fn open(
        &self,
        storage: u64,
    ) -> Result<(mpsc::Sender<FlightData>, Streaming<PutResult>), AnyError> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address))?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_EVERY)
            .keep_alive_while_idle(true);
        let dial = Dial::new(&self.address, self.identity.clone());
        let connecting = endpoint.connect_with_connector(dial);
        let channel = timeout(CONNECT_TIMEOUT, connecting).await??;
        let mut client = FlightServiceClient::new(channel);
        let (sender, receiver) = mpsc::channel::<FlightData>(WAITING);
        let path = ["replica", &self.hub, self.place.site(), &format!("{storage:x}")];
        let path = path.map(str::to_owned).to_vec();
        let first = FlightData {
            flight_descriptor: Some(FlightDescriptor::new_path(path)),
            ..FlightData::default()
        };
        sender.send(first).await?;
        let data =
            stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
        let answers = timeout(CONNECT_TIMEOUT, client.do_put(data)).await?;
        Ok((sender, answers.map_err(said)?.into_inner()))
    }

    async fn send_all(&mut self, held: &mut Option<Replicating>) -> Result<(), AnyError> {
        let gone = || -> AnyError { "a thread of the replication panicked".into() };
        let storage = held.as_ref().ok_or_else(gone)?.storage();
        let mut commits = held.as_ref().ok_or_else(gone)?.commits();
        let (sender, mut answers) = self.open(storage).await?;
        self.warned = None;
        let mut outgoing: VecDeque<FlightData> = VecDeque::new();
        let mut checked = Instant::now();
        let mut is_news = false;
        loop {
            if outgoing.is_empty() && is_news {
                let mut replicating = held.take().ok_or_else(gone)?;
                let is_check = checked.elapsed() >= CHECK_EVERY;
                let (back, messages) = tokio::task::spawn_blocking(move || {
                    let checked = if is_check { replicating.check_one() } else { Ok(()) };
                    let messages = checked.and_then(|()| replicating.next_messages());
                    (replicating, messages)
                })
                .await?;
                *held = Some(back);
                if is_check {
                    checked = Instant::now();
                }
                let messages = messages?;
                is_news = !messages.is_empty();
                outgoing.extend(messages.iter().flat_map(cut));
            }
            // Answers are read while messages wait: the replica may wait with its own.
            tokio::select! {
                answer = answers.message() => {
                    let Some(answer) = answer.map_err(said)? else { return Ok(()) };
                    let reply = Reply::decode(&answer.app_metadata);
                    let reply = reply.ok_or("the replica sent an answer that is not valid")?;
                    let mut replicating = held.take().ok_or_else(gone)?;
                    let (back, taken) = tokio::task::spawn_blocking(move || {
                        let taken = replicating.take(reply);
                        (replicating, taken)
                    })
                    .await?;
                    *held = Some(back);
                    taken?;
                    is_news = true;
                }
                permit = sender.reserve(), if !outgoing.is_empty() => {
                    let permit = permit?;
                    if let Some(data) = outgoing.pop_front() {
                        permit.send(data);
                    }
                }
                changed = commits.changed(), if outgoing.is_empty() => {
                    changed?;
                    is_news = true;
                }
                () = sleep(LOOK_EVERY), if outgoing.is_empty() => is_news = true,
            }
        }
    }
}

/// Returns what a status says to people.
fn said(status: Status) -> AnyError {
    status.message().to_owned().into()
}

/// Runs work that blocks.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AnyError> + Send + 'static,
) -> Result<T, AnyError> {
    tokio::task::spawn_blocking(work).await?
}

//! A server: its progress thread receives requests, pulls inputs that overflow, and makes a task of each request (t4);
//! execution streams execute the tasks and send the responses.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};

use crate::call::{Call, Provider};
use crate::config::Config;
use crate::connection::{Connection, Greeted, Response};
use crate::error::{Error, Result};
use crate::message::{Head, Kind};
use crate::pool::{Pool, Tasks};
use crate::probe::Probe;
use crate::region::RemoteRegion;
use crate::rpcs::{ALL, Rpc};
use crate::socket::{Listener, MAX_MESSAGE_BYTES, Received, wait};

use skopos_rpc::Interval;

/// The most connections: more than all processes of the largest case, and few enough for one `poll`.
const MAX_CONNECTIONS: usize = 256;

/// The most tasks of a pool. Further requests are answered with a failure, so that a flood costs no memory.
const MAX_TASKS: u64 = 65_536;

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    progress: Option<JoinHandle<()>>,
    _pool: Pool,
}

#[derive(Debug)]
struct Shared {
    name: String,
    eager_bytes: usize,
    /// Messages of one connection that are received before the next has its turn.
    burst: u32,
    providers: HashMap<Rpc, Arc<dyn Provider>>,
    tasks: Tasks,
    probe: Arc<Probe>,
    /// Wakes the progress thread, for responses that wait and for the end.
    signal: OwnedFd,
    is_ending: std::sync::atomic::AtomicBool,
    ends_with_clients: bool,
}

/// Options of a server beside its configuration.
#[derive(Debug)]
pub struct Options<'a> {
    /// Name of the process.
    pub name: &'a str,
    /// Path of its socket.
    pub path: &'a Path,
    /// Whether it ends after its last client.
    pub ends_with_clients: bool,
}

impl Server {
    /// Binds the socket, and starts the progress thread; `pool` executes the calls.
    ///
    /// # Errors
    /// The socket cannot be made, or the system has no threads left.
    pub fn start(
        options: &Options<'_>,
        config: &Config,
        providers: &[Arc<dyn Provider>],
        probe: &Arc<Probe>,
        pool: Pool,
    ) -> Result<Self> {
        let listener = Listener::bind(options.path)?;
        let serving = |rpc: Rpc| Some((rpc, Arc::clone(providers.iter().find(|p| p.serves(rpc))?)));
        let shared = Arc::new(Shared {
            name: options.name.to_owned(),
            eager_bytes: config.eager_buffer_bytes as usize,
            burst: config.max_completion_events,
            providers: ALL.into_iter().filter_map(serving).collect(),
            tasks: pool.tasks(),
            probe: Arc::clone(probe),
            signal: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(Error::system("make a signal"))?,
            is_ending: false.into(),
            ends_with_clients: options.ends_with_clients,
        });
        let own = Arc::clone(&shared);
        let progress = std::thread::Builder::new()
            .name(format!("{}-progress", options.name))
            .spawn(move || Progress::new(own, listener).run())
            .map_err(Error::io("start a progress thread"))?;
        Ok(Self { shared, progress: Some(progress), _pool: pool })
    }

    /// Waits until the server ends: after its last client, or never.
    pub fn wait(&mut self) {
        if let Some(progress) = self.progress.take() {
            // A thread that broke has printed its reason.
            let _ = progress.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, std::sync::atomic::Ordering::Release);
        self.shared.wake();
        self.wait();
    }
}

impl Shared {
    fn wake(&self) {
        // Fails only when the counter is at its maximum, and then the thread wakes as well.
        let _ = rustix::io::write(&self.signal, &1_u64.to_ne_bytes());
    }

    /// Makes a task of a request (t4). `t3` is the time at which the message was received.
    fn accept(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        head: Head,
        eager: &[u8],
    ) -> Result<()> {
        let transfer = self.probe.timer();
        let greeted = connection.greeted.get().ok_or(Error::Message("its origin did not greet"))?;
        let rpc = Rpc::from_number(head.rpc).ok_or(Error::Message("its RPC is not known"))?;
        let mut input = eager.to_vec();
        let rest = head.body_bytes as usize - eager.len();
        let has_overflow = rest > 0;
        if has_overflow {
            if eager.len() != self.eager_bytes {
                return Err(Error::Message(
                    "it is shorter than its body and than the eager buffer",
                ));
            }
            let region =
                greeted.region.as_ref().ok_or(Error::Message("its origin has no region"))?;
            input.resize(head.body_bytes as usize, 0);
            region.pull(head.overflow_at, &mut input[eager.len()..])?;
        }
        let mut span = self.probe.target(rpc, &head.context, greeted.peer);
        if has_overflow {
            span.interval(Interval::TargetInternalRdmaTransfer, transfer);
        }
        let provider = match self.providers.get(&rpc) {
            _ if self.tasks.depth() >= MAX_TASKS => Err("the pool of the server is full"),
            Some(provider) => Ok(Arc::clone(provider)),
            None => Err("the server has no provider for it"),
        };
        let shared = Arc::clone(self);
        let connection = Arc::clone(connection);
        let region = greeted.region.clone();
        match provider {
            Ok(provider) => self.tasks.spawn(async move {
                let (probe, tasks) = (Arc::clone(&shared.probe), shared.tasks.clone());
                let mut call = Call::begin(input, region.clone(), span, probe, tasks);
                let result = provider.execute(rpc, &mut call).await;
                let is_ok = result.is_ok();
                let (output, span) = call.finish(&result);
                let response = shared.response(&head, output, is_ok, region.as_deref());
                shared.send(&connection, Response { span: Some(span), is_ok, ..response });
            }),
            Err(reason) => {
                span.end(false);
                let response = self.response(&head, reason.as_bytes().to_vec(), false, None);
                self.send(&connection, response);
            }
        }
        Ok(())
    }

    /// Makes the response; an output that is longer than the eager buffer is pushed into the origin's region.
    fn response(
        &self,
        request: &Head,
        output: Vec<u8>,
        is_ok: bool,
        region: Option<&RemoteRegion>,
    ) -> Response {
        let mut head = Head::new(Kind::Response, 0);
        head.call = request.call;
        head.flag = u8::from(!is_ok);
        let mut eager = output;
        head.body_bytes = u32::try_from(eager.len()).unwrap_or(u32::MAX);
        if eager.len() > self.eager_bytes {
            let has_room = head.body_bytes <= request.reply_bytes;
            let pushed = has_room
                && region.is_some_and(|region| region.push(request.reply_at, &eager).is_ok());
            if pushed {
                eager.clear();
            } else {
                eager = b"the output is longer than the place for it".to_vec();
                head.body_bytes = u32::try_from(eager.len()).unwrap_or(u32::MAX);
                head.flag = 1;
            }
        }
        Response::plain(&head, eager)
    }

    fn send(&self, connection: &Connection, response: Response) {
        // An origin that is gone does not miss its response; the progress thread sees its end.
        if connection.respond(response).unwrap_or(false) {
            self.wake();
        }
    }
}

/// The progress thread of a server.
struct Progress {
    shared: Arc<Shared>,
    listener: Listener,
    connections: Vec<Arc<Connection>>,
    buffer: Vec<u8>,
    has_had_clients: bool,
}

impl Progress {
    fn new(shared: Arc<Shared>, listener: Listener) -> Self {
        let buffer = vec![0; MAX_MESSAGE_BYTES];
        Self { shared, listener, connections: Vec::new(), buffer, has_had_clients: false }
    }

    fn run(mut self) {
        while !self.is_over() {
            let is_full = self.connections.len() >= MAX_CONNECTIONS;
            let accept = if is_full { PollFlags::empty() } else { PollFlags::IN };
            let mut descriptors = vec![
                PollFd::new(&self.shared.signal, PollFlags::IN),
                PollFd::new(&self.listener, accept),
            ];
            descriptors.extend(self.connections.iter().map(|connection| {
                let out =
                    if connection.has_responses() { PollFlags::OUT } else { PollFlags::empty() };
                PollFd::new(&connection.socket, PollFlags::IN | out)
            }));
            if wait(&mut descriptors).is_err() {
                break;
            }
            let ready: Vec<PollFlags> = descriptors.iter().map(PollFd::revents).collect();
            if !ready[0].is_empty() {
                let mut counter = [0; 8];
                // The next turn of the loop looks at all that the signal may mean.
                let _ = rustix::io::read(&self.shared.signal, &mut counter);
            }
            let connections = std::mem::take(&mut self.connections);
            for (connection, ready) in connections.into_iter().zip(&ready[2..]) {
                if self.serve(&connection, *ready) {
                    self.connections.push(connection);
                }
            }
            if !ready[1].is_empty() {
                self.welcome();
            }
        }
    }

    /// Receives and sends at a connection. Returns false when it has ended, or sent a message that is refused.
    fn serve(&mut self, connection: &Arc<Connection>, ready: PollFlags) -> bool {
        if ready.contains(PollFlags::OUT) && connection.flush().is_err() {
            return false;
        }
        if ready.difference(PollFlags::OUT).is_empty() {
            return true;
        }
        for _ in 0..self.shared.burst {
            match self.receive(connection) {
                Ok(Received::Message(_)) => {}
                Ok(Received::Nothing) => return true,
                Ok(Received::End) => return false,
                Err(_) => {
                    self.shared.probe.gauges().refused_messages.add(1);
                    return false;
                }
            }
        }
        true
    }

    fn receive(&mut self, connection: &Arc<Connection>) -> Result<Received> {
        let mut passed = None;
        let wanted = connection.greeted.get().is_none().then_some(&mut passed);
        let received = connection.socket.try_receive(&mut self.buffer, wanted)?;
        let Received::Message(length) = received else { return Ok(received) };
        let (head, eager) = Head::parse(&self.buffer[..length])?;
        match head.kind {
            Kind::Hello => self.greet(connection, &head, eager, passed)?,
            Kind::Request => self.shared.accept(connection, head, eager)?,
            Kind::Welcome | Kind::Response => {
                return Err(Error::Message("it is an answer, and nothing was asked"));
            }
        }
        Ok(received)
    }

    fn greet(
        &self,
        connection: &Connection,
        head: &Head,
        name: &[u8],
        passed: Option<OwnedFd>,
    ) -> Result<()> {
        let greeted = Greeted {
            peer: self.shared.probe.peer(&String::from_utf8_lossy(name)),
            is_client: head.flag == 0,
            region: passed.map(RemoteRegion::new).transpose()?.map(Arc::new),
        };
        connection.greeted.set(greeted).map_err(|_| Error::Message("its origin greets twice"))?;
        let name = self.shared.name.as_bytes().to_vec();
        let mut welcome = Head::new(Kind::Welcome, u32::try_from(name.len()).unwrap_or_default());
        welcome.rpc = u32::try_from(self.shared.eager_bytes).unwrap_or_default();
        self.shared.send(connection, Response::plain(&welcome, name));
        Ok(())
    }

    fn welcome(&mut self) {
        // An error here means that no descriptor is left; the connection waits until one is.
        while self.connections.len() < MAX_CONNECTIONS {
            let Ok(Some(socket)) = self.listener.try_accept() else { return };
            self.connections.push(Arc::new(Connection::new(socket)));
        }
    }

    fn is_over(&mut self) -> bool {
        if self.shared.is_ending.load(std::sync::atomic::Ordering::Acquire) {
            return true;
        }
        let is_client = |c: &Arc<Connection>| c.greeted.get().is_some_and(|g| g.is_client);
        let has_clients = self.connections.iter().any(is_client);
        let is_over = self.shared.ends_with_clients && self.has_had_clients && !has_clients;
        self.has_had_clients |= has_clients;
        is_over
    }
}

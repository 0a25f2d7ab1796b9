//! The origin of calls: it serialises inputs, sends requests, and completes calls when their responses are read.
//!
//! A thread stands for the network adapter: it moves responses from the sockets to the completion queue, as hardware
//! does. The *progress loop* reads at most `max_completion_events` of them at a time, adds their callbacks to the
//! callback queue (t12), and then runs these (t14). It is a thread of its own, or a task of the pool that also issues
//! calls, in which case it waits for its turn among the others.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};

use crate::codec::Writer;
use crate::completion::{CompletionQueue, Event};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::message::{Head, Kind};
use crate::pool::{Tasks, yield_now};
use crate::probe::{OriginSpan, Parent, Probe, Timer};
use crate::region::{Place, Region};
use crate::reply::{Answer, Reply, Slot};
use crate::rpcs::Rpc;
use crate::socket::{MAX_MESSAGE_BYTES, Received, Socket, wait};

use skopos_rpc::{Interval, PeerId};

/// Messages that the adapter moves from one socket before it looks at the next: as many as a usual read of the queue.
const ADAPTER_BURST: usize = 16;

/// The kind of process that connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A client. A server ends after its last client.
    Client,
    /// A server that calls servers.
    Server,
}

/// The connections of a process, its completion queue and its progress loop.
#[derive(Debug)]
pub struct Origin {
    shared: Arc<Shared>,
    adapter: Option<JoinHandle<()>>,
    progress: Option<JoinHandle<()>>,
}

/// The side of an origin that issues calls.
#[derive(Clone, Debug)]
pub struct Caller {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    peers: Vec<Peer>,
    region: Arc<Region>,
    queue: CompletionQueue,
    calls: Mutex<HashMap<u64, Call>>,
    next_call: AtomicU64,
    limit: usize,
    probe: Arc<Probe>,
    /// Wakes the adapter at the end.
    end: OwnedFd,
}

#[derive(Debug)]
struct Peer {
    name: String,
    id: PeerId,
    socket: Socket,
    eager_bytes: usize,
}

/// A call that was not answered yet.
#[derive(Debug)]
struct Call {
    peer: usize,
    rpc: Rpc,
    begin: Instant,
    span: OriginSpan,
    slot: Arc<Slot>,
    /// The overflow of the input and the bulk, until the target has pulled them.
    _pulled: [Option<Place>; 2],
    reply: Option<Place>,
}

/// A call to issue.
#[derive(Debug)]
pub struct Request<'a> {
    /// Number of the server.
    pub server: usize,
    /// The RPC.
    pub rpc: Rpc,
    /// The request that the call belongs to; `None` begins one.
    pub parent: Option<&'a Parent>,
    /// Bytes that the target pulls while it executes; their place is free again when the call is done.
    pub bulk: Option<Place>,
    /// The longest output. One that is longer than the eager buffer needs room here.
    pub reply_bytes: usize,
}

impl<'a> Request<'a> {
    /// A call without bulk, with an output that fits the eager buffer.
    #[must_use]
    pub fn new(server: usize, rpc: Rpc, parent: Option<&'a Parent>) -> Self {
        Self { server, rpc, parent, bulk: None, reply_bytes: 0 }
    }
}

/// A callback in the callback queue.
struct Callback {
    call: Call,
    noticed: Timer,
    result: Result<Vec<u8>>,
}

impl Origin {
    /// Connects to the servers at `paths`, and starts the adapter. The progress loop is a thread if `tasks` is `None`,
    /// and otherwise a task among them.
    ///
    /// # Errors
    /// A server does not answer, or the system has no threads or descriptors left.
    pub fn connect(
        name: &str,
        role: Role,
        paths: &[PathBuf],
        config: &Config,
        probe: &Arc<Probe>,
        tasks: Option<&Tasks>,
    ) -> Result<Self> {
        let region = Region::new()?;
        let peers: Result<Vec<Peer>> =
            paths.iter().map(|path| Peer::greet(path, name, role, &region, probe)).collect();
        let end = eventfd(0, EventfdFlags::CLOEXEC).map_err(Error::system("make a signal"))?;
        let shared = Arc::new(Shared {
            peers: peers?,
            region,
            queue: CompletionQueue::default(),
            calls: Mutex::default(),
            next_call: AtomicU64::new(1),
            limit: config.max_completion_events as usize,
            probe: Arc::clone(probe),
            end,
        });
        probe.gauges().completion_queue_limit.set(config.max_completion_events.into());
        let mut origin = Self { shared, adapter: None, progress: None };
        let shared = Arc::clone(&origin.shared);
        origin.adapter = Some(thread(format!("{name}-adapter"), move || shared.adapt())?);
        let shared = Arc::clone(&origin.shared);
        match tasks {
            None => {
                let progress = thread(format!("{name}-progress"), move || shared.progress())?;
                origin.progress = Some(progress);
            }
            Some(tasks) => tasks.spawn(async move { shared.progress_as_task().await }),
        }
        Ok(origin)
    }

    /// Returns the side that issues calls.
    #[must_use]
    pub fn caller(&self) -> Caller {
        Caller { shared: Arc::clone(&self.shared) }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // Fails only when the counter is at its maximum, and then the adapter wakes as well.
        let _ = rustix::io::write(&self.shared.end, &1_u64.to_ne_bytes());
        for thread in [self.adapter.take(), self.progress.take()].into_iter().flatten() {
            // A thread that broke has printed its reason.
            let _ = thread.join();
        }
    }
}

impl Caller {
    /// Number of servers.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.shared.peers.len()
    }

    /// Takes a place for bulk bytes in the region of this process.
    ///
    /// # Errors
    /// The region is full.
    pub fn place(&self, bytes: usize) -> Result<Place> {
        self.shared.region.take(bytes)
    }

    /// Issues a call; `write` serialises its input.
    ///
    /// The call waits on its thread while the buffer of the socket is full: this is the backpressure of the transport.
    ///
    /// # Errors
    /// The connection ended, there is no such server, or the region is full.
    pub fn call(&self, request: Request<'_>, write: impl FnOnce(&mut Writer)) -> Result<Reply> {
        let Request { server, rpc, parent, bulk, reply_bytes } = request;
        let shared = &*self.shared;
        let begin = Instant::now();
        let peer = shared.peers.get(server).ok_or(Error::Message("there is no such server"))?;
        let mut span = shared.probe.origin(rpc, parent, peer.id);
        let serialization = shared.probe.timer();
        let mut writer = Writer::default();
        write(&mut writer);
        let input = writer.into_bytes();
        span.interval(Interval::InputSerialization, serialization);
        let eager = input.len().min(peer.eager_bytes);
        let mut head = Head::new(Kind::Request, checked(input.len())?);
        let overflow = match &input[eager..] {
            [] => None,
            rest => {
                let place = shared.region.take(rest.len())?;
                place.write(rest)?;
                shared.probe.gauges().eager_overflows.add(1);
                Some(place)
            }
        };
        head.overflow_at = overflow.as_ref().map_or(0, Place::at);
        let reply = (reply_bytes > 0).then(|| shared.region.take(reply_bytes)).transpose()?;
        head.reply_at = reply.as_ref().map_or(0, Place::at);
        head.reply_bytes = if reply.is_some() { checked(reply_bytes)? } else { 0 };
        head.call = shared.next_call.fetch_add(1, Ordering::Relaxed);
        head.rpc = rpc.number();
        head.context = span.context();
        let slot = Arc::new(Slot::default());
        let future = Reply::of(&slot);
        let call = Call { peer: server, rpc, begin, span, slot, _pulled: [overflow, bulk], reply };
        shared.lock().insert(head.call, call);
        shared.probe.gauges().in_flight_requests.add(1);
        if let Err(error) = peer.socket.send([&head.to_bytes(), &input[..eager]], None) {
            shared.complete(Callback::failed(shared.forget(head.call), error));
        }
        Ok(future)
    }
}

fn checked(length: usize) -> Result<u32> {
    u32::try_from(length)
        .ok()
        .filter(|n| *n <= crate::message::MAX_BODY_BYTES)
        .ok_or(Error::Message("its body is longer than 16 MiB"))
}

fn thread(name: String, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name).spawn(body).map_err(Error::io("start a thread"))
}

impl Callback {
    fn failed(call: Option<Call>, error: Error) -> Option<Self> {
        call.map(|call| Self { call, noticed: Timer::default(), result: Err(error) })
    }
}

impl Peer {
    /// Connects, passes the region, and waits for the welcome.
    fn greet(path: &Path, name: &str, role: Role, region: &Region, probe: &Probe) -> Result<Self> {
        let socket = Socket::connect(path)?;
        let mut hello = Head::new(Kind::Hello, checked(name.len())?);
        hello.flag = u8::from(role == Role::Server);
        socket.send([&hello.to_bytes(), name.as_bytes()], Some(region.as_fd()))?;
        let mut buffer = vec![0; MAX_MESSAGE_BYTES];
        let Received::Message(length) = socket.receive(&mut buffer, None)? else {
            return Err(Error::Closed(path.display().to_string()));
        };
        let (head, body) = Head::parse(&buffer[..length])?;
        if head.kind != Kind::Welcome {
            return Err(Error::Message("it is not a welcome"));
        }
        let eager_bytes = usize::try_from(head.rpc).unwrap_or_default();
        if eager_bytes > MAX_MESSAGE_BYTES - crate::message::HEAD_BYTES {
            return Err(Error::Message("its eager buffer is longer than a message"));
        }
        let name = String::from_utf8_lossy(body).into_owned();
        Ok(Self { id: probe.peer(&name), name, socket, eager_bytes })
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, call: u64) -> Option<Call> {
        self.lock().remove(&call)
    }

    /// The adapter: moves messages from the sockets to the completion queue until the end.
    fn adapt(&self) {
        let mut buffer = vec![0; MAX_MESSAGE_BYTES];
        let mut open: Vec<usize> = (0..self.peers.len()).collect();
        let mut events = Vec::new();
        while !open.is_empty() {
            let mut descriptors = vec![PollFd::new(&self.end, PollFlags::IN)];
            descriptors
                .extend(open.iter().map(|n| PollFd::new(&self.peers[*n].socket, PollFlags::IN)));
            // Without memory for the call there is nothing else to do than to try again.
            let waited = wait(&mut descriptors);
            if waited.is_err() || !descriptors[0].revents().is_empty() {
                break;
            }
            let ready: Vec<bool> = descriptors.iter().map(|d| !d.revents().is_empty()).collect();
            let mut number = 0;
            open.retain(|peer| {
                number += 1;
                !ready[number] || self.drain(*peer, &mut buffer, &mut events)
            });
            self.queue.push(&mut events);
        }
        self.queue.close();
    }

    /// Receives what waits at a socket. Returns false when the connection has ended.
    fn drain(&self, peer: usize, buffer: &mut [u8], events: &mut Vec<Event>) -> bool {
        for _ in 0..ADAPTER_BURST {
            let event = match self.peers[peer].socket.try_receive(buffer, None) {
                Ok(Received::Message(length)) => response(&buffer[..length]),
                Ok(Received::Nothing) => return true,
                Ok(Received::End) | Err(_) => None,
            };
            let Some(event) = event else {
                events.push(Event::End(peer));
                return false;
            };
            events.push(event);
        }
        true
    }

    fn progress(&self) {
        while self.queue.wait() {
            self.read_completions();
        }
        self.fail_all(None);
    }

    async fn progress_as_task(&self) {
        while std::future::poll_fn(|context| self.queue.poll_wait(context)).await {
            self.read_completions();
            yield_now().await;
        }
        self.fail_all(None);
    }

    /// One turn of the progress loop: reads events, queues their callbacks, and runs these.
    fn read_completions(&self) {
        let (events, left) = self.queue.take(self.limit);
        self.probe.gauges().completion_queue_read.set(events.len() as u64);
        self.probe.gauges().completion_queue_depth.set(left as u64);
        let mut callbacks = VecDeque::with_capacity(events.len());
        for event in events {
            match event {
                Event::Response { call, has_failed, body_bytes, eager } => {
                    // A target that answers a call twice, or a call that was never made, is ignored.
                    let Some(call) = self.forget(call) else { continue };
                    let noticed = self.probe.timer();
                    let result = call.output(has_failed, body_bytes, eager);
                    callbacks.push_back(Callback { call, noticed, result });
                }
                Event::End(peer) => self.fail_all(Some(peer)),
            }
        }
        while let Some(callback) = callbacks.pop_front() {
            self.complete(Some(callback));
        }
    }

    /// Fails the calls of a peer, or all.
    fn fail_all(&self, peer: Option<usize>) {
        let ended: Vec<Call> = {
            let mut calls = self.lock();
            calls.extract_if(|_, call| peer.is_none_or(|p| p == call.peer)).map(|c| c.1).collect()
        };
        for call in ended {
            let error = Error::Closed(self.peers[call.peer].name.clone());
            self.complete(Callback::failed(Some(call), error));
        }
    }

    /// Runs a completion callback (t14).
    fn complete(&self, callback: Option<Callback>) {
        let Some(Callback { call, noticed, result }) = callback else { return };
        let Call { mut span, slot, begin, .. } = call;
        span.interval(Interval::OriginCompletionCallback, noticed);
        span.end(&self.probe, result.is_ok());
        self.probe.gauges().in_flight_requests.take(1);
        let nanoseconds = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        slot.fill(result.map(|output| Answer { output, nanoseconds }));
    }
}

impl Call {
    /// Returns the output, or the failure that it describes.
    fn output(&self, has_failed: bool, body_bytes: u32, eager: Vec<u8>) -> Result<Vec<u8>> {
        let length = body_bytes as usize;
        let output = match &self.reply {
            _ if eager.len() == length => eager,
            Some(place) => place.read(length)?,
            None => return Err(Error::Message("its output is not complete")),
        };
        if has_failed {
            let reason = String::from_utf8_lossy(&output).into_owned();
            return Err(Error::Remote { rpc: self.rpc.name(), reason });
        }
        Ok(output)
    }
}

fn response(message: &[u8]) -> Option<Event> {
    let (head, eager) = Head::parse(message).ok()?;
    (head.kind == Kind::Response).then(|| Event::Response {
        call: head.call,
        has_failed: head.flag != 0,
        body_bytes: head.body_bytes,
        eager: eager.to_vec(),
    })
}

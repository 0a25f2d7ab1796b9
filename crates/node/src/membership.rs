//! The membership of a node in the live plane.
//!
//! Peers join at once, and other nodes may come later. A client needs its hub, which may be down when the node
//! starts; so it retries on a thread of its own until the hub answers, and the node works meanwhile.

use std::fmt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use skopos_agent::Link;
use skopos_model::schema::Metric;
use skopos_model::{Topic, TopicPattern, unpoisoned};
use skopos_wire::{DropCounter, Plane, PlaneConfig};

use crate::forward::Forward;
use crate::jobs::{DeliverySettings, JobDelivery};
use crate::mirror::Mirrored;
use crate::renewing::Renewing;
use crate::uplink::Uplink;
use skopos_term::{Failure, tell};

/// Time that a starting node waits for its hub. A running hub answers in milliseconds, so that a node with a
/// duplicate name fails at its start.
const PATIENCE: Duration = Duration::from_secs(2);

/// An event of joining, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlaneEvent {
    /// The hub does not answer yet.
    Alone {
        /// The endpoints of the hubs.
        hubs: Vec<String>,
    },
    /// A hub has answered.
    Joined,
    /// Another node had this name before, so this node stops sending.
    NameTaken {
        /// The name.
        node: String,
    },
    /// The node cannot join, and does not try again.
    Failed {
        /// The reason.
        why: String,
    },
}

impl fmt::Display for PlaneEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone { hubs } => write!(
                f,
                "no hub answers at {}: this node sends nothing until one does, and keeps trying",
                hubs.join(", ")
            ),
            Self::Joined => f.write_str("a hub answers now, and this node sends its facts to it"),
            Self::NameTaken { node } => write!(
                f,
                "another node of this site is named `{node}`: this node has stopped sending; give it \
                 another name with --node"
            ),
            Self::Failed { why } => f.write_str(why),
        }
    }
}

/// A node's membership in the live plane. It ends when it is dropped.
pub(crate) struct Membership {
    node: String,
    state: Arc<Mutex<State>>,
    /// Counts what all sessions of the node dropped.
    drops: DropCounter,
    /// Ends the thread that tries to join.
    _stop: Option<Sender<()>>,
    events: Vec<PlaneEvent>,
    /// Delivers facts of jobs, if that is configured.
    delivery: Option<JobDelivery>,
}

enum State {
    Trying,
    In(Box<Member>),
    Failed(Failure),
    /// Not a member; the reason was reported.
    Out,
}

/// The parts of a node that has joined.
struct Member {
    is_reported: bool,
    plane: Plane,
    uplink: Option<Uplink>,
    mirrored: Option<(Mirrored, Forward)>,
    _renewing: Option<Renewing>,
}

impl Membership {
    /// Joins as `node` of the runtime directory `dir`, and mirrors the topics of other nodes that match `mirror`.
    ///
    /// # Errors
    /// A setting is not valid; another node has that name; the endpoint cannot be listened on. A hub that does
    /// not answer is not an error, but an event.
    pub(crate) fn start(
        config: PlaneConfig,
        node: &str,
        dir: PathBuf,
        mirror: &[TopicPattern],
    ) -> Result<Self, Failure> {
        let (hubs, drops) = (config.connect.clone(), config.drops.clone());
        let request = JoinRequest { config, node: node.to_owned(), dir, mirror: mirror.to_vec() };
        let request = Arc::new(request);
        let (node, events) = (node.to_owned(), Vec::new());
        let state = Arc::new(Mutex::new(State::Trying));
        if !request.config.is_client {
            let member = request.join(&request.open()?, &state)?;
            *lock(&state) = State::In(Box::new(member));
            return Ok(Self { node, state, drops, _stop: None, events, delivery: None });
        }
        request.config.check().map_err(|e| cannot_join(&e))?;
        let ((stop, stopped), (done, first)) = (channel(), channel());
        let run = {
            let state = state.clone();
            move || request.try_until(&stopped, &state, &done)
        };
        let thread = std::thread::Builder::new().name("join".to_owned()).spawn(run);
        thread.map_err(|e| Failure::new("a thread cannot be started").because(&e))?;
        let (_stop, delivery) = (Some(stop), None);
        let mut joined = Self { node, state, drops, _stop, events, delivery };
        // A thread that ends without a message has failed, which `take_events` reports.
        let is_in = first.recv_timeout(PATIENCE).unwrap_or(false);
        let mut state = lock(&joined.state);
        match std::mem::replace(&mut *state, State::Out) {
            State::Failed(failure) => return Err(failure),
            State::In(mut member) => {
                member.is_reported = true;
                *state = State::In(member);
            }
            other => *state = other,
        }
        drop(state);
        if !is_in {
            joined.events.push(PlaneEvent::Alone { hubs });
        }
        Ok(joined)
    }

    /// Begins to deliver facts of jobs, also while the node has not joined.
    ///
    /// # Errors
    /// The runtime directory cannot be read; no thread can be started.
    pub(crate) fn deliver(&mut self, settings: DeliverySettings) -> Result<(), Failure> {
        let state = self.state.clone();
        let plane = move || match &*lock(&state) {
            State::In(member) => Some(member.plane.clone()),
            _ => None,
        };
        self.delivery = Some(JobDelivery::start(settings, Box::new(plane))?);
        Ok(())
    }

    /// Returns the events since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<PlaneEvent> {
        let mut events = std::mem::take(&mut self.events);
        let mut state = lock(&self.state);
        match &mut *state {
            State::In(member) => {
                if !std::mem::replace(&mut member.is_reported, true) {
                    events.push(PlaneEvent::Joined);
                }
                if member.uplink.take_if(|uplink| uplink.is_refused()).is_some() {
                    events.push(PlaneEvent::NameTaken { node: self.node.clone() });
                }
            }
            State::Failed(failure) => {
                events.push(PlaneEvent::Failed { why: failure.in_one_line() });
                *state = State::Out;
            }
            State::Trying | State::Out => {}
        }
        events
    }

    /// Returns the client that has mirrored facts measured, if this node mirrors others.
    fn forward(&self) -> Option<Forward> {
        match &*lock(&self.state) {
            State::In(member) => member.mirrored.as_ref().map(|(_, forward)| forward.clone()),
            _ => None,
        }
    }
}

impl Link for Membership {
    fn take_events(&mut self) -> Vec<String> {
        let events = Self::take_events(self);
        let of_jobs = self.delivery.iter().flat_map(JobDelivery::take_messages);
        events.iter().map(PlaneEvent::to_string).chain(of_jobs).collect()
    }

    fn visit_counts(&self, visit: &mut dyn FnMut(&'static Metric, u64)) {
        let of_jobs = self.delivery.iter().flat_map(JobDelivery::numbers);
        let numbers = self.drops.numbers().into_iter().chain(of_jobs);
        numbers.for_each(|(metric, number)| visit(metric, number));
    }

    fn can_refresh(&self) -> bool {
        self.forward().is_some()
    }

    fn refresh(&self, topic: Topic, stream: UnixStream) {
        if let Some(forward) = self.forward() {
            forward.refresh(topic, stream);
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // If the thread joins at this moment, it sees `Out` and drops its result.
        *lock(&self.state) = State::Out;
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    unpoisoned(state.lock())
}

fn cannot_join(e: &skopos_wire::Error) -> Failure {
    Failure::new("the agent cannot join the live plane").because(e)
}

/// The parameters of joining.
struct JoinRequest {
    config: PlaneConfig,
    node: String,
    dir: PathBuf,
    mirror: Vec<TopicPattern>,
}

impl JoinRequest {
    fn open(&self) -> Result<Plane, Failure> {
        Plane::open(&self.config).map_err(|e| cannot_join(&e))
    }

    /// Joins with this session; `state` will have the member.
    fn join(self: &Arc<Self>, plane: &Plane, state: &Arc<Mutex<State>>) -> Result<Member, Failure> {
        let uplink = Some(Uplink::start(plane, &self.node, self.dir.clone())?);
        let mirrored = match self.mirror.is_empty() {
            true => None,
            false => {
                let mirrored = Mirrored::start(plane, &self.node, &self.dir, &self.mirror)?;
                let forward = Forward::new(mirrored.refresher());
                Some((mirrored, forward))
            }
        };
        let (request, state) = (self.clone(), Arc::downgrade(state));
        let reopen = move || {
            if let Some(state) = state.upgrade() {
                request.rejoin(&state);
            }
        };
        let listens = !self.config.listen.is_empty();
        let _renewing = Renewing::start(plane, listens.then_some(reopen))?;
        Ok(Member { is_reported: false, plane: plane.clone(), uplink, mirrored, _renewing })
    }

    /// Leaves, and joins again with a new session.
    fn rejoin(self: &Arc<Self>, state: &Arc<Mutex<State>>) {
        let trying = |state: &mut State| match std::mem::replace(state, State::Out) {
            State::In(member) => {
                *state = State::Trying;
                Some(member)
            }
            other => {
                *state = other;
                None
            }
        };
        // Its session closes here, and frees its endpoints.
        drop(trying(&mut lock(state)));
        for pause in self.config.pauses() {
            // The name may be taken for a moment, by the session that has just ended.
            let joined = self.open().and_then(|plane| self.join(&plane, state));
            let mut state = lock(state);
            if !matches!(*state, State::Trying) {
                return;
            }
            match joined {
                Ok(mut member) => {
                    member.is_reported = true;
                    *state = State::In(Box::new(member));
                    return;
                }
                Err(failure) => tell(format!("warning: {}", failure.in_one_line())),
            }
            drop(state);
            std::thread::sleep(pause);
        }
    }

    /// Tries to join until a hub answers or `stopped` closes. Sends true to `done` after joining, and false
    /// after each failure.
    fn try_until(
        self: &Arc<Self>,
        stopped: &Receiver<()>,
        state: &Arc<Mutex<State>>,
        done: &Sender<bool>,
    ) {
        for pause in self.config.pauses() {
            if let Ok(plane) = self.open() {
                let next = match self.join(&plane, state) {
                    Ok(member) => State::In(Box::new(member)),
                    Err(failure) => State::Failed(failure),
                };
                let mut state = lock(state);
                if matches!(*state, State::Trying) {
                    *state = next;
                }
                drop(state);
                let _ = done.send(true);
                return;
            }
            // The receiver is gone if the starter did not wait.
            let _ = done.send(false);
            if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use skopos_wire::Follower;

    use super::*;
    use crate::ports::free_port;

    #[test]
    fn a_node_that_listens_comes_back_with_another_session() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = format!("tcp/127.0.0.1:{}", free_port());
        let alone = PlaneConfig::alone("test");
        let config = PlaneConfig { listen: vec![at.clone()], ..alone.clone() };
        let membership = Membership::start(config.clone(), "n01", dir.path().to_path_buf(), &[]);
        let membership = membership.expect("joined");
        let hub = PlaneConfig { connect: vec![at], ..alone };
        let follower = Follower::start(&Plane::open(&hub).expect("open")).expect("following");
        let followed = || {
            let node = follower.site().node("n01")?;
            let state = node.state();
            state.is_alive.then_some(state.incarnation)
        };
        let until = |is_so: &dyn Fn() -> bool| {
            let start = Instant::now();
            while !is_so() {
                assert!(start.elapsed() < Duration::from_secs(30), "{:?}", followed());
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        until(&|| followed().is_some());
        let first = followed();
        let (node, dir) = ("n01".to_owned(), dir.path().to_path_buf());
        let request = Arc::new(JoinRequest { config, node, dir, mirror: Vec::new() });
        request.rejoin(&membership.state);
        assert!(matches!(*lock(&membership.state), State::In(_)));
        until(&|| followed().is_some() && followed() != first);
        *lock(&membership.state) = State::Out;
        request.rejoin(&membership.state);
        assert!(matches!(*lock(&membership.state), State::Out), "it was left");
    }
}

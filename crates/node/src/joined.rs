//! Joining the live plane, and having joined it.
//!
//! Peers join at once: whoever they look for may come later. A client is nobody without its hub, which may
//! be away when the node starts; so it tries on a thread of its own until the hub is there, and the node
//! works without it.

use std::fmt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use skopos_agent::Link;
use skopos_model::{Topic, TopicPattern, unpoisoned};
use skopos_wire::{Plane, PlaneConfig};

use crate::forward::Forward;
use crate::mirror::Mirrored;
use crate::uplink::Uplink;
use skopos_term::Failure;

/// How long a node that starts waits for its hub. One that is there answers in milliseconds, and whoever
/// cannot be another's namesake is told so at once.
const PATIENCE: Duration = Duration::from_secs(2);

/// What became of joining, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// There is no hub yet.
    Alone { hubs: Vec<String> },
    /// There is one now.
    Joined,
    /// Another node of this name was there before; nobody else is told any more what is known here.
    NameTaken { node: String },
    /// It cannot be, and is not tried again.
    Failed { why: String },
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone { hubs } => write!(
                f,
                "no hub answers at {}: others are told nothing until one does; it is tried again",
                hubs.join(", ")
            ),
            Self::Joined => f.write_str("a hub is there now, and is told what is known here"),
            Self::NameTaken { node } => write!(
                f,
                "there is a node `{node}` in this site already: this one tells others nothing any \
                 more; give it another name with --node"
            ),
            Self::Failed { why } => f.write_str(why),
        }
    }
}

/// A node's part in the live plane, until it is dropped.
pub struct Joined {
    node: String,
    state: Arc<Mutex<State>>,
    /// Ends the thread that tries.
    _stop: Option<Sender<()>>,
    told: Vec<News>,
}

enum State {
    Trying,
    In(Box<Member>),
    Failed(Failure),
    /// Said already.
    Out,
}

/// What there is of a node that is in.
struct Member {
    is_told: bool,
    uplink: Option<Uplink>,
    mirrored: Option<(Mirrored, Forward)>,
}

impl Joined {
    /// Joins as `node` of the runtime directory `dir`, and keeps what `mirror` matches of other nodes.
    ///
    /// # Errors
    /// A setting is none; there is a node of that name; nothing can be listened on. That a hub is away
    /// is none, but [`news`](Self::news).
    pub fn start(
        config: PlaneConfig,
        node: &str,
        dir: PathBuf,
        mirror: &[TopicPattern],
    ) -> Result<Self, Failure> {
        let hubs = config.connect.clone();
        let order = Order { config, node: node.to_owned(), dir, mirror: mirror.to_vec() };
        let (node, told) = (node.to_owned(), Vec::new());
        if !order.config.is_client {
            let state = Arc::new(Mutex::new(State::In(Box::new(order.join(&order.open()?)?))));
            return Ok(Self { node, state, _stop: None, told });
        }
        order.config.check().map_err(|e| cannot_join(&e))?;
        let state = Arc::new(Mutex::new(State::Trying));
        let ((stop, stopped), (done, first)) = (channel(), channel());
        let run = {
            let state = state.clone();
            move || order.try_until(&stopped, &state, &done)
        };
        let thread = std::thread::Builder::new().name("join".to_owned()).spawn(run);
        thread.map_err(|e| Failure::new("no thread can be started").because(&e))?;
        let mut joined = Self { node, state, _stop: Some(stop), told };
        // Without the thread's word it has ended, which `news` says.
        let is_in = first.recv_timeout(PATIENCE).unwrap_or(false);
        let mut state = lock(&joined.state);
        match std::mem::replace(&mut *state, State::Out) {
            State::Failed(failure) => return Err(failure),
            State::In(mut member) => {
                member.is_told = true;
                *state = State::In(member);
            }
            other => *state = other,
        }
        drop(state);
        if !is_in {
            joined.told.push(News::Alone { hubs });
        }
        Ok(joined)
    }

    /// What became of it since it was asked last.
    pub fn news(&mut self) -> Vec<News> {
        let mut news = std::mem::take(&mut self.told);
        let mut state = lock(&self.state);
        match &mut *state {
            State::In(member) => {
                if !std::mem::replace(&mut member.is_told, true) {
                    news.push(News::Joined);
                }
                if member.uplink.take_if(|uplink| uplink.is_refused()).is_some() {
                    news.push(News::NameTaken { node: self.node.clone() });
                }
            }
            State::Failed(failure) => {
                news.push(News::Failed { why: failure.in_one_line() });
                *state = State::Out;
            }
            State::Trying | State::Out => {}
        }
        news
    }

    /// What has other nodes measure, if they are mirrored here.
    fn forward(&self) -> Option<Forward> {
        match &*lock(&self.state) {
            State::In(member) => member.mirrored.as_ref().map(|(_, forward)| forward.clone()),
            _ => None,
        }
    }
}

impl Link for Joined {
    fn news(&mut self) -> Vec<String> {
        Self::news(self).iter().map(News::to_string).collect()
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

impl Drop for Joined {
    fn drop(&mut self) {
        // The thread that tries may be in the middle of it; what it finds then is dropped there.
        *lock(&self.state) = State::Out;
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    unpoisoned(state.lock())
}

fn cannot_join(e: &skopos_wire::Error) -> Failure {
    Failure::new("the agent cannot join others").because(e)
}

/// What is to be joined, and by whom.
struct Order {
    config: PlaneConfig,
    node: String,
    dir: PathBuf,
    mirror: Vec<TopicPattern>,
}

impl Order {
    fn open(&self) -> Result<Plane, Failure> {
        Plane::open(&self.config).map_err(|e| cannot_join(&e))
    }

    fn join(&self, plane: &Plane) -> Result<Member, Failure> {
        let uplink = Some(Uplink::start(plane, &self.node, self.dir.clone())?);
        let mirrored = match self.mirror.is_empty() {
            true => None,
            false => {
                let mirrored = Mirrored::start(plane, &self.node, &self.dir, &self.mirror)?;
                let forward = Forward::new(mirrored.refresher());
                Some((mirrored, forward))
            }
        };
        Ok(Member { is_told: false, uplink, mirrored })
    }

    /// Tries until a hub is there, or nobody wants it any more. `done` hears how the first time went.
    fn try_until(&self, stopped: &Receiver<()>, state: &Mutex<State>, done: &Sender<bool>) {
        for pause in self.config.pauses() {
            if let Ok(plane) = self.open() {
                let next = match self.join(&plane) {
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
            // Who started may not have waited.
            let _ = done.send(false);
            if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }
}

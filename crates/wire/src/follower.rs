//! Follows a site: subscribes to its publishers, and keeps a mirror of each.

use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use skopos_access::Action;
use skopos_model::Topic;
use zenoh::Wait as _;

use crate::drops::Dropped;
use crate::error::Error;
use crate::inbox::{Direct, Inbox, Message};
use crate::intake::{self, Intake};
use crate::interest::Interest;
use crate::keys;
use crate::places::Places;
use crate::plane::Plane;
use crate::site::{NodeWatcher, Site};
use crate::trust::Received;

/// Follows a site until it is dropped.
#[derive(Debug)]
pub struct Follower {
    site: Site,
    plane: Plane,
    inbox: Inbox,
    thread: Option<JoinHandle<()>>,
    /// Each ends when it is dropped.
    _subscribers: Vec<zenoh::pubsub::Subscriber<()>>,
    _known: Option<zenoh::query::Queryable<()>>,
}

impl Follower {
    /// Follows every node of the plane's site.
    ///
    /// # Errors
    /// The session is closed; no thread can be started.
    pub fn start(plane: &Plane) -> Result<Self, Error> {
        Self::start_with(plane, Interest::default(), ())
    }

    /// Follows the nodes that can have a wanted topic, and reports their changes to `watcher`.
    ///
    /// # Errors
    /// The same as for [`start`](Self::start).
    pub fn start_with(
        plane: &Plane,
        interest: Interest,
        watcher: impl NodeWatcher + 'static,
    ) -> Result<Self, Error> {
        let nodes = interest.nodes();
        let site = Site::new(interest);
        let (inbox, messages) = Inbox::new(site.shared.clone(), plane.rules.demands());
        let intake = Intake::new(site.clone(), plane.clone(), inbox.clone(), watcher);
        let intake = Arc::new(Mutex::new(intake));
        let direct: Arc<dyn Direct> = intake.clone();
        let thread = {
            let inbox = inbox.clone();
            let run = move || intake::run(&intake, &inbox, &messages);
            std::thread::Builder::new().name("live-plane".to_owned()).spawn(run)
        };
        let thread = Some(thread.map_err(Error::Thread)?);
        let plane = plane.clone();
        let mut follower =
            Self { site, plane, inbox, thread, _subscribers: Vec::new(), _known: None };
        for node in nodes {
            follower.subscribe(node.as_str(), &direct).map_err(|e| Error::plane(&e))?;
        }
        follower.count_other_versions().map_err(|e| Error::plane(&e))?;
        follower.serve_known_names().map_err(|e| Error::plane(&e))?;
        Ok(follower)
    }

    /// Answers new publishers with the incarnation that already has their name.
    fn serve_known_names(&mut self) -> Result<(), zenoh::Error> {
        let (site, rules) = (self.site.clone(), self.plane.rules.clone());
        let drops = self.plane.drops.clone();
        let places = Places::default();
        let key = keys::of_name(&self.plane.site, "known", "*");
        let known = self.plane.session.declare_queryable(key);
        let known = known.callback(move |query| {
            let key = query.key_expr().as_str().to_owned();
            let name = key.rsplit('/').next().unwrap_or_default();
            let Some(node) = site.node(name) else { return };
            // A callback does not wait for the state. If it is in use, the thread looks.
            if node.try_state().is_some_and(|state| !state.is_alive) {
                return;
            }
            let (rules, counter) = (rules.clone(), drops.clone());
            let is_begun = places.on_thread(move |checking| {
                let received = rules.receive(&query, Action::ReadFacts).ok();
                let admit =
                    |received: Received| Some((checking.admit(&received.caller)?, received));
                let Some((_place, received)) = received.and_then(admit) else {
                    return counter.count(Dropped::NameRequest);
                };
                let known = Some(node.state()).filter(|state| state.is_alive);
                let Some(known) = known.map(|state| state.incarnation.to_string()) else { return };
                let proof = rules.answer(&received, &key, known.as_bytes(), &[]);
                let _ = query.reply(key, known).attachment(proof).wait();
            });
            if !is_begun {
                drops.count(Dropped::NameRequest);
            }
        });
        self._known = Some(known.wait()?);
        Ok(())
    }

    /// Counts publishers that it cannot follow, because their keys are of another version.
    fn count_other_versions(&mut self) -> Result<(), zenoh::Error> {
        for key in keys::of_other_versions(&self.plane.site) {
            let (inbox, liveliness) = (self.inbox.clone(), self.plane.session.liveliness());
            let tokens = liveliness.declare_subscriber(key).history(true);
            let tokens = tokens.callback(move |token| inbox.note_other_version(&token));
            self._subscribers.push(tokens.wait()?);
        }
        Ok(())
    }

    /// Subscribes to the nodes whose names match a part of a key.
    fn subscribe(&mut self, node: &str, direct: &Arc<dyn Direct>) -> Result<(), zenoh::Error> {
        let key = |what: &str| keys::of_publisher(&self.plane.site, what, node, "*");
        let (inbox, direct) = (self.inbox.clone(), direct.clone());
        let live = self
            .plane
            .session
            .declare_subscriber(key("live"))
            .callback(move |sample| inbox.put_batch(&sample, &*direct));
        let inbox = self.inbox.clone();
        let alive = self
            .plane
            .session
            .liveliness()
            .declare_subscriber(key("alive"))
            .history(true)
            .callback(move |sample| inbox.note_presence(&sample));
        self._subscribers.extend([live.wait()?, alive.wait()?]);
        Ok(())
    }

    /// Returns the session through which it follows the site.
    pub fn plane(&self) -> &Plane {
        &self.plane
    }

    /// Returns the current state of the site.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// Returns a handle that requests measurements. It stops working when the follower is dropped.
    pub fn refresher(&self) -> Refresher {
        Refresher { plane: self.plane.clone(), inbox: self.inbox.clone() }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.inbox.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Requests measurements from followed nodes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Refresher {
    plane: Plane,
    inbox: Inbox,
}

impl Refresher {
    /// Asks the node of a topic to measure it now, and waits until the answer is in the mirror.
    ///
    /// # Errors
    /// The errors of [`Plane::refresh`]; [`Error::NotMirrored`] if the mirror does not have the topic.
    pub fn refresh(&self, topic: &Topic, deadline: Duration) -> Result<(), Error> {
        let begun = Instant::now();
        let batch = self.plane.refresh(topic, deadline)?;
        let late = || Error::NoAnswer { node: topic.node().to_owned(), within: deadline };
        let (done, is_known) = sync_channel(1);
        let message = Message::Refreshed { node: topic.node().to_owned(), batch, done };
        if !self.inbox.put(message) {
            return Err(late());
        }
        match is_known.recv_timeout(deadline.saturating_sub(begun.elapsed())) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::NotMirrored(topic.clone())),
            Err(_) => Err(late()),
        }
    }
}

//! `GET /api/v1/watch?topic=…` or `?sql=…`: changes as server-sent events.
//!
//! The hub keeps no queue for a client. It makes an event when the client reads it, from the changes since the last
//! event, so a slow client does not delay others. An event `lost` gives the number of samples that were overwritten
//! meanwhile.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::header::{AUTHORIZATION, HeaderName};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, Stream, StreamExt as _};
use serde_json::json;
use skopos_access::Caller;
use skopos_model::{Timestamp, Topic, TopicPattern};
use skopos_query::{Limits, Row, Source, Wanted};
use tokio::sync::watch;
use tokio::time::Instant;

use super::context::HttpContext;
use super::parameters::{self, parameters, unknown};
use super::refusal::Refusal;
use crate::shares::Share;
use skopos_hub::topics;
use skopos_hub::{Question, Standing, any_changed};
use skopos_term::find::readings_of;

/// Time between two comments in a quiet stream. They keep proxies from closing the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Time between two checks that the token of a client is still valid.
const ADMIT_EVERY: Duration = Duration::from_secs(5);

/// Minimum time between two checks of topics. People and most programs do not notice a shorter delay.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// Length of the pause after a check, in durations of that check. It limits a client to a tenth of a core.
const REST: u32 = 9;

/// Maximum number of topics that one client can watch: the facts of a hundred nodes.
const MAX_WATCHED: usize = 65_536;

/// Number of events after which a check ends, until the client has read them. Others come with the next check.
const MAX_EVENTS: usize = 2048;

/// The header in which a client that reconnects names the last event that it received.
static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The parameters of a request.
#[derive(Default)]
struct WatchRequest {
    topics: Vec<String>,
    sql: Option<String>,
    every: Option<Duration>,
}

pub(super) async fn answer(
    State(context): State<Arc<HttpContext>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Refusal> {
    let mut request = WatchRequest::default();
    for (name, value) in parameters(&uri)? {
        match name.as_str() {
            "topic" => request.topics.push(value),
            "sql" if request.sql.is_none() => request.sql = Some(value),
            "every" => request.every = Some(parameters::time(&value)?),
            other => return Err(unknown(other, "`topic`, one `sql`, and `every`")),
        }
    }
    let watcher = context.watchers.take(&caller);
    let watcher = watcher.ok_or_else(|| Refusal::too_many("clients watch"))?;
    let guards = (watcher, context.counts.stand());
    let shown = headers.get(AUTHORIZATION).and_then(|shown| shown.to_str().ok());
    let revoked = revoked(context.clone(), shown.map(str::to_owned));
    match request.sql {
        Some(sql) if request.topics.is_empty() => {
            let deadline = Limits::default().deadline;
            let question = Question { caller, sql, every: request.every, deadline };
            let backend = &context.backend;
            let standing = backend.standings.ask(question, backend.news()).await?;
            let events = stream::unfold(Some((standing, context, guards)), of_statement);
            Ok(answer_with(events.take_until(revoked)))
        }
        None if !request.topics.is_empty() => {
            let since = headers.get(&LAST_EVENT_ID).and_then(|id| id.to_str().ok()?.parse().ok());
            let since = since.map(Timestamp::from_nanos);
            let news = context.backend.news();
            // Too many topics are refused before the first event.
            let watched = checked((&context, &caller), {
                let (context, share) = (context.clone(), context.watched.none(&caller));
                move || Watched::new((&context, share), &request, since)?.check()
            });
            let watched = watched.await?;
            let watching = Watching { context: context.clone(), caller, watched, news };
            let events = stream::unfold(Some((watching, guards)), async |state| {
                let (watching, guards) = state?;
                let (event, watching) = watching.next().await;
                Some((Ok(event), watching.map(|watching| (watching, guards))))
            });
            Ok(answer_with(events.take_until(revoked)))
        }
        _ => Err(Refusal::bad("a request names one `topic` or several, or one `sql`")
            .hint("for example `?topic=load/**` or `?sql=SELECT…`")),
    }
}

/// Waits until the token that a client shows is not valid any more.
async fn revoked(context: Arc<HttpContext>, shown: Option<String>) {
    let Some(shown) = shown else { return std::future::pending().await };
    while context.admittance.caller_of(&shown).await.is_some() {
        tokio::time::sleep(ADMIT_EVERY).await;
    }
}

fn answer_with(stream: impl Stream<Item = Result<Event, Infallible>> + Send + 'static) -> Response {
    Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// Returns the next event of a statement. An event of an error is the last one.
async fn of_statement<K>(
    state: Option<(Standing, Arc<HttpContext>, K)>,
) -> Option<(Result<Event, Infallible>, Option<(Standing, Arc<HttpContext>, K)>)> {
    let (mut standing, context, guards) = state?;
    let failed = |refusal: Refusal| Event::default().event("error").data(refusal.body());
    let change = match standing.next().await {
        Ok(change) => change,
        Err(e) => return Some((Ok(failed(Refusal::from(&*e))), None)),
    };
    let (now, mut data) = (context.backend.source.now(), Vec::new());
    let event = match change.write_json(now, &mut data) {
        Ok(()) => {
            let data = String::from_utf8_lossy(&data);
            Event::default().event("rows").id(now.as_nanos().to_string()).data(data)
        }
        Err(e) => return Some((Ok(failed(Refusal::bad(e.to_string()))), None)),
    };
    Some((Ok(event), Some((standing, context, guards))))
}

/// Does the work of a check on a thread that may take its time. Few checks run at one time.
async fn checked<T: Send + 'static>(
    (context, caller): (&HttpContext, &Caller),
    check: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let turn = context.checks.take(caller).await;
    let check = move || {
        let _turn = turn;
        check()
    };
    let done = tokio::task::spawn_blocking(check).await;
    done.unwrap_or_else(|e| Err(Refusal::internal(e.to_string())))
}

/// A client that watches topics.
struct Watching {
    context: Arc<HttpContext>,
    caller: Caller,
    watched: Watched,
    news: Vec<watch::Receiver<u64>>,
}

impl Watching {
    /// Returns the next event. That of an error is the last one.
    async fn next(mut self) -> (Event, Option<Self>) {
        loop {
            if let Some(event) = self.watched.waiting.pop_front() {
                return (event, Some(self));
            }
            if self.watched.is_whole {
                any_changed(&mut self.news).await;
            }
            tokio::time::sleep_until(self.watched.not_before).await;
            // Changes from here on count as new.
            self.news.iter_mut().for_each(watch::Receiver::mark_unchanged);
            let watched = self.watched;
            match checked((&self.context, &self.caller), move || watched.check()).await {
                Ok(watched) => self.watched = watched,
                Err(refusal) => {
                    return (Event::default().event("error").data(refusal.body()), None);
                }
            }
        }
    }
}

/// The topics that one client watches.
struct Watched {
    context: Arc<HttpContext>,
    patterns: Vec<TopicPattern>,
    wanted: Vec<Wanted>,
    every: Duration,
    /// Time of the last event that the client received before it reconnected.
    since: Option<Timestamp>,
    sent: HashMap<Topic, LastSent>,
    /// A share for each topic in `sent`.
    share: Share<Caller>,
    not_before: Instant,
    waiting: VecDeque<Event>,
    /// True if the last check made an event of every change.
    is_whole: bool,
    checks: u64,
}

/// An event with its time.
struct Timed {
    time: Timestamp,
    name: &'static str,
    data: String,
}

/// The event of a sample. A client that reconnects names the last one.
const CHANGE: &str = "change";

/// The last sample of a topic that was sent to the client.
struct LastSent {
    /// Time of that sample.
    last: Timestamp,
    /// Number of samples that the topic had by then, if that is counted.
    count: Option<u64>,
    /// Number of the last check at which the topic existed.
    check: u64,
}

impl Watched {
    fn new(
        (context, share): (&Arc<HttpContext>, Share<Caller>),
        request: &WatchRequest,
        since: Option<Timestamp>,
    ) -> Result<Self, Refusal> {
        let source = &*context.backend.source;
        let mut patterns = Vec::new();
        for text in &request.topics {
            match topics::resolve(source, text)? {
                Some(pattern) => patterns.push(pattern),
                // A pattern may wait for its topics, whether it names their node or not.
                None if text.contains('*') => patterns.extend(readings_of(text)?),
                None => {
                    let error = format!("no topic matches `{text}`");
                    let refusal = Refusal::new(StatusCode::NOT_FOUND, error);
                    return Err(match topics::nearest(source, text) {
                        Some(topic) => refusal.hint(format!("did you mean `{topic}`?")),
                        None => refusal.hint("a pattern with `*` waits for its topics"),
                    });
                }
            }
        }
        Ok(Self {
            wanted: patterns.iter().map(topics::wanted).collect(),
            patterns,
            every: request.every.unwrap_or(CHECK_EVERY).max(CHECK_EVERY),
            since,
            sent: HashMap::new(),
            share,
            not_before: Instant::now(),
            waiting: VecDeque::new(),
            is_whole: true,
            checks: 0,
            context: context.clone(),
        })
    }

    /// Makes events of new samples and of topics that are gone.
    fn check(mut self) -> Result<Self, Refusal> {
        let begun = Instant::now();
        self.checks += 1;
        let changed = self.changed()?;
        let mut events = Vec::new();
        self.is_whole = true;
        for (topic, is_new) in changed {
            if events.len() >= MAX_EVENTS {
                // The rest is due as soon as the client has read these.
                self.is_whole = false;
                break;
            }
            self.add_samples(&topic, is_new, &mut events);
        }
        self.remove_gone(&mut events);
        // Sorted by time, so that the identifier of an event covers all earlier ones; where some of them come later, there
        // is no identifier.
        events.sort_by_key(|Timed { time, .. }| *time);
        let is_whole = self.is_whole;
        self.waiting.extend(events.into_iter().map(|Timed { time, name, data }| {
            let event = Event::default().event(name);
            match is_whole && name == CHANGE {
                true => event.id(time.as_nanos().to_string()).data(data),
                false => event.data(data),
            }
        }));
        self.not_before = begun + self.every.max(begun.elapsed() * (REST + 1));
        Ok(self)
    }

    /// Returns the topics with new samples; true marks a new topic.
    fn changed(&mut self) -> Result<Vec<(Topic, bool)>, Refusal> {
        let (sent, patterns, check) = (&mut self.sent, &self.patterns, self.checks);
        let (mut changed, mut fresh) = (Vec::new(), HashMap::new());
        for wanted in &self.wanted {
            self.context.backend.source.latest(wanted, &mut |row: &Row<'_>| {
                let topic = row.of.topic;
                if let Some(known) = sent.get_mut(topic) {
                    let is_first = known.check != check;
                    known.check = check;
                    if is_first && known.last < row.sample.time {
                        changed.push((topic.clone(), false));
                    }
                } else if patterns.iter().any(|pattern| pattern.matches(topic)) {
                    fresh.insert(topic.clone(), row.sample.time);
                }
            });
        }
        if sent.len() + fresh.len() > MAX_WATCHED {
            let error = format!("more than {MAX_WATCHED} topics match");
            return Err(
                Refusal::bad(error).hint("watch fewer topics, for example those of one node")
            );
        }
        if !self.share.resize(sent.len() + fresh.len()) {
            return Err(Refusal::too_many("topics are watched"));
        }
        for (topic, time) in fresh {
            // The first check sends the current value, so that a quiet topic shows it. A topic that comes later sends
            // all its samples.
            let is_first = check == 1;
            let last = match self.since {
                Some(since) if is_first => since.min(time),
                _ if is_first => Timestamp::from_nanos(time.as_nanos().saturating_sub(1)),
                _ => Timestamp::from_nanos(i64::MIN),
            };
            if last < time {
                changed.push((topic.clone(), true));
            }
            sent.insert(topic, LastSent { last, count: None, check });
        }
        Ok(changed)
    }

    /// Adds events of one topic's new samples, and of the number of lost samples.
    fn add_samples(&mut self, topic: &Topic, is_new: bool, events: &mut Vec<Timed>) {
        let source = &*self.context.backend.source;
        let Some(known) = self.sent.get_mut(topic) else { return };
        // Counted before the samples are read: a sample that comes in between is sent now and counted next time.
        let count = source.count(topic);
        let from = Timestamp::from_nanos(known.last.as_nanos().saturating_add(1));
        let (wanted, now) = (Wanted::These(vec![topic.clone()]), source.now());
        let (mut added, mut first) = (0u64, None);
        source.samples(&wanted, from..=Timestamp::from_nanos(i64::MAX), &mut |row| {
            if row.of.topic != topic {
                return;
            }
            added += 1;
            first.get_or_insert(row.sample.time);
            known.last = known.last.max(row.sample.time);
            let data = serde_json::to_string(&topics::json(row, now)).unwrap_or_default();
            events.push(Timed { time: row.sample.time, name: CHANGE, data });
        });
        let before = if is_new { None } else { known.count };
        let lost = match (before, count) {
            // A smaller number belongs to a new vertex of the same topic.
            (Some(before), Some(count)) => count.saturating_sub(before).saturating_sub(added),
            _ => 0,
        };
        if let (1.., Some(first)) = (lost, first) {
            let data = json!({ "topic": topic.as_str(), "samples": lost }).to_string();
            events.push(Timed { time: first, name: "lost", data });
        }
        known.count = match (before, count) {
            (Some(before), Some(count)) if before <= count => Some(before + added + lost),
            _ => count,
        };
    }

    /// Removes topics that no longer exist, and adds their events.
    fn remove_gone(&mut self, events: &mut Vec<Timed>) {
        let (check, now) = (self.checks, self.context.backend.source.now());
        self.sent.retain(|topic, sent| {
            if sent.check != check {
                let data = json!({ "topic": topic.as_str() }).to_string();
                events.push(Timed { time: now, name: "gone", data });
            }
            sent.check == check
        });
    }
}

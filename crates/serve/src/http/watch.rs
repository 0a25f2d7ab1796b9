//! `GET /api/v1/watch?topic=…` or `?sql=…`: changes as server-sent events.
//!
//! Nothing is queued for anybody. An event is made when the client takes it, of what is new since the
//! last one, so one that is slow holds nobody up; what was overwritten meanwhile it is told of, by
//! number.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::HeaderName;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, Stream};
use serde_json::json;
use skopos_model::{Timestamp, Topic, TopicPattern};
use skopos_query::{Limits, Row, Source, Wanted};
use tokio::sync::watch;
use tokio::time::Instant;

use super::parameters::{self, parameters, unknown};
use super::{Desk, Refusal};
use skopos_hub::pieces::change_json;
use skopos_hub::topics;
use skopos_hub::{Standing, any};
use skopos_term::find::readings_of;

/// A comment now and then tells whoever is between that the connection is used.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Time between two looks at topics: a person's and most programs' at once.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How many times longer than a look took none is made: watching takes a tenth of a core at the most.
const REST: u32 = 9;

/// Topics that one client may watch: the facts of a hundred nodes.
const MAX_WATCHED: usize = 65_536;

/// With which a client that was cut off says what it saw last.
static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

#[derive(Default)]
struct Asked {
    topics: Vec<String>,
    sql: Option<String>,
    every: Option<Duration>,
}

pub(super) async fn answer(
    State(desk): State<Arc<Desk>>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Refusal> {
    let mut asked = Asked::default();
    for (name, value) in parameters(&uri)? {
        match name.as_str() {
            "topic" => asked.topics.push(value),
            "sql" if asked.sql.is_none() => asked.sql = Some(value),
            "every" => asked.every = Some(parameters::time(&value)?),
            other => return Err(unknown(other, "`topic`, one `sql`, and `every`")),
        }
    }
    let turn = desk.watchers.clone().try_acquire_owned();
    let turn = turn.map_err(|_| Refusal::too_many("clients watch"))?;
    let kept = (turn, desk.counts.stand());
    match asked.sql {
        Some(sql) if asked.topics.is_empty() => {
            let (engine, news) = (desk.inside.engine.clone(), desk.inside.news());
            let deadline = Limits::default().deadline;
            let standing = Standing::new(engine, sql, asked.every, deadline, news).await?;
            Ok(events(stream::unfold(Some((standing, desk, kept)), of_statement)))
        }
        None if !asked.topics.is_empty() => {
            let since = headers.get(&LAST_EVENT_ID).and_then(|id| id.to_str().ok()?.parse().ok());
            let mut watched = Watched::new(&desk, &asked, since.map(Timestamp::from_nanos))?;
            // What is too much is refused before the first event.
            watched.look()?;
            Ok(events(stream::unfold((watched, kept), |(mut watched, kept)| async {
                let event = watched.next().await;
                Some((Ok(event), (watched, kept)))
            })))
        }
        _ => Err(Refusal::bad("a `topic`, several of them, or one `sql` is watched")
            .hint("say `?topic=load/**` or `?sql=SELECT…`")),
    }
}

fn events(stream: impl Stream<Item = Result<Event, Infallible>> + Send + 'static) -> Response {
    Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// The next event of a statement; one that fails is the last.
async fn of_statement<K>(
    state: Option<(Standing, Arc<Desk>, K)>,
) -> Option<(Result<Event, Infallible>, Option<(Standing, Arc<Desk>, K)>)> {
    let (mut standing, desk, kept) = state?;
    let failed = |refusal: Refusal| Event::default().event("error").data(refusal.body());
    let change = match standing.next().await {
        Ok(change) => change,
        Err(e) => return Some((Ok(failed(e.into())), None)),
    };
    let (now, mut data) = (desk.inside.source.now(), Vec::new());
    let event = match change_json(&change, now, &mut data) {
        Ok(()) => {
            let data = String::from_utf8_lossy(&data);
            Event::default().event("rows").id(now.as_nanos().to_string()).data(data)
        }
        Err(e) => return Some((Ok(failed(Refusal::bad(e.to_string()))), None)),
    };
    Some((Ok(event), Some((standing, desk, kept))))
}

/// Topics that are watched by one client.
struct Watched {
    desk: Arc<Desk>,
    patterns: Vec<TopicPattern>,
    wanted: Vec<Wanted>,
    every: Duration,
    /// What is newer was not told.
    since: Option<Timestamp>,
    told: HashMap<Topic, Told>,
    news: Vec<watch::Receiver<u64>>,
    not_before: Instant,
    waiting: VecDeque<Event>,
    looks: u64,
}

/// What a client knows of a topic.
struct Told {
    /// The time of the last sample.
    last: Timestamp,
    /// Samples that there were by then, as far as anybody counts.
    count: Option<u64>,
    /// The last look at which it was there.
    look: u64,
}

impl Watched {
    fn new(desk: &Arc<Desk>, asked: &Asked, since: Option<Timestamp>) -> Result<Self, Refusal> {
        let source = &*desk.inside.source;
        let mut patterns = Vec::new();
        for text in &asked.topics {
            match topics::reading(source, text)? {
                Some(pattern) => patterns.push(pattern),
                // A pattern may wait for its topics, with their node in front or without.
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
            every: asked.every.unwrap_or(LOOK_EVERY).max(LOOK_EVERY),
            since,
            told: HashMap::new(),
            news: desk.inside.news(),
            not_before: Instant::now(),
            waiting: VecDeque::new(),
            looks: 0,
            desk: desk.clone(),
        })
    }

    async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return event;
            }
            any(&mut self.news).await;
            tokio::time::sleep_until(self.not_before).await;
            if let Err(refusal) = self.look() {
                return Event::default().event("error").data(refusal.body());
            }
        }
    }

    /// Makes events of what is new.
    fn look(&mut self) -> Result<(), Refusal> {
        let begun = Instant::now();
        // Whatever comes from here on is news.
        self.news.iter_mut().for_each(watch::Receiver::mark_unchanged);
        self.looks += 1;
        let changed = self.changed()?;
        let mut events = Vec::new();
        for (topic, is_new) in changed {
            self.tell(&topic, is_new, &mut events);
        }
        self.forget(&mut events);
        // By time, so that the number of the last event says what was seen.
        events.sort_by_key(|(time, _)| *time);
        self.waiting.extend(events.into_iter().map(|(_, event)| event));
        self.not_before = begun + self.every.max(begun.elapsed() * (REST + 1));
        Ok(())
    }

    /// The topics with something new, and whether they are.
    fn changed(&mut self) -> Result<Vec<(Topic, bool)>, Refusal> {
        let (told, patterns, look) = (&mut self.told, &self.patterns, self.looks);
        let (mut changed, mut fresh) = (Vec::new(), HashMap::new());
        for wanted in &self.wanted {
            self.desk.inside.source.latest(wanted, &mut |row: &Row<'_>| {
                let topic = row.of.topic;
                if let Some(known) = told.get_mut(topic) {
                    let is_first = known.look != look;
                    known.look = look;
                    if is_first && known.last < row.sample.time {
                        changed.push((topic.clone(), false));
                    }
                } else if patterns.iter().any(|pattern| pattern.matches(topic)) {
                    fresh.insert(topic.clone(), row.sample.time);
                }
            });
        }
        if told.len() + fresh.len() > MAX_WATCHED {
            let error = format!("that are more than {MAX_WATCHED} topics");
            return Err(Refusal::bad(error).hint("watch fewer, for example those of one node"));
        }
        for (topic, time) in fresh {
            // What holds now comes first, so that a quiet topic shows its value; of one that came
            // later, all that it has.
            let is_first = look == 1;
            let last = match self.since {
                Some(since) if is_first => since.min(time),
                _ if is_first => Timestamp::from_nanos(time.as_nanos().saturating_sub(1)),
                _ => Timestamp::from_nanos(i64::MIN),
            };
            if last < time {
                changed.push((topic.clone(), true));
            }
            told.insert(topic, Told { last, count: None, look });
        }
        Ok(changed)
    }

    /// Events of one topic's new samples, and of how many were missed.
    fn tell(&mut self, topic: &Topic, is_new: bool, events: &mut Vec<(Timestamp, Event)>) {
        let source = &*self.desk.inside.source;
        let Some(known) = self.told.get_mut(topic) else { return };
        // Before the samples are read: what comes between is told now and counted next time.
        let count = source.count(topic);
        let from = Timestamp::from_nanos(known.last.as_nanos().saturating_add(1));
        let (wanted, now) = (Wanted::These(vec![topic.clone()]), source.now());
        let (mut told, mut first) = (0u64, None);
        source.samples(&wanted, from..=Timestamp::from_nanos(i64::MAX), &mut |row| {
            if row.of.topic != topic {
                return;
            }
            told += 1;
            first.get_or_insert(row.sample.time);
            known.last = known.last.max(row.sample.time);
            let data = serde_json::to_string(&topics::json(row, now)).unwrap_or_default();
            let id = row.sample.time.as_nanos().to_string();
            events.push((row.sample.time, Event::default().event("change").id(id).data(data)));
        });
        let before = if is_new { None } else { known.count };
        let missed = match (before, count) {
            // A smaller number is of another topic of that name, which came in its place.
            (Some(before), Some(count)) => count.saturating_sub(before).saturating_sub(told),
            _ => 0,
        };
        if let (1.., Some(first)) = (missed, first) {
            let data = json!({ "topic": topic.as_str(), "samples": missed }).to_string();
            events.push((first, Event::default().event("lost").data(data)));
        }
        known.count = match (before, count) {
            (Some(before), Some(count)) if before <= count => Some(before + told + missed),
            _ => count,
        };
    }

    /// Topics that are no longer there.
    fn forget(&mut self, events: &mut Vec<(Timestamp, Event)>) {
        let (look, now) = (self.looks, self.desk.inside.source.now());
        self.told.retain(|topic, told| {
            if told.look != look {
                let data = json!({ "topic": topic.as_str() }).to_string();
                events.push((now, Event::default().event("gone").data(data)));
            }
            told.look == look
        });
    }
}

//! Questions that read all topics share one look at them, and have the answers of others.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use skopos_access::Caller;
use skopos_model::{Kind, Sample, Timestamp, Topic, Unit, Value, ValueType};
use skopos_query::{Described, Engine, LatestReader, Limits, Node, Registry, Row, Source, Wanted};

use crate::world::{block_on, rows};

/// Topics with values that tests change.
#[derive(Clone, Debug, Default)]
struct Changing(Arc<Mutex<Vec<(Topic, i64, f64)>>>);

/// The same topics, of a source that knows what a reader has read.
#[derive(Debug)]
struct Remembering(Changing);

/// Times of the samples that were read.
#[derive(Debug)]
struct Reader(Changing, Vec<(Topic, i64)>);

impl Changing {
    fn set(&self, all: &[(&str, i64, f64)]) {
        let topic = |text: &str| text.parse().expect("a topic");
        let all = all.iter().map(|(text, time, value)| (topic(text), *time, *value));
        *self.0.lock().expect("no panic") = all.collect();
    }
}

fn described(topic: &Topic) -> Described<'_> {
    let (unit, kind, value_type) = (Unit::NONE, Kind::Gauge, ValueType::F64);
    Described { topic, unit, kind, value_type, publisher: "p" }
}

impl Source for Changing {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(1_000)
    }

    fn latest(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Row<'_>)) {
        for (topic, time, value) in &*self.0.lock().expect("no panic") {
            let sample = Sample::measured(Timestamp::from_nanos(*time), Value::F64(*value));
            if wanted.selects(topic.as_str()) {
                let checked_at = sample.time;
                visit(&Row {
                    of: described(topic),
                    sample: &sample,
                    checked_at,
                    ahead: 0,
                    age: None,
                });
            }
        }
    }

    fn samples(&self, _: &Wanted, _: RangeInclusive<Timestamp>, _: &mut dyn FnMut(&Row<'_>)) {}

    fn topics(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Described<'_>)) {
        for (topic, ..) in &*self.0.lock().expect("no panic") {
            if wanted.selects(topic.as_str()) {
                visit(&described(topic));
            }
        }
    }

    fn nodes(&self) -> Vec<Node> {
        Vec::new()
    }
}

impl Source for Remembering {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn latest(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Row<'_>)) {
        self.0.latest(wanted, visit);
    }

    fn latest_reader(self: Arc<Self>) -> Option<Box<dyn LatestReader>> {
        Some(Box::new(Reader(self.0.clone(), Vec::new())))
    }

    fn samples(&self, _: &Wanted, _: RangeInclusive<Timestamp>, _: &mut dyn FnMut(&Row<'_>)) {}

    fn topics(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Described<'_>)) {
        self.0.topics(wanted, visit);
    }

    fn nodes(&self) -> Vec<Node> {
        Vec::new()
    }
}

impl LatestReader for Reader {
    fn all(&mut self, visit: &mut dyn FnMut(&Row<'_>)) {
        self.1.clear();
        self.0.latest(&Wanted::All, &mut |row| {
            self.1.push((row.of.topic.clone(), row.sample.time.as_nanos()));
            visit(row);
        });
    }

    fn changed(&mut self, visit: &mut dyn FnMut(usize, &Row<'_>)) -> bool {
        let (mut place, mut is_same) = (0, true);
        self.0.latest(&Wanted::All, &mut |row| {
            let time = row.sample.time.as_nanos();
            match self.1.get_mut(place) {
                Some((topic, seen)) if topic == row.of.topic => {
                    if std::mem::replace(seen, time) != time {
                        visit(place, row);
                    }
                }
                _ => is_same = false,
            }
            place += 1;
        });
        is_same && place == self.1.len()
    }
}

/// Statements that share a look, and two that do not.
const STATEMENTS: [&str; 8] = [
    "SELECT topic, value, time FROM latest ORDER BY topic",
    "SELECT metric, count(*), sum(value) FROM latest GROUP BY metric ORDER BY metric",
    "SELECT avg(value) FROM latest",
    "SELECT max(value) FROM latest WHERE topic LIKE '%/a'",
    "SELECT node, instance, unit, kind, publisher FROM latest ORDER BY node",
    "SELECT count(*) FROM latest",
    "SELECT topic, age FROM latest ORDER BY topic",
    "SELECT value FROM latest WHERE topic = 'n01/x/a'",
];

/// Time after which a change counts as not seen, on a machine as slow as any.
const PATIENCE: Duration = Duration::from_secs(60);

/// Changes a world and compares the answers of standing questions with those of others.
fn compare(changing: &Changing, source: Arc<dyn Source>, others: &[(String, i64, f64)]) {
    let engine = Engine::new(Registry::new(source)).expect("an engine");
    let standing = engine.standing();
    let ask = |engine: &Engine, sql: &str| {
        let limits = Limits::default();
        let answer = engine.query(&Caller::Owner, sql, &limits);
        rows(&block_on(answer).unwrap_or_else(|e| panic!("{sql}: {e}")))
    };
    let inputs = block_on(engine.standing().inputs(&Caller::Owner, STATEMENTS[1])).expect("inputs");
    let mut prints = Vec::new();
    for world in [
        &[("n01/x/a", 1, 1.0), ("n02/x/a", 1, 2.0)][..],
        &[("n01/x/a", 2, 5.0), ("n02/x/a", 1, 2.0)],
        &[("n01/x/a", 3, 6.0), ("n02/x/a", 2, f64::NAN)],
        &[("n01/x/a", 2, 5.0), ("n02/x/b", 1, 2.0)],
        &[("n02/x/b", 1, 2.0), ("n01/x/a", 2, 5.0)],
        &[("n02/x/b", 1, 2.0), ("n01/x/a", 2, 5.0), ("n03/y/c", 3, 7.0)],
        &[("n02/x/b", 1, 2.0)],
        &[],
    ] {
        let others = others.iter().map(|(topic, time, value)| (&**topic, *time, *value));
        changing.set(&others.chain(world.iter().copied()).collect::<Vec<_>>());
        // A look is valid for a moment, which is longer where looks take longer.
        let since = Instant::now();
        let print = loop {
            let print = standing.fingerprint(&inputs, &|_| true);
            if prints.last() != Some(&print) {
                break print;
            }
            assert!(since.elapsed() < PATIENCE, "no news of {world:?}");
            std::thread::sleep(Duration::from_millis(10));
        };
        prints.push(print);
        for sql in STATEMENTS {
            // A statement with another look may have one that is still valid.
            let since = Instant::now();
            while ask(&standing, sql) != ask(&engine, sql) && since.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(10));
            }
            assert_eq!(ask(&standing, sql), ask(&engine, sql), "{sql} {world:?}");
        }
    }
    // Nothing new is no news.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(prints.last(), Some(&standing.fingerprint(&inputs, &|_| true)));
}

#[test]
fn standing_questions_see_each_change_of_values_and_of_topics() {
    // More than a batch of rows.
    let many: Vec<_> = (0..9000).map(|n| (format!("n04/z/t{n}"), 1, f64::from(n))).collect();
    for others in [&[][..], &many] {
        let changing = Changing::default();
        compare(&changing, Arc::new(changing.clone()), others);
        let changing = Changing::default();
        compare(&changing, Arc::new(Remembering(changing.clone())), others);
    }
}

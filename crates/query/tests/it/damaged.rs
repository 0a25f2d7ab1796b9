//! History with damaged files: statements go on without them, and answers name them.

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use skopos_access::Caller;
use skopos_model::{Kind, Timestamp, Topic, Unit, ValueType};
use skopos_query::{Answer, Described, Engine, Limits, Node, Registry, Row, Source, Wanted};
use skopos_store::history::{Error, Folder, Found, Samples, Sealer, Series};

use crate::world::{block_on, rows};

/// History in a folder, and nothing in memory.
#[derive(Debug)]
struct OnDisk(Folder);

impl Source for OnDisk {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(1_000_000)
    }

    fn latest(&self, _: &Wanted, _: &mut dyn FnMut(&Row<'_>)) {}

    fn samples(&self, _: &Wanted, _: RangeInclusive<Timestamp>, _: &mut dyn FnMut(&Row<'_>)) {}

    fn history(&self, times: &RangeInclusive<Timestamp>) -> Result<Found, Error> {
        self.0.find(times)
    }

    fn has_history(&self) -> bool {
        true
    }

    fn topics(&self, _: &Wanted, _: &mut dyn FnMut(&Described<'_>)) {}

    fn nodes(&self) -> Vec<Node> {
        Vec::new()
    }
}

/// Writes a part with samples of `n1/a/b` at these times.
fn seal(folder: &Path, generation: u64, times: RangeInclusive<i64>) -> String {
    let topic = Topic::new("n1/a/b").expect("a topic");
    let (unit, kind, value_type) = (Unit::NONE, Kind::Gauge, ValueType::F64);
    let series = Series { topic, unit, kind, value_type, since: Timestamp::default() };
    let mut samples = Samples::default();
    times.for_each(|time| samples.push_measured(Timestamp::from_nanos(time), time as f64));
    let mut sealer = Sealer::new(folder, generation).expect("a part");
    sealer.push(series, samples).expect("pushed");
    let path = sealer.finish().expect("sealed");
    path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned()
}

fn ask(folder: &Path, sql: &str) -> Answer {
    let source = Arc::new(OnDisk(Folder::new(folder)));
    let engine = Engine::new(Registry::new(source)).expect("an engine");
    block_on(engine.query(&Caller::Owner, sql, &Limits::default()))
        .unwrap_or_else(|e| panic!("{sql}: {e}"))
}

#[test]
fn a_damaged_part_costs_itself_and_the_answer_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let names = [1, 2].map(|number| {
        let begin = number * 1000;
        seal(folder.path(), number as u64, begin..=begin + 9)
    });
    let path = folder.path().join(&names[0]);
    let whole = fs::read(&path).expect("a part");
    let count = "SELECT count(value) AS n FROM samples";
    let last = "SELECT value FROM latest_at('0s')";
    assert_eq!(rows(&ask(folder.path(), count)).1, ["20"]);
    for place in [0, 4, 100, whole.len() / 2, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[place] ^= 1;
        fs::write(&path, &damaged).expect("written");
        for sql in [count, last] {
            let answer = ask(folder.path(), sql);
            let expected = if sql == count { "10" } else { "2009.0" };
            assert_eq!(rows(&answer).1, [expected], "{sql} {place}");
            // The last sample is in the other part; a part is opened for its list of series alone.
            let is_named = answer.missing.iter().any(|name| name.contains(&names[0]));
            assert!(is_named || sql == last, "{place}: {:?}", answer.missing);
        }
        // A time that the damaged file does not have.
        let answer = ask(
            folder.path(),
            "SELECT count(value) FROM samples WHERE time > to_timestamp_nanos(1500)",
        );
        assert_eq!((rows(&answer).1, answer.missing), (vec!["10".to_owned()], vec![]), "{place}");
    }
}

#[test]
fn a_file_that_was_moved_aside_is_named_by_answers_about_its_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let names = [1, 2, 3].map(|number| {
        let begin = number * 1000;
        seal(folder.path(), number as u64, begin..=begin + 9)
    });
    let aside = folder.path().join("quarantine");
    fs::create_dir(&aside).expect("a folder");
    fs::rename(folder.path().join(&names[1]), aside.join(&names[1])).expect("moved");
    let count = |times: &str| {
        let sql = format!("SELECT count(value) FROM samples WHERE time {times}");
        let answer = ask(folder.path(), &sql);
        (rows(&answer).1, answer.missing.len())
    };
    assert_eq!(count("< to_timestamp_nanos(1500)"), (vec!["10".to_owned()], 0));
    assert_eq!(count("< to_timestamp_nanos(2500)"), (vec!["10".to_owned()], 1));
    assert_eq!(count("> to_timestamp_nanos(2500)"), (vec!["10".to_owned()], 0));
    fs::remove_file(aside.join(&names[1])).expect("removed");
    assert_eq!(count("< to_timestamp_nanos(2500)"), (vec!["10".to_owned()], 1), "a gap");
}

//! Questions to nodes about their history, and the parts that their answers become. The other end is
//! `skopos_node`.

mod mirrored;
mod part;

use std::sync::Arc;
use std::time::Instant;

use skopos_model::Timestamp;
use skopos_query::{RemoteSamples, Wanted, When};
use skopos_wire::{HistoryAnswer, Plane, Question};

pub(crate) use self::mirrored::has_all;
use self::part::part;

/// Maximum number of samples in the answer of one node. A node with more counts as missing: the client has to ask for a
/// shorter time or fewer topics.
const MOST_SAMPLES: u64 = 2_000_000;

/// Questions to nodes.
pub(crate) struct NodeQuestions {
    /// Nodes to ask, each with its incarnation.
    pub nodes: Vec<(String, i64, Question)>,
    /// Nodes that are known not to answer.
    pub missing: Vec<String>,
}

/// Returns the question to `node` for the wanted topics.
pub(crate) fn question(node: &str, wanted: &Wanted, when: &When) -> Question {
    let start = format!("{node}/");
    let (from, to, only_last) = match when {
        When::During(times) => (*times.start(), *times.end(), false),
        When::AsOf(time) => (Timestamp::default(), *time, true),
    };
    let (mut topics, mut starts) = (Vec::new(), Vec::new());
    match wanted {
        Wanted::All => starts.push(start),
        Wanted::These(all) => {
            let own = all.iter().filter(|topic| topic.node() == node);
            topics.extend(own.map(|topic| topic.as_str().to_owned()));
        }
        Wanted::Starting(all) => starts.extend(all.iter().filter_map(|text| {
            // If one begins with the other, the longer one.
            match (start.starts_with(text.as_str()), text.starts_with(&start)) {
                (true, _) => Some(start.clone()),
                (_, true) => Some(text.clone()),
                _ => None,
            }
        })),
    }
    Question { topics, starts, from, to, only_last, most: MOST_SAMPLES }
}

/// Asks the nodes, and waits for their answers until `until`.
pub(crate) async fn ask(plane: Plane, asks: NodeQuestions, until: Instant) -> RemoteSamples {
    let mut elsewhere = RemoteSamples { missing: asks.missing, ..RemoteSamples::default() };
    for HistoryAnswer { node, batches, is_damaged } in plane.ask_history(asks.nodes, until).await {
        if is_damaged {
            elsewhere.missing.push(format!("damaged files of {node}"));
        }
        let part = batches.and_then(|batches| part(&node, batches));
        match part {
            Some(part) => {
                elsewhere.parts.push(Arc::new(part));
                elsewhere.answered.insert(node);
            }
            None => elsewhere.missing.push(node),
        }
    }
    elsewhere
}

#[cfg(test)]
mod tests {
    use skopos_model::{Kind, Origin, Topic, Unit, ValueType};
    use skopos_store::history::Series;
    use skopos_wire::{Batch, Content, IndexedSample, MAX_BATCH_BYTES};

    use super::*;
    use skopos_node::Answer;

    fn series(topic: &str) -> Series {
        Series {
            topic: Topic::new(topic).expect("a topic"),
            unit: Unit::NONE,
            kind: Kind::Gauge,
            value_type: ValueType::F64,
            since: Timestamp::default(),
        }
    }

    /// Returns a node's answer to `question` with samples of two series, and whether it is complete.
    fn answered(question: &Question) -> (Vec<Batch>, bool) {
        let mut batches = Vec::new();
        let mut send = |batch: &Batch| batches.push(batch.clone());
        let mut answer = Answer::new("n01", question, &mut send);
        for topic in ["n01/a/b", "app/c"] {
            let Series { topic, unit, kind, value_type, .. } = series(topic);
            assert!(answer.begin(&topic, (unit, kind, value_type)));
            let add = |n: i64| {
                let value = Content::Bits((n as f64).to_bits());
                let (time, origin) = (Timestamp::from_nanos(n * 10), Origin::Measured);
                answer.add(IndexedSample { index: 0, time, origin, value })
            };
            if !(0..5000).all(add) {
                break;
            }
        }
        let is_whole = answer.end();
        (batches, is_whole)
    }

    #[test]
    fn an_answer_comes_in_short_batches_and_holds_the_kept_samples() {
        let wanted = Wanted::Starting(vec!["n01/".to_owned()]);
        let question = question("n01", &wanted, &When::AsOf(Timestamp::from_nanos(1)));
        let (batches, is_whole) = answered(&question);
        assert!(is_whole && batches.len() > 2);
        assert!(batches.iter().all(|batch| batch.encode().len() <= MAX_BATCH_BYTES));
        let part = part("n01", batches.clone()).expect("a part");
        let topics: Vec<&str> = part.stretches().iter().map(|s| s.series.topic.as_str()).collect();
        assert_eq!((topics, part.rows()), (vec!["n01/a/b", "n01/app/c"], 10_000));
        assert!(super::part("n02", batches).is_none(), "a node answers only for its own topics");
        let (batches, is_whole) = answered(&Question { most: 7000, ..question });
        let count: usize = batches.iter().map(|batch| batch.samples.len()).sum();
        assert!(!is_whole && count == 7000);
    }

    #[test]
    fn a_node_is_asked_for_its_own_topics() {
        let asked = |wanted: Wanted| {
            let Question { topics, starts, .. } =
                question("n01", &wanted, &When::AsOf(Timestamp::default()));
            [topics, starts].concat()
        };
        let starting = |texts: &[&str]| {
            Wanted::Starting(texts.iter().map(|text| (*text).to_owned()).collect())
        };
        let these = ["n01/a/b", "n02/a/b"].map(|topic| series(topic).topic);
        assert_eq!(asked(Wanted::All), ["n01/"]);
        assert_eq!(asked(Wanted::These(these.into())), ["n01/a/b"]);
        assert_eq!(asked(starting(&["n0", "n01/mem/", "n02/"])), ["n01/", "n01/mem/"]);
    }
}

//! A hub that is killed again and again while producers send records of jobs: what it acknowledged can be read, exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray, types::Float64Type};
use arrow_flight::FlightDescriptor;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::flight_service_client::FlightServiceClient;
use futures_util::{StreamExt as _, TryStreamExt as _};
use serde_json::Value as Json;
use tonic::transport::Channel;

use crate::flight::FlightServer;
use crate::rounds::rounds;
use crate::support::eventually;

/// Kills by default; `SKOPOS_KILLS` has another number, and `make soak` goes on for a time.
const KILLS: u64 = 8;

/// Producers, each with a job of its own.
const PRODUCERS: usize = 3;

/// Records of a batch.
const BATCH: i64 = 100;

/// Batches of a stream, more than a hub takes until it is killed.
const BATCHES: i64 = 200;

/// The longest time from the begin of a stream to the kill.
const MAX_DELAY_MS: u64 = 400;

/// A pseudo-random generator that is the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % most.max(1)
    }
}

/// A producer, which numbers its records and knows what was acknowledged.
struct Producer {
    name: String,
    /// The highest acknowledged sequence at the level `disk`; -1 if there is none.
    acknowledged: Arc<AtomicI64>,
    /// The highest sequence that was sent.
    sent: i64,
}

impl Producer {
    fn new(at: usize) -> Self {
        Self { name: format!("p{at}"), acknowledged: Arc::new(AtomicI64::new(-1)), sent: -1 }
    }

    /// Returns the records of these sequences. The first two are the start and the names of the metrics; the value of each
    /// measurement is its sequence.
    fn batch(&self, sequences: std::ops::Range<i64>) -> RecordBatch {
        let rows: Vec<i64> = sequences.collect();
        let texts = |text: &dyn Fn(i64) -> Option<&'static str>| -> ArrayRef {
            Arc::new(rows.iter().map(|row| text(*row)).collect::<StringArray>())
        };
        let of_all = |text: &str| -> ArrayRef {
            Arc::new(rows.iter().map(|_| Some(text.to_owned())).collect::<StringArray>())
        };
        let values = rows.iter().map(|row| (*row > 1).then(|| vec![Some(*row as f64)]));
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("sequence", Arc::new(rows.iter().copied().collect::<Int64Array>())),
            ("job", of_all(&self.name)),
            ("node", of_all("n01")),
            ("time", Arc::new(rows.iter().map(|row| 1_000_000_000 + row).collect::<Int64Array>())),
            (
                "kind",
                texts(&|row| Some(["start", "metrics"].get(row as usize).unwrap_or(&"sample"))),
            ),
            ("schema", texts(&|row| (row > 1).then_some("node"))),
            ("values", Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(values))),
            (
                "document",
                texts(&|row| match row {
                    0 => Some(r#"{"user":"ann"}"#),
                    1 => Some(r#"{"schema":"node","names":["n"]}"#),
                    _ => None,
                }),
            ),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
            .expect("a batch")
    }

    /// Sends what was not acknowledged and more, and sometimes what was, until the connection breaks or all is sent.
    async fn send(&mut self, server: &FlightServer, batches: i64, repeats: i64) {
        let first = (self.acknowledged.load(Ordering::Relaxed) + 1 - repeats).max(0);
        let ranges = (0..batches).map(|at| first + at * BATCH..first + (at + 1) * BATCH);
        self.sent = self.sent.max(first + batches * BATCH - 1);
        let descriptor =
            FlightDescriptor::new_path(vec!["jobs".into(), self.name.clone(), "1".into()]);
        let records: Vec<_> = ranges.map(|range| Ok(self.batch(range))).collect();
        let data = FlightDataEncoderBuilder::new()
            .with_flight_descriptor(Some(descriptor))
            .build(futures_util::stream::iter(records));
        let data = data.map(|data| data.expect("encoded"));
        let acknowledged = self.acknowledged.clone();
        // The hub may have been killed before it was reached.
        let uri = format!("http://{}", server.address());
        let Ok(channel) = Channel::from_shared(uri).expect("an address").connect().await else {
            return;
        };
        let put = FlightServiceClient::new(channel).do_put(data).await;
        let Ok(answers) = put else { return };
        let note = async |answer: arrow_flight::PutResult| {
            let answer: Json = serde_json::from_slice(&answer.app_metadata).expect("JSON");
            assert!(answer.get("refused").is_none(), "{answer}");
            if answer["level"] == "disk"
                && let Some(sequence) = answer["sequence"].as_i64()
            {
                acknowledged.fetch_max(sequence, Ordering::Relaxed);
            }
            Ok(())
        };
        // The hub is killed: the stream breaks.
        let _ = answers.into_inner().try_for_each(note).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_a_killed_hub_acknowledged_can_be_read_exactly_once() {
    let mut random = Random(0x5eed);
    let mut server = FlightServer::start();
    let mut producers: Vec<Producer> = (0..PRODUCERS).map(Producer::new).collect();
    for kill in rounds("SKOPOS_KILLS", KILLS) {
        let child = server.up.child.id();
        let delay = Duration::from_millis(random.below(MAX_DELAY_MS));
        // Every second kill waits until something was stored, however slow the machine is.
        let acknowledged: Vec<_> = producers.iter().map(|p| p.acknowledged.clone()).collect();
        let stored = move || acknowledged.iter().map(|a| a.load(Ordering::Relaxed)).sum::<i64>();
        let before = stored();
        let killing = std::thread::spawn(move || {
            if kill % 2 == 0 {
                eventually("something is stored", || stored() > before);
            }
            std::thread::sleep(delay);
            let status =
                std::process::Command::new("kill").args(["-KILL", &child.to_string()]).status();
            assert!(status.expect("kill(1)").success());
        });
        let repeats: Vec<i64> = producers.iter().map(|_| random.below(300) as i64).collect();
        let streams = producers.iter_mut().zip(repeats);
        let streams = streams.map(|(producer, repeats)| producer.send(&server, BATCHES, repeats));
        futures_util::future::join_all(streams).await;
        killing.join().expect("it is killed");
        // Now and then the catalogue is lost, too.
        let state = server.up.path().join("state/jobs");
        if random.below(3) == 0 {
            for ending in ["", "-wal", "-shm"] {
                let _ = std::fs::remove_file(state.join(format!("catalogue.sqlite{ending}")));
            }
        }
        server.restart();
        for producer in &producers {
            check(&server, producer, &format!("kill {kill}"));
        }
    }
    for producer in &mut producers {
        let before = producer.acknowledged.load(Ordering::Relaxed);
        producer.send(&server, 1, 0).await;
        let acknowledged = producer.acknowledged.load(Ordering::Relaxed);
        // More than that if a kill came between a sync and its acknowledgement.
        let expected = before + BATCH..=producer.sent;
        assert!(expected.contains(&acknowledged), "{acknowledged} is not in {expected:?}");
        check(&server, producer, "the end");
    }
    let acknowledged: i64 = producers.iter().map(|p| p.acknowledged.load(Ordering::Relaxed)).sum();
    // The producers have sent a batch each after the last kill.
    let at_the_end = PRODUCERS as i64 * BATCH;
    assert!(acknowledged > at_the_end, "the kills came before anything was stored");
}

/// Checks that everything acknowledged is there, and nothing twice.
fn check(server: &FlightServer, producer: &Producer, when: &str) {
    let acknowledged = producer.acknowledged.load(Ordering::Relaxed);
    let sql = format!(
        "SELECT count(*) AS n, count(DISTINCT value) AS d, max(value) AS m, \
         count(*) FILTER (WHERE value <= {acknowledged}) AS a \
         FROM job_samples WHERE job = '{}'",
        producer.name
    );
    // The start and the names of the metrics are no measurements. A hub that has just started finds a running job within
    // a second.
    let expected = (acknowledged - 1).max(0);
    eventually(&format!("{when}: what was acknowledged is found"), || {
        let ran = server.up.run(&["sql", "--json", &sql]);
        if ran.code != 0 {
            return false;
        }
        let row = ran.json()["rows"][0].clone();
        let number = |name: &str| row[name].as_f64().unwrap_or(0.0) as i64;
        assert_eq!(number("n"), number("d"), "{when}: a record stands twice: {row}");
        assert!(number("m") <= producer.sent, "{when}: a record that nobody sent: {row}");
        assert!(number("a") <= expected, "{when}: {row}");
        number("a") == expected
    });
}

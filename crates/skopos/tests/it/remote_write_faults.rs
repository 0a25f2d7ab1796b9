//! Remote write to a store that refuses, is busy, breaks, hangs or is away: nothing is lost in silence,
//! and nothing comes twice or out of order.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use prost::Message;
use tempfile::NamedTempFile;

use crate::support::{Running, eventually};

#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

/// The reaction of the store to a request.
#[derive(Clone, Copy, Debug)]
enum Does {
    /// Answers with this status, and with a `Retry-After` of so many seconds unless it is 0.
    Says(u16, u64),
    /// Closes the connection.
    HangsUp,
    /// Reads the request and never answers.
    Hangs,
}

/// A received request.
struct Came {
    at: Instant,
    body: Vec<u8>,
    is_taken: bool,
}

/// A store that goes through the reactions in `does`, and then accepts everything.
#[derive(Default)]
struct Store {
    does: Mutex<VecDeque<Does>>,
    came: Mutex<Vec<Came>>,
}

impl Store {
    fn start() -> (Arc<Self>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/api/v1/write", listener.local_addr().expect("bound"));
        let store = Arc::new(Self::default());
        let inner = store.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let store = inner.clone();
                std::thread::spawn(move || store.serve(stream));
            }
        });
        (store, url)
    }

    fn serve(&self, stream: TcpStream) {
        let mut input = BufReader::new(stream.try_clone().expect("a socket"));
        while let Some(body) = request(&mut input) {
            let does = self.does.lock().expect("a list").pop_front().unwrap_or(Does::Says(204, 0));
            let is_taken = matches!(does, Does::Says(200..=299, _));
            self.came.lock().expect("a list").push(Came { at: Instant::now(), body, is_taken });
            match does {
                Does::HangsUp => return,
                Does::Hangs => {
                    // The store waits until the client disconnects.
                    let _ = input.read(&mut [0]);
                    return;
                }
                Does::Says(status, retry_after) => {
                    let after = match retry_after {
                        0 => String::new(),
                        seconds => format!("retry-after: {seconds}\r\n"),
                    };
                    let answer = format!("HTTP/1.1 {status} x\r\n{after}content-length: 0\r\n\r\n");
                    if (&stream).write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn will(&self, does: &[Does]) {
        self.does.lock().expect("a list").extend(does);
    }

    /// Returns whether the store has gone through all of its reactions.
    fn is_done(&self) -> bool {
        self.does.lock().expect("a list").is_empty()
    }

    /// Returns the accepted samples of one series, in the order in which they came.
    fn samples(&self, name: &str) -> Vec<Sample> {
        let came = self.came.lock().expect("a list");
        let taken = came.iter().filter(|came| came.is_taken);
        taken.flat_map(|came| samples(&came.body, name)).collect()
    }

    fn values(&self, name: &str) -> Vec<f64> {
        let mut values: Vec<f64> = self.samples(name).iter().map(|sample| sample.value).collect();
        // An unchanged value is sent again after some time.
        values.dedup();
        values
    }

    /// Returns the latest value of a counter that the sender publishes.
    fn count(&self, what: &str) -> Option<f64> {
        self.values(&format!("skopos_self_remote_write_{what}")).pop()
    }

    /// Returns the time from each request to the next, from number `from` on, and whether the two are
    /// equal.
    fn gaps(&self, from: usize) -> Vec<(Duration, bool)> {
        let came = self.came.lock().expect("a list");
        came[from..]
            .windows(2)
            .map(|two| (two[1].at - two[0].at, two[1].body == two[0].body))
            .collect()
    }

    fn requests(&self) -> usize {
        self.came.lock().expect("a list").len()
    }
}

/// Reads the body of the next request.
fn request(input: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if input.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim().to_lowercase();
        if let Some(text) = line.strip_prefix("content-length: ") {
            length = text.parse().ok()?;
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body).ok()?;
    Some(body)
}

fn decoded(body: &[u8]) -> WriteRequest {
    let bytes = snap::raw::Decoder::new().decompress_vec(body).expect("Snappy's block format");
    WriteRequest::decode(&*bytes).expect("a request")
}

fn samples(body: &[u8], name: &str) -> Vec<Sample> {
    let is_it = |label: &Label| label.name == "__name__" && label.value == name;
    let of_it =
        decoded(body).timeseries.into_iter().filter(|series| series.labels.iter().any(is_it));
    of_it.flat_map(|series| series.samples).collect()
}

/// Longer than the interval at which the sender samples.
const SEEN: Duration = Duration::from_millis(2500);

/// Starts an agent with a hub that sends its facts to `store` once a second.
fn sending(store: &str) -> (Running, NamedTempFile) {
    let config = NamedTempFile::new().expect("a file");
    let text = format!(
        "[hub.remote_write]\nurl = \"{store}\"\nevery = \"1s\"\ntopics = [\"*/app/**\", \"*/self/remote_write/*\"]\n"
    );
    std::fs::write(config.path(), text).expect("written");
    let path = config.path().display().to_string();
    (Running::start_as("up", &["--config", &path]), config)
}

fn publish(up: &Running, value: u32) {
    assert_eq!(up.run(&["publish", "app/depth", &value.to_string()]).code, 0);
}

const DEPTH: &str = "skopos_app_depth";

/// Returns the values from 1 to `last`: the store must not lack any of them.
fn up_to(last: u32) -> Vec<f64> {
    (1..=last).map(f64::from).collect()
}

#[test]
fn samples_that_a_busy_or_broken_store_did_not_accept_are_sent_again_in_order() {
    let (store, url) = Store::start();
    let (up, _config) = sending(&url);
    publish(&up, 1);
    eventually("the store has the first value", || store.values(DEPTH) == up_to(1));
    let from = store.requests();
    let faults = [
        Does::Says(500, 0),
        Does::Says(503, 0),
        Does::HangsUp,
        Does::Says(502, 0),
        Does::Says(429, 2),
        Does::Says(503, 1),
    ];
    store.will(&faults);
    for value in 2..=4 {
        publish(&up, value);
        std::thread::sleep(SEEN);
    }
    eventually("the store went through all faults", || store.is_done());
    eventually("nothing is lost", || store.values(DEPTH) == up_to(4));
    eventually("every retry is counted", || {
        store.count("retries_total") == Some(faults.len() as f64)
            && store.count("samples_overflowed_total") == Some(0.0)
            && store.count("samples_refused_total") == Some(0.0)
    });
    let times: Vec<i64> = store.samples(DEPTH).iter().map(|sample| sample.timestamp).collect();
    assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
    // The first fault may have hit a request from before this test's values.
    let gaps = store.gaps(from);
    let first = gaps.iter().position(|(_, is_same)| *is_same).expect("a request came again");
    let again = &gaps[first..first + faults.len()];
    assert!(again.iter().all(|(_, is_same)| *is_same), "{gaps:?}");
    // Each pause is twice the previous one, or what the store asks for.
    let pauses = [100, 200, 400, 800, 2000, 1000].map(Duration::from_millis);
    for (least, (gap, _)) in pauses.into_iter().zip(again) {
        assert!(*gap >= least, "{gaps:?}");
    }
}

#[test]
fn a_store_that_hangs_is_left_and_tried_again() {
    let (store, url) = Store::start();
    let (up, _config) = sending(&url);
    publish(&up, 1);
    eventually("the store has the first value", || store.values(DEPTH) == up_to(1));
    store.will(&[Does::Hangs]);
    for value in 2..=4 {
        publish(&up, value);
        std::thread::sleep(SEEN);
    }
    let begun = Instant::now();
    // The sender waits half a minute for an answer.
    while store.values(DEPTH) != up_to(4) {
        assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", store.values(DEPTH));
        std::thread::sleep(Duration::from_millis(100));
    }
    eventually("the retry is counted", || store.count("retries_total") == Some(1.0));
    assert_eq!(store.count("samples_overflowed_total"), Some(0.0));
}

#[test]
fn samples_that_a_store_refuses_are_counted_and_delay_no_others() {
    let (store, url) = Store::start();
    let (up, _config) = sending(&url);
    publish(&up, 1);
    eventually("the store has the first value", || store.values(DEPTH) == up_to(1));
    store.will(&[Does::Says(400, 0), Does::Says(413, 7)]);
    eventually("the store has refused twice", || store.is_done());
    let from = store.requests() - 2;
    publish(&up, 2);
    eventually("the next value is accepted", || store.values(DEPTH).last() == Some(&2.0));
    let refused = {
        let came = store.came.lock().expect("a list");
        let of = |came: &Came| decoded(&came.body).timeseries.len();
        came.iter().filter(|came| !came.is_taken).map(of).sum::<usize>() as f64
    };
    eventually("the refusals are counted", || {
        store.count("samples_refused_total") == Some(refused)
    });
    assert_eq!(store.count("retries_total"), Some(0.0));
    assert!(
        store.gaps(from).iter().all(|(_, is_same)| !is_same),
        "a refused request is not sent again"
    );
}

#[test]
fn a_topic_that_ends_is_ended_at_the_store() {
    let (store, url) = Store::start();
    let (up, _config) = sending(&url);
    publish(&up, 1);
    eventually("the store has the value", || store.values(DEPTH) == up_to(1));
    assert_eq!(up.run(&["publish", "app/depth", "--remove"]).code, 0);
    // By Prometheus' convention, a NaN of these bits ends a series.
    let is_end = |sample: &Sample| sample.value.to_bits() == 0x7ff0_0000_0000_0002;
    eventually("the series is ended", || store.samples(DEPTH).last().is_some_and(is_end));
    let samples = store.samples(DEPTH);
    assert_eq!(samples.iter().filter(|sample| is_end(sample)).count(), 1);
    let [.., last, end] = samples.as_slice() else { panic!("{samples:?}") };
    assert!(end.timestamp > last.timestamp, "{samples:?}");
    publish(&up, 7);
    eventually("the series begins again", || {
        store.samples(DEPTH).last().is_some_and(|sample| sample.value == 7.0)
    });
    assert!(store.samples(DEPTH).is_sorted_by(|a, b| a.timestamp < b.timestamp));
}

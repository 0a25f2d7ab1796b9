//! Nodes that deliver records of jobs to a hub, among nodes that pretend to be others.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use skopos_access::Caller;
use skopos_model::Timestamp;
use skopos_model::job::{JobId, JobRecord, Kind};
use skopos_store::jobs::StoredRecord;
use skopos_store::jobs::spool::{Sent, SpooledBatch};
use skopos_wire::{Asker, Delivered, Delivery, JobsOfNode, Plane, Taker};
use zenoh::Wait as _;

use crate::forger::{Site, until};

/// A hub that notes what it takes.
#[derive(Clone, Default)]
struct Hub(Arc<Mutex<Vec<(String, Delivery)>>>);

impl Hub {
    fn taken(&self) -> Vec<(String, Delivery)> {
        self.0.lock().expect("no panic").clone()
    }
}

impl Taker for Hub {
    fn take(&self, asker: Asker<'_>, delivery: Delivery) -> Result<Delivered, String> {
        let Asker { caller, node, is_by_name } = asker;
        assert!(matches!(caller, Caller::Node(names) if names.node == node), "{caller}");
        assert_eq!(is_by_name, matches!(delivery, Delivery::Records(_)));
        let answer = match &delivery {
            Delivery::Jobs(_) => Delivered::Jobs(jobs()),
            Delivery::Records(_) => Delivered::Sent(Sent::Acknowledged { new: 1 }),
        };
        self.0.lock().expect("no panic").push((node.to_owned(), delivery));
        Ok(answer)
    }
}

/// A hub that takes records once it may go on.
struct Slow {
    begun: Sender<()>,
    go: Mutex<Receiver<()>>,
}

impl Taker for Slow {
    fn take(&self, _: Asker<'_>, delivery: Delivery) -> Result<Delivered, String> {
        if matches!(delivery, Delivery::Records(_)) {
            self.begun.send(()).expect("the test waits");
            let _ = self.go.lock().expect("no panic").recv();
        }
        Ok(Delivered::Jobs(jobs()))
    }
}

fn jobs() -> JobsOfNode {
    let running = vec![JobId::new("7", 0).expect("an id")];
    JobsOfNode { running, elsewhere: vec!["8".to_owned()], left_out: 0 }
}

fn records(node: &str) -> Delivery {
    let content = JobRecord::sample_content("node", &[1.0]);
    let time = Timestamp::from_nanos(1);
    let record =
        JobRecord { kind: Kind::Sample, job: "7", generation: 0, node, time, content: &content };
    let records = vec![(0, StoredRecord::of(&record))];
    Delivery::Records(SpooledBatch { producer: "agent".to_owned(), epoch: 1, records })
}

/// Sends a request of `node`, and returns the answers.
fn deliver(plane: &Plane, hub: Option<&str>, node: &str, delivery: &Delivery) -> Vec<Delivered> {
    let answers = plane.deliver(hub, (node, delivery), &|| false).expect("not refused");
    let of_hub = |(name, answer): (String, Delivered)| {
        assert_eq!(name, "hub");
        answer
    };
    answers.into_iter().map(of_hub).collect()
}

#[test]
fn a_node_delivers_for_itself_and_learns_its_jobs() {
    let site = Site::new();
    let (plane, hub) = (site.hub(), Hub::default());
    let node = site.client(&site.joined("n01"));
    let seen = Delivery::Jobs(vec!["8".to_owned()]);
    assert_eq!(deliver(&node, None, "n01", &seen), [], "no hub takes records yet");
    let taking = plane.serve_deliveries("hub", hub.clone()).expect("it answers");
    let mut answers = Vec::new();
    until("the hub answers", || {
        answers = deliver(&node, None, "n01", &seen);
        !answers.is_empty()
    });
    assert_eq!(answers, [Delivered::Jobs(jobs())]);
    let records = records("n01");
    let sent = deliver(&node, Some("hub"), "n01", &records);
    assert_eq!(sent, [Delivered::Sent(Sent::Acknowledged { new: 1 })]);
    assert_eq!(hub.taken().last(), Some(&("n01".to_owned(), records.clone())));
    assert_eq!(deliver(&node, Some("other"), "n01", &records), [], "another hub");

    let before = hub.taken().len();
    let refused = node.deliver(Some("hub"), ("n02", &records), &|| false);
    let refused = refused.expect_err("another node's name").to_string();
    assert!(refused.contains("may not store records of jobs on n02"), "{refused}");
    assert_eq!(hub.taken().len(), before);
    drop(taking);
    until("nobody answers", || deliver(&node, Some("hub"), "n01", &records).is_empty());
}

#[test]
fn a_request_without_a_place_is_refused_and_counted() {
    let site = Site::new();
    let (plane, node) = (site.hub(), site.client(&site.joined("n01")));
    let ((begun, has_begun), (go_on, go)) = (channel(), channel());
    let slow = Slow { begun, go: Mutex::new(go) };
    let _taking = plane.serve_deliveries("hub", slow).expect("it answers");
    let ask = Delivery::Jobs(Vec::new());
    until("the hub answers", || !deliver(&node, Some("hub"), "n01", &ask).is_empty());
    let dropped = || {
        let numbers = plane.drops().numbers().into_iter();
        let found = numbers.filter(|(metric, _)| metric.name == "deliveries_dropped_total");
        found.map(|(_, number)| number).sum::<u64>()
    };
    assert_eq!(dropped(), 0);
    thread::scope(|scope| {
        scope.spawn(|| node.deliver(Some("hub"), ("n01", &records("n01")), &|| false));
        has_begun.recv_timeout(Duration::from_secs(180)).expect("the hub takes records");
        // A node has one place.
        let refused = node.deliver(Some("hub"), ("n01", &ask), &|| false);
        drop(go_on);
        let why = refused.expect_err("it has no place").to_string();
        assert!(why.contains("too many requests"), "{why}");
    });
    assert_eq!(dropped(), 1);
}

#[test]
fn a_forger_can_neither_acknowledge_records_nor_deliver_for_another_node() {
    let site = Site::new();
    let (plane, hub) = (site.hub(), Hub::default());
    let node = site.client(&site.joined("n01"));
    // Another node of the site answers every request, under the name of the hub.
    let forger = site.raw(&site.joined("n02"));
    let (heard, requests) = std::sync::mpsc::channel();
    let answer = Delivered::Sent(Sent::Acknowledged { new: 1 }).encode();
    let listening = forger.declare_queryable("skopos/test/records/*/*").callback(move |query| {
        let payload = query.payload().map(|payload| payload.to_bytes().into_owned());
        let _ = heard.send((query.key_expr().as_str().to_owned(), payload.unwrap_or_default()));
        let _ = query.reply(query.key_expr().clone(), answer.clone()).wait();
    });
    let _listening = listening.wait().expect("declared");
    let records = records("n01");
    let mut request = None;
    until("the forger has heard a request", || {
        assert_eq!(deliver(&node, Some("hub"), "n01", &records), [], "a forged acknowledgement");
        request = requests.try_recv().ok();
        request.is_some()
    });
    let _taking = plane.serve_deliveries("hub", hub.clone()).expect("it answers");
    until("the hub answers beside it", || {
        let answers = deliver(&node, Some("hub"), "n01", &records);
        answers == [Delivered::Sent(Sent::Acknowledged { new: 1 })]
    });
    // The forger sends the request as its own, without a proof.
    let before = hub.taken().len();
    let (key, payload) = request.expect("it was heard");
    let replies = forger.get(key).payload(payload).wait().expect("asked");
    let refused: Vec<_> = std::iter::from_fn(|| replies.recv().ok())
        .filter_map(|reply| reply.into_result().err())
        .collect();
    assert!(!refused.is_empty(), "the hub says why");
    assert_eq!(hub.taken().len(), before);
}

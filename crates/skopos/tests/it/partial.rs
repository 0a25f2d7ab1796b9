//! Answers from which a node is missing say so on every listener.

use std::process::Command;

use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::{CommandStatementQuery, ProstMessageExt as _};
use arrow_flight::{FlightData, FlightDescriptor};
use futures_util::{TryStreamExt as _, stream};
use prost::Message as _;
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tonic::transport::Channel;

use crate::client::{answer, post};
use crate::flight::{block_on, python};
use crate::sql::Hub;
use crate::support::{Running, eventually, free_port, run, signal};

/// The statement reaches further back than a hub's memory, so the hub queries its nodes.
const SQL: &str = "SELECT DISTINCT node FROM samples WHERE family = 'mem' ORDER BY node";

/// Two nodes, and a hub with three listeners.
struct Cluster {
    hub: Hub,
    http: String,
    flight: String,
    first: Running,
    _second: Running,
    _histories: [TempDir; 2],
}

impl Cluster {
    fn start() -> Self {
        let [http, flight] = [(); 2].map(|()| format!("127.0.0.1:{}", free_port()));
        let hub = Hub::asked_at("", &["--http", &http, "--flight", &flight]);
        let histories = [(); 2].map(|()| TempDir::new().expect("a folder"));
        let start = |node: &str, history: &TempDir| {
            let history = history.path().to_str().expect("UTF-8");
            let of_node = ["--node", node, "--history", history];
            let live = ["--live", "--insecure", "--connect", &hub.at];
            Running::start(&[&of_node[..], &live[..]].concat())
        };
        let (first, second) = (start("a1", &histories[0]), start("a2", &histories[1]));
        Self { first, _second: second, hub, http, flight, _histories: histories }
    }

    /// Returns the rows and the missing nodes, as `skopos sql` reports them.
    fn by_socket(&self) -> (Json, Json) {
        let args = ["sql", "--json", "--timeout", "30s", SQL];
        let mut told = run(self.hub.dir.path(), &args).json();
        (told["rows"].take(), told["missing"].take())
    }

    fn by_http(&self) -> (Json, Json) {
        let body = json!({ "sql": SQL, "deadline_ms": 30_000 }).to_string();
        let mut stream = std::net::TcpStream::connect(&self.http).expect("it listens");
        let request = post(&self.http, "application/json", "", &body);
        std::io::Write::write_all(&mut stream, request.as_bytes()).expect("sent");
        let got = answer(&mut std::io::BufReader::new(stream));
        let mut told = got.json();
        (told["rows"].take(), told["missing"].take())
    }

    /// Returns the number of rows and the missing nodes: `null` where the answer does not say.
    fn by_flight(&self) -> (Json, Json) {
        let messages = block_on(self.messages());
        let last = messages.last().map(|message| message.app_metadata.clone()).unwrap_or_default();
        let said: Vec<_> = messages.iter().filter(|m| !m.app_metadata.is_empty()).collect();
        assert!(said.len() <= 1, "the missing nodes are named once, at the end: {said:?}");
        let told: Json = match last.is_empty() {
            true => Json::Null,
            false => serde_json::from_slice(&last).expect("JSON"),
        };
        // To a client that ignores the metadata, the last message is a batch like any other.
        let messages = stream::iter(messages.into_iter().map(Ok));
        let batches = FlightRecordBatchStream::new_from_flight_data(messages);
        let batches: Vec<_> = block_on(batches.try_collect()).expect("batches");
        let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
        (json!(rows), told["missing"].clone())
    }

    async fn messages(&self) -> Vec<FlightData> {
        let channel = Channel::from_shared(format!("http://{}", self.flight)).expect("an address");
        let mut client = FlightServiceClient::new(channel.connect().await.expect("it listens"));
        let query = CommandStatementQuery { query: SQL.to_owned(), transaction_id: None };
        let descriptor = FlightDescriptor::new_cmd(query.as_any().encode_to_vec());
        let info = client.get_flight_info(descriptor).await.expect("described").into_inner();
        let ticket = info.endpoint[0].ticket.clone().expect("one");
        let told = client.do_get(ticket).await.expect("answered").into_inner();
        told.try_collect().await.expect("a whole answer")
    }
}

#[test]
fn a_node_that_hangs_is_named_through_every_listener() {
    let cluster = Cluster::start();
    let both = json!([{"node": "a1"}, {"node": "a2"}]);
    let whole = (both.clone(), json!([]));
    eventually("both nodes answer", || cluster.by_socket() == whole);
    let mirrored = "SELECT DISTINCT node FROM latest WHERE family = 'mem' ORDER BY node";
    eventually("the hub mirrors both nodes", || cluster.hub.ask(mirrored) == both);
    assert_eq!(cluster.by_http(), whole);
    assert_eq!(cluster.by_flight(), (json!(2), Json::Null), "a complete answer has no remark");
    signal(&cluster.first.child, "STOP");
    // All clients ask while the node still seems to be alive.
    let (socket, http, flight) = std::thread::scope(|scope| {
        let socket = scope.spawn(|| cluster.by_socket());
        let http = scope.spawn(|| cluster.by_http());
        let flight = scope.spawn(|| cluster.by_flight());
        let told = "an answer";
        (socket.join().expect(told), http.join().expect(told), flight.join().expect(told))
    });
    // The answers still have the facts of the node that the hub had received.
    assert_eq!(socket, (both.clone(), json!(["a1"])));
    assert_eq!(http, (both, json!(["a1"])));
    assert_eq!(flight, (json!(2), json!(["a1"])));
    if let Some(python) = python() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/flight_missing.py");
        let uri = format!("grpc://{}", cluster.flight);
        let ran = Command::new(python).args([script, &uri, SQL]).output().expect("it starts");
        let said = String::from_utf8_lossy(&ran.stdout);
        let told: Json = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
        assert_eq!(told, json!({"adbc": 2, "pyarrow": 2, "missing": ["a1"]}));
    } else {
        println!("skipped in part: no Python with adbc-driver-flightsql and pyarrow");
    }
    signal(&cluster.first.child, "CONT");
    eventually("the node answers again", || cluster.by_socket() == whole);
    assert_eq!(cluster.by_flight(), (json!(2), Json::Null));
}

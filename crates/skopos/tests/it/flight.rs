//! Arrow Flight SQL with a third-party driver, and with malformed requests.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult, Any, CommandGetSqlInfo, CommandGetTables,
    CommandPreparedStatementQuery, CommandStatementQuery, ProstMessageExt,
};
use arrow_flight::{Action, FlightData, FlightDescriptor, Ticket};
use prost::Message as _;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::support::{Running, eventually, free_port, run, runtime_dir};

/// An agent with a hub, and the URI of its Flight SQL listener.
pub(crate) struct FlightServer {
    pub(crate) up: Running,
    uri: String,
}

impl FlightServer {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(args: &[&str]) -> Self {
        Self::start_at(&format!("127.0.0.1:{}", free_port()), args)
    }

    pub(crate) fn start_at(at: &str, args: &[&str]) -> Self {
        Self::of(Running::start_as("up", &[&["--flight", at], args].concat()), at)
    }

    /// Returns a hub that was started, with the address of its listener.
    pub(crate) fn of(up: Running, at: &str) -> Self {
        Self { up, uri: format!("grpc://{at}") }
    }

    /// Starts a hub with a configuration.
    pub(crate) fn configured(config: &str) -> Self {
        let (at, dir) =
            (format!("127.0.0.1:{}", free_port()), tempfile::tempdir().expect("a folder"));
        let file = dir.path().join("skopos.toml");
        std::fs::write(&file, config).expect("written");
        let args = ["--flight", &at, "--config", file.to_str().expect("UTF-8")];
        Self::of(Running::start_as("up", &args), &at)
    }

    /// Kills the hub, and starts another one in its place.
    pub(crate) fn restart(&mut self) {
        self.restart_with(&[]);
    }

    /// The same, with further options.
    pub(crate) fn restart_with(&mut self, args: &[&str]) {
        let at = self.address().to_owned();
        self.up.restart_as("up", &[&["--flight", &at], args].concat());
    }

    pub(crate) fn address(&self) -> &str {
        self.uri.trim_start_matches("grpc://")
    }

    pub(crate) async fn client(&self) -> FlightServiceClient<Channel> {
        let uri = format!("http://{}", self.address());
        let channel = Channel::from_shared(uri).expect("an address").connect().await;
        FlightServiceClient::new(channel.expect("it listens"))
    }

    /// Returns the latest value of the listener's counter `what`.
    pub(crate) fn count(&self, what: &str) -> f64 {
        let topic = format!("self/listener/flight/{what}");
        let ran = self.up.run(&["get", "--plain", &topic]);
        ran.stdout.split_whitespace().find_map(|word| word.parse().ok()).unwrap_or(-1.0)
    }
}

/// Returns the Python interpreter into which `scripts/setup test` installs the driver.
pub(crate) fn python() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    let python = cache.join("skopos/python/bin/python");
    python.exists().then_some(python)
}

#[test]
fn a_driver_that_is_not_ours_asks_everything() {
    let Some(python) = python() else {
        println!(
            "skipped: no adbc-driver-flightsql; `scripts/setup test` gets it where there is PyPI"
        );
        return;
    };
    let server = FlightServer::start();
    assert_eq!(server.up.run(&["publish", "app/depth", "17"]).code, 0);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/flight_client.py");
    let ran = Command::new(python).args([script, &server.uri]).output().expect("it starts");
    let said = String::from_utf8_lossy(&ran.stdout);
    let steps: Vec<&str> = said.lines().collect();
    let expected = ["join", "prepared", "catalogs", "errors", "streamed", "cancelled"];
    assert_eq!(steps, expected, "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(future)
}

/// A pseudo-random generator that is the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % most.max(1)
    }

    /// Returns `sound` with a few random defects.
    fn damaged(&mut self, sound: &[u8]) -> Vec<u8> {
        let mut bytes = sound.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(5) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.below(256) as u8),
                2 if !bytes.is_empty() => bytes[at] = self.below(256) as u8,
                3 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                _ => bytes.extend_from_within(..at),
            }
        }
        bytes
    }
}

/// Sends every kind of request, first valid and then damaged in many ways. Returns the number of
/// refusals.
async fn mistreat(server: &FlightServer, random: &mut Random, times: usize) -> usize {
    let mut client = server.client().await;
    let sql = "SELECT topic FROM latest WHERE topic = ?".to_owned();
    let create = ActionCreatePreparedStatementRequest { query: sql, transaction_id: None };
    let create = create.as_any().encode_to_vec();
    let action = |kind: &str, body: Vec<u8>| Action { r#type: kind.to_owned(), body: body.into() };
    let made = client.do_action(action("CreatePreparedStatement", create.clone())).await;
    let made = made.expect("prepared").into_inner().message().await.expect("said").expect("one");
    let made: ActionCreatePreparedStatementResult =
        Any::decode(&*made.body).expect("any").unpack().expect("decoded").expect("of this type");
    let handle = made.prepared_statement_handle;
    let query = |sql: &str| CommandStatementQuery { query: sql.to_owned(), transaction_id: None };
    let described = query("SELECT 1").as_any().encode_to_vec();
    let info = client.get_flight_info(FlightDescriptor::new_cmd(described.clone())).await;
    let ticket = info.expect("described").into_inner().endpoint[0].ticket.clone().expect("one");
    let prepared = CommandPreparedStatementQuery { prepared_statement_handle: handle.clone() };
    let close = ActionClosePreparedStatementRequest { prepared_statement_handle: handle };
    let commands = [
        described,
        prepared.as_any().encode_to_vec(),
        CommandGetTables { include_schema: true, ..Default::default() }.as_any().encode_to_vec(),
        CommandGetSqlInfo { info: vec![0, 8, 999_999] }.as_any().encode_to_vec(),
    ];
    let mut refused = 0;
    let mut judge = |said: Result<(), Status>| {
        let Err(status) = said else { return };
        refused += 1;
        let is_fine = !matches!(status.code(), Code::Unknown | Code::Unavailable | Code::Cancelled);
        assert!(is_fine, "{status:?}");
    };
    for at in 0..times {
        let cmd = random.damaged(&commands[at % commands.len()]);
        let descriptor = FlightDescriptor::new_cmd(cmd.clone());
        judge(client.get_flight_info(descriptor.clone()).await.map(drop));
        judge(client.get_schema(descriptor.clone()).await.map(drop));
        for ticket in [random.damaged(&ticket.ticket), cmd] {
            let said = match client.do_get(Ticket::new(ticket)).await {
                Ok(answer) => {
                    let mut answer = answer.into_inner();
                    loop {
                        match answer.message().await {
                            Ok(Some(_)) => {}
                            Ok(None) => break Ok(()),
                            Err(status) => break Err(status),
                        }
                    }
                }
                Err(status) => Err(status),
            };
            judge(said);
        }
        let kind = ["CreatePreparedStatement", "ClosePreparedStatement", "Nothing"][at % 3];
        let body = if at % 2 == 0 { create.clone() } else { close.as_any().encode_to_vec() };
        judge(client.do_action(action(kind, random.damaged(&body))).await.map(drop));
        let data = FlightData::new()
            .with_descriptor(descriptor)
            .with_data_header(random.damaged(b"a header that is none"))
            .with_data_body(random.damaged(&[0; 64]));
        judge(client.do_put(tokio_stream(data)).await.map(drop));
    }
    let huge = FlightDescriptor::new_cmd(query(&"x".repeat(2 << 20)).as_any().encode_to_vec());
    judge(client.get_flight_info(huge).await.map(drop));
    let long = query(&format!("SELECT {}1", "1 + ".repeat(40_000))).as_any().encode_to_vec();
    judge(client.get_flight_info(FlightDescriptor::new_cmd(long)).await.map(drop));
    refused
}

fn tokio_stream(data: FlightData) -> impl futures_util::Stream<Item = FlightData> {
    futures_util::stream::iter([data])
}

#[test]
fn a_hub_records_its_own_calls() {
    let server = FlightServer::start();
    let answered = block_on(async {
        let query = CommandStatementQuery { query: "SELECT 1".to_owned(), transaction_id: None };
        let mut client = server.client().await;
        client.get_flight_info(FlightDescriptor::new_cmd(query.as_any().encode_to_vec())).await
    });
    assert!(answered.is_ok(), "{answered:?}");
    let sql = "SELECT count(*) AS n FROM spans WHERE side = 'target' \
               AND name = 'arrow.flight.protocol.FlightService/GetFlightInfo'";
    eventually("the agent collects them", || {
        let ran = server.up.run(&["sql", "--json", sql]);
        ran.code == 0 && ran.json()["rows"][0]["n"] == 1
    });
}

#[test]
fn malformed_requests_are_refused_and_counted() {
    let server = FlightServer::start();
    let seed = 0x5eed_0ff1_1947;
    println!("seed {seed}");
    let refused = block_on(mistreat(&server, &mut Random(seed), 700));
    assert!(refused > 1000, "{refused}");
    eventually("the refusals are counted", || server.count("requests_refused_total") > 1000.0);
    // These bytes are not even HTTP/2.
    let mut random = Random(seed);
    for _ in 0..50 {
        let mut stream = TcpStream::connect(server.address()).expect("it listens");
        let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
        let junk: Vec<u8> = (0..200).map(|_| random.below(256) as u8).collect();
        let _ = stream.write_all(&junk);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read(&mut [0; 64]);
    }
    let alive = block_on(async {
        let query = CommandStatementQuery { query: "SELECT 1".to_owned(), transaction_id: None };
        let mut client = server.client().await;
        client.get_flight_info(FlightDescriptor::new_cmd(query.as_any().encode_to_vec())).await
    });
    assert!(alive.is_ok(), "{alive:?}");
}

#[test]
fn an_address_in_use_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = taken.local_addr().expect("bound").to_string();
    let dir = runtime_dir();
    let args = ["hub", "--look-on", "none", "--flight", &at];
    let ran = run(dir.path(), &args);
    assert_eq!(ran.code, 2, "{ran:?}");
    let expected = format!("error: cannot listen at grpc://{at}");
    assert!(ran.stderr.starts_with(&expected) && ran.stderr.contains("hint:"), "{ran:?}");
}

//! Limits of the Arrow Flight SQL listener, and the ends of its statements.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use arrow_flight::sql::{CommandStatementQuery, ProstMessageExt as _};
use arrow_flight::{FlightData, FlightDescriptor};
use prost::Message as _;
use tonic::{Code, Status, Streaming};

use crate::client::{ENDLESS, until_engine_rests};
use crate::flight::{FlightServer, block_on};
use crate::support::{PATIENCE, eventually};

/// The limits of the listener.
const MAX_QUERIES: usize = 32;
const MAX_CONNECTIONS: usize = 256;
const DEADLINE: Duration = Duration::from_secs(60);

type Client = arrow_flight::flight_service_client::FlightServiceClient<tonic::transport::Channel>;

/// Sends a statement. The caller reads the answer.
async fn ask(client: &mut Client, sql: &str) -> Result<Streaming<FlightData>, Status> {
    let query = CommandStatementQuery { query: sql.to_owned(), transaction_id: None };
    let descriptor = FlightDescriptor::new_cmd(query.as_any().encode_to_vec());
    let info = client.get_flight_info(descriptor).await?.into_inner();
    let ticket = info.endpoint[0].ticket.clone().expect("one");
    Ok(client.do_get(ticket).await?.into_inner())
}

/// Reads an answer to its end, and returns the error that ended it early.
async fn take(mut answer: Streaming<FlightData>) -> Result<(), Status> {
    while answer.message().await?.is_some() {}
    Ok(())
}

#[test]
fn a_client_that_goes_away_ends_its_question() {
    let server = FlightServer::start();
    eventually("nothing runs", || server.count("requests_running") == 0.0);
    for (at, sql) in ENDLESS.iter().enumerate() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let answer = runtime.block_on(async {
            let mut client = server.client().await;
            ask(&mut client, sql).await.expect("begun")
        });
        eventually("the statement runs", || server.count("requests_running") == 1.0);
        drop(answer);
        // Without the runtime the connection breaks.
        drop(runtime);
        eventually("the statement ends", || server.count("requests_running") == 0.0);
        eventually("the cancellation is counted", || {
            server.count("requests_cancelled_total") == at as f64 + 1.0
        });
        until_engine_rests(&server.up.child);
    }
}

#[test]
fn more_questions_and_connections_than_there_are_places_for_are_refused() {
    let server = FlightServer::start();
    block_on(async {
        let mut client = server.client().await;
        let mut answers = Vec::new();
        for _ in 0..MAX_QUERIES {
            answers.push(ask(&mut client, ENDLESS[0]).await.expect("begun"));
        }
        let refused = ask(&mut client, ENDLESS[0]).await.map(drop).expect_err("too many");
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        assert!(refused.message().contains("hint:"), "{refused}");
        let point = "SELECT value FROM latest WHERE topic = 'n01/load/load_1m'";
        take(ask(&mut client, point).await.expect("a point read")).await.expect("answered");
        drop(answers);
    });
    eventually("all connections are closed", || server.count("connections") == 0.0);
    let open: Vec<_> = (0..MAX_CONNECTIONS)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address()).expect("it listens");
            // A connection with a part of the preface is not idle.
            stream.write_all(b"PRI * HTTP/2.0").expect("sent");
            stream
        })
        .collect();
    eventually("all connections are open", || {
        server.count("connections") == MAX_CONNECTIONS as f64
    });
    let refused = server.count("requests_refused_total");
    let mut more = TcpStream::connect(server.address()).expect("it listens");
    more.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut told = Vec::new();
    more.read_to_end(&mut told).expect("an end");
    let text = b"too many connections are open";
    assert!(told.windows(text.len()).any(|part| part == text), "{told:?}");
    eventually("the refusal is counted", || {
        server.count("requests_refused_total") == refused + 1.0
    });
    drop(open);
    let is_served = || {
        block_on(async {
            let mut client = server.client().await;
            ask(&mut client, "SELECT 1").await.is_ok()
        })
    };
    eventually("a connection is accepted again", is_served);
    let silent: Vec<_> =
        (0..MAX_CONNECTIONS).map(|_| TcpStream::connect(server.address())).collect();
    eventually("a silent connection makes room", is_served);
    drop(silent);
}

/// Such an answer once looked complete.
#[test]
fn an_answer_that_was_broken_off_at_the_deadline_does_not_look_whole() {
    let server = FlightServer::start();
    let ended = block_on(async {
        let mut client = server.client().await;
        let rows = "SELECT a.value FROM generate_series(1, 3000) a, generate_series(1, 3000) b";
        let answer = ask(&mut client, rows).await.expect("begun");
        // The flow control of HTTP/2 lets far fewer rows through unread.
        tokio::time::sleep(DEADLINE + Duration::from_secs(2)).await;
        take(answer).await
    });
    let refused = ended.expect_err("nine million rows were not taken in time");
    assert_eq!(refused.code(), Code::DeadlineExceeded, "{refused}");
    eventually("its slot is free", || server.count("requests_running") == 0.0);
}

//! Limits of the HTTP listener, and its responses beyond them.

use std::io::{BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{ENDLESS, Got, Up, answer, post};
use crate::support::eventually;

/// The limits of the listener.
const MAX_CONNECTIONS: usize = 2048;
const MAX_QUERIES: usize = 32;
const MAX_WATCHERS: usize = 1024;
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
const BODY_PATIENCE: Duration = Duration::from_secs(10);
const WRITE_PATIENCE: Duration = Duration::from_secs(60);

/// Sends `request` unchanged and waits for the response.
fn ask(up: &Up, request: &str) -> (TcpStream, Got) {
    let mut stream = up.connect();
    stream.set_read_timeout(Some(3 * WRITE_PATIENCE)).expect("a socket");
    stream.write_all(request.as_bytes()).expect("sent");
    let got = answer(&mut BufReader::new(stream.try_clone().expect("a socket")));
    (stream, got)
}

fn refused(up: &Up) -> u64 {
    up.count("http", "requests_refused_total")
}

#[test]
fn a_request_that_is_too_long_is_refused() {
    let up = Up::start();
    let before = refused(&up);
    let host = format!("host: {}\r\n", up.at);
    let long = format!("x-long: {}\r\n", "x".repeat(20_000));
    let many: String = (0..80).map(|n| format!("x-{n}: 1\r\n")).collect();
    for head in [long, many] {
        let got = up.send(&format!("GET /healthz HTTP/1.1\r\n{host}{head}\r\n"));
        assert_eq!(got.status, 431, "{}", got.head);
    }
    // The first body is too long for a statement, and the second for any request.
    for bytes in [200_000, 1 << 20] {
        let got = up.sql(&format!("SELECT '{}'", "x".repeat(bytes)));
        assert_eq!(got.status, 413, "{}", got.text());
        assert!(got.json()["error"].is_string());
    }
    // A chunked body has no length in its head, so the hub counts the bytes as they come.
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, "x".repeat(1 << 20));
    let chunked = format!(
        "POST /api/v1/sql HTTP/1.1\r\n{host}content-type: application/sql\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n{chunk}0\r\n\r\n"
    );
    assert_eq!(up.send(&chunked).status, 413);
    let parameters = "topic=load/load_1m&".repeat(300);
    assert_eq!(up.get(&format!("/api/v1/get?{parameters}")).status, 400);
    // Bytes that are not a request are counted when their connection ends.
    eventually("all refusals are counted", || refused(&up) - before == 6);
}

#[test]
fn statements_and_watchers_above_the_limit_are_asked_to_retry() {
    let up = Up::start();
    // No statement ends before the last one has come, however busy the machine is.
    let question = json!({ "sql": ENDLESS[0], "deadline_ms": 300_000 }).to_string();
    let question = post(&up.at, "application/json", "", &question);
    let mut asking = Vec::new();
    for n in 1..=MAX_QUERIES as u64 {
        let mut stream = up.connect();
        stream.write_all(question.as_bytes()).expect("sent");
        asking.push(stream);
        eventually("the statement runs", || up.count("http", "requests_running") == n);
    }
    let (_, got) = ask(&up, &question);
    assert_eq!(got.status, 429, "{}", got.head);
    assert!(got.head.to_lowercase().contains("retry-after: 1"), "{}", got.head);
    assert_eq!(got.json()["error"], "too many statements run at one time");
    assert_eq!(up.get("/metrics").status, 200, "an export has places of its own");
    assert_eq!(up.sql("SELECT value FROM latest WHERE topic = 'n01/load/load_1m'").status, 200);
    drop(asking);
    eventually("their slots are free", || up.count("http", "requests_running") == 0);
    assert_eq!(up.sql("SELECT count(*) AS n FROM latest").status, 200);

    let path = "/api/v1/watch?topic=load/load_1m";
    let mut watching: Vec<_> =
        (0..MAX_WATCHERS).map(|_| up.events(up.connect(), path, "")).collect();
    for events in &mut watching {
        assert_eq!(events.next().map(|event| event.name).as_deref(), Some("change"));
    }
    assert_eq!(status(&up, path), "429");
    watching.pop();
    eventually("a slot is free", || status(&up, path) == "200");
}

/// Returns the status of a response that may have no end.
fn status(up: &Up, path: &str) -> String {
    let mut stream = up.connect();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", up.at).expect("sent");
    let mut head = [0; 12];
    stream.read_exact(&mut head).expect("a head");
    String::from_utf8_lossy(&head[9..]).into_owned()
}

#[test]
fn one_connection_too_many_gets_an_error_and_is_closed() {
    let up = Up::start();
    let before = refused(&up);
    // A connection with a part of a request is not idle.
    let begin = || {
        let mut stream = up.connect();
        stream.write_all(b"GET /healthz").expect("sent");
        stream
    };
    let mut open: Vec<TcpStream> = (0..MAX_CONNECTIONS).map(|_| begin()).collect();
    let request = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", up.at);
    eventually("all slots are taken", || {
        // One whose bytes a busy hub has not read yet counts as idle and makes room.
        let is_full = ask(&up, &request).1.status == 503;
        if !is_full {
            open.push(begin());
        }
        is_full
    });
    for _ in 0..3 {
        let (mut stream, got) = ask(&up, &request);
        let error = &got.json()["error"];
        assert_eq!((got.status, error), (503, &json!("too many connections are open")));
        assert_eq!(stream.read(&mut [0]).expect("an end"), 0, "it is closed");
    }
    drop(open);
    eventually("a connection is accepted again", || up.send(&request).status == 200);
    assert!(refused(&up) >= before + 4);
}

#[test]
fn a_statement_that_needs_too_much_memory_is_refused() {
    let up = Up::start();
    // Eighty columns of a million numbers exceed the memory of all statements together.
    let columns: Vec<String> = (1..=80).map(|n| format!("value + {n}")).collect();
    let sql = format!("SELECT {} FROM generate_series(1, 1000000)", columns.join(", "));
    let got = up.sql(&sql);
    assert_eq!(got.status, 503, "{}", got.text());
    assert!(got.json()["hint"].is_string(), "{}", got.text());
    assert_eq!(up.sql("SELECT 1 AS one").json()["rows"], json!([{"one": 1}]));
}

/// Sends a request without its last bytes. Returns the response, and the time until it came.
fn unfinished(up: &Up, request: &str) -> (Duration, Got) {
    let begun = Instant::now();
    let (_stream, got) = ask(up, request);
    (begun.elapsed(), got)
}

#[test]
fn a_slow_client_gets_a_timeout_and_a_client_that_reads_nothing_is_disconnected() {
    let up = Up::start();
    eventually("no other connection is open", || up.count("http", "connections") == 1);
    let before = refused(&up);
    let head = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n", up.at);
    let mut body = post(&up.at, "application/sql", "", "SELECT value FROM latest");
    body.pop();
    let idle = up.connect();
    // The kernel's buffers hold only the first of these rows.
    let mut stuck = up.narrow();
    let rows = "SELECT value FROM generate_series(1, 900000)";
    stuck.write_all(post(&up.at, "application/sql", "", rows).as_bytes()).expect("sent");
    std::thread::scope(|scope| {
        let slow = |request, patience| {
            let up = &up;
            scope.spawn(move || {
                let (took, got) = unfinished(up, request);
                assert_eq!(got.status, 408, "{}", got.head);
                assert!(got.json()["error"].as_str().is_some_and(|e| e.ends_with("come in time")));
                assert!(took >= patience, "{took:?}");
            })
        };
        let both = [slow(&*head, HEAD_PATIENCE), slow(&*body, BODY_PATIENCE)];
        both.into_iter().for_each(|one| one.join().expect("told"));
    });
    assert_eq!(refused(&up) - before, 2);
    // A connection without a request is closed without a response.
    let mut nothing = Vec::new();
    idle.set_read_timeout(Some(2 * HEAD_PATIENCE)).expect("a socket");
    (&idle).read_to_end(&mut nothing).expect("an end");
    assert_eq!(nothing, b"");
    std::thread::sleep(WRITE_PATIENCE - HEAD_PATIENCE);
    eventually("the client that reads nothing is disconnected", || {
        up.count("http", "connections") == 1
    });
    let _ = stuck.shutdown(Shutdown::Write);
    let taken = std::io::copy(&mut stuck, &mut std::io::sink());
    assert!(
        taken.is_err() || taken.is_ok_and(|bytes| bytes < 9_000_000),
        "the client was not cut off"
    );
}

//! Calls between a client and a server of tonic.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use skopos_rpc::host::tonic::{ClientService, in_context};
use skopos_rpc::{Interval, Kind, Recorder, Stage, Status};
use tonic::Request;
use tonic::transport::{Channel, Server};

use super::echo::{EchoClient, EchoServer, Next};
use super::serving::{client, runtime, serve, serve_with};
use super::trace::{Recorded, check_joined, only};

const SAY: &str = "/echo.Echo/Say";
const RELAY: &str = "/echo.Echo/Relay";
/// Ends a test that hangs, after half a minute.
const GENEROUS_ROUNDS: usize = 1500;

/// A relay that works in a spawned task.
fn say_by(client: EchoClient<ClientService<Channel>>) -> Next {
    Arc::new(move |message| {
        let client = client.clone();
        let call = async move { client.unary(SAY, Request::new(message)).await };
        let task = tokio::spawn(in_context(call));
        Box::pin(async { task.await.expect("no panic") })
    })
}

#[test]
fn both_sides_of_a_call_have_one_request_and_their_intervals() {
    let recorded = Recorded::start("both-sides");
    let recorder = recorded.recorder;
    runtime().block_on(async {
        let (address, server) = serve(recorder, EchoServer::default()).await;
        let message = Bytes::from(vec![7; 100_000]);
        let answer = client(recorder, address).unary(SAY, Request::new(message.clone())).await;
        assert_eq!(answer.expect("answered"), message);
        server.abort();
    });
    let sides = recorded.sides();
    let origin = only(&sides, Kind::Origin, "echo.Echo/Say");
    let target = only(&sides, Kind::Target, "echo.Echo/Say");
    check_joined(&origin, &target);
    assert_eq!((origin.record.status, target.record.status), (Status::Ok, Status::Ok));
    assert_eq!(origin.record.parent, 0);
    assert!(origin.interval(Interval::InputSerialization) > 0);
    assert!(target.interval(Interval::TargetHandler) > 0);
    assert!(target.interval(Interval::InputDeserialization) > 0);
    assert!(target.interval(Interval::TargetExecutionExclusive) > 0);
    assert!(target.interval(Interval::OutputSerialization) > 0);
    for side in [&origin, &target] {
        assert_eq!(side.values.get("request_bytes"), Some(&100_005));
        assert_eq!(side.values.get("response_bytes"), Some(&100_005));
    }
    assert!(target.values["requests_in_flight"] >= 1);
    assert!(target.values["tasks_alive"] >= 1);
}

#[test]
fn a_call_within_a_handler_is_below_it_and_not_its_own_time() {
    let recorded = Recorded::start("within");
    let recorder = recorded.recorder;
    runtime().block_on(async {
        let (last, second) = serve(recorder, EchoServer::default()).await;
        let relay = EchoServer::relay_to(say_by(client(recorder, last)));
        let (first, server) = serve(recorder, relay).await;
        let answer = client(recorder, first).unary(RELAY, Request::new("x".into())).await;
        assert_eq!(answer.expect("answered"), "x");
        server.abort();
        second.abort();
    });
    let sides = recorded.sides();
    let relay = only(&sides, Kind::Target, "echo.Echo/Relay");
    let origin = only(&sides, Kind::Origin, "echo.Echo/Say");
    let target = only(&sides, Kind::Target, "echo.Echo/Say");
    check_joined(&only(&sides, Kind::Origin, "echo.Echo/Relay"), &relay);
    check_joined(&origin, &target);
    assert_eq!(origin.record.request_low, relay.record.request_low);
    assert_eq!(origin.record.parent, relay.record.span);
    let own = relay.interval(Interval::TargetExecutionExclusive);
    let children = relay.interval(Interval::Children);
    assert!(children > 0 && own + children <= relay.record.duration, "{relay:?}");
    assert_ne!(origin.hash, relay.hash);
}

#[test]
fn a_stream_ends_with_its_trailers() {
    let recorded = Recorded::start("stream");
    let recorder = recorded.recorder;
    let pause = Duration::from_millis(30);
    runtime().block_on(async {
        let (address, server) = serve(recorder, EchoServer::default()).await;
        let messages: Vec<Bytes> = (0..5).map(|i| Bytes::from(vec![i; 10])).collect();
        let mut answers = client(recorder, address).chat(messages.clone()).await.expect("a stream");
        let mut got = Vec::new();
        while let Some(message) = answers.message().await.expect("a message") {
            got.push(message);
            tokio::time::sleep(pause / 5).await;
        }
        assert_eq!(got, messages);
        server.abort();
    });
    let sides = recorded.sides();
    let origin = only(&sides, Kind::Origin, "echo.Echo/Chat");
    let target = only(&sides, Kind::Target, "echo.Echo/Chat");
    check_joined(&origin, &target);
    assert_eq!((origin.record.status, target.record.status), (Status::Ok, Status::Ok));
    assert_eq!(target.values.get("response_bytes"), Some(&75));
    assert!(origin.record.duration > 0 && !origin.values.contains_key("input_serialization"));
}

#[test]
fn a_request_that_waits_for_its_turn_was_in_a_queue() {
    let recorded = Recorded::start("queue");
    let recorder = recorded.recorder;
    runtime().block_on(async {
        let one_at_a_time = Server::builder().concurrency_limit_per_connection(1);
        let (address, server) = serve_with(one_at_a_time, recorder, EchoServer::default()).await;
        let client = client(recorder, address);
        let slow = || client.unary("/echo.Echo/Slow", Request::new("x".into()));
        let (first, second) = tokio::join!(slow(), slow());
        first.and(second).expect("answered");
        server.abort();
    });
    let sides = recorded.sides();
    let targets = sides.iter().filter(|side| side.record.kind == Kind::Target);
    let mut queued: Vec<_> = targets.map(|side| side.interval(Interval::TargetHandler)).collect();
    queued.sort_unstable();
    assert_eq!(queued.len(), 2);
    // The first one takes 100 ms, and the second one was there soon after it.
    assert!(queued[1] > 20_000_000, "{queued:?}");
}

#[test]
fn a_failure_is_an_error_on_both_sides() {
    let recorded = Recorded::start("failure");
    let recorder = recorded.recorder;
    runtime().block_on(async {
        let (address, server) = serve(recorder, EchoServer::default()).await;
        let client = client(recorder, address);
        for path in ["/echo.Echo/Fail", "/echo.Echo/Nothing"] {
            client.unary(path, Request::new("x".into())).await.expect_err("fails");
        }
        server.abort();
    });
    let sides = recorded.sides();
    assert_eq!(sides.len(), 4);
    assert!(sides.iter().all(|side| side.record.status == Status::Error), "{sides:?}");
}

#[test]
fn a_call_that_is_dropped_was_cancelled_and_one_past_its_deadline_timed_out() {
    let recorded = Recorded::start("dropped");
    let recorder = recorded.recorder;
    runtime().block_on(async {
        let (address, server) = serve(recorder, EchoServer::default()).await;
        let client = client(recorder, address);
        let wait = "/echo.Echo/Wait";
        let dropped = client.unary(wait, Request::new("x".into()));
        tokio::time::timeout(Duration::from_millis(100), dropped).await.expect_err("waits");
        let mut request = Request::new("x".into());
        request.set_timeout(Duration::from_millis(100));
        client.unary(wait, request).await.expect_err("times out");
        // The server learns of both within a moment.
        let ended = || recorded.sides_so_far().len() >= 4;
        for _ in 0..GENEROUS_ROUNDS {
            if ended() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        server.abort();
    });
    let sides = recorded.sides();
    let of = |kind| {
        let sides = sides.iter().filter(|s| s.record.kind == kind && s.name == "echo.Echo/Wait");
        let mut statuses: Vec<_> = sides.map(|s| s.record.status).collect();
        statuses.sort_unstable_by_key(|status| *status as u8);
        statuses
    };
    assert_eq!(of(Kind::Target), [Status::Cancelled, Status::TimedOut]);
    assert!(
        of(Kind::Origin).contains(&Status::Cancelled) && !of(Kind::Origin).contains(&Status::Ok)
    );
}

#[test]
fn a_caller_without_a_context_begins_a_request_and_off_records_nothing() {
    let recorded = Recorded::start("unknown");
    let recorder = recorded.recorder;
    runtime().block_on(async {
        let (address, server) = serve(recorder, EchoServer::default()).await;
        let silent = client(Recorder::off(), address);
        silent.unary(SAY, Request::new("x".into())).await.expect("answered");
        recorder.set_stage(Stage::Off);
        silent.unary(RELAY, Request::new("x".into())).await.expect("answered");
        server.abort();
    });
    let sides = recorded.sides();
    assert_eq!(sides.len(), 1);
    let target = only(&sides, Kind::Target, "echo.Echo/Say");
    assert_ne!(target.record.request_low, 0);
}

#[test]
fn a_foreign_traceparent_is_kept() {
    let recorded = Recorded::start("foreign");
    let recorder = recorded.recorder;
    runtime().block_on(async {
        let (address, server) = serve(recorder, EchoServer::default()).await;
        let mut request = Request::new(Bytes::from("x"));
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        request.metadata_mut().insert("traceparent", parent.parse().expect("ascii"));
        client(recorder, address).unary(SAY, request).await.expect("answered");
        server.abort();
    });
    let sides = recorded.sides();
    let origin = only(&sides, Kind::Origin, "echo.Echo/Say");
    check_joined(&origin, &only(&sides, Kind::Target, "echo.Echo/Say"));
    assert_eq!(origin.record.request_low, 0x8448_eb21_1c80_319c);
    assert_eq!(origin.record.request_high, 0x0af7_6519_16cd_43dd);
    assert_eq!(origin.record.parent, 0xb7ad_6b71_6920_3331);
}

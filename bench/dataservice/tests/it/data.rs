//! Data that was stored is read back as it was.

use skopos_dataservice::Error;
use skopos_dataservice::client::keyvalue::{pairs, value};
use skopos_dataservice::client::object::{count, id};
use skopos_dataservice::config::Config;
use skopos_dataservice::origin::Request;
use skopos_dataservice::rpcs::Rpc;

use crate::setup::Service;

#[test]
fn a_value_that_was_put_is_got() {
    for progress_thread in [true, false] {
        let service = Service::start(&Config { progress_thread, ..Config::default() });
        let keys = service.keyvalue();
        service.finish(keys.put(None, 3, b"k", b"v")).expect("put");
        let got = service.finish(keys.get(None, 3, b"k")).expect("got");
        assert_eq!(value(&got).expect("an answer"), Some(b"v".to_vec()));
        let got = service.finish(keys.get(None, 2, b"k")).expect("got");
        assert_eq!(value(&got).expect("an answer"), None, "it is in another database");
    }
}

#[test]
fn a_list_has_all_pairs_with_its_prefix_in_order() {
    let service = Service::start(&Config::default());
    let keys = service.keyvalue();
    let batch: Vec<(Vec<u8>, Vec<u8>)> =
        (0..300_u32).map(|n| (format!("a/{n:03}").into_bytes(), vec![7; 40])).collect();
    service.finish(keys.put_packed(None, 1, &batch)).expect("put");
    service.finish(keys.put(None, 1, b"b/0", b"other")).expect("put");
    // The list is longer than the eager buffer, so it comes through the region.
    let answer = service.finish(keys.list(None, 1, b"a/", 1 << 20)).expect("listed");
    assert_eq!(pairs(&answer).expect("an answer"), batch);
    // Without a place for it, the target refuses.
    let refused = service.finish(keys.list(None, 1, b"a/", 0));
    assert!(matches!(refused, Err(Error::Remote { .. })), "{refused:?}");
}

#[test]
fn an_object_is_read_once_it_is_durable() {
    let service = Service::start(&Config::default());
    let objects = service.objects();
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let answer = service.finish(objects.create(None, bytes.len() as u64)).expect("created");
    let object = id(&answer).expect("an answer");
    service.finish(objects.write(None, object, &bytes)).expect("written");
    let (reply, _place) = objects.read(None, object, 1000).expect("issued").into_parts();
    assert!(matches!(service.finish(Ok(reply)), Err(Error::Remote { .. })), "not durable");
    service.finish(objects.persist(None, object)).expect("persisted");
    let (reply, place) = objects.read(None, object, 1 << 20).expect("issued").into_parts();
    let answer = service.finish(Ok(reply)).expect("read");
    let length = usize::try_from(count(&answer).expect("an answer")).expect("a length");
    assert_eq!(place.read(length).expect("in the region"), bytes);
}

#[test]
fn an_object_has_the_bytes_of_its_last_write() {
    let service = Service::start(&Config::default());
    let names = service.names();
    for content in [&b"first"[..], b"second", b"third and longer"] {
        service.finish(names.write(b"object", content)).expect("written");
        let (reply, place) = names.read(b"object", 64).expect("issued").into_parts();
        let answer = service.finish(Ok(reply)).expect("read");
        let length = usize::try_from(count(&answer).expect("an answer")).expect("a length");
        assert_eq!(place.read(length).expect("in the region"), content);
    }
    let (reply, _place) = names.read(b"nothing", 64).expect("issued").into_parts();
    let refused = service.finish(Ok(reply)).expect_err("there is no such object").to_string();
    assert!(refused.contains("no object has this name"), "{refused}");
}

#[test]
fn an_input_that_overflows_the_eager_buffer_arrives_whole() {
    let service = Service::start(&Config { eager_buffer_bytes: 64, ..Config::default() });
    let keys = service.keyvalue();
    for length in [0, 40, 63, 64, 65, 5000, 1 << 20] {
        let stored: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
        service.finish(keys.put(None, 0, b"long", &stored)).expect("put");
        let answer = service.caller().call(
            Request { reply_bytes: 2 << 20, ..Request::new(0, Rpc::Get, None) },
            |writer| {
                writer.u32(0).bytes(b"long");
            },
        );
        let answer = service.finish(answer).expect("got");
        assert_eq!(value(&answer).expect("an answer"), Some(stored), "{length} bytes");
    }
    assert!(service.probe.gauges().eager_overflows.get() > 0);
}

#[test]
fn a_call_without_a_provider_fails_and_the_next_one_works() {
    let service = Service::start(&Config::default());
    let call = service.caller().call(Request::new(0, Rpc::StoreMultiJson, None), |_| {});
    assert!(matches!(service.finish(call), Err(Error::Remote { .. })));
    let keys = service.keyvalue();
    assert!(service.finish(keys.put(None, 77, b"k", b"v")).is_err(), "there is no database 77");
    service.finish(keys.put(None, 0, b"k", b"v")).expect("put");
}

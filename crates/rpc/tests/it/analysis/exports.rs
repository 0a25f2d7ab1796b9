use std::collections::HashSet;

use serde_json::Value;
use skopos_rpc::analysis::profile::profile;
use skopos_rpc::analysis::trace::Trace;
use skopos_rpc::export::{folded, otlp, perfetto, zipkin};
use skopos_rpc::synthetic::{FRONT, LIST, READ};

use super::skewed;

#[test]
fn zipkin_has_both_sides_under_one_id_and_exact_nanoseconds() {
    let loader = skewed();
    let trace = Trace::open(&loader).unwrap();
    let mut out = Vec::new();
    let exported = zipkin::zipkin(&trace, &mut out).unwrap();
    assert_eq!((exported.spans, exported.bytes), (4800, out.len() as u64));
    let spans: Vec<Value> = serde_json::from_slice(&out).unwrap();
    assert_eq!(spans.len(), 4800);
    let of: Vec<&Value> = spans.iter().filter(|s| s["id"] == "0000000000000100").collect();
    assert_eq!(of.len(), 2);
    let (client, server) = (of[0], of[1]);
    assert_eq!(client["kind"], "CLIENT");
    assert_eq!((&server["kind"], &server["shared"]), (&"SERVER".into(), &true.into()));
    assert_eq!(client["traceId"], "00000000000000070000000000000001");
    assert_eq!(client["name"], FRONT);
    let ns: u64 = client["tags"]["duration_ns"].as_str().unwrap().parse().unwrap();
    assert_eq!(client["duration"], (ns + 500) / 1000);
    assert!(server["tags"]["target_handler_ns"].is_string());
    let child = spans.iter().find(|s| s["id"] == "0000000000000101").unwrap();
    assert_eq!(child["parentId"], "0000000000000100");
}

#[test]
fn otlp_gives_each_side_an_id_and_each_child_the_served_side_as_parent() {
    let loader = skewed();
    let trace = Trace::open(&loader).unwrap();
    let mut out = Vec::new();
    let exported = otlp::otlp_json(&trace, &mut out).unwrap();
    assert_eq!(exported.spans, 4800);
    let mut spans = Vec::new();
    for line in out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let batch: Value = serde_json::from_slice(line).unwrap();
        let resource = &batch["resourceSpans"][0];
        assert_eq!(resource["resource"]["attributes"][0]["key"], "service.name");
        spans.extend(resource["scopeSpans"][0]["spans"].as_array().unwrap().clone());
    }
    assert_eq!(spans.len(), 4800);
    let ids: HashSet<&str> = spans.iter().map(|s| s["spanId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 4800);
    let without = spans.iter().filter(|s| s.get("parentSpanId").is_none()).count();
    assert_eq!(without, 600);
    let parents = spans.iter().filter_map(|s| s.get("parentSpanId"));
    assert!(parents.into_iter().all(|parent| ids.contains(parent.as_str().unwrap())));
}

/// Fields of a message: number, and bytes or value.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let length = match key & 7 {
            0 => {
                found.push((key >> 3, varint(&mut bytes).to_le_bytes().to_vec()));
                continue;
            }
            1 => 8,
            2 => varint(&mut bytes) as usize,
            other => panic!("wire type {other}"),
        };
        let (value, rest) = bytes.split_at(length);
        found.push((key >> 3, value.to_vec()));
        bytes = rest;
    }
    found
}

#[test]
fn protobuf_has_the_fields_of_the_specification() {
    let loader = skewed();
    let trace = Trace::open(&loader).unwrap();
    let mut batches = Vec::new();
    let send = |batch| {
        batches.push(batch);
        Ok(())
    };
    assert_eq!(otlp::otlp_protobuf(&trace, send).unwrap().spans, 4800);
    let mut spans = 0;
    for batch in &batches {
        let resource_spans = fields(&batch[..]);
        let [(1, resource_spans)] = resource_spans.as_slice() else { panic!("one resource") };
        let parts = fields(resource_spans);
        assert_eq!(parts.iter().map(|part| part.0).collect::<Vec<_>>(), [1, 2]);
        let scope_spans = fields(&parts[1].1);
        assert_eq!(scope_spans[0].0, 1);
        spans += scope_spans.len() - 1;
        let span = fields(&scope_spans[1].1);
        let numbers: HashSet<u64> = span.iter().map(|field| field.0).collect();
        assert!([1, 2, 5, 6, 7, 8, 9].iter().all(|number| numbers.contains(number)));
        assert_eq!((span[0].1.len(), span[1].1.len()), (16, 8));
    }
    assert_eq!(spans, 4800);
    let refuse = |_| Err(std::io::Error::other("the collector is gone"));
    assert!(otlp::otlp_protobuf(&trace, refuse).is_err());
}

#[test]
fn perfetto_begins_and_ends_each_slice() {
    let loader = skewed();
    let trace = Trace::open(&loader).unwrap();
    let mut out = Vec::new();
    perfetto::perfetto(&trace, &mut out).unwrap();
    let document: Value = serde_json::from_slice(&out).unwrap();
    let events = document["traceEvents"].as_array().unwrap();
    let count = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    assert_eq!((count("M"), count("b"), count("e")), (5, 4800, 4800));
}

#[test]
fn folded_stacks_add_up_to_the_root() {
    let loader = skewed();
    let trace = Trace::open(&loader).unwrap();
    let profile = profile(&trace).unwrap();
    let mut out = Vec::new();
    let bytes = folded::folded(&profile, &mut out).unwrap();
    assert_eq!(bytes, out.len() as u64);
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<(&str, u128)> = text
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(stack, ns)| (stack, ns.parse().unwrap()))
        .collect();
    let stacks: Vec<&str> = lines.iter().map(|line| line.0).collect();
    assert_eq!(stacks, [FRONT, &format!("{FRONT};{LIST}"), &format!("{FRONT};{READ}")]);
    let sum: u128 = lines.iter().map(|line| line.1).sum();
    assert_eq!(sum, profile.paths[0].end_to_end.sum());
}

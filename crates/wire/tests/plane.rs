//! Batches survive the wire, and a mirror that misses some is right again after a snapshot.

use proptest::prelude::*;
use skopos_model::{Kind, Origin, Structured, Timestamp, Topic, Unit, ValueType};
use skopos_wire::{Batch, Checked, Content, Description, Error, Mirror, Taken, Told};

fn described() -> impl Strategy<Value = Description> {
    let types = [ValueType::F64, ValueType::I64, ValueType::U64, ValueType::Structured];
    (0u32..40, "[a-z]{1,9}(/[a-z0-9_]{1,9}){0,3}", proptest::sample::select(types.to_vec()))
        .prop_map(|(index, topic, value_type)| Description {
            index,
            topic: Topic::new(&topic).expect("a topic"),
            unit: Unit::BYTES,
            kind: Kind::Counter,
            value_type,
        })
}

fn told() -> impl Strategy<Value = Told> {
    let origin = prop_oneof![
        3 => Just(Origin::Measured),
        1 => (0.0f64..9.0).prop_map(|bound| Origin::Predicted { bound }),
        1 => Just(Origin::Unknown),
    ];
    let value = prop_oneof![
        3 => any::<u64>().prop_map(Content::Bits),
        1 => "[ -~]{0,20}".prop_map(|text| Content::Structured(Structured::text(&text))),
    ];
    (0u32..50, any::<i64>(), origin, value).prop_map(|(index, nanos, origin, value)| Told {
        index,
        time: Timestamp::from_nanos(nanos),
        origin,
        value,
    })
}

fn batch() -> impl Strategy<Value = Batch> {
    let runs = proptest::collection::vec((any::<u32>(), 0u32..10_000), 0..4);
    let checked = (any::<i64>(), runs)
        .prop_map(|(nanos, runs)| Checked { at: Timestamp::from_nanos(nanos), runs });
    (
        any::<u64>(),
        proptest::collection::vec(described(), 0..5),
        proptest::collection::vec(any::<u32>(), 0..5),
        proptest::collection::vec(told(), 0..20),
        proptest::collection::vec(checked, 0..3),
    )
        .prop_map(|(sequence, described, gone, samples, checked)| Batch {
            sequence,
            described,
            gone,
            samples,
            checked,
        })
}

proptest! {
    #[test]
    fn a_batch_comes_out_as_it_went_in(batch in batch()) {
        let bytes = batch.encode();
        prop_assert!(bytes.len() <= batch.most_bytes());
        prop_assert_eq!(Batch::decode(&bytes).expect("a batch"), batch);
    }

    #[test]
    fn a_cut_or_longer_one_is_refused(batch in batch(), cut in any::<prop::sample::Index>()) {
        let mut bytes = batch.encode();
        prop_assert!(Batch::decode(&bytes[..cut.index(bytes.len())]).is_err());
        bytes.push(0);
        prop_assert!(matches!(Batch::decode(&bytes), Err(Error::Long(1))));
    }

    #[test]
    fn damage_is_never_fatal(batch in batch(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = batch.encode();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(batch) = Batch::decode(&bytes) {
            let mut mirror = Mirror::default();
            mirror.reset(vec![batch.clone()]);
            let _ = mirror.take(batch);
        }
    }

    #[test]
    fn a_snapshot_that_batches_overtook_still_fills_the_gap(overtakers in 0u64..5, goes in any::<bool>()) {
        let vertex = |index| Description { index, topic: Topic::new(&format!("n/{index}")).expect("a topic"), unit: Unit::NONE, kind: Kind::Gauge, value_type: ValueType::U64 };
        let at = |sequence, described: &[u32], gone: &[u32]| Batch { sequence, described: described.iter().map(|i| vertex(*i)).collect(), gone: gone.to_vec(), ..Batch::default() };
        let mut mirror = Mirror::default();
        mirror.reset(vec![at(1, &[0], &[])]);
        // The second batch, which described 1, never comes; the third describes 2.
        prop_assert_eq!(mirror.take(at(3, &[2], &[])), Taken::Gap(1));
        prop_assert!(!mirror.is_whole());
        let snapshot = at(3, &[0, 1, 2], &[]);
        for n in 0..overtakers {
            mirror.take(at(4 + n, &[10 + n as u32], &[]));
        }
        if goes {
            mirror.take(at(4 + overtakers, &[], &[0]));
        }
        mirror.reset(vec![snapshot]);
        prop_assert!(mirror.is_whole());
        let mut there: Vec<u32> = mirror.vertices().map(|v| v.description.index).collect();
        there.sort_unstable();
        let mut expected: Vec<u32> = if goes { vec![1, 2] } else { vec![0, 1, 2] };
        expected.extend((0..overtakers as u32).map(|n| 10 + n));
        prop_assert_eq!(there, expected);
    }

    #[test]
    fn a_mirror_is_right_again_after_a_snapshot(missing in proptest::collection::vec(any::<bool>(), 1..30)) {
        let vertex = Description { index: 0, topic: Topic::new("n/a").expect("a topic"), unit: Unit::NONE, kind: Kind::Gauge, value_type: ValueType::U64 };
        let told = |n: u64| Told { index: 0, time: Timestamp::from_nanos(n as i64), origin: Origin::Measured, value: Content::Bits(n) };
        let mut mirror = Mirror::default();
        prop_assert_eq!(mirror.take(Batch { sequence: 1, ..Batch::default() }), Taken::TooEarly);
        mirror.reset(vec![Batch { described: vec![vertex.clone()], ..Batch::default() }]);
        let mut gap = 0;
        for (n, is_missing) in (1u64..).zip(&missing) {
            if *is_missing {
                gap += 1;
                continue;
            }
            let taken = mirror.take(Batch { sequence: n, samples: vec![told(n)], ..Batch::default() });
            prop_assert_eq!(taken, if gap == 0 { Taken::In } else { Taken::Gap(gap) });
            gap = 0;
        }
        let last = missing.len() as u64;
        mirror.reset(vec![Batch { sequence: last, described: vec![vertex], samples: vec![told(last)], ..Batch::default() }]);
        let latest: Vec<_> = mirror.vertices().map(|v| v.recent.back().map(|s| s.time.as_nanos())).collect();
        prop_assert_eq!(latest, [Some(last as i64)]);
        prop_assert_eq!(mirror.lost(), missing.iter().filter(|m| **m).count() as u64 - gap);
        prop_assert_eq!(mirror.refused(), 0);
    }
}

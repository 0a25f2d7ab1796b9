//! The publisher that the crash test kills, and the check that its values are complete.
//!
//! All samples of one life follow from the number of the life and the ticket of the sample: the
//! time is `base + ticket`, and the value encodes the time. A sample that mixes two others, or
//! belongs to another ticket, vertex or life, does not fit its own time.

use std::path::Path;

use skopos_model::{Origin, Sample, Scalar, Structured, Timestamp, Value, ValueType};
use skopos_shm::{Publisher, VertexSpec, VertexWriter};

use crate::support::{at, child_dir, die_with_parent, spec, structured};

/// Environment variable of the child: the number of the publisher's life.
pub(crate) const LIFE: &str = "SKOPOS_TEST_LIFE";
/// Environment variable of the child: the segment's name.
pub(crate) const NAME: &str = "SKOPOS_TEST_NAME";

/// Returns the time of ticket 0 of a life. A life has room for 2^36 samples, and 2^17 lives fit into the
/// 2^53 whole numbers of a double.
pub(crate) fn base(life: u64) -> i64 {
    (life << 36) as i64
}

/// The rule that makes the samples of a vertex from their tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recipe {
    /// Scrambled bits; every third sample is predicted, with a bound.
    Scrambled,
    /// A double.
    Half,
    /// A negative number.
    Negative,
    /// A record with padding of changing length and a checksum.
    Record,
    /// A member of a group that changes on every fourth tick.
    Quarter,
    /// Two producers with a counter each: the ticket does not follow from the value.
    Shared,
}

/// Topic, recipe and ring of each permanent vertex. The vertices below `crash/tick/` form a group.
pub(crate) const STAYING: [(&str, Recipe, ValueType, u32); 9] = [
    ("crash/scrambled", Recipe::Scrambled, ValueType::U64, 64),
    ("crash/half", Recipe::Half, ValueType::F64, 128),
    ("crash/negative", Recipe::Negative, ValueType::I64, 2),
    ("crash/record", Recipe::Record, ValueType::Structured, 64),
    ("crash/shared", Recipe::Shared, ValueType::U64, 32),
    ("crash/tick/scrambled", Recipe::Scrambled, ValueType::U64, 64),
    ("crash/tick/half", Recipe::Half, ValueType::F64, 64),
    ("crash/tick/record", Recipe::Record, ValueType::Structured, 64),
    ("crash/tick/quarter", Recipe::Quarter, ValueType::I64, 64),
];

/// Number of vertices that are registered and unregistered again and again.
pub(crate) const CHURNING: u64 = 8;

/// A reversible scrambling of all 64 bits.
fn scramble(time: i64) -> u64 {
    (time as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ 0x5555_aaaa_0f0f_f0f0
}

fn checksum(ticket: u64, padding: &str) -> u64 {
    let fold = |sum: u64, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    padding.bytes().fold(ticket ^ 0xcbf2_9ce4_8422_2325, fold)
}

fn record(ticket: u64) -> Structured {
    // Most records are short; every sixteenth nearly fills a quarter of the byte ring.
    let length = if ticket % 16 == 7 { 3900 } else { ticket % 97 };
    let letter = (b'a' + (ticket % 26) as u8) as char;
    let padding: String = std::iter::repeat_n(letter, length as usize).collect();
    let sum = checksum(ticket, &padding);
    structured(&format!(r#"{{"padding":"{padding}","sum":{sum},"ticket":{ticket}}}"#))
}

/// Makes sample `ticket` of a vertex with this recipe.
pub(crate) fn sample(recipe: Recipe, life: u64, ticket: u64) -> Sample {
    let mut time = base(life) + ticket as i64;
    let mut origin = Origin::Measured;
    let value = match recipe {
        Recipe::Scrambled => {
            if ticket.is_multiple_of(3) {
                origin = Origin::Predicted { bound: (ticket % 1000) as f64 };
            }
            Value::U64(scramble(time))
        }
        Recipe::Half => Value::F64(time as f64 * 0.5),
        Recipe::Negative => Value::I64(-time),
        Recipe::Record => record(ticket).into(),
        Recipe::Quarter => {
            time = base(life) + 4 * ticket as i64;
            Value::I64(ticket as i64)
        }
        Recipe::Shared => unreachable!("its samples do not follow from their tickets"),
    };
    Sample { time: at(time), value, origin }
}

/// Returns the ticket of a sample, if the sample is complete and of this life.
pub(crate) fn ticket_of(recipe: Recipe, life: u64, found: &Sample) -> Option<u64> {
    let since = u64::try_from(found.time.as_nanos() - base(life)).ok()?;
    let ticket = if recipe == Recipe::Quarter { since / 4 } else { since };
    let mut expected = sample(recipe, life, ticket);
    if let (Origin::Predicted { .. }, ValueType::U64) = (found.origin, found.value.value_type()) {
        // All samples of a tick are measured.
        expected.origin = sample(recipe, life, ticket).origin;
    } else {
        expected.origin = Origin::Measured;
    }
    (*found == expected).then_some(ticket)
}

/// Returns the value of a temporary vertex: its number and its time.
pub(crate) fn churn_value(which: u64, time: i64) -> u64 {
    which << 56 | time as u64
}

pub(crate) fn churn_topic(which: u64) -> String {
    format!("crash/churn/{which}")
}

/// The main function of the child. Never returns: the parent kills it.
#[test]
#[ignore = "the crash test starts this as a separate process and kills it"]
fn publish_until_killed() {
    let Some(dir) = child_dir() else { return };
    die_with_parent();
    let number = |name: &str| std::env::var(name).unwrap_or_default();
    let life: u64 = number(LIFE).parse().expect("the parent sets it");
    publish_for_ever(&dir, &number(NAME), life);
}

fn publish_for_ever(dir: &Path, name: &str, life: u64) {
    let publisher = Publisher::builder(name)
        .dir(dir)
        .node(&format!("life-{life}"))
        .max_vertices(64)
        .max_bytes(4 << 20)
        .create()
        .expect("the dead segment is removed");
    let mut group = publisher.group("tick").expect("there is room for a group");
    let mut alone = Vec::new();
    let mut members = Vec::new();
    for (topic, recipe, value_type, slots) in STAYING {
        let spec = spec(topic, value_type).slots(slots);
        if topic.starts_with("crash/tick/") {
            members.push((group.register(spec).expect("a new topic"), recipe));
        } else {
            alone.push((publisher.register(spec).expect("a new topic"), recipe));
        }
    }
    let shared: VertexWriter = {
        let at = alone.iter().position(|(_, recipe)| *recipe == Recipe::Shared);
        alone.swap_remove(at.expect("it is in the list")).0
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for ticket in 0.. {
                for (writer, recipe) in &alone {
                    writer.publish_sample(&sample(*recipe, life, ticket)).expect("registered");
                }
                publish_shared(&shared, life, 1, ticket);
            }
        });
        scope.spawn(|| churn(&publisher, &shared, life));
        for ticket in 0.. {
            let mut tick = group.tick(at(base(life) + ticket as i64));
            for (writer, recipe) in &members {
                let ticket = if *recipe == Recipe::Quarter { ticket / 4 } else { ticket };
                let value = sample(*recipe, life, ticket).value;
                tick.publish_value(writer, &value).expect("registered");
            }
            tick.commit();
        }
    });
}

fn publish_shared(shared: &VertexWriter, life: u64, producer: u64, count: u64) {
    let time = at(base(life) + count as i64);
    shared.publish_at(time, Scalar::U64(producer << 56 | count)).expect("registered");
}

/// Registers and unregisters without end, and is the second producer of `shared`.
fn churn(publisher: &Publisher, shared: &VertexWriter, life: u64) {
    let mut present: Vec<Option<VertexWriter>> = (0..CHURNING).map(|_| None).collect();
    for count in 0u64.. {
        publish_shared(shared, life, 2, count);
        let which = scramble(count as i64) % CHURNING;
        let time = base(life) + count as i64;
        match present[which as usize].take() {
            Some(writer) if count.is_multiple_of(3) => publisher.unregister(&writer),
            Some(writer) => {
                let value = Scalar::U64(churn_value(which, time));
                writer.publish_at(Timestamp::from_nanos(time), value).expect("registered");
                present[which as usize] = Some(writer);
            }
            None => {
                let slots = [1, 4, 16][(count % 3) as usize];
                let topic = crate::support::topic(&churn_topic(which));
                let spec = VertexSpec::new(topic, ValueType::U64).slots(slots);
                present[which as usize] = Some(publisher.register(spec).expect("room and free"));
            }
        }
    }
}

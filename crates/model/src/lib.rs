//! The nouns of Skopos. This crate does no input or output, reads no clock and has no `unsafe`.
//!
//! Read in this order: a [`Topic`] names one stream of [`Sample`]s; a [`TopicPattern`] selects
//! topics; a sample is a [`Timestamp`], a [`Value`] and its [`Origin`]; [`Unit`] and [`Kind`] give
//! the meaning of the value; [`schema`] holds the families of facts that Skopos itself measures.
//!
//! ```
//! use skopos_model::{Topic, TopicPattern};
//!
//! let topic: Topic = "n01/block/nvme0n1/read_bytes_total".parse()?;
//! let pattern: TopicPattern = "n*/block/**".parse()?;
//! assert!(pattern.matches(&topic));
//! # Ok::<(), skopos_model::Error>(())
//! ```

#![forbid(unsafe_code)]

mod topic;
mod pattern;
pub mod wildcard;
mod segment;
mod time;
mod value;
mod value_type;
mod structured;
mod sample;
mod unit;
mod bytes;
mod random;
mod lock;
mod nearest;
mod limits;
mod error;
pub mod duration;
pub mod schema;
pub mod core_list;
pub mod task;
pub mod job;

pub use bytes::ByteReader;
pub use error::Error;
pub use limits::{
    MAX_STRUCTURED_BYTES, MAX_STRUCTURED_DEPTH, MAX_TOPIC_BYTES, MAX_TOPIC_SEGMENTS, MAX_UNIT_BYTES,
};
pub use lock::unpoisoned;
pub use nearest::{nearest_name, nearest_topic, topic_similarity};
pub use pattern::TopicPattern;
pub use random::SplitMix64;
pub use sample::{Origin, Sample};
pub use segment::escape_segment;
pub use structured::Structured;
pub use time::Timestamp;
pub use topic::Topic;
pub use unit::{Kind, Unit};
pub use value::{Scalar, Value};
pub use value_type::ValueType;

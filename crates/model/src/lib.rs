//! The nouns of Skopos. No input or output, no clock, no `unsafe`.
//!
//! Read in this order: a [`Topic`] names one stream of [`Sample`]s; a [`TopicPattern`] selects
//! topics; a sample is a [`Timestamp`], a [`Value`] and its [`Origin`]; [`Unit`] and [`Kind`] say
//! what the value means; [`schema`] holds the families of facts that Skopos itself measures.
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
mod segment;
mod time;
mod value;
mod structured;
mod sample;
mod unit;
mod bytes;
mod random;
mod lock;
mod error;
pub mod duration;
pub mod schema;
pub mod task;

pub use bytes::ByteReader;
pub use error::Error;
pub use lock::unpoisoned;
pub use pattern::TopicPattern;
pub use random::SplitMix64;
pub use sample::{Origin, Sample};
pub use segment::escape_segment;
pub use structured::{MAX_STRUCTURED_BYTES, MAX_STRUCTURED_DEPTH, Structured};
pub use time::Timestamp;
pub use topic::{MAX_TOPIC_BYTES, MAX_TOPIC_SEGMENTS, Topic};
pub use unit::{Kind, MAX_UNIT_BYTES, Unit};
pub use value::{Scalar, Value, ValueType};

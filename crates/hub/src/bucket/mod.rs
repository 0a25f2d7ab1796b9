//! Segments of jobs in a bucket of an object store that speaks S3.
//!
//! [`Bucket`] is a [`Disk`](skopos_store::log::Disk) on which an `Lts` keeps its folder: a file is an object, and
//! segments never change, so nothing but whole objects is written. Read in this order: `place` has the configuration,
//! `requests` the calls of the store with their deadline, `chunks` the bytes that were read not long ago, `disk` the
//! operations, and `writer` the right to write to a bucket. A hub that helps another one opens the bucket of that one to read.

mod place;
mod requests;
mod chunks;
mod disk;
mod writer;
#[cfg(test)]
mod tests;

pub(crate) use disk::Bucket;
pub use place::{BucketConfig, BucketError};

//! Jobs: the records of which the history of a job is made.
//!
//! Read in this order: a [`JobId`] names a job of a site; a [`JobStart`] has its metadata, a [`Metrics`] the names of
//! a vector of measurements, and a [`JobEnd`] its result; a [`JobRecord`] is one of these with its job, its node and
//! its time. A [`NodeMeasurement`] has the facts of a node for one job.
//!
//! A producer may send records in any order: those of a job whose start has not arrived are kept. A record never
//! changes; a later start or end of the same job replaces the metadata of the earlier one.

mod id;
mod metadata;
mod metrics;
mod names;
mod record;
mod facts;

pub use facts::{NodeMeasurement, NodeValues, job_of_fact};
pub use id::{IMPORTED_PREFIX, IMPORTED_TAG, IdError, JobId, MAX_JOB_ID_BYTES, SET_TAG};
pub use metadata::{
    JobEnd, JobLoss, JobStart, JobState, JobTags, MAX_DETAILS, MAX_FIELD_BYTES, MetadataError,
};
pub use metrics::{MAX_METRICS, Metrics, MetricsError};
pub use names::NamesInForce;
pub use record::{JobRecord, Kind, MAX_DOCUMENT_BYTES, MAX_NODE_BYTES, RecordError};

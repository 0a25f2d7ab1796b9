//! Records of jobs that arrive at the UNIX socket.

use std::time::Duration;

use serde::Deserialize;
use skopos_access::Caller;
use skopos_hub::Backend;
use skopos_hub::jobs::StoreError;
use skopos_hub::messages::{Head, JobDocument, StoreRequest};
use skopos_model::Timestamp;
use skopos_model::job::{JobRecord, Kind};

/// Time for which a client waits until its records are durable.
const DURABLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Stores records, and waits until they are durable.
pub(crate) fn store(backend: &Backend, request: &StoreRequest) -> Head {
    let refused = |why: String| Head::refusing(why, None);
    let jobs = match backend.jobs.open() {
        Ok(jobs) => jobs,
        Err(e) => return refused(e.to_string()),
    };
    // The socket has told that the peer is the owner.
    let (caller, producer) = (Caller::Owner, (request.producer.as_str(), request.epoch));
    let stored = jobs.store(&caller, producer, |visit| {
        for (sequence, record) in (0..).zip(&request.store_jobs) {
            let (kind, content) = content(record)?;
            let JobDocument { job, generation, node, time_ns, .. } = record;
            let time = Timestamp::from_nanos(*time_ns);
            visit(
                sequence,
                JobRecord { kind, job, generation: *generation, node, time, content: &content },
            )?;
        }
        Ok(())
    });
    match stored {
        Err(e) => refused(e.to_string()),
        Ok(stored) if stored.refused > 0 => {
            refused(stored.refusals.into_iter().map(|(_, why)| why).next().unwrap_or_default())
        }
        Ok(stored) => match stored.last {
            Some(last) if !jobs.wait_durable(&caller, producer, last, DURABLE_TIMEOUT) => {
                refused("the records could not be made durable in time".to_owned())
            }
            _ => Head::default(),
        },
    }
}

/// A measurement as a document.
#[derive(Deserialize)]
struct Measurement {
    schema: String,
    /// A value that is not known is `null`.
    values: Vec<Option<f64>>,
}

fn content(record: &JobDocument) -> Result<(Kind, Vec<u8>), StoreError> {
    let unknown = || StoreError::Producer(format!("the kind {:?} is not known", record.kind));
    let invalid = |e: serde_json::Error| StoreError::Producer(e.to_string());
    let kind = Kind::of_name(&record.kind).ok_or_else(unknown)?;
    let content = match kind {
        Kind::Sample => {
            let measurement = Measurement::deserialize(&record.document).map_err(invalid)?;
            let values = measurement.values.into_iter().map(|value| value.unwrap_or(f64::NAN));
            JobRecord::sample_content(&measurement.schema, &values.collect::<Vec<_>>())
        }
        _ => serde_json::to_vec(&record.document).map_err(invalid)?,
    };
    Ok((kind, content))
}

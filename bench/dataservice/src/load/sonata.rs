//! JSON documents in batches: the input of a call, not bulk, has the documents, so it overflows the eager buffer.

use std::time::Instant;

use serde_json::{Value, json};

use crate::client::document::Documents;
use crate::error::{Error, Result};
use crate::latencies::Latencies;
use crate::load::{Client, Report, Size};
use crate::pool::run as run_task;

/// Stores `size.events` documents.
///
/// # Errors
/// A call failed.
pub fn run(client: &Client, size: &Size) -> Result<Report> {
    let begin = Instant::now();
    let (own, count) = (client.clone(), size.events);
    let task = async move {
        let mut latencies = Latencies::default();
        store(&own, count, &mut latencies).await.map(|()| latencies)
    };
    let latencies = run_task(&client.tasks, task)
        .unwrap_or_else(|| Err(Error::Closed("the pool of this client".to_owned())))?;
    Ok(Report {
        events: size.events.into(),
        seconds: begin.elapsed().as_secs_f64(),
        latencies: latencies.to_pairs(),
    })
}

async fn store(client: &Client, count: u32, latencies: &mut Latencies) -> Result<()> {
    let documents = Documents::new(client.caller.clone(), 0);
    let batch_size = client.config.batch_size.max(1);
    for first in (0..count).step_by(batch_size as usize) {
        let last = first.saturating_add(batch_size).min(count);
        let batch: Vec<Value> = (first..last).map(document).collect();
        latencies.add(documents.store("events", &batch)?.await?.nanoseconds);
    }
    Ok(())
}

/// A record of a fixed length.
fn document(number: u32) -> Value {
    json!({
        "id": format!("{number:010}"),
        "run": 1000 + number % 100,
        "detector": "barrel",
        "energy": f64::from(number % 1000) + 0.5,
        "hits": [number % 7, number % 11, number % 13],
    })
}

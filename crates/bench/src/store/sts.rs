//! The short-time storage: records from producers to the disk of a hub.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::{FlightData, FlightDescriptor};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use skopos_model::unpoisoned;
use skopos_term::Failure;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::time::sleep_until;

use super::hub::Hub;
use super::slate::{Job, Row, batch};
use crate::stats::{Latencies, nanos_since};

/// A load of records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Streams, each of a producer.
    pub(super) streams: usize,
    /// Records of a batch.
    pub(super) rows: usize,
    /// Records of all streams.
    pub(super) records: usize,
    /// Records a second; as many as the hub takes, if it is missing.
    pub(super) per_second: Option<f64>,
    /// Batches of a stream that may wait for their acknowledgement.
    pub(super) window: usize,
    /// Jobs of a stream that run at the same time.
    pub(super) jobs: usize,
}

/// A measured load.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub(super) per_second: f64,
    /// Times from the moment at which a batch was due to its acknowledgement.
    pub(super) latencies: Latencies,
    /// The jobs that were sent.
    pub(super) jobs: usize,
}

/// The messages of a stream, with the last sequence of each batch.
struct Prepared {
    messages: Vec<FlightData>,
    last: Vec<i64>,
}

/// Sends a load to a hub, and waits until the disk has all of it. `first` is the number of the first job; `epoch` must be
/// later than that of every earlier load.
pub(super) fn send(
    hub: &Hub,
    runtime: &Runtime,
    load: &Load,
    (first, epoch, samples): (u64, i64, usize),
) -> Result<Taken, Failure> {
    let mut number = first;
    let mut prepared = Vec::new();
    for at in 0..load.streams {
        let path = ["jobs".to_owned(), format!("s{at}"), epoch.to_string()];
        let made = rows(load, &mut number, samples);
        prepared.push(runtime.block_on(prepare(path.to_vec(), &made, load.rows))?);
    }
    let jobs = (number - first) as usize;
    let begun = Instant::now();
    let latencies = runtime.block_on(async {
        let streams = prepared.into_iter().enumerate().map(|(at, prepared)| async move {
            let client = hub.connect().await?;
            one(client, prepared, load, (at, begun)).await
        });
        let all: Vec<Latencies> =
            stream::iter(streams).buffer_unordered(load.streams.max(1)).try_collect().await?;
        let mut sum = Latencies::new();
        all.iter().for_each(|one| sum.add(one));
        Ok::<_, Failure>(sum)
    })?;
    Ok(Taken { per_second: load.records as f64 / begun.elapsed().as_secs_f64(), latencies, jobs })
}

/// Makes the rows of a stream: its jobs take turns. Jobs are complete but for the last ones.
pub(super) fn rows(load: &Load, number: &mut u64, samples: usize) -> Vec<Row> {
    let count = load.records / load.streams;
    let mut begin = 0;
    let mut new = || {
        begin += 1_000_000;
        *number += 1;
        Job::new(*number - 1, samples, begin)
    };
    let mut running: VecDeque<Job> = (0..load.jobs).map(|_| new()).collect();
    let mut rows = Vec::with_capacity(count);
    while rows.len() < count {
        let Some(mut job) = running.pop_front() else { break };
        match job.next() {
            Some((time, content)) => {
                let sequence = rows.len() as i64;
                rows.push(Row { sequence, job: job.name().to_owned(), time, content });
                running.push_back(job);
            }
            None => running.push_back(new()),
        }
    }
    rows
}

async fn prepare(path: Vec<String>, rows: &[Row], batch_rows: usize) -> Result<Prepared, Failure> {
    let failed = |e: &dyn std::fmt::Display| Failure::new(format!("cannot make a batch: {e}"));
    let batches = rows.chunks(batch_rows).map(batch).collect::<Result<Vec<_>, _>>();
    let batches = batches.map_err(|e| failed(&e))?;
    let last = rows.chunks(batch_rows).map(|rows| rows[rows.len() - 1].sequence).collect();
    let encoder = FlightDataEncoderBuilder::new()
        .with_flight_descriptor(Some(FlightDescriptor::new_path(path)))
        .build(stream::iter(batches.into_iter().map(Ok)));
    let messages: Vec<FlightData> = encoder.try_collect().await.map_err(|e| failed(&e))?;
    if messages.len() != rows.len().div_ceil(batch_rows) + 1 {
        return Err(Failure::new("a batch does not fit into a message"));
    }
    Ok(Prepared { messages, last })
}

/// Sends one stream.
async fn one(
    mut client: arrow_flight::flight_service_client::FlightServiceClient<tonic::transport::Channel>,
    Prepared { messages, last }: Prepared,
    load: &Load,
    (at, begun): (usize, Instant),
) -> Result<Latencies, Failure> {
    let window = Arc::new(Semaphore::new(load.window));
    // The batches that wait for their acknowledgement: the last sequence, and the time at which the batch was due.
    let waiting: Arc<Mutex<VecDeque<(i64, Instant)>>> = Arc::default();
    let every = load
        .per_second
        .map(|rate| Duration::from_secs_f64((load.rows * load.streams) as f64 / rate));
    // Streams take turns within an interval.
    let offset =
        every.map_or(Duration::ZERO, |every| every.mul_f64(at as f64 / load.streams as f64));
    let (window_of_sender, sent) = (window.clone(), waiting.clone());
    let count = last.len();
    let sending = stream::iter(messages.into_iter().enumerate()).then(move |(at, message)| {
        let (window, sent) = (window_of_sender.clone(), sent.clone());
        let last = at.checked_sub(1).map(|at| last[at]);
        async move {
            let Some(last) = last else { return message };
            let due = every.map(|every| begun + offset + every.mul_f64((at - 1) as f64));
            if let Some(due) = due {
                sleep_until(due.into()).await;
            }
            if let Ok(permit) = window.acquire().await {
                permit.forget();
            }
            unpoisoned(sent.lock()).push_back((last, due.unwrap_or_else(Instant::now)));
            message
        }
    });
    let failed = |e: tonic::Status| Failure::new(format!("the hub refuses records: {e}"));
    let mut answers = client.do_put(sending).await.map_err(failed)?.into_inner();
    let (mut latencies, mut reached) = (Latencies::new(), 0);
    while let Some(answer) = answers.try_next().await.map_err(failed)? {
        let answer: serde_json::Value = serde_json::from_slice(&answer.app_metadata)
            .map_err(|e| Failure::new(format!("an acknowledgement is not JSON: {e}")))?;
        if let Some(refused) = answer.get("refusals") {
            return Err(Failure::new(format!("the hub refused records: {refused}")));
        }
        let sequence = answer["sequence"].as_i64().unwrap_or(i64::MIN);
        let mut waiting = unpoisoned(waiting.lock());
        while let Some((last, due)) = waiting.front().copied()
            && last <= sequence
        {
            waiting.pop_front();
            latencies.record(nanos_since(due));
            window.add_permits(1);
            reached += 1;
        }
    }
    if reached != count {
        return Err(Failure::new(format!("the hub acknowledged {reached} of {count} batches")));
    }
    Ok(latencies)
}

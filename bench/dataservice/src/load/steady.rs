//! A steady load for measuring overheads: tasks that put and wait, again and again, for a given time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::client::keyvalue::KeyValue;
use crate::error::Result;
use crate::latencies::Latencies;
use crate::load::hepnos::{key, value};
use crate::load::{Client, Report};

/// Keys of one writer: few, so that the databases do not grow while overheads are measured.
const KEYS: u32 = 512;

/// Puts with `writers` tasks for `time`: single values if the batch size is 1, and otherwise batches.
///
/// # Errors
/// A put failed.
pub fn run(client: &Client, writers: u32, time: Duration) -> Result<Report> {
    let is_over = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = std::sync::mpsc::channel();
    let begin = Instant::now();
    for writer in 0..writers.max(1) {
        let (own, sender, is_over) = (client.clone(), sender.clone(), Arc::clone(&is_over));
        client.tasks.spawn(async move {
            let mut latencies = Latencies::default();
            let result = put(&own, writer, &is_over, &mut latencies).await;
            // The receiver is gone only if another writer failed, and then one failure is enough.
            let _ = sender.send(result.map(|()| latencies));
        });
    }
    drop(sender);
    std::thread::sleep(time);
    is_over.store(true, Ordering::Relaxed);
    let mut latencies = Latencies::default();
    for result in receiver {
        latencies.merge(&result?.to_pairs());
    }
    let seconds = begin.elapsed().as_secs_f64();
    Ok(Report { events: latencies.count(), seconds, latencies: latencies.to_pairs() })
}

async fn put(
    client: &Client,
    writer: u32,
    is_over: &AtomicBool,
    latencies: &mut Latencies,
) -> Result<()> {
    let databases = KeyValue::new(client.caller.clone(), client.config.databases);
    let batch = client.config.batch_size.clamp(1, KEYS);
    let pairs: Vec<_> = (0..KEYS)
        .map(|event| {
            let key = key(client.number * 1000 + writer, event);
            let value = value(&key);
            (key, value)
        })
        .collect();
    let mut next = 0;
    while !is_over.load(Ordering::Relaxed) {
        let first = next % (KEYS - batch + 1);
        let database = writer % client.config.databases.max(1);
        let reply = if batch == 1 {
            let (key, value) = &pairs[first as usize];
            databases.put(None, database, key, value)?
        } else {
            let pairs = &pairs[first as usize..(first + batch) as usize];
            databases.put_packed(None, database, pairs)?
        };
        latencies.add(reply.await?.nanoseconds);
        next += batch;
    }
    Ok(())
}

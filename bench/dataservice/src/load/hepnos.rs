//! The data loader: events in batches, divided by the hash of their keys among all databases; a batch is one
//! `sdskv_put_packed` for each database that gets events of it.

use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use crate::client::keyvalue::KeyValue;
use crate::error::{Error, Result};
use crate::latencies::Latencies;
use crate::load::{Client, Report, Size};
use crate::pool::yield_now;
use crate::reply::Reply;

/// Bytes of an event: a small C++ object.
const VALUE_BYTES: usize = 96;

/// Stores `size.events` events.
///
/// # Errors
/// A put failed.
pub fn run(client: &Client, size: &Size) -> Result<Report> {
    let begin = Instant::now();
    let (sender, receiver) = std::sync::mpsc::channel();
    for writer in 0..size.writers.max(1) {
        let (client, size, sender) = (client.clone(), size.clone(), sender.clone());
        client.tasks.clone().spawn(async move {
            let mut latencies = Latencies::default();
            let result = write(&client, &size, writer, &mut latencies).await;
            report(&sender, result.map(|()| latencies));
        });
    }
    drop(sender);
    let mut latencies = Latencies::default();
    let mut ended = 0;
    for result in receiver {
        latencies.merge(&result?.to_pairs());
        ended += 1;
    }
    if ended != size.writers.max(1) {
        return Err(Error::Closed("the pool of this client".to_owned()));
    }
    Ok(Report {
        events: size.events.into(),
        seconds: begin.elapsed().as_secs_f64(),
        latencies: latencies.to_pairs(),
    })
}

fn report(sender: &Sender<Result<Latencies>>, result: Result<Latencies>) {
    // The receiver is gone only if another writer failed, and then one failure is enough.
    let _ = sender.send(result);
}

/// A writer: every `writers`th batch is its own. It reads the events of a batch one after another, and issues the puts.
async fn write(client: &Client, size: &Size, writer: u32, latencies: &mut Latencies) -> Result<()> {
    let databases = KeyValue::new(client.caller.clone(), client.config.databases);
    let batch_size = client.config.batch_size.max(1);
    let batches = size.events.div_ceil(batch_size);
    let mut under_way: VecDeque<Vec<Reply>> = VecDeque::new();
    for batch in (writer..batches).step_by(size.writers.max(1) as usize) {
        if under_way.len() >= size.window.max(1) as usize {
            finish(under_way.pop_front(), latencies).await?;
        }
        let first = batch * batch_size;
        let count = batch_size.min(size.events - first);
        for _ in 0..count {
            // The other tasks of the client have their turns between two events.
            prepare(client).await;
        }
        under_way.push_back(issue(client, &databases, first, count)?);
    }
    while let Some(replies) = under_way.pop_front() {
        finish(Some(replies), latencies).await?;
    }
    Ok(())
}

async fn finish(replies: Option<Vec<Reply>>, latencies: &mut Latencies) -> Result<()> {
    for reply in replies.into_iter().flatten() {
        latencies.add(reply.await?.nanoseconds);
    }
    Ok(())
}

/// Reads an event from its source, which is slept on the execution stream.
async fn prepare(client: &Client) {
    let time = Duration::from_micros(client.config.prepare_us.into());
    if !time.is_zero() {
        std::thread::sleep(time);
        yield_now().await;
    }
}

/// Issues a put for each database that gets events of the batch, in the order of the databases.
fn issue(client: &Client, databases: &KeyValue, first: u32, count: u32) -> Result<Vec<Reply>> {
    let mut groups = vec![Vec::new(); client.config.databases.max(1) as usize];
    for event in first..first + count {
        let key = key(client.number, event);
        let value = value(&key);
        groups[databases.database_of(&key) as usize].push((key, value));
    }
    let mut replies = Vec::new();
    for (database, pairs) in (0_u32..).zip(&groups) {
        if !pairs.is_empty() {
            replies.push(databases.put_packed(None, database, pairs)?);
        }
    }
    Ok(replies)
}

/// The key of an event.
#[must_use]
pub fn key(client: u32, event: u32) -> Vec<u8> {
    format!("event/{client:04}/{event:010}").into_bytes()
}

/// The value of an event: its key, repeated.
#[must_use]
pub fn value(key: &[u8]) -> Vec<u8> {
    key.iter().copied().cycle().take(VALUE_BYTES).collect()
}

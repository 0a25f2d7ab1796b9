//! Objects by name, as ior writes and reads them: each client writes its own object many times, and then reads it as
//! often.

use std::time::Instant;

use crate::client::object;
use crate::client::sequencer::Names;
use crate::error::{Error, Result};
use crate::latencies::Latencies;
use crate::load::{Client, Report, Size};
use crate::pool::run as run_task;

/// Bytes of a write: one block of a file system.
const BLOCK_BYTES: usize = 4096;

/// Writes and reads an object, `size.events` times each, and compares the bytes.
///
/// # Errors
/// A call failed, or other bytes were read than written.
pub fn run(client: &Client, size: &Size) -> Result<Report> {
    let begin = Instant::now();
    let (own, count) = (client.clone(), size.events);
    let task = async move {
        let mut latencies = Latencies::default();
        write_and_read(&own, count, &mut latencies).await.map(|()| latencies)
    };
    let latencies = run_task(&client.tasks, task)
        .unwrap_or_else(|| Err(Error::Closed("the pool of this client".to_owned())))?;
    Ok(Report {
        events: u64::from(size.events) * 2,
        seconds: begin.elapsed().as_secs_f64(),
        latencies: latencies.to_pairs(),
    })
}

async fn write_and_read(client: &Client, count: u32, latencies: &mut Latencies) -> Result<()> {
    let names = Names::new(client.caller.clone(), 0);
    let name = format!("object-{}", client.number).into_bytes();
    for write in 0..count {
        let answer = names.write(&name, &block(client.number, write))?.await?;
        latencies.add(answer.nanoseconds);
    }
    let last = block(client.number, count.saturating_sub(1));
    for _ in 0..count {
        let (reply, place) = names.read(&name, BLOCK_BYTES as u64)?.into_parts();
        let answer = reply.await?;
        latencies.add(answer.nanoseconds);
        let bytes = usize::try_from(object::count(&answer)?).unwrap_or(usize::MAX);
        if place.read(bytes)? != last {
            return Err(Error::Message("other bytes were read than written"));
        }
    }
    Ok(())
}

fn block(client: u32, write: u32) -> Vec<u8> {
    let mark = [client.to_le_bytes(), write.to_le_bytes()].concat();
    mark.into_iter().cycle().take(BLOCK_BYTES).collect()
}

//! A middleware that decides by live facts: it picks the device with the shortest queue, and publishes
//! the number of its decisions.
//!
//! ```text
//! cargo run -p skopos-shm --example middleware
//! ```
//!
//! If an agent runs on this machine (`skopos up`), the example reads the agent's facts. Otherwise it
//! publishes a few facts itself, in a directory that it removes at the end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use skopos_model::{Kind, Timestamp, Topic, TopicPattern, Unit, ValueType};
use skopos_shm::{Delivery, Error, Host, Publisher, Vertex, VertexSpec, VertexWriter};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A host is everything that is published on this machine: by programs of this user and by the
    // system's agent. Opening maps the segments; it copies nothing and asks no daemon.
    let mut host = Host::open()?;
    let queues: TopicPattern = "*/block/*/in_flight".parse()?;

    let stand_in = if host.select(&queues).is_empty() {
        println!("no agent runs here: a stand-in publishes instead\n");
        let stand_in = StandIn::start()?;
        host = Host::open_dirs(vec![stand_in.dir.clone()])?;
        Some(stand_in)
    } else {
        None
    };

    println!("some of the topics:");
    for vertex in host.select(&"**".parse()?).iter().take(5) {
        let info = vertex.info();
        println!("  {:<40} {} {} {}", info.topic, info.kind, info.value_type, info.unit);
    }

    // Look up once, read often: a vertex is a handle on memory, valid until it is unregistered.
    let devices = host.select(&queues);
    decide(&devices)?;
    history(&devices[0])?;
    publish_own_facts(&host, stand_in.as_ref().map(|s| s.dir.as_path()))?;
    if let Some(stand_in) = &stand_in {
        follow(&devices[0], stand_in)?;
    }
    Ok(())
}

/// Picks a device by the latest values. Each costs a few loads from memory, cheap enough for every decision.
fn decide(devices: &[Vertex]) -> Result<(), Error> {
    let mut best: Option<(&Topic, f64)> = None;
    for device in devices {
        let reading = match device.latest() {
            Ok(reading) => reading,
            // Registered but not measured yet, or unplugged since the lookup.
            Err(Error::Empty(_) | Error::Gone(_)) => continue,
            Err(e) => return Err(e),
        };
        // A value may be unchanged for an hour and still be fresh: `age` is the time since the last poll
        // of its source. Stale facts must not decide.
        if reading.age() > Duration::from_secs(60) {
            continue;
        }
        let depth = reading.as_f64().unwrap_or(f64::INFINITY);
        if best.is_none_or(|(_, shortest)| depth < shortest) {
            best = Some((device.topic(), depth));
        }
    }
    match best {
        Some((topic, depth)) => println!("\nshortest queue: {topic} with {depth}"),
        None => println!("\nno device has a fresh value"),
    }
    Ok(())
}

/// Prints the last changes of a device. The ring keeps the newest; older ones are in the history on disk.
fn history(device: &Vertex) -> Result<(), Error> {
    let now = skopos_shm::now();
    let minute = device.range(now.saturating_sub(Duration::from_secs(60))..=now)?;
    let reach = if minute.complete { "all of them" } else { "as far as memory reaches back" };
    println!(
        "\n{} changes of {} in the last minute, {reach}",
        minute.samples.len(),
        device.topic()
    );
    for sample in minute.samples.iter().rev().take(3) {
        println!("  {} {}", sample.time, sample.value);
    }
    // The value that held at a given time.
    let before = now.saturating_sub(Duration::from_secs(1));
    match device.as_of(before) {
        Ok(Some(sample)) => println!("  a second ago it was {}", sample.value),
        Ok(None) => println!("  a second ago it had no value"),
        Err(Error::TooOld { .. }) => println!("  a second ago is out of memory's reach"),
        Err(e) => return Err(e),
    }
    Ok(())
}

/// Publishes facts of this program: they are vertices like all others, for every reader on this machine.
fn publish_own_facts(host: &Host, dir: Option<&Path>) -> Result<(), Error> {
    // One segment for each program. If a living program holds the name, the error has its process id.
    let mut builder = Publisher::builder(&format!("middleware-{}", std::process::id()));
    if let Some(dir) = dir {
        builder = builder.dir(dir);
    }
    let publisher = builder.create()?;

    // Register vertices when they are needed, and unregister them when they are not.
    let topic: Topic = "n01/middleware/placements_total".parse()?;
    let spec = VertexSpec::new(topic.clone(), ValueType::U64).kind(Kind::Counter);
    let placements: VertexWriter = publisher.register(spec)?;
    for count in 1..=3u64 {
        placements.publish(count)?;
    }

    let mut host_again = Host::open_dirs(match dir {
        Some(dir) => vec![dir.to_owned()],
        None => skopos_shm::search_path(),
    })?;
    let reader = host_again.find(&topic)?;
    println!("\nother programs read {} = {}", topic, reader.latest()?.sample.value);

    publisher.unregister(&placements);
    host_again.refresh()?;
    let gone = matches!(reader.latest(), Err(Error::Gone(_)));
    println!(
        "unregistered: its readers get an error ({gone}), {} segments stay",
        host.segments().len()
    );
    Ok(())
}

/// Prints each change as it happens: sleeps in the kernel until the publish wakes this thread.
fn follow(device: &Vertex, stand_in: &StandIn) -> Result<(), Error> {
    println!("\nfollowing {}:", device.topic());
    let mut changes = device.subscribe();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for depth in [7u64, 7, 8] {
                std::thread::sleep(Duration::from_millis(50));
                // An unchanged value is not stored, and wakes no reader.
                let _ = stand_in.devices[0].publish(depth);
            }
        });
        while let Some(delivery) = changes.next_timeout(Duration::from_millis(500))? {
            match delivery {
                Delivery::Sample(sample) => println!("  {} {}", sample.time, sample.value),
                // This reader was too slow for the ring.
                Delivery::Lost(count) => println!("  {count} changes were missed"),
            }
        }
        println!("  nothing for half a second: done");
        Ok(())
    })
}

/// A publisher of the facts of an agent, in its own directory.
struct StandIn {
    dir: PathBuf,
    devices: Vec<VertexWriter>,
    /// Dropping it closes the segment and removes its files.
    _publisher: Publisher,
}

impl StandIn {
    fn start() -> Result<Self, Error> {
        let dir = std::env::temp_dir().join(format!("skopos-example-{}", std::process::id()));
        let publisher = Publisher::builder("stand-in").dir(&dir).node("n01").create()?;
        let mut devices = Vec::new();
        for (device, depths) in [("nvme0n1", [4u64, 2, 3]), ("nvme1n1", [1, 9, 1])] {
            let topic: Topic = format!("n01/block/{device}/in_flight").parse()?;
            let spec = VertexSpec::new(topic, ValueType::U64).unit(Unit::NONE);
            let writer = publisher.register(spec)?;
            let now = skopos_shm::now();
            for (n, depth) in depths.into_iter().enumerate() {
                let ago = Duration::from_secs(3 * (3 - n as u64));
                let time: Timestamp = now.saturating_sub(ago);
                writer.publish_at(time, depth)?;
            }
            devices.push(writer);
        }
        Ok(Self { dir, devices, _publisher: publisher })
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        // The publisher, a field, is dropped after this; its segment is removed with the directory.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

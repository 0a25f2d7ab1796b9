//! Replays the recording of a real host.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};

use skopos_model::{Kind, Unit};

use crate::judged::{Judged, Tally};

/// Seconds that are learned from before reports count.
const WARM_UP: i64 = 300;

/// Prints the reports about a recording.
pub(crate) fn replay(file: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut metrics: Vec<(String, Kind, Unit)> = Vec::new();
    let mut seconds: BTreeMap<i64, Vec<(usize, f64)>> = BTreeMap::new();
    for line in BufReader::new(File::open(file)?).lines() {
        let line = line?;
        let [second, topic, kind, unit, value] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(format!("`{line}` does not have five columns").into());
        };
        let place = *places.entry(topic.to_owned()).or_insert_with(|| {
            let kind = if kind == "counter" { Kind::Counter } else { Kind::Gauge };
            metrics.push((topic.to_owned(), kind, Unit::new(unit).unwrap_or(Unit::NONE)));
            metrics.len() - 1
        });
        seconds.entry(second.parse()?).or_default().push((place, value.parse()?));
    }
    let first = seconds.keys().next().copied().unwrap_or(0);
    let mut judged = Judged::new(&metrics)?;
    let mut tally = Tally::new(0);
    let mut values = vec![f64::NAN; metrics.len()];
    for (second, polled) in &seconds {
        values.fill(f64::NAN);
        polled.iter().for_each(|(place, value)| values[*place] = *value);
        judged.tick(*second, &values, &[], *second >= first + WARM_UP, &mut tally)?;
    }
    println!("{} metrics, {} seconds", metrics.len(), seconds.len());
    println!("reports with a new anomaly: {}", tally.false_reports);
    for (name, times) in &tally.false_names {
        println!("    {times} x {name}");
    }
    tally.print_bytes("of the recording");
    Ok(())
}

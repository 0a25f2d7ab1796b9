//! The list of series in a part's metadata. Its layout is that of `seal`.

use skopos_model::{Timestamp, Topic, Unit};

use super::block::Stretch;
use super::series::Series;

/// The key of the list in a part's metadata.
pub(super) const KEY: &str = "skopos.series";

/// Writes the list: a line for each series.
pub(super) fn write(stretches: &[Stretch]) -> String {
    stretches.iter().map(line).collect()
}

fn line(stretch: &Stretch) -> String {
    let Stretch { series, rows, first, last, .. } = stretch;
    format!(
        "{}\t{}\t{}\t{}\t{}\t{rows}\t{}\t{}\n",
        series.topic,
        series.unit.as_str(),
        series.kind.name(),
        series.value_type.name(),
        series.since.as_nanos(),
        first.as_nanos(),
        last.as_nanos()
    )
}

/// Reads the list; `None` if it is damaged.
pub(super) fn read(lines: &str) -> Option<Vec<Stretch>> {
    let mut start = 0;
    let mut stretches = Vec::new();
    for line in lines.lines() {
        let mut words = line.split('\t');
        let mut word = || words.next();
        let series = Series {
            topic: Topic::new(word()?).ok()?,
            unit: Unit::new(word()?).ok()?,
            kind: word()?.parse().ok()?,
            value_type: word()?.parse().ok()?,
            since: Timestamp::from_nanos(word()?.parse().ok()?),
        };
        let rows: u64 = word()?.parse().ok()?;
        let mut time = || Some(Timestamp::from_nanos(word()?.parse().ok()?));
        let (first, last) = (time()?, time()?);
        stretches.push(Stretch { series, start, rows, first, last });
        start = start.checked_add(rows)?;
    }
    Some(stretches)
}

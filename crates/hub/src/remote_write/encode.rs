//! Encodes remote write requests: protocol buffers, compressed with Snappy.

use std::sync::Arc;

use prost::Message as _;

use crate::prometheus::Series;

/// One sample of one series.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// The series.
    pub series: Arc<Series>,
    /// The value.
    pub value: f64,
    /// Time in milliseconds since 1970.
    pub time: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

/// Returns the body of a request with these samples.
pub(super) fn encode(entries: &[Entry]) -> Result<Vec<u8>, snap::Error> {
    let timeseries = entries.iter().map(series).collect();
    snap::raw::Encoder::new().compress_vec(&WriteRequest { timeseries }.encode_to_vec())
}

fn series(entry: &Entry) -> TimeSeries {
    let label = |name: &str, value: &str| Label { name: name.to_owned(), value: value.to_owned() };
    // The specification requires sorted labels, and `__name__` sorts before names that begin with a letter.
    let mut labels = vec![label("__name__", &entry.series.name)];
    labels.extend(entry.series.labels.iter().map(|(name, value)| label(name, value)));
    TimeSeries { labels, samples: vec![Sample { value: entry.value, timestamp: entry.time }] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_bytes_of_the_specification() {
        let topic = "n01/block/vda/in_flight".parse().expect("a topic");
        let series = Arc::new(Series::of(&topic));
        let bytes = encode(&[Entry { series, value: 1.5, time: 7 }]).expect("encoded");
        let bytes =
            snap::raw::Decoder::new().decompress_vec(&bytes).expect("Snappy's block format");
        let label = |name: &str, value: &str| {
            let mut of = vec![0x0a, name.len() as u8];
            of.extend(name.bytes());
            of.extend([0x12, value.len() as u8]);
            of.extend(value.bytes());
            let mut field = vec![0x0a, of.len() as u8];
            field.extend(of);
            field
        };
        let mut inner = label("__name__", "skopos_block_in_flight");
        inner.extend(label("instance", "vda"));
        inner.extend(label("node", "n01"));
        inner.extend([0x12, 11, 0x09]);
        inner.extend(1.5f64.to_le_bytes());
        inner.extend([0x10, 7]);
        let mut expected = vec![0x0a, inner.len() as u8];
        expected.extend(inner);
        assert_eq!(bytes, expected);
    }
}

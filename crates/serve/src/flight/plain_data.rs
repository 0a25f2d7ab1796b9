//! The forms of Arrow data that are refused before they are read.

use arrow_flight::FlightData;
use skopos_query::arrow::ipc::root_as_message;

/// Returns the reason to refuse a message of values or records. A message with compressed buffers says itself how much memory its
/// reader should take, up to 2^63 bytes. A dictionary may grow with each message, and small messages need none.
pub(super) fn refusal(data: &FlightData) -> Option<&'static str> {
    let message = root_as_message(&data.data_header).ok()?;
    if message.header_as_dictionary_batch().is_some() {
        return Some("the data have a dictionary; send them plain");
    }
    let is_compressed = message.header_as_record_batch()?.compression().is_some();
    is_compressed.then_some("the data are compressed; send them plain")
}

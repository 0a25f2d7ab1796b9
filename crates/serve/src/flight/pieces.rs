//! Messages in pieces: a message of Flight has at most a megabyte, and one between two hubs has the longest record.
//!
//! # Layout
//! The `app_metadata` of a piece is one byte: 1 if it is the last of its message, else 0. The `data_body` has the bytes.

use arrow_flight::FlightData;

use skopos_hub::jobs::replica::{MAX_MESSAGE_BYTES, Message};

/// The most bytes of a piece.
const PIECE_BYTES: usize = 512 << 10;

/// Returns a message in pieces.
pub(super) fn cut(message: &Message) -> Vec<FlightData> {
    let bytes = message.encode();
    let count = bytes.len().div_ceil(PIECE_BYTES);
    let piece = |(at, bytes): (usize, &[u8])| {
        let is_last = u8::from(at + 1 == count);
        FlightData {
            app_metadata: vec![is_last].into(),
            data_body: bytes.to_vec().into(),
            ..FlightData::default()
        }
    };
    bytes.chunks(PIECE_BYTES).enumerate().map(piece).collect()
}

/// Puts messages together.
#[derive(Debug, Default)]
pub(super) struct Pieces(Vec<u8>);

impl Pieces {
    /// Takes a piece. Returns the message with its length if it is whole.
    ///
    /// # Errors
    /// The message is too long, or is not valid.
    pub(super) fn add(
        &mut self,
        data: &FlightData,
    ) -> Result<Option<(Message, usize)>, &'static str> {
        if self.0.len() + data.data_body.len() > MAX_MESSAGE_BYTES {
            return Err("the message is too long");
        }
        self.0.extend_from_slice(&data.data_body);
        match data.app_metadata[..] {
            [0] => Ok(None),
            [1] => {
                let bytes = std::mem::take(&mut self.0);
                let message = Message::decode(&bytes).ok_or("the message is not valid")?;
                Ok(Some((message, bytes.len())))
            }
            _ => Err("the message is not one between hubs"),
        }
    }
}

#[cfg(test)]
mod tests {
    use skopos_hub::jobs::replica::LogPlace;

    use super::*;

    #[test]
    fn a_long_message_arrives_in_pieces_and_one_without_end_is_refused() {
        for length in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, 3 * PIECE_BYTES] {
            let message = Message::Records { end: LogPlace::default(), records: vec![7; length] };
            let mut pieces = Pieces::default();
            let all = cut(&message);
            let found: Vec<Message> = all
                .iter()
                .filter_map(|piece| pieces.add(piece).expect("valid"))
                .map(|(message, _)| message)
                .collect();
            assert_eq!(found, [message]);
        }
        let mut pieces = Pieces::default();
        let endless = FlightData {
            app_metadata: vec![0].into(),
            data_body: vec![0; PIECE_BYTES].into(),
            ..FlightData::default()
        };
        let mut added = 0;
        while pieces.add(&endless).is_ok() {
            added += 1;
        }
        assert_eq!(added, MAX_MESSAGE_BYTES / PIECE_BYTES);
    }
}

use std::fmt;

use serde_json::Value as Json;

use crate::error::Error;
use crate::limits::{MAX_STRUCTURED_BYTES, MAX_STRUCTURED_DEPTH};

/// A small list, record or text, kept as JSON so that C and Python read it with their own libraries.
#[derive(Clone, Debug, PartialEq)]
pub struct Structured(Json);

impl Structured {
    /// Checks shape, depth and encoded length.
    ///
    /// # Errors
    /// [`Error::StructuredShape`] unless `json` is a list, record or text; [`Error::StructuredTooDeep`];
    /// [`Error::StructuredTooLong`].
    pub fn new(json: Json) -> Result<Self, Error> {
        if !matches!(json, Json::Array(_) | Json::Object(_) | Json::String(_)) {
            return Err(Error::StructuredShape(json.to_string()));
        }
        if depth_exceeds(&json, MAX_STRUCTURED_DEPTH) {
            return Err(Error::StructuredTooDeep);
        }
        let encoded = json.to_string().len();
        if encoded > MAX_STRUCTURED_BYTES {
            return Err(Error::StructuredTooLong(encoded));
        }
        Ok(Self(json))
    }

    /// Makes a text, cut at a character so that it fits.
    pub fn text(text: &str) -> Self {
        // Quotes and escapes take room too: a control character becomes six bytes.
        let mut end = text.len().min(MAX_STRUCTURED_BYTES / 6);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Self(Json::from(&text[..end]))
    }

    /// Reads JSON text. A text longer than [`MAX_STRUCTURED_BYTES`] is refused before it is parsed.
    ///
    /// # Errors
    /// [`Error::StructuredSyntax`], and the errors of [`Structured::new`].
    pub fn from_json(text: &str) -> Result<Self, Error> {
        if text.len() > MAX_STRUCTURED_BYTES {
            return Err(Error::StructuredTooLong(text.len()));
        }
        let json =
            serde_json::from_str(text).map_err(|e| Error::StructuredSyntax(e.to_string()))?;
        Self::new(json)
    }

    /// Returns the value as JSON.
    #[inline]
    pub fn as_json(&self) -> &Json {
        &self.0
    }
}

fn depth_exceeds(json: &Json, left: usize) -> bool {
    match json {
        Json::Array(items) => left == 0 || items.iter().any(|i| depth_exceeds(i, left - 1)),
        Json::Object(fields) => left == 0 || fields.values().any(|i| depth_exceeds(i, left - 1)),
        _ => false,
    }
}

/// Compact JSON: the text that a segment's byte ring keeps.
impl fmt::Display for Structured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

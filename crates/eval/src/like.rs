//! The patterns of SQL's `LIKE`.

use skopos_model::wildcard;

/// A pattern of `LIKE`: `%` stands for any characters, `_` for one character that is not `/`.
#[derive(Clone, Debug, PartialEq)]
pub struct Like(Vec<Piece>);

/// One piece of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// The character itself.
    Character(char),
    /// `_`: any one character but `/`, which separates the segments of a topic. Names of metrics have
    /// many underscores, and `available_bytes` must not match `available/bytes`.
    One,
    /// `%`: any number of characters, also zero, also `/`.
    Any,
}

impl Like {
    /// Reads a pattern. The character after `escape` stands for itself; `None` if `escape` comes last.
    pub fn new(text: &str, escape: Option<char>) -> Option<Self> {
        let mut pieces = Vec::new();
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            pieces.push(match character {
                _ if Some(character) == escape => Piece::Character(characters.next()?),
                '%' => Piece::Any,
                '_' => Piece::One,
                _ => Piece::Character(character),
            });
        }
        Some(Self(pieces))
    }

    /// Returns the pieces from left to right.
    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.0
    }

    /// Returns true if the whole of `text` matches. The work is bounded by the product of both lengths.
    pub fn matches(&self, text: &str) -> bool {
        let is_run = |piece: &&Piece| **piece == Piece::Any;
        wildcard::matches(self.0.iter(), text.chars(), is_run, |piece, character| match piece {
            Piece::Character(wanted) => wanted == character,
            Piece::One => *character != '/',
            Piece::Any => false,
        })
    }
}

//! `LIKE`: a text with `%` for any characters and `_` for one.

/// A pattern of `LIKE`: `%` for any characters, `_` for one that is not `/`.
#[derive(Clone, Debug, PartialEq)]
pub struct Like(Vec<Piece>);

/// One piece of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// This character.
    Character(char),
    /// `_`: any one character but `/`, which separates the segments of a topic. Metrics are full of
    /// underscores, and nobody who writes `available_bytes` means `available/bytes`.
    One,
    /// `%`: any characters, also none, also `/`.
    Any,
}

impl Like {
    /// Reads a pattern. After `escape` the next character stands for itself; `None` if none follows.
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

    /// The pieces, from left to right.
    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.0
    }

    /// Whether `text` is like it. The work is bounded by the product of both lengths.
    pub fn matches(&self, text: &str) -> bool {
        // The two-finger walk: on a mismatch, the last `%` takes one character more.
        let pieces = &self.0;
        let (mut at, mut rest) = (0, text);
        let mut back: Option<(usize, &str)> = None;
        while let Some(character) = rest.chars().next() {
            let after = &rest[character.len_utf8()..];
            let fits = match pieces.get(at) {
                Some(Piece::Any) => {
                    at += 1;
                    back = Some((at, rest));
                    continue;
                }
                Some(Piece::One) => character != '/',
                Some(Piece::Character(wanted)) => *wanted == character,
                None => false,
            };
            if fits {
                (at, rest) = (at + 1, after);
                continue;
            }
            let Some((piece, taken)) = back else { return false };
            let Some(first) = taken.chars().next() else { return false };
            let retry = &taken[first.len_utf8()..];
            back = Some((piece, retry));
            (at, rest) = (piece, retry);
        }
        pieces[at..].iter().all(|piece| *piece == Piece::Any)
    }
}

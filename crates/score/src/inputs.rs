use skopos_model::{Structured, Timestamp};

use crate::cell::Cell;
use crate::input::Input;
use crate::matched::Matched;
use crate::unknown::Unknown;

/// The current state of one input: the matching cells in the order of their topics, and the reason
/// if there are none.
#[derive(Clone, Debug)]
pub struct Slot<'a> {
    /// The declaration of the input.
    pub input: &'a Input,
    /// The matching cells.
    pub cells: Vec<&'a Cell>,
    /// The reason why no cell matches, if it is known: the reason for which the sensor was skipped.
    pub missing: Option<&'a str>,
}

/// All inputs of one insight, by their place in its list.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    now: Timestamp,
    source: Source<'a>,
}

/// The storage of the inputs. The graph keeps no list of references, so that a run allocates none.
#[derive(Clone, Copy, Debug)]
enum Source<'a> {
    Slots(&'a [Slot<'a>]),
    Graph { matched: &'a [Matched], cells: &'a [Cell] },
}

impl<'a> Inputs<'a> {
    /// Creates the inputs with their state at `now`.
    pub fn new(now: Timestamp, slots: &'a [Slot<'a>]) -> Self {
        Self { now, source: Source::Slots(slots) }
    }

    #[inline]
    pub(crate) fn of_graph(now: Timestamp, matched: &'a [Matched], cells: &'a [Cell]) -> Self {
        Self { now, source: Source::Graph { matched, cells } }
    }

    /// Returns the time of this run.
    #[inline]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns every cell of an input in the order of topics; no cell if the input does not exist.
    #[inline]
    pub fn all(&self, slot: usize) -> Cells<'a> {
        Cells(match self.source {
            Source::Slots(slots) => List::Slice(slots.get(slot).map_or(&[], |slot| &slot.cells)),
            Source::Graph { matched, cells } => {
                List::Table(matched.get(slot).map_or(&[], Matched::indexes), cells)
            }
        })
    }

    /// Returns the first cell of an input: the only cell of an input that stands for one topic.
    ///
    /// # Errors
    /// Fails with the reason if no cell matches.
    #[inline]
    pub fn first(&self, slot: usize) -> Result<&'a Cell, Unknown> {
        self.all(slot).first().ok_or_else(|| self.missing(slot))
    }

    /// Returns the number of the first cell. Fails as [`first`](Self::first) and [`Cell::number`]
    /// do.
    #[inline]
    pub fn number(&self, slot: usize) -> Result<f64, Unknown> {
        self.first(slot)?.number()
    }

    /// Returns the change per second of the first cell. Fails as [`first`](Self::first) and
    /// [`Cell::rate`] do.
    #[inline]
    pub fn rate(&self, slot: usize) -> Result<f64, Unknown> {
        self.first(slot)?.rate()
    }

    /// Returns the structured value of the first cell. Fails as [`first`](Self::first) and
    /// [`Cell::structured`] do.
    pub fn structured(&self, slot: usize) -> Result<&'a Structured, Unknown> {
        self.first(slot)?.structured()
    }

    /// Returns the reason why no cell matches an input, if it is known:
    /// `smart: skipped: no smartctl`.
    pub fn reason(&self, slot: usize) -> Option<&'a str> {
        match self.source {
            Source::Slots(slots) => slots.get(slot)?.missing,
            Source::Graph { matched, .. } => matched.get(slot)?.missing(),
        }
    }

    /// Returns the reason why an input has no cell:
    /// `no n01/smart/sda/passed: smart: skipped: no smartctl`.
    pub fn missing(&self, slot: usize) -> Unknown {
        let found = match self.source {
            Source::Slots(slots) => slots.get(slot).map(|slot| (slot.input, slot.missing)),
            Source::Graph { matched, .. } => {
                matched.get(slot).map(|slot| (slot.input(), slot.missing()))
            }
        };
        Unknown::new(match found {
            Some((input, Some(reason))) => format!("no {}: {reason}", input.pattern),
            Some((input, None)) => format!("no {}", input.pattern),
            None => format!("there is no input {slot}"),
        })
    }
}

/// The cells of one input.
#[derive(Clone, Copy, Debug)]
pub struct Cells<'a>(List<'a>);

#[derive(Clone, Copy, Debug)]
enum List<'a> {
    Slice(&'a [&'a Cell]),
    /// Indexes of the graph's table.
    Table(&'a [u32], &'a [Cell]),
}

impl<'a> Cells<'a> {
    /// Returns the number of cells.
    #[inline]
    pub fn len(&self) -> usize {
        match self.0 {
            List::Slice(cells) => cells.len(),
            List::Table(indexes, _) => indexes.len(),
        }
    }

    /// Returns true if there are no cells.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the cell at `place` in the order of topics.
    #[inline]
    pub fn get(&self, place: usize) -> Option<&'a Cell> {
        match self.0 {
            List::Slice(cells) => cells.get(place).copied(),
            List::Table(indexes, cells) => cells.get(*indexes.get(place)? as usize),
        }
    }

    /// Returns the cell with the first topic.
    #[inline]
    pub fn first(&self) -> Option<&'a Cell> {
        self.get(0)
    }

    /// Iterates over the cells in the order of topics.
    #[inline]
    pub fn iter(&self) -> CellsIter<'a> {
        CellsIter { cells: *self, next: 0 }
    }
}

impl<'a> IntoIterator for Cells<'a> {
    type Item = &'a Cell;
    type IntoIter = CellsIter<'a>;

    #[inline]
    fn into_iter(self) -> CellsIter<'a> {
        self.iter()
    }
}

/// An iterator over the cells of one input.
#[derive(Clone, Debug)]
pub struct CellsIter<'a> {
    cells: Cells<'a>,
    next: usize,
}

impl<'a> Iterator for CellsIter<'a> {
    type Item = &'a Cell;

    #[inline]
    fn next(&mut self) -> Option<&'a Cell> {
        let cell = self.cells.get(self.next)?;
        self.next += 1;
        Some(cell)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.cells.len() - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for CellsIter<'_> {}

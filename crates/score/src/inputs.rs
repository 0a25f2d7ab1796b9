use skopos_model::{Structured, Timestamp, Unit};

use crate::graph::Matched;
use crate::{Cell, Unknown};

/// What an insight is computed from: a name in its formula, and the topics that stand for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Its name in the formula.
    pub name: String,
    /// Which topics: a pattern of `skopos_model::TopicPattern`, the node included.
    pub pattern: String,
    /// The unit that all of them must have; `None` if any will do.
    pub unit: Option<Unit>,
    /// True if there is no outcome without it; its age is then the insight's age.
    pub needed: bool,
}

/// One input as it stands: the cells that match, in the order of their topics, and what to say if
/// there are none.
#[derive(Clone, Debug)]
pub struct Slot<'a> {
    /// What was asked for.
    pub input: &'a Input,
    /// What there is.
    pub cells: Vec<&'a Cell>,
    /// Why there is nothing, if that is known: the reason for which the sensor was skipped.
    pub missing: Option<&'a str>,
}

/// All inputs of one insight, by their place in its list.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    now: Timestamp,
    source: Source<'a>,
}

/// Where the inputs lie. The graph keeps no list of references, so that a run makes none.
#[derive(Clone, Copy, Debug)]
enum Source<'a> {
    Slots(&'a [Slot<'a>]),
    Graph { matched: &'a [Matched], cells: &'a [Cell] },
}

impl<'a> Inputs<'a> {
    /// The inputs as they stand at `now`.
    pub fn new(now: Timestamp, slots: &'a [Slot<'a>]) -> Self {
        Self { now, source: Source::Slots(slots) }
    }

    pub(crate) fn of_graph(now: Timestamp, matched: &'a [Matched], cells: &'a [Cell]) -> Self {
        Self { now, source: Source::Graph { matched, cells } }
    }

    /// The time of this run.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Every cell of an input, in the order of their topics; none of an input that there is not.
    pub fn all(&self, slot: usize) -> Cells<'a> {
        Cells(match self.source {
            Source::Slots(slots) => List::Slice(slots.get(slot).map_or(&[], |slot| &slot.cells)),
            Source::Graph { matched, cells } => {
                List::Table(matched.get(slot).map_or(&[], Matched::indexes), cells)
            }
        })
    }

    /// The first cell of an input that stands for one topic.
    ///
    /// # Errors
    /// There is none, and why.
    pub fn one(&self, slot: usize) -> Result<&'a Cell, Unknown> {
        self.all(slot).first().ok_or_else(|| self.missing(slot))
    }

    /// Its number. Errors as [`one`](Self::one) and [`Cell::number`].
    pub fn number(&self, slot: usize) -> Result<f64, Unknown> {
        self.one(slot)?.number()
    }

    /// Its change per second. Errors as [`one`](Self::one) and [`Cell::rate`].
    pub fn rate(&self, slot: usize) -> Result<f64, Unknown> {
        self.one(slot)?.rate()
    }

    /// Its structured value. Errors as [`one`](Self::one) and [`Cell::structured`].
    pub fn structured(&self, slot: usize) -> Result<&'a Structured, Unknown> {
        self.one(slot)?.structured()
    }

    /// Why there is nothing for an input, if that is known: `smart: skipped: no smartctl`.
    pub fn reason(&self, slot: usize) -> Option<&'a str> {
        match self.source {
            Source::Slots(slots) => slots.get(slot)?.missing,
            Source::Graph { matched, .. } => matched.get(slot)?.missing(),
        }
    }

    /// Why an input has no cell: `no n01/smart/sda/passed: smart: skipped: no smartctl`.
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
    /// Places in the graph's table.
    Table(&'a [u32], &'a [Cell]),
}

impl<'a> Cells<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self.0 {
            List::Slice(cells) => cells.len(),
            List::Table(indexes, _) => indexes.len(),
        }
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The one at `place` in the order of topics.
    pub fn get(&self, place: usize) -> Option<&'a Cell> {
        match self.0 {
            List::Slice(cells) => cells.get(place).copied(),
            List::Table(indexes, cells) => cells.get(*indexes.get(place)? as usize),
        }
    }

    /// The one whose topic is the first.
    pub fn first(&self) -> Option<&'a Cell> {
        self.get(0)
    }

    /// One after the other.
    pub fn iter(&self) -> CellsIter<'a> {
        CellsIter { cells: *self, next: 0 }
    }
}

impl<'a> IntoIterator for Cells<'a> {
    type Item = &'a Cell;
    type IntoIter = CellsIter<'a>;

    fn into_iter(self) -> CellsIter<'a> {
        self.iter()
    }
}

/// Iterator over the cells of one input.
#[derive(Clone, Debug)]
pub struct CellsIter<'a> {
    cells: Cells<'a>,
    next: usize,
}

impl<'a> Iterator for CellsIter<'a> {
    type Item = &'a Cell;

    fn next(&mut self) -> Option<&'a Cell> {
        let cell = self.cells.get(self.next)?;
        self.next += 1;
        Some(cell)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.cells.len() - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for CellsIter<'_> {}

//! Incremental aggregates: each row has a contribution to each aggregate, and a change of one contribution
//! updates the aggregate without reading other rows.

mod exact;
mod tournament;
mod sorted;

use crate::expression::{Fault, Leaves};
use crate::program::{self, Function};
pub use exact::Exact;
use sorted::Sorted;
use tournament::Tournament;

/// The contribution of a row to an aggregate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Contribution {
    /// The row does not count: it is not selected or has no value.
    Nothing,
    /// A finite number.
    Number(f64),
    /// The row counts but its expression has a fault, so the aggregate has no value either.
    Fault(Fault),
}

impl Contribution {
    #[inline]
    fn number(self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(number),
            _ => None,
        }
    }
}

/// Computes the contribution of a row to an aggregate.
#[inline]
pub(crate) fn contribution(
    selected: bool,
    aggregate: &program::Aggregate,
    leaves: &impl Leaves,
) -> Contribution {
    if !selected || aggregate.filter.truth(leaves) != Some(true) {
        return Contribution::Nothing;
    }
    match aggregate.argument.value(leaves) {
        // Makes minus zero plus zero, because the two differ in order and in bits.
        Ok(number) => Contribution::Number(number + 0.0),
        Err(Fault::Null) => Contribution::Nothing,
        Err(fault) => Contribution::Fault(fault),
    }
}

/// The source of the values of aggregates.
pub(crate) trait Aggregated {
    fn aggregate(&self, at: usize) -> Result<f64, Fault>;
}

/// An aggregate over all rows, each in a slot.
#[derive(Clone, Debug)]
pub(crate) struct Aggregate {
    contributions: Vec<Contribution>,
    /// Number of rows that contribute a number.
    count: u32,
    /// Number of rows that contribute a fault.
    faults: u32,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// Needs only the number of rows.
    Count,
    /// Boxed, because half a kilobyte is large beside the other variants.
    Sum(Box<Exact>),
    Average(Box<Exact>),
    Least(Tournament),
    /// The numbers are negated, so that the greatest is the least.
    Greatest(Tournament),
    Quantile(Sorted, f64),
    /// The exclusive or of the bits of all numbers: with a single number left, this is that number.
    Only(u64),
    /// The window computes it, because it depends on the order of rows.
    Elsewhere,
}

impl Aggregate {
    /// Makes an aggregate without rows.
    pub(crate) fn new(function: Function) -> Self {
        let state = match function {
            Function::Count => State::Count,
            Function::Sum => State::Sum(Box::new(Exact::new())),
            Function::Avg => State::Average(Box::new(Exact::new())),
            Function::Min => State::Least(Tournament::default()),
            Function::Max => State::Greatest(Tournament::default()),
            Function::Quantile(q) => State::Quantile(Sorted::default(), q),
            Function::Only => State::Only(0),
            Function::First | Function::Last | Function::Rate | Function::Ema(_) => {
                State::Elsewhere
            }
        };
        Self { contributions: Vec::new(), count: 0, faults: 0, state }
    }

    /// Makes room for `slots` rows.
    pub(crate) fn grow(&mut self, slots: usize) {
        self.contributions.resize(slots.max(self.contributions.len()), Contribution::Nothing);
        match &mut self.state {
            State::Least(tree) | State::Greatest(tree) => tree.grow(slots),
            State::Quantile(sorted, _) => sorted.grow(slots),
            _ => {}
        }
    }

    /// Sets the contribution of the row in `slot`.
    #[inline]
    pub(crate) fn set(&mut self, slot: usize, new: Contribution) {
        let old = std::mem::replace(&mut self.contributions[slot], new);
        if old == new {
            return;
        }
        self.faults -= u32::from(matches!(old, Contribution::Fault(_)));
        self.faults += u32::from(matches!(new, Contribution::Fault(_)));
        let (old, new) = (old.number(), new.number());
        self.count -= u32::from(old.is_some());
        self.count += u32::from(new.is_some());
        match &mut self.state {
            State::Count | State::Elsewhere => {}
            State::Sum(sum) | State::Average(sum) => {
                old.inspect(|&number| sum.take(number));
                new.inspect(|&number| sum.add(number));
            }
            State::Least(tree) => tree.set(slot, new.unwrap_or(f64::NAN)),
            State::Greatest(tree) => tree.set(slot, new.map_or(f64::NAN, |number| -number)),
            State::Quantile(sorted, _) => sorted.replace(old, new),
            State::Only(bits) => {
                *bits ^= old.map_or(0, f64::to_bits) ^ new.map_or(0, f64::to_bits);
            }
        }
    }

    /// Returns the number of rows that contribute a number.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Returns a row whose expression has a fault, with the fault.
    pub(crate) fn fault(&self) -> Option<(usize, Fault)> {
        if self.faults == 0 {
            return None;
        }
        self.contributions.iter().enumerate().find_map(|(slot, contribution)| match contribution {
            Contribution::Fault(fault) => Some((slot, *fault)),
            _ => None,
        })
    }

    /// Returns the value.
    ///
    /// # Errors
    /// A fault of a row, no rows, several rows where one is needed, or a result that is not finite.
    pub(crate) fn value(&self) -> Result<f64, Fault> {
        if self.faults > 0 {
            return Err(Fault::Row);
        }
        let value = match &self.state {
            State::Count => return Ok(f64::from(self.count)),
            _ if self.count == 0 => return Err(Fault::Null),
            State::Sum(sum) => sum.value(),
            State::Average(sum) => sum.value() / f64::from(self.count),
            State::Least(tree) => tree.least(),
            State::Greatest(tree) => -tree.least(),
            State::Quantile(sorted, q) => sorted.quantile(*q).ok_or(Fault::Null)?,
            State::Only(_) if self.count > 1 => return Err(Fault::Several),
            State::Only(bits) => f64::from_bits(*bits),
            State::Elsewhere => return Err(Fault::Null),
        };
        if value.is_finite() { Ok(value) } else { Err(Fault::TooLarge) }
    }
}

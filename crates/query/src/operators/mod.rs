//! Operators that need all rows of their inputs before they return the first: the `ASOF` join and gap
//! filling.
//!
//! SQL with these operators becomes standard SQL with a placeholder function
//! (`functions::placeholders`). Once types are settled, `rule` replaces each placeholder by an
//! [`OperatorNode`](node::OperatorNode), which `exec` runs. A placeholder in a place where it has no
//! meaning fails when it is executed, and says where it belongs.

mod node;
mod asof;
mod gapfill;
mod rule;
mod exec;

pub(crate) use exec::Planner;
pub(crate) use rule::PlaceOperators;

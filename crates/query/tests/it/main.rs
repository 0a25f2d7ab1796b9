//! The engine over a small world in memory.

mod answers;
mod point;
mod prepared;
mod world;

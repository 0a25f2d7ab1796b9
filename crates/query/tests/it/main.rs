//! The engine over a small world in memory.

mod answers;
mod damaged;
mod functions;
mod history;
mod inputs;
mod point;
mod prepared;
mod registry;
mod runs;
mod standing;
mod world;

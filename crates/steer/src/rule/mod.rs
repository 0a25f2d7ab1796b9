//! Rules: a condition selects subjects, and this module decides when an action is due for each of them.
//!
//! A caller evaluates the condition and hands the rows to [`Tracker::step`], each row a subject. The tracker returns the
//! [`Event`]s of this step, and says of each whether its action is due. The caller reports the outcome of an action by
//! [`Tracker::note_outcome`]; an action that failed is due again.
//!
//! ```text
//! quiet ──row──▶ pending ──rows for `hold`──▶ firing ──no row for `keep`──▶ quiet
//!                   └────no row────▶ quiet
//! ```
//!
//! # Invariants
//! - There is no clock, file or thread: times come in. Durations are measured by a clock that is never set; events have UNIX
//!   time.
//! - An evaluation that failed changes no subject: what is not known neither fires nor resolves.
//! - In each period at most [`Terms::most`] actions are due for subjects that fire, flap or still fire, and for what is tried
//!   again. Each of them adds at most one for its end, and one when a subject that flapped is steady. An action that the limit
//!   held back comes later if the subject still fires.
//! - An action that failed is due again after a pause, as long as its subject fires, and an end for a day, also if its subject
//!   fired again meanwhile without an action.
//! - Each event whose action is not due has the reason.
//! - The number of subjects is bounded. Each that is evicted or resolved early for this is counted.
//!
//! Read in this order: [`Moment`], [`Terms`], [`Event`], `subject`, [`Tracker`].

mod moment;
mod terms;
mod event;
mod subject;
mod tracker;

pub use event::{Due, Event, Kind, Row};
pub use moment::Moment;
pub use terms::{MAX_DURATION, MAX_MOST, Terms};
pub use tracker::{FLAP_CHANGES, FLAP_WINDOW, MAX_ABSENT, MAX_QUIET, MAX_SUBJECTS, Tracker};

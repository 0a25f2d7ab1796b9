//! The properties that every catalogue has: one suite for all databases.
//!
//! Each function takes a function that opens an empty catalogue, and panics where the catalogue is wrong. The suite is
//! compiled always, and left out of programs by the linker: a feature would compile each crate above this one twice.

mod common;
mod jobs;
mod changes;
mod questions;
mod pages;
mod upgrade;
mod usual;

pub use common::Open;
pub use jobs::{Jobs, entry};
pub use upgrade::{EARLIER_SEGMENTS, check_upgraded, earlier};
pub use usual::{DAY, NODES, USERS, usual_job};

/// Checks a catalogue. `seed` makes the jobs and questions.
pub fn check(open: Open<'_>, seed: u64) {
    changes::an_entry_replaces_those_of_its_job_that_do_not_have_more_parts(open);
    changes::a_change_that_is_refused_leaves_nothing(open);
    changes::a_change_made_again_changes_nothing(open, seed);
    changes::the_order_of_changes_does_not_show_in_a_dump(open, seed);
    changes::a_removed_job_is_gone_and_can_come_back(open);
    changes::segments_are_a_set_of_names(open);
    questions::every_question_is_answered_as_in_memory(open, seed);
    questions::a_job_that_is_not_visible_is_neither_found_nor_counted(open);
    questions::odd_texts_are_kept_and_found(open);
    questions::the_longest_names_are_kept_and_found(open, seed);
    questions::questions_out_of_bounds_are_refused(open);
    pages::pages_have_each_job_once_and_in_order(open, seed);
    pages::a_page_of_large_entries_is_short(open);
}

/// Checks several front ends of one database: each call of `open` opens the same catalogue, which is empty at first.
pub fn check_several(open: Open<'_>, seed: u64) {
    changes::front_ends_that_write_at_once_lose_nothing(open, seed);
}

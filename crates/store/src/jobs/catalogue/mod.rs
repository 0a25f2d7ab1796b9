//! The catalogue: an entry for each job, found by anything that users know about it.
//!
//! [`Catalogue`] is the trait; [`SqliteCatalogue`] is one in a file or in memory. What a catalogue in another database
//! shares with it is here, too: [`Stored`] has the columns of an entry, [`Statement`] the SQL of a filter in a
//! [`Dialect`].
//!
//! # Invariants
//! - A [`Change`] is there as a whole or not at all, and stays after a loss of power once `apply` has returned.
//! - Applying a change again changes nothing; an entry never replaces one that has more parts.
//! - A [`Filter`] has a [`Visibility`], which is a condition of the SQL: counts and pages do not tell of other jobs.
//! - No text of SQL has a value in it.
//! - Two catalogues with the same entries and segments have the same dump, whatever the order of their changes.
//!
//! Read in this order: `filter` and `page` for the questions, `contract` for the trait, `words` and `numbers`,
//! `stored`, `statement`, `sqlite`.

mod error;
mod words;
mod filter;
mod matches;
mod page;
mod numbers;
mod row;
mod stored;
mod contract;
mod statement;
mod sqlite;
#[doc(hidden)]
pub mod conformance;

pub use contract::{
    Applied, Catalogue, Change, JobKey, MAX_CHANGE, MAX_LOOKED_UP, MAX_SEGMENTS, check_looked_up,
};
pub use error::Error;
pub use filter::{Amount, Filter, FilterError, MAX_CONDITIONS, MAX_LED, ResourceRange, Visibility};
pub use numbers::Numbers;
pub use page::{Cursor, Key, MAX_PAGE, MAX_PAGE_BYTES, Order, Page, PageRequest, Sort};
pub use row::{Columns, JobRow};
pub use sqlite::SqliteCatalogue;
pub use statement::{Dialect, Statement, Value};
pub use stored::Stored;
pub use words::{MAX_WORD_BYTES, MAX_WORDS, Word, has_words, words_of};

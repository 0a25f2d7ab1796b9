//! Pages: a part of the jobs that pass a filter, in an order.

use serde::{Deserialize, Serialize};
use skopos_model::task::Resource;

use super::filter::FilterError;

/// The most jobs of one page.
pub const MAX_PAGE: usize = 1000;

/// The most bytes of the entries of one page: an entry has three kilobytes, and a hundred times as much if its job has
/// ten thousand nodes. A page has one entry at least.
pub const MAX_PAGE_BYTES: usize = 16 << 20;

/// The value by which jobs are sorted. Those with equal values stand in the order in which the catalogue got them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// The start.
    Started,
    /// The end; a job without one is after the others.
    Ended,
    /// The amount of a resource that the job used; a job of which it is not known is before the others.
    Used(&'static Resource),
}

/// An order of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The value.
    pub sort: Sort,
    /// True if the greatest value is first.
    pub is_descending: bool,
}

/// The latest jobs first.
impl Default for Order {
    fn default() -> Self {
        Self { sort: Sort::Started, is_descending: true }
    }
}

/// A place in an order. It belongs to one catalogue, filter and order.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cursor {
    /// The value of the last job.
    pub key: Key,
    /// The number of the last job in the catalogue.
    pub number: i64,
}

/// A value by which jobs are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Key {
    /// A time, in nanoseconds of UNIX time.
    Time(i64),
    /// An amount.
    Amount(f64),
}

/// A question for a page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageRequest {
    /// The order.
    pub order: Order,
    /// The end of the page before; `None` for the first page.
    pub after: Option<Cursor>,
    /// The most jobs; more than [`MAX_PAGE`] are not given.
    pub most: usize,
}

/// The latest jobs, as many as a page has.
impl Default for PageRequest {
    fn default() -> Self {
        Self { order: Order::default(), after: None, most: MAX_PAGE }
    }
}

/// A part of the jobs that pass a filter.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The jobs.
    pub items: Vec<T>,
    /// The place after the last of them; `None` if no job follows.
    pub next: Option<Cursor>,
}

impl PageRequest {
    /// Returns the number of jobs.
    pub(super) fn limit(&self) -> usize {
        self.most.clamp(1, MAX_PAGE)
    }

    /// Checks that the cursor belongs to the order.
    pub(super) fn check(&self) -> Result<(), FilterError> {
        let is_time = matches!(self.order.sort, Sort::Started | Sort::Ended);
        match self.after {
            Some(Cursor { key: Key::Time(_), .. }) if !is_time => Err(FilterError::Cursor),
            Some(Cursor { key: Key::Amount(_), .. }) if is_time => Err(FilterError::Cursor),
            _ => Ok(()),
        }
    }

    /// Makes a page of jobs in their order, each with its place and its bytes. Of the jobs, one more may be there than
    /// the page has.
    ///
    /// # Errors
    /// The first error among the jobs.
    pub fn page<T, E>(
        &self,
        jobs: impl IntoIterator<Item = Result<(Cursor, T, usize), E>>,
    ) -> Result<Page<T>, E> {
        let (mut items, mut next, mut bytes) = (Vec::new(), None, 0_usize);
        for job in jobs {
            let (cursor, item, size) = job?;
            bytes = bytes.saturating_add(size);
            let is_full = items.len() == self.limit() || bytes > MAX_PAGE_BYTES;
            if is_full && !items.is_empty() {
                return Ok(Page { items, next });
            }
            next = Some(cursor);
            items.push(item);
        }
        Ok(Page { items, next: None })
    }
}

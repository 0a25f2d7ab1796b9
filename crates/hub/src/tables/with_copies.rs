//! A table over the jobs of this hub, and over the copies of the jobs of hubs that are away.

use std::sync::Arc;

use skopos_query::{BoxError, Column, Fingerprint, Rows, Scan, Table};

use crate::jobs::JobsPlace;

/// A table of jobs whose rows are in no order.
#[derive(Debug)]
pub(super) struct WithCopies<T> {
    place: Arc<JobsPlace>,
    own: T,
    of: fn(Arc<JobsPlace>) -> T,
}

impl<T: Table> WithCopies<T> {
    /// Returns the table that `of` makes over a place.
    pub(super) fn new(place: Arc<JobsPlace>, of: fn(Arc<JobsPlace>) -> T) -> Self {
        Self { own: of(place.clone()), place, of }
    }
}

impl<T: Table> Table for WithCopies<T> {
    fn name(&self) -> &str {
        self.own.name()
    }

    fn help(&self) -> &str {
        self.own.help()
    }

    fn columns(&self) -> &[Column] {
        self.own.columns()
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        let mut rows = self.own.scan(scan)?;
        let copies = self.place.shown_copies()?;
        scan.lacks(copies.missing());
        for copy in copies.jobs {
            let table = (self.of)(Arc::new(JobsPlace::of(copy)));
            rows = rows.chain(table.scan(scan)?);
        }
        Ok(rows)
    }

    fn fingerprint(&self, scan: &Scan) -> Fingerprint {
        self.own.fingerprint(scan)
    }
}

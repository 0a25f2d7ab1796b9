use super::filter::FilterError;

/// Reasons for which a catalogue cannot do its work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file or database has something else.
    #[error("{0} is not a catalogue of jobs")]
    NotACatalogue(String),
    /// A later version of Skopos wrote the catalogue.
    #[error(
        "{place} has version {found} of the catalogue's format, and this program knows {known}; use the version of \
         Skopos that wrote it"
    )]
    Newer {
        /// The file or database.
        place: String,
        /// Version of its format.
        found: i64,
        /// Latest version that this program knows.
        known: i64,
    },
    /// The database would lose or change what it is given.
    #[error("{place} is not fit for a catalogue: {why}")]
    Unfit {
        /// The database.
        place: String,
        /// The reason, and what to change.
        why: String,
    },
    /// The question is out of bounds.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// A change, or a list of jobs that are looked up together, is too large.
    #[error("there are {count} {what} at once; at most {most} are allowed")]
    Large {
        /// Kind of the items.
        what: &'static str,
        /// Number of items.
        count: usize,
        /// The most.
        most: usize,
    },
    /// A stored entry cannot be read, or an entry cannot be stored.
    #[error("{place}: the entry of job {job} of {site} is not readable")]
    Entry {
        /// The file or database.
        place: String,
        /// The job.
        job: String,
        /// Its site.
        site: String,
        /// The error of the parser.
        #[source]
        source: serde_json::Error,
    },
    /// The dump cannot be written.
    #[error("the dump cannot be written")]
    Dump(#[source] std::io::Error),
    /// A stored value has another form than this program writes.
    #[error("{place}: `{value}` is not a valid {what}; make the catalogue again from the segments")]
    Damaged {
        /// The file or database.
        place: String,
        /// Kind of the value.
        what: &'static str,
        /// The value.
        value: String,
    },
    /// The database refused a statement.
    #[error("{place}: {doing}")]
    Database {
        /// The file or database.
        place: String,
        /// The action that failed.
        doing: &'static str,
        /// The error of the database.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// Returns the error of an action on a database.
    pub fn database(
        place: &str,
        doing: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Database { place: place.to_owned(), doing, source: source.into() }
    }
}

use std::collections::HashMap;

use skopos_store::jobs::catalogue::Error;
use tokio_postgres::{Client, Statement};

/// The most prepared statements of a connection: some tens of forms of questions, and those of changes.
const MAX_PREPARED: usize = 64;

/// A connection with its prepared statements.
pub(super) struct Connection {
    pub(super) place: String,
    pub(super) client: Client,
    prepared: HashMap<String, Statement>,
}

impl Connection {
    pub(super) fn new(place: &str, client: Client) -> Self {
        Self { place: place.to_owned(), client, prepared: HashMap::new() }
    }

    /// Returns a prepared statement.
    pub(super) async fn prepared(&mut self, sql: &str) -> Result<Statement, Error> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let prepared = self.client.prepare(sql).await;
        let statement =
            prepared.map_err(|e| Error::database(&self.place, "it cannot be asked", e))?;
        if self.prepared.len() == MAX_PREPARED {
            self.prepared.clear();
        }
        self.prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}

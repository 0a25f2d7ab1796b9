//! What users would ask instead, each with a server and files of its own.

use std::sync::Arc;

use super::duckdb::DuckDb;
use super::feed::Feed;
use super::load::Asked;
use super::prometheus::Kind;
use super::{Whom, duckdb, found, postgres, prometheus, redis_streams, sqlite};
use crate::scratch::Scratch;
use skopos_term::Failure;

/// All of them.
pub(super) struct Peers {
    pub(super) whom: Vec<Whom>,
    pub(super) feeds: Vec<(&'static str, Feed)>,
    pub(super) versions: Vec<(&'static str, String)>,
    /// For other questions than those.
    pub(super) duckdb: Result<Arc<DuckDb>, String>,
}

impl Peers {
    fn add<A: Asked + 'static>(&mut self, name: &'static str, begun: Result<(A, Feed), String>) {
        let asked = begun.map(|(asked, feed)| {
            self.feeds.push((name, feed));
            Box::new(asked) as Box<dyn Asked>
        });
        self.whom.push(Whom { name, asked });
    }
}

/// Starts what is installed.
pub(super) fn start(scratch: &Scratch) -> Result<Peers, Failure> {
    let begun = duckdb::start();
    let duckdb = begun.as_ref().map(|(duckdb, _)| duckdb.clone()).map_err(Clone::clone);
    let mut versions = vec![(found::SQLITE, sqlite::version().to_owned())];
    versions.extend(duckdb.as_ref().ok().map(|duckdb| (found::DUCKDB, duckdb.version.clone())));
    let mut peers = Peers { whom: Vec::new(), feeds: Vec::new(), versions, duckdb };
    peers.add(found::SQLITE, sqlite::start(&scratch.dir("sqlite")?));
    peers.add(found::DUCKDB, begun);
    peers.add(found::REDIS, redis_streams::start(&scratch.dir("redis")?));
    peers.add(found::POSTGRES, postgres::start(&scratch.dir("postgres")?));
    let scraper = |kind| Ok::<_, Failure>(prometheus::start(kind, &scratch.dir(kind.program())?));
    peers.add(found::PROMETHEUS, scraper(Kind::Prometheus)?);
    peers.add(found::VICTORIA, scraper(Kind::VictoriaMetrics)?);
    Ok(peers)
}

//! The peers, each with a server and files of its own.

use std::sync::Arc;

use super::duckdb::DuckDb;
use super::feed::Feed;
use super::load::Store;
use super::prometheus::Kind;
use super::target::Target;
use super::{duckdb, names, postgres, prometheus, redis_streams, sqlite};
use crate::scratch::Scratch;
use skopos_term::Failure;

/// All peers.
pub(super) struct Peers {
    pub(super) targets: Vec<Target>,
    pub(super) feeds: Vec<(&'static str, Feed)>,
    pub(super) versions: Vec<(&'static str, String)>,
    /// DuckDB again, for the queries over history.
    pub(super) duckdb: Result<Arc<DuckDb>, String>,
}

impl Peers {
    fn add<S: Store + 'static>(&mut self, name: &'static str, begun: Result<(S, Feed), String>) {
        let store = begun.map(|(store, feed)| {
            self.feeds.push((name, feed));
            Box::new(store) as Box<dyn Store>
        });
        self.targets.push(Target { name, store });
    }
}

/// Starts the peers that are installed.
pub(super) fn start(scratch: &Scratch) -> Result<Peers, Failure> {
    let begun = duckdb::start();
    let duckdb = begun.as_ref().map(|(duckdb, _)| duckdb.clone()).map_err(Clone::clone);
    let mut versions = vec![(names::SQLITE, sqlite::version().to_owned())];
    versions.extend(postgres::version().map(|version| (names::POSTGRES, version)));
    versions.extend(duckdb.as_ref().ok().map(|duckdb| (names::DUCKDB, duckdb.version.clone())));
    let mut peers = Peers { targets: Vec::new(), feeds: Vec::new(), versions, duckdb };
    peers.add(names::SQLITE, sqlite::start(&scratch.dir("sqlite")?));
    peers.add(names::DUCKDB, begun);
    peers.add(names::REDIS, redis_streams::start(&scratch.dir("redis")?));
    peers.add(names::POSTGRES, postgres::start(&scratch.dir("postgres")?));
    let scraper = |kind| Ok::<_, Failure>(prometheus::start(kind, &scratch.dir(kind.program())?));
    peers.add(names::PROMETHEUS, scraper(Kind::Prometheus)?);
    peers.add(names::VICTORIA, scraper(Kind::VictoriaMetrics)?);
    Ok(peers)
}

//! Redis: a stream for each topic, and the newest entry of each, in one round trip.

use std::path::{Path, PathBuf};

use redis::{Connection, Pipeline, Value};

use super::feed::{Feed, Row};
use super::load::{Client, Connects};
use super::question::Question;
use crate::score::redis_server::{Redis, connect, entry, xadd};

/// A private server.
pub(super) struct Streams {
    socket: PathBuf,
    _server: Redis,
}

/// Starts it with its files in `dir`.
pub(super) fn start(dir: &Path) -> Result<(Streams, Feed), String> {
    let server = Redis::start(dir);
    let socket = server.socket()?.to_path_buf();
    let mut connection = connect(&socket).map_err(|e| e.to_string())?;
    let feed = move |rows: &[Row]| write(&mut connection, rows).map_err(|e| e.to_string());
    Ok((Streams { socket, _server: server }, Box::new(feed)))
}

fn write(connection: &mut Connection, rows: &[Row]) -> redis::RedisResult<()> {
    let mut pipe = Pipeline::with_capacity(rows.len());
    for Row { topic, value, .. } in rows {
        pipe.add_command(xadd(topic, value.to_string().as_bytes())).ignore();
    }
    match rows {
        [] => Ok(()),
        _ => pipe.exec(connection),
    }
}

impl Connects for Streams {
    fn connect(&self, questions: &[Question]) -> Result<Client, String> {
        let mut connection = connect(&self.socket).map_err(|e| e.to_string())?;
        let pipes: Vec<Pipeline> = questions.iter().map(newest).collect();
        Ok(Box::new(move |question, values| {
            let answer: Vec<Value> =
                pipes[question].query(&mut connection).map_err(|e| e.to_string())?;
            let text = |entry| std::str::from_utf8(entry).ok()?.parse::<f64>().ok();
            values.extend(answer.iter().filter_map(|one| text(entry(one)?.1)));
            Ok(())
        }))
    }
}

fn newest(question: &Question) -> Pipeline {
    let mut pipe = Pipeline::with_capacity(question.topics.len());
    for topic in &question.topics {
        pipe.cmd("XREVRANGE").arg(topic).arg("+").arg("-").arg("COUNT").arg(1);
    }
    pipe
}

//! The hub's listeners, used as clients use them. The statement is the paper's, word for word.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use futures_util::TryStreamExt as _;
use serde_json::{Value, json};
use skopos_access::Caller;
use skopos_query::arrow::array::{Array as _, Float64Array, RecordBatch};

use skopos_query::{Answer, Engine, Limits};
use tokio::runtime::Builder;
use tonic::transport::{Channel, Endpoint};

use super::load::{Client, Connects};
use super::question::Question;
use skopos_hub::client::ask;
use skopos_hub::messages::socket_path;

/// The column of the values in an answer.
const VALUES: usize = 1;

/// The values of an answer; rows without a value are left out.
pub(super) fn values_of(answer: &Answer) -> Result<Vec<f64>, String> {
    let mut values = Vec::new();
    take_values(answer, &mut values)?;
    Ok(values)
}

fn take_values(answer: &Answer, values: &mut Vec<f64>) -> Result<(), String> {
    answer.batches.iter().try_for_each(|batch| take_batch(batch, values))
}

fn take_batch(batch: &RecordBatch, values: &mut Vec<f64>) -> Result<(), String> {
    let column = batch.columns().get(VALUES).and_then(|c| c.as_any().downcast_ref());
    let column: &Float64Array = column.ok_or("an answer without numbers")?;
    values.extend(column.iter().flatten());
    Ok(())
}

fn unions(questions: &[Question]) -> Vec<String> {
    questions.iter().map(Question::union).collect()
}

/// The engine in this process.
pub(super) struct InProcess(pub(super) Arc<Engine>);

impl Connects for InProcess {
    fn connect(&self, questions: &[Question]) -> Result<Client, String> {
        let (engine, statements) = (self.0.clone(), unions(questions));
        // The runtime of a program that is not async itself.
        let runtime = Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|e| e.to_string())?;
        let limits = Limits::default();
        Ok(Box::new(move |question, values| {
            let answer =
                runtime.block_on(engine.query(&Caller::Owner, &statements[question], &limits));
            take_values(&answer.map_err(|e| e.to_string())?, values)
        }))
    }
}

/// The UNIX socket.
pub(super) struct Socket {
    /// The hub's runtime directory.
    pub(super) dir: PathBuf,
}

impl Connects for Socket {
    fn connect(&self, questions: &[Question]) -> Result<Client, String> {
        let statements = unions(questions);
        let stream = UnixStream::connect(socket_path(&self.dir)).map_err(|e| e.to_string())?;
        let limits = Limits::default();
        Ok(Box::new(move |question, values| {
            let answer = ask(&stream, &statements[question], &limits);
            take_values(&answer.map_err(|e| e.message().to_owned())?, values)
        }))
    }
}

/// HTTP, over a connection for each client.
pub(super) struct Http {
    /// The address, such as `127.0.0.1:7470`.
    pub(super) at: String,
}

impl Connects for Http {
    fn connect(&self, questions: &[Question]) -> Result<Client, String> {
        let bodies: Vec<String> =
            unions(questions).into_iter().map(|sql| json!({ "sql": sql }).to_string()).collect();
        let (agent, url) = (http_client(), format!("http://{}/api/v1/sql", self.at));
        Ok(Box::new(move |question, values| {
            let request = agent.post(&url).content_type("application/json");
            let mut answer = request.send(&bodies[question]).map_err(|e| e.to_string())?;
            let text = answer.body_mut().read_to_string().map_err(|e| e.to_string())?;
            let answer: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
            let rows = answer["rows"].as_array().ok_or("an answer without rows")?;
            values.extend(rows.iter().filter_map(|row| row["metric"].as_f64()));
            Ok(())
        }))
    }
}

/// A client that keeps its connection. It does not use a proxy, because the server is on this machine.
pub(super) fn http_client() -> ureq::Agent {
    ureq::Agent::from(ureq::Agent::config_builder().proxy(None).build())
}

/// Arrow Flight SQL, by the client of its own project.
pub(super) struct Flight {
    /// The address, such as `127.0.0.1:7471`.
    pub(super) at: String,
}

impl Connects for Flight {
    fn connect(&self, questions: &[Question]) -> Result<Client, String> {
        let statements = unions(questions);
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| e.to_string())?;
        let endpoint = Endpoint::from_shared(format!("http://{}", self.at));
        let endpoint = endpoint.map_err(|e| e.to_string())?.tcp_nodelay(true);
        let channel = runtime.block_on(endpoint.connect()).map_err(|e| e.to_string())?;
        let mut client = FlightSqlServiceClient::new(channel);
        Ok(Box::new(move |question, values| {
            let answer = answer(&mut client, &statements[question]);
            let batches = runtime.block_on(answer).map_err(|e| e.to_string())?;
            batches.iter().try_for_each(|batch| take_batch(batch, values))
        }))
    }
}

async fn answer(
    client: &mut FlightSqlServiceClient<Channel>,
    sql: &str,
) -> Result<Vec<RecordBatch>, FlightError> {
    let info = client.execute(sql.to_owned(), None).await?;
    let mut batches = Vec::new();
    for ticket in info.endpoint.into_iter().filter_map(|endpoint| endpoint.ticket) {
        let mut stream = client.do_get(ticket).await?;
        while let Some(batch) = stream.try_next().await? {
            batches.push(batch);
        }
    }
    Ok(batches)
}

//! Prometheus and VictoriaMetrics: both scrape a page each second, and answer the same
//! interface, an instant query over HTTP.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use skopos_model::unpoisoned;

use serde_json::Value;

use super::feed::{Feed, Row};
use super::load::{Client, Connects};
use super::ours::http_client;
use super::question::{Question, series};
use crate::child::free_address;
use crate::child::{Process, not_started, wait_for};

/// The longest time until the first answer of a server.
const START: Duration = Duration::from_secs(20);

/// The most lines of a scraper's request, which has about ten.
const MAX_LINES: usize = 64;

/// A private server.
pub(super) struct Prometheus {
    query: String,
    _process: Process,
}

/// The two servers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Prometheus,
    VictoriaMetrics,
}

impl Kind {
    pub(super) fn program(self) -> &'static str {
        match self {
            Self::Prometheus => "prometheus",
            Self::VictoriaMetrics => "victoria-metrics",
        }
    }

    fn command(self, dir: &Path, scrape: &Path, listen: &str) -> Command {
        let mut command = Command::new(self.program());
        let data = dir.join(self.program());
        match self {
            Self::Prometheus => command
                .arg(format!("--config.file={}", scrape.display()))
                .arg(format!("--storage.tsdb.path={}", data.display()))
                .arg(format!("--web.listen-address={listen}")),
            // Without the last option it answers with values of half a minute ago.
            Self::VictoriaMetrics => command
                .arg(format!("-promscrape.config={}", scrape.display()))
                .arg(format!("-storageDataPath={}", data.display()))
                .arg(format!("-httpListenAddr={listen}"))
                .arg("-search.latencyOffset=1ms"),
        };
        command
    }
}

/// Starts a server with its files in `dir`, and the page that it scrapes.
pub(super) fn start(kind: Kind, dir: &Path) -> Result<(Prometheus, Feed), String> {
    let (page, feed) = page().map_err(|e| e.to_string())?;
    let scrape = dir.join(format!("{}.yml", kind.program()));
    let config = format!(
        "global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\nscrape_configs:\n- job_name: skopos\n  \
         static_configs:\n  - targets: ['127.0.0.1:{page}']\n"
    );
    std::fs::write(&scrape, config).map_err(|e| e.to_string())?;
    let listen = free_address().map_err(|e| e.to_string())?;
    let mut command = kind.command(dir, &scrape, &listen);
    command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = Process::start(&mut command).map_err(|e| not_started(kind.program(), &e))?;
    let query = format!("http://{listen}/api/v1/query");
    let client = Prometheus::ask(&query);
    wait_for(&mut process, START, || client("1", &mut Vec::new()).ok())
        .map_err(|why| format!("{}: {why}", kind.program()))?;
    Ok((Prometheus { query, _process: process }, feed))
}

impl Prometheus {
    /// Asks a question over a kept connection.
    fn ask(url: &str) -> impl Fn(&str, &mut Vec<f64>) -> Result<(), String> + Send + use<> {
        let (agent, url) = (http_client(), url.to_owned());
        move |query, values| {
            let mut answer =
                agent.post(&url).send_form([("query", query)]).map_err(|e| e.to_string())?;
            let text = answer.body_mut().read_to_string().map_err(|e| e.to_string())?;
            let answer: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
            let result = answer["data"]["result"].as_array().ok_or("an answer without a result")?;
            // `{"metric": {…}, "value": [time, "number"]}`
            let value = |one: &Value| one["value"][1].as_str()?.parse::<f64>().ok();
            values.extend(result.iter().filter_map(value));
            Ok(())
        }
    }
}

impl Connects for Prometheus {
    fn connect(&self, questions: &[Question]) -> Result<Client, String> {
        let queries: Vec<String> = questions.iter().map(Question::promql).collect();
        let ask = Self::ask(&self.query);
        Ok(Box::new(move |question, values| ask(&queries[question], values)))
    }
}

/// A page with the fed values, and its port. Its thread ends with the process.
fn page() -> std::io::Result<(u16, Feed)> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    let text = Arc::new(Mutex::new(String::new()));
    let shown = text.clone();
    std::thread::Builder::new().name("page".to_owned()).spawn(move || {
        for stream in listener.incoming().flatten() {
            let text = unpoisoned(shown.lock()).clone();
            // A scraper that disconnected connects again.
            let _ = show(&stream, &text);
        }
    })?;
    let mut latest: BTreeMap<String, f64> = BTreeMap::new();
    let feed = move |rows: &[Row]| {
        latest.extend(rows.iter().map(|row| (row.topic.clone(), row.value)));
        *unpoisoned(text.lock()) = exposition(&latest);
        Ok(())
    };
    Ok((port, Box::new(feed)))
}

/// Answers any request with the page.
fn show(stream: &TcpStream, text: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(START))?;
    for line in BufReader::new(stream).lines().take(MAX_LINES) {
        if line?.is_empty() {
            break;
        }
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        text.len()
    );
    let mut stream = stream;
    stream.write_all(head.as_bytes())?;
    stream.write_all(text.as_bytes())
}

/// Samples with the topic as a label, because different topics may have one series name.
fn exposition(latest: &BTreeMap<String, f64>) -> String {
    let mut text = String::new();
    for (topic, value) in latest {
        let (node, name) = (topic.split('/').next().unwrap_or_default(), series(topic));
        // Writing to a String does not fail.
        let _ = writeln!(text, "{name}{{node=\"{node}\",topic=\"{topic}\"}} {value}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_what_it_was_fed_with() {
        let (port, mut feed) = page().expect("a port");
        let row = |topic: &str, value| Row { topic: topic.to_owned(), time: 1, value };
        feed(&[row("n01/load/load_1m", 0.5), row("n02/fs/root/total_bytes", 3e9)]).expect("fed");
        feed(&[row("n01/load/load_1m", 0.25)]).expect("fed");
        let answer = ureq::get(&format!("http://127.0.0.1:{port}/metrics")).call();
        let text = answer.expect("an answer").body_mut().read_to_string().expect("text");
        assert_eq!(
            text,
            "skopos_load_load_1m{node=\"n01\",topic=\"n01/load/load_1m\"} 0.25\n\
             skopos_fs_root_total_bytes{node=\"n02\",topic=\"n02/fs/root/total_bytes\"} 3000000000\n"
        );
    }
}

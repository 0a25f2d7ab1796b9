//! `skopos rank --hub URL`: the last ranking by an agent on another machine, as a hub knows it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::Value as Json;
use skopos_model::duration;
use skopos_serve::fetch::HubAddress;
use skopos_term::format::{count, printable};
use skopos_term::{Failure, Global, Out, Style};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::verbs::hub_http::{agent, refused};

/// The longest answer that is read: a candidate has some hundred bytes.
const MAX_ANSWER_BYTES: u64 = 16 << 20;

#[derive(Debug, Args)]
pub(super) struct HubArgs {
    /// Ask a hub for a ranking by another machine: URL of its HTTP listener, such as http://hub1:7470
    #[arg(long, value_name = "URL", requires = "profile", conflicts_with = "explain")]
    pub(super) hub: Option<String>,
    /// Node that ranks [default: the only one that the hub knows]
    #[arg(long, value_name = "NODE", requires = "hub")]
    node: Option<String>,
    /// Certificate of the authority of the hub's site, for `https`
    #[arg(long, value_name = "FILE", requires = "hub")]
    authority: Option<PathBuf>,
    /// File with a token of the user, for `https`
    #[arg(long, value_name = "FILE", requires = "hub")]
    token_file: Option<PathBuf>,
}

/// A ranking as a hub answers it: `Ranking` in `docs/openapi.json`.
#[derive(Debug, Deserialize)]
struct Ranking {
    profile: String,
    node: String,
    age_seconds: f64,
    valid_seconds: Option<f64>,
    native: bool,
    candidates: Vec<Candidate>,
}

/// A candidate. A part that the hub did not receive is `None`.
#[derive(Debug, Deserialize)]
struct Candidate {
    candidate: String,
    place: Option<u64>,
    weight: Option<f64>,
    score: Option<f64>,
    trust: Option<f64>,
    samples: Option<u64>,
    age_seconds: Option<f64>,
    state: Option<String>,
    reasons: Vec<String>,
}

/// Asks the hub at `url`, and prints the candidates that are named, or all.
pub(super) fn run(
    global: &Global,
    args: &HubArgs,
    (url, profile): (&str, &str),
    candidates: &[String],
) -> Result<ExitCode, Failure> {
    let mut document = ask(args, url, profile)?;
    select(&mut document, profile, candidates)?;
    let mut out = Out::new(global.style());
    match out.style {
        // `docs/json/rank_hub.schema.json`.
        Style::Json => out.json(&document)?,
        style => {
            let ranking = shown(&document)?;
            match style {
                Style::Human => human(&mut out, url, &ranking)?,
                _ => plain(&mut out, &ranking)?,
            }
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the ranking of a profile.
fn ask(args: &HubArgs, url: &str, profile: &str) -> Result<Json, Failure> {
    let url = url.trim_end_matches('/');
    let is_secure = url.starts_with("https://");
    if !is_secure && !url.starts_with("http://") {
        return Err(Failure::new(format!("`{url}` is not the URL of a hub"))
            .hint("such as http://hub1:7470, or https://hub1:7470 with --authority"));
    }
    let files = HubAddress::new(url, args.authority.as_deref(), args.token_file.as_deref())?;
    if files.token.is_some() && !is_secure {
        return Err(Failure::new("a token is not sent in clear text")
            .hint("name the hub as https://HOST:PORT, with --authority"));
    }
    let mut tls = TlsConfig::builder();
    if let Some(pem) = &files.authority {
        let authority = Certificate::from_pem(pem).map_err(|e| {
            Failure::new("the file of --authority has no certificate in PEM").because(&e)
        })?;
        tls = tls.root_certs(RootCerts::new_with_certs(&[authority]));
    }
    let unreachable = |e: &ureq::Error| {
        let failure = Failure::new(format!("the hub does not answer at {url}")).because(e);
        failure.hint("`skopos hub --http 0.0.0.0:7470` on its machine opens the listener")
    };
    let path = format!("{url}/api/v1/ranks/{}", escaped(profile));
    let mut request = agent(tls.build()).get(path);
    if let Some(node) = &args.node {
        request = request.query("node", node);
    }
    if let Some(token) = &files.token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let mut answer = request.call().map_err(|e| unreachable(&e))?;
    let status = answer.status();
    let body = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_vec();
    let body = body.map_err(|e| unreachable(&e))?;
    if !status.is_success() {
        return Err(refused(status, &body));
    }
    serde_json::from_slice(&body)
        .map_err(|e| Failure::new("the hub's answer is damaged").because(&e))
}

/// Keeps the candidates that are named, or all without names.
fn select(document: &mut Json, profile: &str, names: &[String]) -> Result<(), Failure> {
    let Some(candidates) = document.get_mut("candidates").and_then(Json::as_array_mut) else {
        return Err(Failure::new("the hub's answer is damaged"));
    };
    let is_of = |candidate: &Json, name: &str| candidate["candidate"] == *name;
    let is_unknown = |name: &&String| !candidates.iter().any(|one| is_of(one, name));
    if let Some(name) = names.iter().find(is_unknown) {
        return Err(Failure::new(format!("`{name}` is not a candidate of `{profile}`"))
            .hint("without a name, all candidates are shown"));
    }
    if !names.is_empty() {
        candidates.retain(|candidate| names.iter().any(|name| is_of(candidate, name)));
    }
    Ok(())
}

/// Returns the ranking of an answer with texts that a terminal shows and does not obey: agents of other machines chose them.
fn shown(document: &Json) -> Result<Ranking, Failure> {
    let mut ranking = Ranking::deserialize(document)
        .map_err(|e| Failure::new("the hub's answer is damaged").because(&e))?;
    let of_candidates = ranking.candidates.iter_mut().flat_map(texts_of);
    for text in [&mut ranking.profile, &mut ranking.node].into_iter().chain(of_candidates) {
        *text = printable(text);
    }
    Ok(ranking)
}

/// Returns the texts of a candidate.
fn texts_of(c: &mut Candidate) -> impl Iterator<Item = &mut String> {
    std::iter::once(&mut c.candidate).chain(&mut c.state).chain(&mut c.reasons)
}

/// Escapes what a segment of a URL cannot have.
fn escaped(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

fn plain(out: &mut Out, ranking: &Ranking) -> Result<(), Failure> {
    for c in &ranking.candidates {
        let number = |of: Option<f64>| of.map_or_else(String::new, |number| number.to_string());
        let place = c.place.map_or_else(String::new, |place| place.to_string());
        let (weight, score, trust) = (number(c.weight), number(c.score), number(c.trust));
        let (candidate, state) = (&c.candidate, c.state.as_deref().unwrap_or_default());
        out.line(format!("{place}\t{candidate}\t{weight}\t{score}\t{trust}\t{state}"))?;
    }
    Ok(())
}

fn human(out: &mut Out, url: &str, ranking: &Ranking) -> Result<(), Failure> {
    let age = human_seconds(ranking.age_seconds);
    let profile = out.bold(&ranking.profile);
    out.line(format!("{profile}: ranked by {} {age} ago, from {url}", ranking.node))?;
    if ranking.valid_seconds.is_some_and(|valid| ranking.age_seconds > valid) {
        out.line("this ranking is not valid any more: the hub gets no other from the agent")?;
    }
    if ranking.native {
        out.line("nothing recent is known: the order is that of the configuration")?;
    }
    let heads = ["", "candidate", "weight", "score", "confidence", "reasons"];
    let mut rows: Vec<Vec<String>> = vec![heads.map(|head| out.dim(head)).into()];
    for c in &ranking.candidates {
        rows.push(vec![
            c.place.map_or_else(|| "-".to_owned(), |place| place.to_string()),
            out.bold(&c.candidate),
            c.weight.map_or_else(|| "-".to_owned(), |weight| format!("{:.1} %", weight * 100.0)),
            c.score.map_or_else(|| "-".to_owned(), |score| format!("{score:.2}")),
            confidence(c),
            c.reasons.join(", "),
        ]);
    }
    Ok(out.table(&rows, &[0, 2, 3])?)
}

/// Describes the measurements behind a score.
fn confidence(c: &Candidate) -> String {
    let state = c.state.as_deref().filter(|state| *state != "known");
    let trust = c.trust.map(|trust| format!("{:.0} %", trust * 100.0));
    let samples = c.samples.map(|samples| count(samples, "sample"));
    let age = c.age_seconds.map(|age| format!("{} old", human_seconds(age)));
    let age = age.unwrap_or_else(|| "no recent value".to_owned());
    let parts = [state.map(str::to_owned), trust, samples, Some(age)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn human_seconds(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds).map_or_else(|_| format!("{seconds} s"), duration::human)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_of_other_machines_do_not_steer_a_terminal() {
        let text = "a\u{1b}[2J\tb";
        let document = json!({
            "profile": text, "node": text, "age_seconds": 1.0, "native": false,
            "candidates": [{"candidate": text, "state": text, "reasons": [text, text]}]
        });
        let ranking = format!("{:?}", shown(&document).expect("a ranking"));
        // A text is escaped when it is shown, and again by the form for developers.
        assert_eq!(ranking.matches(r"a\\u{1b}[2J\\tb").count(), 6, "{ranking}");
    }

    #[test]
    fn names_of_profiles_are_escaped() {
        assert_eq!(escaped("reads_2.a-b~"), "reads_2.a-b~");
        assert_eq!(escaped("a b/ü?"), "a%20b%2F%C3%BC%3F");
    }

    #[test]
    fn the_candidates_that_are_named_stay_in_their_order() {
        let candidates = ["n02", "n03", "n04"].map(|name| json!({"candidate": name}));
        let all = json!({"candidates": candidates});
        let selected = |names: &[&str]| {
            let mut document = all.clone();
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            select(&mut document, "reads", &names).map(|()| document["candidates"].clone())
        };
        assert_eq!(selected(&[]).ok(), Some(all["candidates"].clone()));
        let two = json!([{"candidate": "n02"}, {"candidate": "n04"}]);
        assert_eq!(selected(&["n04", "n02"]).ok(), Some(two));
        assert!(selected(&["n09"]).is_err_and(|e| e.message().contains("n09")));
    }
}

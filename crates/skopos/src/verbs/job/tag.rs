//! `skopos job tag ID KEY=VALUE…`: words by which a job is found again.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::json;
use skopos_hub::client::{reach, store_jobs};
use skopos_hub::messages::{JobDocument, StoreRequest};
use skopos_model::job::{JobTags, Kind};
use skopos_term::format::printable;
use skopos_term::{Failure, Global, Out, Style};

use super::hub::{Hub, Id};
use super::one::fields;

/// The longest tag: a key and a value that people read.
const MAX_TAG_BYTES: usize = 256;

/// Time that the hub may take, which is longer than its own timeout for a disk.
const TIMEOUT: Duration = Duration::from_secs(15);

/// `docs/json/job_tag.schema.json`.
#[derive(Serialize)]
struct Tagged<'a> {
    job: &'a str,
    generation: u32,
    /// All tags after the change.
    tags: BTreeSet<String>,
}

pub(crate) fn run(
    global: &Global,
    id: &str,
    add: &[String],
    remove: &[String],
) -> Result<ExitCode, Failure> {
    add.iter().chain(remove).try_for_each(|tag| check(tag))?;
    let hub = Hub::open(global)?;
    let id = hub.find(id)?;
    let known = fields(&hub, &id)?.into_iter().filter(|field| field.field == "tag");
    let known: BTreeSet<String> = known.map(|field| field.value).collect();
    let change = change(&known, add, remove);
    if !change.add.is_empty() || !change.remove.is_empty() {
        store(&hub, &id, &change)?;
    }
    let kept = known.into_iter().filter(|tag| !change.remove.contains(tag));
    let tags: BTreeSet<String> = kept.chain(change.add).collect();
    let mut out = Out::new(global.style());
    match out.style {
        Style::Json => {
            out.json(&Tagged { job: &id.job, generation: id.generation, tags })?;
        }
        Style::Plain | Style::Human => {
            tags.iter().try_for_each(|tag| out.line(printable(tag)))?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn check(tag: &str) -> Result<(), Failure> {
    let key = tag.split_once('=').map_or(tag, |(key, _)| key);
    let is_valid =
        !key.trim().is_empty() && tag.len() <= MAX_TAG_BYTES && !tag.contains(char::is_control);
    match is_valid {
        true => Ok(()),
        false => Err(Failure::new(format!("{tag:?} is not a tag")).hint(format!(
            "a tag is `KEY=VALUE` or a word, of at most {MAX_TAG_BYTES} bytes without control characters"
        ))),
    }
}

/// Returns the key of a tag, if it has a value too.
fn key(tag: &str) -> Option<&str> {
    tag.split_once('=').map(|(key, _)| key)
}

/// Returns the change: another value of a key takes the place of the known one, and a removed key goes with its value.
fn change(known: &BTreeSet<String>, add: &[String], remove: &[String]) -> JobTags {
    let add: BTreeSet<String> = add.iter().cloned().collect();
    let is_removed = |tag: &&String| {
        let is_named = remove.iter().any(|name| name == *tag || Some(name.as_str()) == key(tag));
        let is_replaced = key(tag).is_some_and(|of| add.iter().any(|new| key(new) == Some(of)));
        (is_named || is_replaced) && !add.contains(*tag)
    };
    let remove = known.iter().filter(is_removed).cloned().collect();
    let add = add.into_iter().filter(|tag| !known.contains(tag)).collect();
    JobTags { add, remove }
}

fn store(hub: &Hub, id: &Id, change: &JobTags) -> Result<(), Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time_ns = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
    let record = JobDocument {
        job: id.job.clone(),
        generation: id.generation,
        node: String::new(),
        time_ns,
        kind: Kind::Tags.name().to_owned(),
        document: json!(change),
    };
    let producer = format!("tag/{}/{time_ns}", std::process::id());
    let request = StoreRequest {
        store_jobs: vec![record],
        producer,
        epoch: time_ns,
        ..StoreRequest::default()
    };
    let stream = reach(&hub.dir, TIMEOUT)?.ok_or_else(|| Failure::new("the hub has ended"))?;
    store_jobs(&stream, &request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(tags: &[&str]) -> BTreeSet<String> {
        tags.iter().map(|tag| (*tag).to_owned()).collect()
    }

    #[test]
    fn a_key_has_one_value() {
        let known = set(&["paper=fig2", "slow", "a=b"]);
        for (add, remove, added, removed) in [
            (&["paper=fig3"][..], &[][..], &["paper=fig3"][..], &["paper=fig2"][..]),
            (&["paper=fig2"], &[], &[], &[]),
            (&["paper=fig2"], &["paper"], &[], &[]),
            (&[], &["paper", "none"], &[], &["paper=fig2"]),
            (&["fast"], &["slow"], &["fast"], &["slow"]),
            (&[], &["a=b"], &[], &["a=b"]),
        ] {
            let all = |texts: &[&str]| texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
            let came = change(&known, &all(add), &all(remove));
            assert_eq!((came.add, came.remove), (set(added), set(removed)), "{add:?} {remove:?}");
        }
    }

    #[test]
    fn tags_are_words() {
        for tag in ["", "=x", " =x", "a\nb", &"x".repeat(257)] {
            assert!(check(tag).is_err(), "{tag:?}");
        }
        assert!(check("key=a=b c").is_ok());
    }
}

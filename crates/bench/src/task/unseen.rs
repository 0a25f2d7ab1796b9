//! 256 MiB that are written and read without a system call that has the number of bytes: by mmap and by
//! io_uring. The report may count the bytes, name them as unseen, or be silent.

use std::path::Path;

use serde_json::Value as Json;

use super::measure::known;
use super::watchers::{Program, Ran, WATCHERS};
use crate::plan::Plan;
use crate::report::{Better, Goal, Row};

const MIB: u64 = 256;

/// The report has the bytes with the name of the file.
const COUNTED: f64 = 2.0;
/// The report states that it does not see such bytes.
const NAMED: f64 = 1.0;
const SILENT: f64 = 0.0;

pub(super) fn rows(plan: &Plan, dir: &Path) -> Vec<Row> {
    let mut rows = Vec::new();
    for (mode, words) in [("map", ["mmap", "mmap"]), ("ring", ["io_uring", "uring"])] {
        let [name, word] = words;
        let case = format!("{MIB} MiB by {name}");
        plan.say(&format!("{case} …"));
        let file = dir.join("unseen");
        let path = file.display().to_string();
        let words = [dir.join("work").display().to_string(), mode.to_owned(), MIB.to_string()];
        let program = Program {
            command: words.into_iter().chain([path.clone()]).collect(),
            file: Some(file),
            limit: None,
            may_fail: false,
        };
        for watcher in WATCHERS {
            let Some(ours) = watcher.ours().filter(|ours| ours.level >= 2) else { continue };
            if ours.level == 2 && ours.by.is_some() {
                continue;
            }
            let level_of = watcher.run(&program, dir).map(|ran| level(&ran, &path, word));
            let metric = format!("2 counted, 1 named, 0 silent; {}", watcher.name);
            let row = Row::of(case.as_str(), metric, "", known(level_of), Better::Higher);
            rows.push(row.goal(Goal::AtLeast(NAMED)));
        }
    }
    rows
}

fn level(ran: &Ran, path: &str, word: &str) -> f64 {
    let bytes = (MIB << 20) as f64;
    let files = ran.files["files"].as_array().map_or(&[][..], Vec::as_slice);
    let of = |file: &Json, field: &str| file[field].as_f64().unwrap_or(0.0);
    let is_there = files.iter().filter(|file| file["path"] == path).any(|file| {
        ["mapped_bytes", "written_bytes", "read_bytes"].iter().any(|f| of(file, f) >= bytes)
    });
    if is_there {
        return COUNTED;
    }
    let reasons = [&ran.files["reason"], &ran.summary["resources"]["read_bytes"]["reason"]];
    match reasons.iter().any(|reason| reason.as_str().is_some_and(|text| text.contains(word))) {
        true => NAMED,
        false => SILENT,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::task::watchers::{Reported, Truth};

    #[test]
    fn bytes_in_the_table_of_files_are_counted() {
        let ran = |files: Json, summary: Json| Ran {
            seconds: 0.0,
            truth: Truth::default(),
            seen: Reported::default(),
            summary,
            files,
        };
        let files = |bytes: u64| json!({"files": [{"path": "/f", "mapped_bytes": bytes}]});
        let named = json!({"resources": {"read_bytes": {"reason": "not by mmap"}}});
        assert_eq!(level(&ran(files(MIB << 20), Json::Null), "/f", "mmap"), COUNTED);
        assert_eq!(level(&ran(files(MIB << 20), Json::Null), "/g", "mmap"), SILENT);
        assert_eq!(level(&ran(files(0), named), "/f", "mmap"), NAMED);
    }
}

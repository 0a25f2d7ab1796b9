//! Finds the markers of a page and puts the tables and values between them.

use std::collections::BTreeSet;

use super::figure::{Figure, figure};
use super::marker::{END, Marker, START};
use super::run::{Row, Run, Runs};
use super::{cases, table};
use crate::tree::TextFile;

/// A marker that could not be followed.
pub(crate) struct Problem {
    /// Counted from 0.
    pub(crate) line: usize,
    pub(crate) fault: String,
}

/// Makes the page anew. A marker with a problem keeps the text that it has.
pub(super) fn make(file: &TextFile, runs: &Runs) -> (String, Vec<Problem>) {
    let mut made = Maker { file, runs, problems: Vec::new() };
    let lines: Vec<&str> = file.text.split_inclusive('\n').collect();
    let mut text = String::with_capacity(file.text.len());
    let mut in_code = false;
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        in_code ^= line.trim_start().starts_with("```");
        let marker = line.trim();
        if in_code || !line.contains(START) {
            text.push_str(line);
        } else if marker.starts_with(START) && !line.contains(END) {
            let end = lines[at..].iter().position(|line| line.trim() == END);
            text.push_str(line);
            match end {
                Some(end) => {
                    let old: String = lines[at + 1..at + end].concat();
                    text.push_str(&made.block(at, marker).unwrap_or(old));
                    at += end;
                    text.push_str(lines[at]);
                }
                None => made.problem(at, format!("no `{END}` follows on a line of its own")),
            }
        } else {
            text.push_str(&made.inline(at, line));
        }
        at += 1;
    }
    (text, made.problems)
}

struct Maker<'a> {
    file: &'a TextFile,
    runs: &'a Runs,
    problems: Vec<Problem>,
}

impl Maker<'_> {
    fn problem(&mut self, line: usize, fault: String) {
        self.problems.push(Problem { line, fault });
    }

    /// The lines after a marker, or nothing if it has a problem.
    fn block(&mut self, at: usize, marker: &str) -> Option<String> {
        let made = Marker::parse(marker).and_then(|marker| {
            let run = self.runs.find(marker.bench, marker.option("run"))?;
            let rows = table::chosen(&marker, run)?;
            // Only the plain table shows goals.
            let (mut lines, judged) = match marker.option("view") {
                None => (table::lines(&marker, &rows)?, rows),
                Some("cases") => (cases::lines(&marker, &rows)?, Vec::new()),
                Some(other) => return Err(format!("`{other}` is not a view; there is `cases`")),
            };
            match marker.option("caption") {
                None => lines.extend([String::new(), caption(run, &judged, &self.file.path)]),
                Some("no") => {}
                Some(_) => return Err("a caption is `no` or left out".to_owned()),
            }
            Ok(lines.join("\n") + "\n")
        });
        made.map_err(|fault| self.problem(at, fault)).ok()
    }

    /// The line with all its values.
    fn inline(&mut self, at: usize, line: &str) -> String {
        if line.trim_start().starts_with(START) {
            let fault = "a value must not begin a line: Markdown would end the paragraph there";
            self.problem(at, fault.to_owned());
            return line.to_owned();
        }
        let mut text = String::new();
        let mut rest = line;
        while let Some(start) = rest.find(START) {
            let marker_end = rest[start..].find("-->").map(|end| start + end + "-->".len());
            let parts = marker_end.and_then(|end| Some((end, end + rest[end..].find(END)?)));
            let Some((end, after)) = parts else {
                self.problem(at, format!("no `{END}` follows on the same line"));
                break;
            };
            text.push_str(&rest[..end]);
            match self.value(&rest[start..end]) {
                Ok(value) => text.push_str(&value),
                Err(fault) => {
                    self.problem(at, fault);
                    text.push_str(&rest[end..after]);
                }
            }
            text.push_str(END);
            rest = &rest[after + END.len()..];
        }
        text + rest
    }

    /// The number of one row with its unit.
    fn value(&self, marker: &str) -> Result<String, String> {
        let marker = Marker::parse(marker)?;
        let wanted = marker.option("value").ok_or("a marker inside a line needs `value`")?;
        let run = self.runs.find(marker.bench, marker.option("run"))?;
        let selector = super::glob::Selector::list(wanted);
        let mut rows = run.rows.iter().filter(|row| selector.iter().any(|s| s.matches(row)));
        let row = rows.next().ok_or_else(|| format!("no row of {} is `{wanted}`", run.path))?;
        if rows.next().is_some() {
            return Err(format!("several rows of {} are `{wanted}`", run.path));
        }
        let number = match marker.option("of") {
            None | Some("skopos") => row.value.cell(),
            Some("ratio") => {
                let ratio = row.ratio.ok_or_else(|| format!("`{wanted}` has no ratio"))?;
                return Ok(figure(ratio));
            }
            Some("goal") => {
                return row.goal.clone().ok_or_else(|| format!("`{wanted}` has no goal"));
            }
            Some(peer) => {
                let figure = row.peers.get(peer);
                figure.ok_or_else(|| format!("`{wanted}` has no peer `{peer}`"))?.cell()
            }
        };
        Ok(format!("{number} {}", row.unit).trim_end().to_owned())
    }
}

/// Date, machine, versions and goals, with a link to the raw run.
fn caption(run: &Run, rows: &[&Row], page: &str) -> String {
    let machine = &run.machine;
    let gigabytes = machine.memory_bytes as f64 / 1e9;
    let mut text = format!(
        "Run of {} on `{}`: {}, {} cores, {gigabytes:.0} GB, Linux {}",
        run.day(),
        machine.host,
        machine.cpu,
        machine.cores,
        machine.kernel
    );
    let versions: Vec<String> =
        machine.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    if !versions.is_empty() {
        text.push_str(&format!("; {}", versions.join(", ")));
    }
    text.push('.');
    if let Some(rounds) = run.rounds {
        text.push_str(&format!(" {rounds} rounds."));
    }
    if run.notes.iter().any(|note| note.starts_with("a debug build")) {
        text.push_str(" A debug build.");
    }
    let judged = rows.iter().filter(|row| row.met.is_some()).count();
    if judged > 0 {
        let met = rows.iter().filter(|row| row.met == Some(true)).count();
        text.push_str(&format!(" Goals met: {met} of {judged}."));
    }
    let reasons = unknown(rows);
    if !reasons.is_empty() {
        let reasons: Vec<String> = reasons.into_iter().collect();
        text.push_str(&format!(" Unknown: {}.", reasons.join("; ")));
    }
    let up = "../".repeat(page.matches('/').count());
    text + &format!(" Raw: [{}]({up}{}).", run.path, run.path)
}

/// The reasons of unknown numbers, each once.
fn unknown(rows: &[&Row]) -> BTreeSet<String> {
    let ours = rows.iter().map(|row| ("Skopos", &row.value));
    let theirs = rows.iter().flat_map(|row| row.peers.iter().map(|(name, f)| (name.as_str(), f)));
    let reasons = ours.chain(theirs).filter_map(|(name, figure)| match figure {
        Figure::Unknown(reason) => {
            Some(format!("{name} ({})", reason.strip_prefix("unknown: ").unwrap_or(reason)))
        }
        Figure::Known(_) => None,
    });
    reasons.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    fn run(day: &str, value: f64) -> String {
        format!(
            r#"{{"bench": "score", "date": "{day}T10:00:00Z", "machine": {{"host": "vm",
            "kernel": "6.18", "cpu": "AMD EPYC", "cores": 2, "memory_bytes": 25276514304,
            "versions": {{"redis": "7.0.15"}}}}, "rounds": 5, "rows": [
            {{"case": "latest, idle", "metric": "p50", "unit": "ns", "value": {value},
              "peers": {{"redis": 8583.0}}, "ratio": 1373.0, "goal": "≤ 50", "met": true}},
            {{"case": "latest, idle", "metric": "p99", "unit": "ns", "value": 1234.0,
              "peers": {{"redis": "unknown: it hung"}}, "goal": "≤ 100", "met": false}},
            {{"case": "memory", "metric": "all", "unit": "MB", "value": 4.7, "peers": {{}}}}]}}"#
        )
    }

    fn made(page: &str) -> (String, Vec<String>) {
        let (old, new) = (run("2026-11-21", 1.0), run("2026-11-22", 6.25));
        let quick = run("2026-11-23", 9.0).replacen('{', "{\"quick\": true, ", 1);
        let tree = Tree::of(&[
            ("bench/runs/2026-11-21-vm/score.json", &old),
            ("bench/runs/2026-11-22-vm/score.json", &new),
            ("bench/runs/2026-11-23-vm/score.json", &quick),
            ("docs/results/score.md", page),
        ]);
        let runs = Runs::read(&tree).unwrap_or_else(|(path, fault)| panic!("{path}: {fault}"));
        let file = tree.file("docs/results/score.md").expect("the page");
        let (text, problems) = make(file, &runs);
        (text, problems.into_iter().map(|p| format!("{}: {}", p.line, p.fault)).collect())
    }

    /// The lines between the markers.
    fn table(marker: &str) -> Vec<String> {
        let (text, problems) = made(&format!("a\n{marker}\nold\n{END}\nb\n"));
        assert!(problems.is_empty(), "{problems:?}");
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        assert_eq!((lines[0].as_str(), lines[1].as_str()), ("a", marker));
        let end = lines.len() - 2;
        assert_eq!((lines[end].as_str(), lines[end + 1].as_str()), (END, "b"));
        lines[2..end].to_vec()
    }

    #[test]
    fn a_table_of_the_newest_full_run_with_its_caption() {
        assert_eq!(
            table("<!-- results:score -->"),
            [
                "| case | metric | Skopos | redis | unit | ratio | goal | met |",
                "|---|---|---:|---:|---|---:|---:|---|",
                "| latest, idle | p50 | **6.25** | 8,583 | ns | 1,373x | ≤ 50 | yes |",
                "| latest, idle | p99 | **1,234** | unknown | ns |  | ≤ 100 | **no** |",
                "| memory | all | **4.70** |  | MB |  |  |  |",
                "",
                "Run of 2026-11-22 on `vm`: AMD EPYC, 2 cores, 25 GB, Linux 6.18; redis 7.0.15. \
                 5 rounds. Goals met: 1 of 2. Unknown: redis (it hung). \
                 Raw: [bench/runs/2026-11-22-vm/score.json](../../bench/runs/2026-11-22-vm/score.json).",
            ]
        );
    }

    #[test]
    fn a_marker_chooses_run_rows_and_columns() {
        let marker = "<!-- results:score run=\"2026-11-21-vm\" rows=\"memory | latest* / p50\" \
                      columns=\"metric | skopos | redis\" skopos=\"ours\" caption=\"no\" -->";
        assert_eq!(
            table(marker),
            [
                "| metric | ours | redis |",
                "|---|---:|---:|",
                "| all | **4.70** |  |",
                "| p50 | **1.00** | 8,583 |"
            ]
        );
        let rest = table(
            "<!-- results:score without=\"latest* / p99 | latest* / p50\" caption=\"no\" -->",
        );
        assert_eq!(
            rest,
            [
                "| case | metric | Skopos | unit |",
                "|---|---|---:|---|",
                "| memory | all | **4.70** | MB |"
            ]
        );
    }

    #[test]
    fn a_table_of_cases_can_be_relative_to_peers() {
        let marker = "<!-- results:score view=\"cases\" metrics=\"p50\" base=\"redis\" also=\"p9*\" \
                      caption=\"no\" -->";
        assert_eq!(
            table(marker),
            [
                "| case | Skopos | redis | p9 |",
                "|---|---:|---:|---:|",
                "| latest, idle | **0.00** | 1.00 | 1,234 |"
            ]
        );
    }

    #[test]
    fn a_value_stands_inside_of_a_line() {
        let page = format!(
            "Reads take <!-- results:score value=\"latest* / p50\" -->old{END}, Redis\n\
             takes <!-- results:score value=\"latest* / p50\" of=\"redis\" -->{END} or \
             <!-- results:score value=\"latest* / p50\" of=\"ratio\" -->{END} times.\n"
        );
        let (text, problems) = made(&page);
        assert!(problems.is_empty(), "{problems:?}");
        for value in ["-->6.25 ns<!--", "-->8,583 ns<!--", "-->1,373<!--"] {
            assert!(text.contains(value), "{text}");
        }
    }

    #[test]
    fn a_marker_that_cannot_be_followed_keeps_its_text() {
        for (marker, fault) in [
            ("<!-- results:none -->", "there is no full run of `none` in bench/runs/"),
            (
                "<!-- results:score rows=\"x\" -->",
                "no row of bench/runs/2026-11-22-vm/score.json is `x`",
            ),
            ("<!-- results:score columns=\"x\" -->", "`x` is not a column or a peer of these rows"),
            ("<!-- results:score view=\"x\" -->", "`x` is not a view; there is `cases`"),
        ] {
            let page = format!("{marker}\nold\n{END}\n");
            assert_eq!(made(&page), (page.clone(), vec![format!("0: {fault}")]));
        }
        let open = "<!-- results:score -->\nold\n";
        assert_eq!(made(open).1, ["0: no `<!-- /results -->` follows on a line of its own"]);
    }

    #[test]
    fn a_value_at_the_start_of_a_line_is_refused() {
        let page = format!("a\n<!-- results:score value=\"memory\" -->{END} b\n");
        let fault = "1: a value must not begin a line: Markdown would end the paragraph there";
        assert_eq!(made(&page), (page.clone(), vec![fault.to_owned()]));
    }

    #[test]
    fn markers_in_code_are_examples() {
        let page = "```\n<!-- results:none -->\n<!-- /results -->\n```\n";
        assert_eq!(made(page), (page.to_owned(), vec![]));
    }
}

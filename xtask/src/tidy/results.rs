//! Tables of results in pages are those of the raw runs.

use crate::results::{self, Page};
use crate::tidy::finding::Finding;
use crate::tree::Tree;

const MEND: &str = "run `cargo xtask results`; no number of a generated table is typed by hand";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    match results::pages(tree) {
        Ok(pages) => pages.iter().flat_map(page).collect(),
        Err((path, fault)) => {
            let mend =
                "a run is written by `skopos-bench`; its form is docs/json/bench.schema.json";
            vec![Finding::in_file(&path, fault, mend)]
        }
    }
}

fn page(page: &Page<'_>) -> Vec<Finding> {
    let path = &page.file.path;
    let mut findings: Vec<Finding> = Vec::new();
    for problem in &page.problems {
        let mend = "bench/README.md explains the markers";
        findings.push(Finding::at(path, problem.line, problem.fault.as_str(), mend));
    }
    let (is, ought) = (&page.file.text, &page.text);
    if is != ought {
        let line = is.lines().zip(ought.lines()).take_while(|(a, b)| a == b).count();
        let right = ought.lines().nth(line).unwrap_or_default();
        let fault = format!("the table differs from its raw run, which gives: {right}");
        findings.push(Finding::at(path, line, fault, MEND));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = r#"{"bench": "score", "date": "2026-11-22T10:00:00Z", "machine": {"host": "vm",
        "kernel": "6", "cpu": "x", "cores": 2, "memory_bytes": 1}, "rows": [{"case": "a",
        "metric": "b", "unit": "ns", "value": 40.0, "peers": {}}]}"#;

    fn faults(page: &str, run: &str) -> Vec<String> {
        let tree = Tree::of(&[("bench/runs/2026-11-22-vm/score.json", run), ("docs/a.md", page)]);
        check(&tree).into_iter().map(|f| format!("{}:{} {}", f.path, f.line, f.fault)).collect()
    }

    #[test]
    fn a_number_that_differs_from_its_run_is_refused() {
        let good = "<!-- results:score caption=\"no\" -->\n| case | metric | Skopos | unit |\n\
                    |---|---|---:|---|\n| a | b | **40.0** | ns |\n<!-- /results -->\n";
        assert!(faults(good, RUN).is_empty());
        assert_eq!(
            faults(&good.replace("40.0", "280"), RUN),
            [
                "docs/a.md:4 the table differs from its raw run, which gives: | a | b | **40.0** | ns |"
            ]
        );
    }

    #[test]
    fn a_marker_without_a_run_and_a_broken_run_are_refused() {
        let page = "<!-- results:height -->\n<!-- /results -->\n";
        assert_eq!(
            faults(page, RUN),
            ["docs/a.md:1 there is no full run of `height` in bench/runs/"]
        );
        let broken = faults("", "{}");
        assert_eq!(broken.len(), 1);
        assert!(broken[0].starts_with("bench/runs/2026-11-22-vm/score.json:0 missing field"));
    }
}

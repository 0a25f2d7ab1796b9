//! Pages of the reference that are made from other files of the repository: `docs/reference/topics.md`
//! from `schema/*.toml`, `docs/reference/json.md` from `docs/json/*.json`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use serde::Deserialize;

use crate::tree::{self, Tree};

/// A family of facts: one file of `schema/`.
#[derive(Deserialize)]
struct Family {
    path: Option<String>,
    #[serde(default)]
    instance: String,
    help: String,
    source: String,
    metric: Vec<Metric>,
}

#[derive(Deserialize)]
struct Metric {
    name: String,
    help: String,
    unit: String,
    kind: String,
    #[serde(rename = "type")]
    value_type: String,
    #[serde(default)]
    read_every_seconds: u64,
}

/// A page by its path, with the function that makes its text.
type Page = (&'static str, fn(&Tree) -> Result<String, String>);

const PAGES: &[Page] = &[("docs/reference/topics.md", topics), ("docs/reference/json.md", json)];

/// `cargo xtask reference`: writes the pages.
pub(crate) fn run() -> ExitCode {
    let root = tree::root();
    let written = Tree::read(&root).map_err(|e| e.to_string()).and_then(|tree| {
        for (path, make) in PAGES {
            std::fs::write(root.join(path), make(&tree)?).map_err(|e| format!("{path}: {e}"))?;
            println!("wrote {path}");
        }
        Ok(())
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: the reference cannot be written: {e}");
            eprintln!("hint: `cargo xtask tidy` shows what is wrong with a schema");
            ExitCode::from(2)
        }
    }
}

/// Pages that differ from what their sources give, each with the difference.
pub(crate) fn outdated(tree: &Tree) -> Vec<(&'static str, &'static str)> {
    let pages = PAGES.iter().map(|(path, make)| match (make(tree), tree.file(path)) {
        // A source that cannot be read is another check's finding.
        (Err(_), _) => None,
        (Ok(text), Some(page)) if page.text == text => None,
        (Ok(_), Some(_)) => Some((*path, "its sources have changed")),
        (Ok(_), None) => Some((*path, "the page is missing")),
    });
    pages.flatten().collect()
}

/// Families by name, as `schema/` has them.
fn families(tree: &Tree) -> Result<BTreeMap<String, Family>, String> {
    let mut families = BTreeMap::new();
    for file in &tree.files {
        let name = file.path.strip_prefix("schema/").and_then(|name| name.strip_suffix(".toml"));
        let Some(name) = name else { continue };
        let family = toml::from_str(&file.text).map_err(|e| format!("{}: {e}", file.path))?;
        families.insert(name.to_owned(), family);
    }
    Ok(families)
}

fn topics(tree: &Tree) -> Result<String, String> {
    let families = families(tree)?;
    let mut text = String::from(
        "# Topics\n\n\
         Every topic that Skopos publishes, by family. `cargo xtask reference` makes this page from \
         [`schema/`](../../schema), so it cannot differ from the program. `skopos ls -l` shows the same \
         for the topics of a running agent.\n\n\
         A topic is a path. `NODE` is the name of the machine, and names in capitals stand for one \
         segment each. In SQL a family is also a table of this name, with a column for each metric. A \
         **counter** only grows until its source restarts, a **gauge** goes up and down, a **state** is \
         one of a few values. A value of type `structured` is JSON. The [fifteen insights](insights.md) \
         have a page of their own.\n\n",
    );
    let links = families.keys().map(|name| format!("[`{name}`](#{name})"));
    writeln!(text, "{}\n", links.collect::<Vec<_>>().join(" · ")).expect("a String takes all");
    for (name, family) in &families {
        write_family(&mut text, name, family);
    }
    Ok(text.trim_end().to_owned() + "\n")
}

fn write_family(text: &mut String, name: &str, family: &Family) {
    let path = family.path.as_deref().unwrap_or(name);
    let instance = match family.instance.as_str() {
        "" => String::new(),
        instance => format!("{}/", instance.to_uppercase()),
    };
    let Family { help, source, .. } = family;
    write!(
        text,
        "## {name}\n\n{}. Topics: `NODE/{path}/{instance}METRIC`. Source: {}.\n\n\
         | metric | unit | kind | type | meaning |\n|---|---|---|---|---|\n",
        sentence(help),
        sentence(source)
    )
    .expect("a String takes all");
    for Metric { name, help, unit, kind, value_type, read_every_seconds } in &family.metric {
        let rarely = match read_every_seconds {
            0 => String::new(),
            seconds => format!("; read every {seconds} s at least"),
        };
        writeln!(text, "| `{name}` | {unit} | {kind} | {value_type} | {}{rarely} |", cell(help))
            .expect("a String takes all");
    }
    text.push('\n');
}

/// A text without the full stop that ends it, since another one follows.
fn sentence(text: &str) -> String {
    let text = text.trim().trim_end_matches('.');
    // An asterisk in a path is no emphasis.
    text.replace('*', "\\*")
}

/// A text in a table.
fn cell(text: &str) -> String {
    text.trim().replace('|', "\\|").replace('*', "\\*")
}

fn json(tree: &Tree) -> Result<String, String> {
    let mut text = String::from(
        "# JSON\n\n\
         Every verb that prints data has `--json`. Each document has a schema (JSON Schema), and a test \
         holds the output of the program against it. `cargo xtask reference` makes this list from \
         [`docs/json`](../json). A field may be added at any time; a field that goes, or changes its \
         meaning, is in the changelog.\n\n\
         | document | schema |\n|---|---|\n",
    );
    for file in &tree.files {
        let name =
            file.path.strip_prefix("docs/json/").and_then(|n| n.strip_suffix(".schema.json"));
        let Some(name) = name else { continue };
        let schema: serde_json::Value =
            serde_json::from_str(&file.text).map_err(|e| format!("{}: {e}", file.path))?;
        let title = schema["title"].as_str().ok_or(format!("{} has no title", file.path))?;
        writeln!(text, "| {title} | [{name}](../json/{name}.schema.json) |")
            .expect("a String takes all");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: (&str, &str) = (
        "schema/load.toml",
        "help = \"Load averages.\"\nsource = \"/proc/*\"\ninstance = \"core\"\n\
         [[metric]]\nname = \"load_1m\"\nhelp = \"a|b\"\nunit = \"\"\nkind = \"gauge\"\ntype = \"f64\"\n",
    );

    #[test]
    fn a_family_becomes_a_table() {
        let text = topics(&Tree::of(&[LOAD])).expect("it is well-formed");
        assert!(
            text.contains("Load averages. Topics: `NODE/load/CORE/METRIC`. Source: /proc/\\*.")
        );
        assert!(text.contains("| `load_1m` |  | gauge | f64 | a\\|b |"), "{text}");
    }

    #[test]
    fn a_page_that_differs_from_its_sources_is_refused() {
        let pages = |text: &str| {
            let made = json(&Tree::of(&[])).expect("it is well-formed");
            let (topics, json) = (PAGES[0].0, PAGES[1].0);
            let tree = Tree::of(&[LOAD, (topics, text), (json, &made)]);
            outdated(&tree).into_iter().map(|(path, _)| path).collect::<Vec<_>>()
        };
        let made = topics(&Tree::of(&[LOAD])).expect("it is well-formed");
        assert!(pages(&made).is_empty());
        assert_eq!(pages("old"), ["docs/reference/topics.md"]);
    }
}

//! Heavy libraries stay in the crates that were made for them. The agent of a node does not link them
//! through other crates either.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::metadata::{Dependency, Kind, Metadata, Package};
use crate::tidy::finding::Finding;
use crate::tree::Tree;

struct Heavy {
    /// Name of a library; names that begin with it and a `-` count too, unless an earlier entry has them.
    name: &'static str,
    homes: &'static [&'static str],
    /// Crates that may have it behind a feature that is off by default.
    optional_homes: &'static [&'static str],
    why: &'static str,
}

const HEAVY: &[Heavy] = &[
    Heavy {
        name: "datafusion",
        homes: &["query"],
        optional_homes: &[],
        why: "it is half of the build; other crates ask `query`",
    },
    Heavy {
        name: "zenoh",
        homes: &["wire"],
        optional_homes: &[],
        why: "users and other crates speak to `wire`, never raw Zenoh",
    },
    Heavy {
        name: "tokio-postgres",
        homes: &["hub"],
        optional_homes: &[],
        why: "one crate speaks to databases of other programs; `store` has the trait, and no runtime",
    },
    Heavy {
        name: "object_store",
        homes: &["hub"],
        optional_homes: &[],
        why: "one crate speaks to object stores; `store` has the trait of a disk, and no runtime",
    },
    Heavy {
        name: "tokio",
        homes: &["wire", "query", "hub", "serve", "skopos", "bench"],
        optional_homes: &["rpc"],
        why: "the agent has one timer thread and no runtime",
    },
];

/// Crates of the agent and of embedding programs: their direct dependencies must not lead to a heavy
/// library, however deep.
const LEAN: &[&str] = &[
    "model", "access", "shm", "eval", "score", "sense", "net", "task", "ffi", "steer", "term",
    "top",
];

/// Crates whose whole build, through our other crates too, leaves these out.
const WITHOUT: &[(&str, &[&str])] =
    &[("agent", &["datafusion", "zenoh", "tokio"]), ("node", &["datafusion"])];

/// The crates whose builds the check needs to know.
pub(crate) const WHOLE: &[&str] = &["agent", "node"];

pub(crate) fn check(metadata: &Metadata, tree: &Tree) -> Vec<Finding> {
    let lock = tree.file("Cargo.lock").map_or(Lock::default(), |f| Lock::parse(&f.text));
    let mut findings = Vec::new();
    for package in &metadata.packages {
        for dependency in package.dependencies.iter().filter(|d| d.path.is_none()) {
            findings.extend(direct(package, dependency));
            findings.extend(indirect(package, dependency, &lock));
        }
        findings.extend(whole(package, metadata));
    }
    findings
}

fn heavy(name: &str) -> Option<&'static Heavy> {
    let same = |h: &&Heavy| {
        name.strip_prefix(h.name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    HEAVY.iter().find(same)
}

fn direct(package: &Package, dependency: &Dependency) -> Option<Finding> {
    let heavy = heavy(&dependency.name)?;
    let user = package.short_name();
    let at_home = heavy.homes.contains(&user)
        || heavy.optional_homes.contains(&user) && dependency.optional
        // A test may need a runtime to talk to its peer; it is not shipped.
        || heavy.name == "tokio" && dependency.kind == Some(Kind::Dev);
    (!at_home).then(|| {
        Finding::in_file(
            &package.manifest(),
            format!(
                "`{user}` uses `{}`, whose home is {}",
                dependency.name,
                heavy.homes.join(", ")
            ),
            match heavy.optional_homes.contains(&user) {
                true => "make it `optional = true`, behind a feature that is off".to_owned(),
                false => format!("move the code that needs it there: {}", heavy.why),
            },
        )
    })
}

/// A heavy library that a lean crate gets through one of its dependencies.
fn indirect(package: &Package, dependency: &Dependency, lock: &Lock) -> Option<Finding> {
    let user = package.short_name();
    if !LEAN.contains(&user) || dependency.kind == Some(Kind::Dev) {
        return None;
    }
    let found = lock.below(&dependency.name).into_iter().find(|name| heavy(name).is_some())?;
    Some(Finding::in_file(
        &package.manifest(),
        format!("`{user}` gets `{found}` by way of `{}`", dependency.name),
        format!(
            "turn the feature of `{}` off that pulls it in (`cargo tree -p {} -i {found}` shows \
             the way), or use another library",
            dependency.name, package.name
        ),
    ))
}

/// A heavy library that a build of the crate compiles.
fn whole(package: &Package, metadata: &Metadata) -> Option<Finding> {
    let user = package.short_name();
    let (_, without) = WITHOUT.iter().find(|(krate, _)| *krate == user)?;
    let mut below = metadata.below.get(user)?.iter();
    let found = below.find(|name| heavy(name).is_some_and(|h| without.contains(&h.name)))?;
    Some(Finding::in_file(
        &package.manifest(),
        format!("a build of `{user}` compiles `{found}`"),
        format!(
            "`cargo tree -p {} -i {found}` shows the way: turn off the feature that pulls it in, or \
             move the code that needs it to a crate above",
            package.name
        ),
    ))
}

/// `Cargo.lock`: the dependencies of each package, all versions together.
#[derive(Default)]
struct Lock(BTreeMap<String, BTreeSet<String>>);

#[derive(Deserialize)]
struct LockFile {
    #[serde(default)]
    package: Vec<LockedPackage>,
}

#[derive(Deserialize)]
struct LockedPackage {
    name: String,
    #[serde(default)]
    dependencies: Vec<String>,
}

impl Lock {
    fn parse(text: &str) -> Self {
        let file: LockFile = toml::from_str(text).unwrap_or(LockFile { package: Vec::new() });
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for package in file.package {
            // "name", or "name version" where several versions are locked.
            let names = package.dependencies.iter().filter_map(|d| d.split(' ').next());
            uses.entry(package.name).or_default().extend(names.map(str::to_owned));
        }
        Self(uses)
    }

    /// All packages below `name`.
    fn below(&self, name: &str) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        let mut open = vec![name];
        while let Some(user) = open.pop() {
            for used in self.0.get(user).into_iter().flatten() {
                if found.insert(used.as_str()) {
                    open.push(used);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(json: &str, lock: &str) -> Vec<String> {
        let metadata = serde_json::from_str(json).expect("metadata");
        let tree = Tree::of(&[("Cargo.lock", lock)]);
        check(&metadata, &tree).into_iter().map(|f| f.fault).collect()
    }

    #[test]
    fn heavy_libraries_stay_at_home() {
        let json = r#"{"packages": [
            {"name": "skopos-store", "dependencies": [
                {"name": "tokio", "kind": null},
                {"name": "tokio", "kind": "dev"},
                {"name": "tokio-postgres", "kind": null},
                {"name": "datafusion-expr", "kind": "dev"}]},
            {"name": "skopos-rpc", "dependencies": [
                {"name": "tokio", "kind": null, "optional": false},
                {"name": "tokio-util", "kind": null, "optional": true}]},
            {"name": "skopos", "dependencies": [
                {"name": "tokio", "kind": null}, {"name": "zenoh", "kind": null}]}]}"#;
        assert_eq!(
            faults(json, ""),
            [
                "`store` uses `tokio`, whose home is wire, query, hub, serve, skopos, bench",
                "`store` uses `tokio-postgres`, whose home is hub",
                "`store` uses `datafusion-expr`, whose home is query",
                "`rpc` uses `tokio`, whose home is wire, query, hub, serve, skopos, bench",
                "`skopos` uses `zenoh`, whose home is wire",
            ]
        );
    }

    #[test]
    fn a_dependency_that_brings_a_runtime_is_refused() {
        let json = r#"{"packages": [
            {"name": "skopos-sense", "dependencies": [
                {"name": "harmless", "kind": null}, {"name": "redis", "kind": "dev"}]}]}"#;
        let lock = "[[package]]\nname = \"harmless\"\ndependencies = [\"middle 1.0.0\"]\n\
                    [[package]]\nname = \"middle\"\ndependencies = [\"tokio\"]\n\
                    [[package]]\nname = \"redis\"\ndependencies = [\"tokio\"]\n";
        assert_eq!(faults(json, lock), ["`sense` gets `tokio` by way of `harmless`"]);
    }

    #[test]
    fn a_build_of_the_agent_has_no_runtime_and_that_of_a_node_no_engine() {
        let json = r#"{"packages": [
            {"name": "skopos-agent", "dependencies": []},
            {"name": "skopos-node", "dependencies": []},
            {"name": "skopos-hub", "dependencies": []}],
            "below": {"agent": ["skopos-store", "tokio-util"], "node": ["tokio", "zenoh"]}}"#;
        assert_eq!(faults(json, ""), ["a build of `agent` compiles `tokio-util`"]);
        let json = json.replace("\"zenoh\"", "\"datafusion-expr\"").replace("tokio-util", "libc");
        assert_eq!(faults(&json, ""), ["a build of `node` compiles `datafusion-expr`"]);
    }
}

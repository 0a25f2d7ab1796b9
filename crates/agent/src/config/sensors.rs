use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use skopos_model::schema;
use skopos_score::interval::{PolicyConfig, PolicyKind};

use crate::config::Config;
use skopos_term::find::LIKENESS;

/// The name under which sensors are configured that have no table of their own.
pub const DEFAULT_SENSOR: &str = "default";

impl Config {
    /// How the sensor of `family` is polled: by its own table, else by that for all. A policy that
    /// was `typed` wins over the table for all; over a table of one sensor only where that names no
    /// policy. `usual` is for where nobody says which.
    pub fn policy(
        &self,
        family: &str,
        typed: Option<PolicyKind>,
        usual: PolicyKind,
    ) -> PolicyConfig {
        let for_all = self.sensors.get(DEFAULT_SENSOR);
        let own = self.sensors.get(family);
        if let Some(own) = own.filter(|own| own.policy.is_some()) {
            return own.clone();
        }
        let table = own.or(for_all).cloned().unwrap_or_default();
        // What is typed replaces another policy, whose parameters it need not have.
        if let Some(typed) = typed {
            return table.with_policy(typed);
        }
        let policy = for_all.and_then(|table| table.policy).unwrap_or(usual);
        PolicyConfig { policy: Some(policy), ..table }
    }
}

/// The tables of sensors. A name that is no family is refused where it stands.
pub(super) fn by_family<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, PolicyConfig>, D::Error> {
    let tables = BTreeMap::<Family, PolicyConfig>::deserialize(deserializer)?;
    Ok(tables.into_iter().map(|(family, table)| (family.0, table)).collect())
}

/// The name of a family of facts, or [`DEFAULT_SENSOR`].
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Family(String);

impl<'de> Deserialize<'de> for Family {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        match names().any(|known| known == name) {
            true => Ok(Self(name)),
            false => Err(D::Error::custom(unknown(&name))),
        }
    }
}

/// Families that no sensor yields: the agent itself says what it does and computes.
const OF_THE_AGENT: [&str; 3] =
    [schema::self_::FAMILY.name, schema::self_sensor::FAMILY.name, schema::insight::FAMILY.name];

/// The families that sensors have, here or elsewhere.
pub fn families() -> impl Iterator<Item = &'static str> {
    let families = schema::FAMILIES.iter().map(|family| family.name);
    families.filter(|name| !OF_THE_AGENT.contains(name))
}

/// What a table of a sensor can be named.
fn names() -> impl Iterator<Item = &'static str> {
    families().chain([DEFAULT_SENSOR])
}

fn unknown(name: &str) -> String {
    let likeness = |known: &str| strsim::normalized_damerau_levenshtein(known, name);
    let nearest = names()
        .map(|known| (likeness(known), known))
        .filter(|(likeness, _)| *likeness >= LIKENESS)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((_, known)) => format!("there is no sensor `{name}`: did you mean `{known}`?"),
        None => {
            let all = names().collect::<Vec<_>>().join(", ");
            format!("there is no sensor `{name}`: the families are {all}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_which_policy_a_sensor_has() {
        use PolicyKind::{Aimd, AimdWindow, Fixed, Hazard};
        let text = r#"
            [default]
            policy = "aimd"
            max_seconds = 30
            [fs]
            policy = "aimd-window"
            [mem]
            min_seconds = 5
            max_seconds = 8
        "#;
        let mut config =
            Config { sensors: toml::from_str(text).expect("understood"), ..Config::default() };
        let of = |config: &Config, family, typed| {
            let policy = config.policy(family, typed, Hazard);
            (policy.kind(), policy.min_seconds, policy.max_seconds)
        };
        assert_eq!(of(&config, "cpu", None), (Aimd, None, Some(30.0)), "by the table for all");
        assert_eq!(of(&config, "cpu", Some(Hazard)), (Hazard, None, Some(30.0)), "as typed");
        assert_eq!(of(&config, "cpu", Some(Fixed)), (Fixed, None, None), "that has no longest");
        assert_eq!(of(&config, "fs", Some(Fixed)), (AimdWindow, None, None), "a table of its own");
        assert_eq!(of(&config, "mem", None), (Aimd, Some(5.0), Some(8.0)), "only its times");
        assert_eq!(of(&config, "mem", Some(Fixed)), (Fixed, Some(5.0), None), "only its times");
        config.sensors.remove(DEFAULT_SENSOR);
        assert_eq!(of(&config, "mem", None), (Hazard, Some(5.0), Some(8.0)), "the usual one");
        assert_eq!(of(&config, "cpu", Some(Aimd)), (Aimd, None, None), "as typed");
    }
}

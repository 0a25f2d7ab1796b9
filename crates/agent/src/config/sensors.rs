//! The tables `[sensors.NAME]`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use skopos_model::{nearest_name, schema};
use skopos_score::interval::{PolicyConfig, PolicyKind};

use crate::config::Config;

/// The name of the table for all sensors without a table of their own.
pub const DEFAULT_SENSOR: &str = "default";

impl Config {
    /// Returns the policy of the sensor of `family`: its own table, else the default table. The `typed` policy
    /// wins over the default table, and over the sensor's own table if that names no policy. `default` is the
    /// policy if the user names none.
    pub fn policy(
        &self,
        family: &str,
        typed: Option<PolicyKind>,
        default: PolicyKind,
    ) -> PolicyConfig {
        let for_all = self.sensors.get(DEFAULT_SENSOR);
        let own = self.sensors.get(family);
        if let Some(own) = own.filter(|own| own.policy.is_some()) {
            return own.clone();
        }
        let table = own.or(for_all).cloned().unwrap_or_default();
        // The typed policy may not have the parameters of the one that it replaces.
        if let Some(typed) = typed {
            return table.with_policy(typed);
        }
        let policy = for_all.and_then(|table| table.policy).unwrap_or(default);
        PolicyConfig { policy: Some(policy), ..table }
    }
}

/// Reads the tables of sensors. A name that is not a family is an error at its line.
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

/// Families without a sensor: the agent's own facts, insights and ranks.
const OF_THE_AGENT: [&str; 5] = [
    schema::self_::FAMILY.name,
    schema::self_sensor::FAMILY.name,
    schema::insight::FAMILY.name,
    schema::rank::FAMILY.name,
    schema::rank_profile::FAMILY.name,
];

/// Returns the families of all sensors, also of those that this machine does not have.
pub fn families() -> impl Iterator<Item = &'static str> {
    let families = schema::FAMILIES.iter().map(|family| family.name);
    families.filter(|name| !OF_THE_AGENT.contains(name))
}

/// Returns the valid names of a sensor's table.
fn names() -> impl Iterator<Item = &'static str> {
    families().chain([DEFAULT_SENSOR])
}

fn unknown(name: &str) -> String {
    match nearest_name(name, names()) {
        Some(known) => format!("there is no sensor `{name}`: did you mean `{known}`?"),
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
    fn the_typed_policy_wins_over_the_default_table_only() {
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
        assert_eq!(of(&config, "cpu", None), (Aimd, None, Some(30.0)), "by the default table");
        assert_eq!(of(&config, "cpu", Some(Hazard)), (Hazard, None, Some(30.0)), "as typed");
        assert_eq!(
            of(&config, "cpu", Some(Fixed)),
            (Fixed, None, None),
            "a fixed policy has no longest interval"
        );
        assert_eq!(of(&config, "fs", Some(Fixed)), (AimdWindow, None, None), "a table of its own");
        assert_eq!(of(&config, "mem", None), (Aimd, Some(5.0), Some(8.0)), "only its times");
        assert_eq!(of(&config, "mem", Some(Fixed)), (Fixed, Some(5.0), None), "only its times");
        config.sensors.remove(DEFAULT_SENSOR);
        assert_eq!(of(&config, "mem", None), (Hazard, Some(5.0), Some(8.0)), "the default policy");
        assert_eq!(of(&config, "cpu", Some(Aimd)), (Aimd, None, None), "as typed");
    }
}

//! An event as a webhook and a command get it: `docs/json/rule_event.schema.json`.

use serde::Serialize;
use serde_json::{Map, Value};
use skopos_steer::rule::Event;

/// An event of a rule.
#[derive(Serialize)]
pub(super) struct Payload<'a> {
    version: u32,
    site: &'a str,
    /// Name of the rule.
    pub(super) rule: &'a str,
    event: &'static str,
    subject: &'a str,
    firing: bool,
    time: String,
    time_ns: i64,
    since: String,
    since_ns: i64,
    values: &'a Map<String, Value>,
}

impl<'a> Payload<'a> {
    pub(super) fn new(site: &'a str, rule: &'a str, event: &'a Event) -> Self {
        Self {
            version: 1,
            site,
            rule,
            event: event.kind.name(),
            subject: &event.subject,
            firing: event.is_firing,
            time: event.at.to_string(),
            time_ns: event.at.as_nanos(),
            since: event.since.to_string(),
            since_ns: event.since.as_nanos(),
            values: &event.values,
        }
    }

    /// Returns the JSON document.
    pub(super) fn json(&self) -> Vec<u8> {
        // Texts and numbers always have a form in JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Returns the variables of a program's environment. A text with a NUL byte, which a variable cannot have, is left out.
    pub(super) fn variables(&self) -> Vec<(String, String)> {
        let own = [
            ("SKOPOS_RULE", self.rule),
            ("SKOPOS_EVENT", self.event),
            ("SKOPOS_SUBJECT", self.subject),
            ("SKOPOS_SITE", self.site),
            ("SKOPOS_TIME", self.time.as_str()),
            ("SKOPOS_SINCE", self.since.as_str()),
            ("SKOPOS_FIRING", if self.firing { "1" } else { "0" }),
        ];
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let values = self.values.iter().map(|(name, value)| {
            let value = match value {
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                value => value.to_string(),
            };
            let upper =
                |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
            (format!("SKOPOS_VALUE_{}", name.chars().map(upper).collect::<String>()), value)
        });
        own.chain(values).filter(|(_, value)| !value.contains('\0')).collect()
    }
}

//! The tables `[[rule]]`.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use skopos_access::is_loopback;
use skopos_agent::config::parse_private;
use skopos_model::Topic;
use skopos_query::MAX_SQL_BYTES;
use skopos_steer::rule::Terms;
use skopos_term::Failure;

/// Most rules of a hub. One thread evaluates all of them.
const MAX_RULES: usize = 256;

/// Longest name of a rule: it is a segment of topics.
const MAX_NAME_BYTES: usize = 64;

/// Default time between two evaluations.
const EVERY: Duration = Duration::from_secs(5);

/// Shortest time between two evaluations. An action that has to come sooner reads shared memory.
const SHORTEST: Duration = Duration::from_millis(100);

/// Longest time between two evaluations.
const LONGEST: Duration = Duration::from_secs(86_400);

/// Default time that an action may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time that an action may take: the others wait for its thread.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(600);

/// Most words of a command, and bytes of a word.
const MAX_WORDS: usize = 64;
const MAX_WORD_BYTES: usize = 4096;

/// Most columns that name a subject.
const MAX_COLUMNS: usize = 16;

/// First segments of topics that agents and hubs publish themselves.
const RESERVED: [&str; 4] = ["self", "insight", "anomaly", "predicted"];

/// A rule: a statement, and the action for its rows.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Written")]
pub struct RuleConfig {
    /// The name, which is a segment of topics.
    pub name: String,
    /// The statement. Each row is a subject.
    pub when: String,
    /// Times and limits.
    pub terms: Terms,
    /// Time between two evaluations.
    pub every: Duration,
    /// Columns that name a subject; without any, all columns of texts.
    pub subject: Vec<String>,
    /// True if actions are noted and not done.
    pub dry_run: bool,
    /// The action.
    pub action: Action,
}

/// The action of a rule.
#[derive(Clone, Debug)]
pub enum Action {
    /// Sends each event to a server.
    Webhook(Webhook),
    /// Runs a program for each event.
    Command(Command),
    /// Publishes the number of firing subjects as a topic below the site.
    Publish(String),
}

impl Action {
    /// Returns the name of the kind: `webhook`, `command` or `publish`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Webhook(_) => "webhook",
            Self::Command(_) => "command",
            Self::Publish(_) => "publish",
        }
    }

    /// Returns the action for people. Path and query of a URL may be a secret, and arguments of a command too, so they are
    /// left out.
    pub fn target(&self) -> String {
        match self {
            Self::Webhook(webhook) => webhook.url.to_string(),
            Self::Command(command) => command.argv.first().cloned().unwrap_or_default(),
            Self::Publish(topic) => topic.clone(),
        }
    }
}

/// A server that takes events.
#[derive(Clone, Debug)]
pub struct Webhook {
    /// The URL.
    pub url: Url,
    /// File with a token, which is read for each request.
    pub bearer_file: Option<PathBuf>,
    /// Maximum time for an answer.
    pub timeout: Duration,
}

/// A program that is run for events.
#[derive(Clone)]
pub struct Command {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Maximum time for its end.
    pub timeout: Duration,
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Command({:?}, {:?})", self.argv.first(), self.timeout)
    }
}

/// A URL, of which only scheme and host are shown: the rest may be a secret.
#[derive(Clone)]
pub struct Url(String);

impl Url {
    fn parse(text: String) -> Result<Self, String> {
        let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
        // A password before the host would be sent in clear text to whoever answers there.
        match !host.is_empty() && !host.contains('@') && !text.contains(char::is_whitespace) {
            true if text.starts_with("http://") && !is_loopback(host) => Err(
                "`webhook` would send rows and tokens in clear text: use `https://`, or an address of the loopback, such as `http://127.0.0.1`"
                    .to_owned(),
            ),
            true => Ok(Self(text)),
            false => Err(
                "`webhook` is not a URL without user and password: write it like `https://alerts.example/skopos`"
                    .to_owned(),
            ),
        }
    }

    /// Returns the whole URL, for a request.
    pub(crate) fn whole(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = self.0.find("://").map_or(0, |at| at + 3);
        let end = self.0[start..].find(['/', '?', '#']).map_or(self.0.len(), |at| start + at);
        f.write_str(&self.0[..end])
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A rule as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    when: String,
    #[serde(rename = "for", default, deserialize_with = "skopos_score::duration::optional")]
    hold: Option<Duration>,
    #[serde(default, deserialize_with = "skopos_score::duration::optional")]
    keep: Option<Duration>,
    #[serde(default, deserialize_with = "skopos_score::duration::optional")]
    repeat: Option<Duration>,
    #[serde(default, deserialize_with = "skopos_score::duration::optional")]
    every: Option<Duration>,
    at_most: Option<u32>,
    #[serde(default, deserialize_with = "skopos_score::duration::optional")]
    per: Option<Duration>,
    #[serde(default)]
    subject: Vec<String>,
    #[serde(default)]
    dry_run: bool,
    then: Then,
}

/// The action as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Then {
    webhook: Option<String>,
    bearer_file: Option<PathBuf>,
    command: Option<Vec<String>>,
    publish: Option<String>,
    #[serde(default, deserialize_with = "skopos_score::duration::optional")]
    timeout: Option<Duration>,
}

impl TryFrom<Written> for RuleConfig {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let name = written.name;
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_name) {
            return Err(format!(
                "`name` of a rule has 1 to {MAX_NAME_BYTES} lower-case letters, digits, `-` and `_`"
            ));
        }
        let wrong = |why: String| format!("the rule `{name}`: {why}");
        if written.when.len() > MAX_SQL_BYTES {
            return Err(wrong(format!("`when` has more than {MAX_SQL_BYTES} bytes")));
        }
        if written.subject.len() > MAX_COLUMNS {
            return Err(wrong(format!("`subject` has more than {MAX_COLUMNS} columns")));
        }
        let every = written.every.unwrap_or(EVERY);
        if !(SHORTEST..=LONGEST).contains(&every) {
            return Err(wrong("`every` is from 100 ms to a day".to_owned()));
        }
        let usual = Terms::default();
        let terms = Terms {
            hold: written.hold.unwrap_or(usual.hold),
            keep: written.keep.unwrap_or(usual.keep),
            repeat: written.repeat,
            most: written.at_most.unwrap_or(usual.most),
            per: written.per.unwrap_or(usual.per),
            pause: usual.pause,
            // A few evaluations may be late or fail without a new begin.
            gap: usual.gap.max(every * 3),
        };
        terms.check().map_err(|e| wrong(e.to_string()))?;
        let action = written.then.action().map_err(wrong)?;
        let (when, subject, dry_run) = (written.when, written.subject, written.dry_run);
        Ok(Self { name, when, terms, every, subject, dry_run, action })
    }
}

impl Then {
    fn action(self) -> Result<Action, String> {
        let timeout = self.timeout.unwrap_or(TIMEOUT);
        if timeout.is_zero() || timeout > LONGEST_TIMEOUT {
            return Err("`timeout` is above 0 and at most 10 minutes".to_owned());
        }
        if self.bearer_file.is_some() && self.webhook.is_none() {
            return Err("`bearer_file` belongs to a webhook".to_owned());
        }
        match (self.webhook, self.command, self.publish) {
            (Some(url), None, None) => {
                if self.bearer_file.as_deref().is_some_and(Path::is_relative) {
                    return Err("the path `bearer_file` begins with `/`".to_owned());
                }
                let (url, bearer_file) = (Url::parse(url)?, self.bearer_file);
                Ok(Action::Webhook(Webhook { url, bearer_file, timeout }))
            }
            (None, Some(argv), None) => {
                let is_word = |word: &String| word.len() <= MAX_WORD_BYTES && !word.contains('\0');
                let is_path = argv.first().is_some_and(|program| program.starts_with('/'));
                match is_path && argv.len() <= MAX_WORDS && argv.iter().all(is_word) {
                    true => Ok(Action::Command(Command { argv, timeout })),
                    false => Err(format!(
                        "`command` is a list of at most {MAX_WORDS} words, the first of which is the path of a program"
                    )),
                }
            }
            (None, None, Some(topic)) => {
                let is_valid = Topic::new(&format!("site/{topic}")).is_ok();
                let first = topic.split('/').next().unwrap_or_default();
                match is_valid && topic.contains('/') && !RESERVED.contains(&first) {
                    true => Ok(Action::Publish(topic)),
                    false => Err(format!(
                        "`{topic}` is not a topic below the site: write it like `app/disk_full`"
                    )),
                }
            }
            _ => Err("`then` has one of `webhook`, `command` and `publish`".to_owned()),
        }
    }
}

/// Reads the rules of a configuration file.
///
/// # Errors
/// A rule is not valid; the message has its line, and not what is written there.
pub fn rules_of(text: &str, path: Option<&Path>) -> Result<Vec<RuleConfig>, Failure> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct File {
        rule: Vec<RuleConfig>,
    }
    let rules = parse_private::<File>(text, path)?.rule;
    if rules.len() > MAX_RULES {
        let error = format!("{} rules are configured; {MAX_RULES} are the most", rules.len());
        return Err(Failure::new(error).in_file(path));
    }
    let mut names = HashSet::new();
    if let Some(twice) = rules.iter().find(|rule| !names.insert(rule.name.as_str())) {
        let error = format!("two rules have the name `{}`", twice.name);
        return Err(Failure::new(error).in_file(path).hint("give one of them another name"));
    }
    let mut topics = HashSet::new();
    let published = rules.iter().filter_map(|rule| match &rule.action {
        Action::Publish(topic) => Some(topic.as_str()),
        _ => None,
    });
    if let Some(twice) = published.into_iter().find(|topic| !topics.insert(*topic)) {
        let error = format!("two rules publish `{twice}`");
        return Err(Failure::new(error).in_file(path).hint("give each rule a topic of its own"));
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(rest: &str) -> Result<RuleConfig, Failure> {
        let text = format!("[[rule]]\nname = \"full\"\nwhen = \"SELECT 1\"\n{rest}");
        rules_of(&text, None).map(|rules| rules[0].clone())
    }

    #[test]
    fn a_rule_has_defaults() {
        let rule = one("for = \"30s\"\nthen = { publish = \"app/full\" }").expect("a rule");
        assert_eq!((rule.terms.hold, rule.every), (Duration::from_secs(30), EVERY));
        assert_eq!((rule.action.kind(), rule.dry_run), ("publish", false));
    }

    #[test]
    fn a_webhook_is_at_an_address_of_the_loopback_or_has_tls() {
        for url in ["https://alerts.example", "http://127.0.0.1:80/a?b", "http://[::1]#c"] {
            let rule = one(&format!("then = {{ webhook = \"{url}\" }}"));
            assert_eq!(rule.expect("a rule").action.kind(), "webhook", "{url}");
        }
    }

    #[test]
    fn an_error_names_the_mistake() {
        for (rest, expected) in [
            ("", "missing field `then`"),
            ("then = {}", "one of `webhook`, `command` and `publish`"),
            ("then = { publish = \"a/b\", command = [\"/bin/true\"] }", "one of"),
            ("then = { publish = \"self/full\" }", "is not a topic below the site"),
            ("then = { publish = \"full\" }", "is not a topic below the site"),
            ("then = { command = [\"mail\"] }", "the path of a program"),
            ("then = { command = [] }", "the path of a program"),
            ("then = { webhook = \"alerts.example\" }", "is not a URL"),
            ("then = { webhook = \"https://ann:pw@alerts.example\" }", "is not a URL"),
            ("then = { webhook = \"http://alerts.example/\" }", "in clear text"),
            ("then = { webhook = \"http://127.0.0.1.example/\" }", "in clear text"),
            ("then = { webhook = \"http://localhost:80/\" }", "such as `http://127.0.0.1`"),
            ("then = { webhook = \"https://a\", bearer_file = \"t\" }", "begins with `/`"),
            ("then = { command = [\"/bin/true\"], bearer_file = \"/t\" }", "belongs to a webhook"),
            ("then = { command = [\"/bin/true\"], timeout = \"1h\" }", "10 minutes"),
            ("every = \"1ms\"\nthen = { publish = \"a/b\" }", "100 ms"),
            ("at_most = 0\nthen = { publish = \"a/b\" }", "`at_most` is 0"),
            ("for = \"99d\"\nthen = { publish = \"a/b\" }", "31 days"),
            ("fro = \"9s\"\nthen = { publish = \"a/b\" }", "unknown field `fro`"),
        ] {
            let error = one(rest).expect_err(rest).in_one_line();
            assert!(error.contains(expected), "{rest}: {error}");
        }
        let twice = "[[rule]]\nname='a'\nwhen='SELECT 1'\nthen={publish='x/y'}\n";
        let error = rules_of(&format!("{twice}{twice}"), None).expect_err("a name twice");
        assert!(error.in_one_line().contains("two rules have the name `a`"));
    }

    #[test]
    fn an_error_does_not_show_secrets() {
        for rest in [
            "then = { webhook = \"https://hooks.example/s3cret\", webhok = 1 }",
            "then = { webhook = \"ftp://hooks.example/s3cret\" }",
            "then = \"https://hooks.example/s3cret\"",
            "then = { webhook = [\"https://hooks.example/s3cret\"] }",
            "then = { command = \"/bin/send --token s3cret\" }",
        ] {
            let error = one(rest).expect_err(rest).in_one_line();
            assert!(!error.contains("s3cret"), "{error}");
        }
        let rule = one("then = { webhook = \"https://hooks.example/s3cret?k=s3cret\" }");
        let rule = rule.expect("a rule");
        assert_eq!(rule.action.target(), "https://hooks.example");
        let rule = format!("{rule:?}");
        assert!(!rule.contains("s3cret") && rule.contains("hooks.example"), "{rule}");
        let rule = one("then = { command = [\"/bin/send\", \"s3cret\"] }").expect("a rule");
        assert!(!format!("{rule:?} {}", rule.action.target()).contains("s3cret"));
    }
}

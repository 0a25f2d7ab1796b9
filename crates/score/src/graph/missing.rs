use skopos_model::TopicPattern;

/// The reasons why topics are missing: usually the reasons for which sensors were skipped.
#[derive(Debug, Default)]
pub(super) struct Missing(Vec<(Scope, Box<str>)>);

#[derive(Debug, PartialEq)]
enum Scope {
    /// The family of a sensor: the second segment of its topics.
    Family(Box<str>),
    Topics(TopicPattern),
}

impl Scope {
    fn new(text: &str) -> Self {
        match TopicPattern::new(text) {
            Ok(pattern) if text.contains(['/', '*']) => Self::Topics(pattern),
            _ => Self::Family(text.into()),
        }
    }

    /// Returns true if every topic that the pattern `input` can match is in this scope.
    fn covers(&self, input: &str) -> bool {
        match self {
            Self::Family(family) => {
                let mut segments = input.split('/');
                // `**` may match the node, or nothing.
                match segments.next() {
                    Some("**") => segments.any(|segment| segment == &**family),
                    _ => segments.next() == Some(family),
                }
            }
            // A star inside of the text is matched like any other character.
            Self::Topics(pattern) => pattern.matches_str(input),
        }
    }
}

impl Missing {
    pub(super) fn set(&mut self, text: &str, reason: &str) {
        let scope = Scope::new(text);
        match self.0.iter_mut().find(|(known, _)| *known == scope) {
            Some((_, old)) => *old = reason.into(),
            None => self.0.push((scope, reason.into())),
        }
    }

    pub(super) fn clear(&mut self, text: &str) {
        let scope = Scope::new(text);
        self.0.retain(|(known, _)| *known != scope);
    }

    /// Returns the latest reason why no topic matches `input`.
    pub(super) fn reason(&self, input: &str) -> Option<Box<str>> {
        let (scope, reason) = self.0.iter().rev().find(|(scope, _)| scope.covers(input))?;
        Some(match scope {
            Scope::Family(family) => format!("{family}: skipped: {reason}").into(),
            Scope::Topics(_) => reason.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_or_a_pattern_says_why() {
        let mut missing = Missing::default();
        missing.set("smart", "no smartctl");
        missing.set("n01/fs/**", "hung");
        for (input, expected) in [
            ("n01/smart/sda/passed", Some("smart: skipped: no smartctl")),
            ("*/smart/**", Some("smart: skipped: no smartctl")),
            ("**/smart/*/passed", Some("smart: skipped: no smartctl")),
            ("n01/block/smart/passed", None),
            ("n01/fs/*/available_bytes", Some("hung")),
            ("*/fs/*/available_bytes", None),
        ] {
            assert_eq!(missing.reason(input).as_deref(), expected, "{input}");
        }
        missing.set("smart", "not permitted");
        assert_eq!(
            missing.reason("n01/smart/sda").as_deref(),
            Some("smart: skipped: not permitted")
        );
        missing.clear("smart");
        assert_eq!(missing.reason("n01/smart/sda"), None);
    }
}

use thiserror::Error;

/// Reasons for which a message cannot be read, or the live plane does not work.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The message does not begin like a message of the live plane.
    #[error("this is not a message of the live plane")]
    Foreign,
    /// The message has a layout that this program does not know.
    #[error("a message of layout {found}; this program knows layout {known}")]
    Layout {
        /// The layout of the message.
        found: u8,
        /// The layout that this program reads.
        known: u8,
    },
    /// The message ends in the middle of a field.
    #[error("the message ends too early")]
    Short,
    /// Bytes follow the end of the message.
    #[error("{0} bytes follow the end of the message")]
    Long(usize),
    /// A number is out of its range.
    #[error("a number is out of its range")]
    Number,
    /// A text is not UTF-8.
    #[error("a text is not UTF-8")]
    Text,
    /// Another node has this name.
    #[error("there is a node `{node}` in the site `{site}` already")]
    NameTaken {
        /// The name.
        node: String,
        /// The site.
        site: String,
    },
    /// The transport refuses a setting.
    #[error("the live plane cannot have {name} = {value}: {why}")]
    Setting {
        /// Name of the setting, as the transport calls it.
        name: &'static str,
        /// The refused value.
        value: String,
        /// The transport's reason.
        why: String,
    },
    /// A node refused a request, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The follower does not mirror this topic.
    #[error("`{0}` is not mirrored here")]
    NotMirrored(skopos_model::Topic),
    /// No connection leads to a node of this name.
    #[error("no node `{0}` can be reached")]
    Unreachable(String),
    /// A node did not answer in time.
    #[error("the node `{node}` did not answer within {within:?}")]
    NoAnswer {
        /// Name of the node.
        node: String,
        /// The time that it had.
        within: std::time::Duration,
    },
    /// The transport failed, for this reason.
    #[error("the live plane: {0}")]
    Plane(String),
    /// The folder in which sessions of this user meet cannot be used.
    #[error("sessions cannot meet in {path}")]
    Folder {
        /// The folder.
        path: std::path::PathBuf,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// A file of this program's identity cannot be used.
    #[error("{file}: {why}")]
    Identity {
        /// The file.
        file: std::path::PathBuf,
        /// The reason.
        why: String,
    },
    /// An endpoint that others reach needs an identity.
    #[error("the endpoint {0} needs a certificate of this program")]
    NoIdentity(String),
    /// The certificate of this program is one of another site.
    #[error("the certificate of this program is for the site `{certified}`, and not for `{site}`")]
    OtherSite {
        /// Site in the certificate.
        certified: String,
        /// Site that the session is for.
        site: String,
    },
    /// The certificate of this program is one of another node.
    #[error("the certificate of this program is for the node `{certified}`, and not for `{node}`")]
    OtherNode {
        /// Node in the certificate.
        certified: String,
        /// Node that the publisher would be.
        node: String,
    },
    /// The maker of a message is not proved, for this reason.
    #[error("the maker of the message is not proved: {0}")]
    Proof(String),
    /// The operating system did not start a thread.
    #[error("no thread can be started")]
    Thread(#[source] std::io::Error),
    /// The model refuses a name, a unit or a value.
    #[error(transparent)]
    Model(#[from] skopos_model::Error),
}

/// The longest reason of another program that is shown.
const MAX_REASON: usize = 300;

impl Error {
    /// Returns the refusal of another program. Its reason is shown to people, so it can neither fill nor steer a terminal.
    pub(crate) fn refused(reason: &[u8]) -> Self {
        let reason = String::from_utf8_lossy(reason);
        let plain = reason.chars().take(MAX_REASON);
        Self::Refused(plain.map(|c| if c.is_control() { ' ' } else { c }).collect())
    }

    pub(crate) fn plane(error: &zenoh::Error) -> Self {
        Self::Plane(without_places(&error.to_string()))
    }
}

/// Removes the places in the transport's sources from its error text: ` at /…/tcp.rs:61.`
pub(crate) fn without_places(text: &str) -> String {
    let mut left = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(".rs:") {
        let message = before.rsplit_once(" at ").filter(|(_, path)| !path.contains(' '));
        let line = after.trim_start_matches(|c: char| c.is_ascii_digit());
        match message {
            Some((message, _)) => {
                left.push_str(message);
                rest = line.strip_prefix('.').unwrap_or(line);
            }
            None => {
                left.push_str(before);
                left.push_str(".rs:");
                rest = after;
            }
        }
    }
    left + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_sources_are_removed() {
        for (text, expected) in [
            (
                "Can not listen at tcp/1.2.3.4:99: [1.2.3.4:99: no such address (os error 99) at /a/b-1.2/src/tcp.rs:61.] at /c/d.rs:338.",
                "Can not listen at tcp/1.2.3.4:99: [1.2.3.4:99: no such address (os error 99)]",
            ),
            ("a lib.rs:3 of one's own", "a lib.rs:3 of one's own"),
            ("nobody at home", "nobody at home"),
        ] {
            assert_eq!(without_places(text), expected);
        }
    }
}

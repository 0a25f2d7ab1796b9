use thiserror::Error;

/// Why a message is none of ours, or the live plane does not work.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// It does not begin as ours do.
    #[error("no batch of the live plane")]
    Foreign,
    /// A message has a layout that this program does not know.
    #[error("a message of layout {found}; this program knows layout {known}")]
    Layout {
        /// The layout of the message.
        found: u8,
        /// The layout that this program reads.
        known: u8,
    },
    /// It ends in the middle of something.
    #[error("it ends too early")]
    Short,
    /// It goes on after its end.
    #[error("{0} bytes after its end")]
    Long(usize),
    /// A number that cannot be there.
    #[error("a number is out of its range")]
    Number,
    /// A text that is none.
    #[error("a text is not UTF-8")]
    Text,
    /// The name of a node is another's.
    #[error("there is a node `{node}` in the site `{site}` already")]
    Taken {
        /// The name.
        node: String,
        /// Where.
        site: String,
    },
    /// A setting that cannot be.
    #[error("the live plane cannot have {name} = {value}: {why}")]
    Setting {
        /// As the transport calls it.
        name: &'static str,
        /// What it was set to.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// A node does not do what it was asked for.
    #[error("{0}")]
    Refused(String),
    /// It is followed by nobody here.
    #[error("`{0}` is not mirrored here")]
    Unfollowed(skopos_model::Topic),
    /// There is no such node.
    #[error("no node `{0}` can be reached")]
    Nobody(String),
    /// A node that was asked says nothing.
    #[error("the node `{node}` did not answer within {within:?}")]
    NoAnswer {
        /// Which.
        node: String,
        /// What it had.
        within: std::time::Duration,
    },
    /// What the transport says.
    #[error("the live plane: {0}")]
    Plane(String),
    /// No thread could be started.
    #[error("no thread can be started")]
    Thread(#[source] std::io::Error),
    /// A name, unit or value that the model refuses.
    #[error(transparent)]
    Model(#[from] skopos_model::Error),
}

impl Error {
    pub(crate) fn plane(error: &zenoh::Error) -> Self {
        Self::Plane(without_places(&error.to_string()))
    }
}

/// What the transport says, without the places in its sources that say it: ` at /…/tcp.rs:61.`
pub(crate) fn without_places(text: &str) -> String {
    let mut left = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(".rs:") {
        let told = before.rsplit_once(" at ").filter(|(_, path)| !path.contains(' '));
        let line = after.trim_start_matches(|c: char| c.is_ascii_digit());
        match told {
            Some((told, _)) => {
                left.push_str(told);
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
    fn places_in_sources_are_left_out() {
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

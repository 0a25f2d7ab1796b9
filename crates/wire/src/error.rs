use thiserror::Error;

/// Why a message is none of ours, or the live plane does not work.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// It does not begin as ours do.
    #[error("no batch of the live plane")]
    Foreign,
    /// Of a layout that this program does not know.
    #[error("a batch of layout {0}, this program knows {known}", known = crate::batch::LAYOUT)]
    Layout(u8),
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
        Self::Plane(error.to_string())
    }
}

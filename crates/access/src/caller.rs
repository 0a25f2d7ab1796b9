//! The one who asks.

use std::collections::BTreeSet;
use std::fmt;

use crate::name::Names;

/// The one who asks, as a listener has found out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    /// The user that runs this program, or root of this machine: known by the credentials of a local connection.
    Owner,
    /// A node of the site, known by its certificate.
    Node(Names),
    /// A user, known by a token.
    User(User),
    /// A program with a token to join the site.
    Invited(Invitation),
    /// A client of a listener that was opened with `--insecure`.
    Anybody,
    /// A client that has shown nothing yet.
    Stranger,
}

/// The permission to join a site.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Invitation {
    /// Name of the node; `None` for any that is not taken.
    pub node: Option<String>,
    /// Names and addresses at which others reach it, if it joins as a hub; empty for a node.
    pub hub_at: Vec<String>,
}

/// A user with a token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// Name of the user.
    pub name: String,
    /// Role on the site.
    pub role: Role,
    /// Projects that the user leads.
    pub leads: BTreeSet<String>,
}

/// The role of a user on a site. Being the owner of a job or the lead of a project is no role: it depends on the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Reads facts, and the jobs that the user owns or leads.
    #[default]
    Member,
    /// Reads facts and all jobs.
    Support,
    /// Does what the owner of the hub does.
    Admin,
}

impl Role {
    /// All roles, with the least first.
    pub const ALL: [Self; 3] = [Self::Member, Self::Support, Self::Admin];

    /// Returns the name of the role.
    pub fn name(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Support => "support",
            Self::Admin => "admin",
        }
    }

    /// Returns the role of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner => f.write_str("the owner of this hub"),
            Self::Node(names) => write!(f, "the {names}"),
            Self::User(user) => write!(f, "the user {} ({})", user.name, user.role.name()),
            Self::Invited(_) => f.write_str("a program that has not joined yet"),
            Self::Anybody => f.write_str("a client of an open listener"),
            Self::Stranger => f.write_str("a client without a token or certificate"),
        }
    }
}

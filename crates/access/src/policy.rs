//! The policy: one function that decides what a caller may do.

use thiserror::Error;

use crate::caller::{Caller, Role};

/// Something that a caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// Read whether the hub works, its description and the certificate of its authority.
    ReadService,
    /// Read facts and insights: latest values, samples, topics, nodes.
    ReadFacts,
    /// Have a fact measured now.
    Measure,
    /// Read the reports of a user's jobs and tasks in a project. `None` is a report that names neither: it belongs to
    /// the owner of the hub.
    ReadJob {
        /// User that ran the job.
        owner: Option<&'a str>,
        /// Project that the job was charged to.
        project: Option<&'a str>,
    },
    /// Read who read which jobs.
    ReadLog,
    /// Read rules, their history and the rows for which they fired, which may be about anything.
    ReadRules,
    /// Store records of a job.
    StoreJob {
        /// The node that the record is about; `None` for the whole job.
        node: Option<&'a str>,
        /// User that owns the job, as far as its start is known.
        owner: Option<&'a str>,
        /// True if the job is known, and the node that asks is not one of its nodes.
        is_elsewhere: bool,
    },
    /// Publish topics of this node.
    Publish {
        /// Name of the node.
        node: &'a str,
    },
    /// Join the site as this node.
    Join {
        /// Name of the node.
        node: &'a str,
    },
    /// Get a new certificate for this node.
    Renew {
        /// Name of the node.
        node: &'a str,
    },
    /// Say which publisher has a name.
    Vouch,
    /// Have this hub read segments for a statement that another hub answers. That hub has asked the policy about the jobs.
    Work,
    /// Take records of jobs as this hub, and say which jobs run on a node.
    TakeRecords {
        /// Name of the hub.
        hub: &'a str,
    },
    /// Keep the copy of the jobs of this hub here, and read it back.
    Replicate {
        /// Name of the hub whose jobs they are.
        hub: &'a str,
    },
}

/// The refusal of the policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{caller} may not {what}")]
pub struct Denied {
    /// The caller, for people.
    pub caller: String,
    /// The action, for people.
    pub what: String,
    /// True if a token or a certificate could change the decision.
    pub is_stranger: bool,
}

/// Decides whether `caller` may do `action`.
///
/// # Errors
/// The refusal, if the caller may not.
pub fn may(caller: &Caller, action: Action<'_>) -> Result<(), Denied> {
    let is_allowed = match (action, caller) {
        (Action::ReadService, _) => true,
        (_, Caller::Stranger) => false,
        (Action::Join { node }, Caller::Invited(invitation)) => {
            invitation.node.as_ref().is_none_or(|only| only == node)
        }
        (Action::Join { .. }, _) | (_, Caller::Invited(_)) => false,
        (Action::Publish { node } | Action::Renew { node }, Caller::Node(names)) => {
            names.node == node
        }
        // A hub alone knows all publishers of a site.
        (Action::Vouch | Action::Work, Caller::Node(names)) => names.is_hub,
        // A hub sends its own jobs alone: the copy of another one is not its to change or to read.
        // A node removes records that are acknowledged, so only this hub may acknowledge them.
        (Action::Replicate { hub } | Action::TakeRecords { hub }, Caller::Node(names)) => {
            names.is_hub && names.node == hub
        }
        (
            Action::Publish { .. }
            | Action::Renew { .. }
            | Action::Vouch
            | Action::Work
            | Action::TakeRecords { .. }
            | Action::Replicate { .. },
            caller,
        ) => *caller == Caller::Owner,
        (Action::StoreJob { node, owner, is_elsewhere }, caller) => match caller {
            Caller::Owner => true,
            // A node tells of itself, and of jobs that run on it.
            Caller::Node(names) => !is_elsewhere && node.is_none_or(|node| node == names.node),
            Caller::User(user) => {
                user.role >= Role::Admin || owner.is_some_and(|owner| owner == user.name)
            }
            _ => false,
        },
        (Action::ReadFacts, _) => true,
        (Action::ReadLog | Action::ReadRules, caller) => match caller {
            Caller::Owner => true,
            Caller::User(user) => user.role >= Role::Admin,
            _ => false,
        },
        // A measurement costs its node, so it is not for members.
        (Action::Measure, Caller::User(user)) => user.role >= Role::Support,
        (Action::Measure, _) => true,
        (Action::ReadJob { owner, project }, caller) => match caller {
            Caller::Owner => true,
            Caller::User(user) => {
                user.role >= Role::Support
                    || owner.is_some_and(|owner| owner == user.name)
                    || project.is_some_and(|project| user.leads.contains(project))
            }
            // A node carries jobs and does not read them; a listener for everybody shows facts alone.
            _ => false,
        },
    };
    match is_allowed {
        true => Ok(()),
        false => Err(Denied {
            caller: caller.to_string(),
            what: described(action),
            is_stranger: matches!(caller, Caller::Stranger),
        }),
    }
}

fn described(action: Action<'_>) -> String {
    match action {
        Action::ReadService => "read about the service".to_owned(),
        Action::ReadFacts => "read facts".to_owned(),
        Action::Measure => "have facts measured".to_owned(),
        Action::ReadJob { owner: Some(owner), .. } => format!("read the jobs of {owner}"),
        Action::ReadJob { owner: None, .. } => "read jobs of the owner of the hub".to_owned(),
        Action::ReadLog => "read the log of reads".to_owned(),
        Action::ReadRules => "read rules and their history".to_owned(),
        Action::StoreJob { node: Some(node), .. } => format!("store records of jobs on {node}"),
        Action::StoreJob { node: None, .. } => "store records of this job".to_owned(),
        Action::Publish { node } => format!("publish topics of {node}"),
        Action::Join { node } => format!("join as {node}"),
        Action::Renew { node } => format!("get a certificate of {node}"),
        Action::TakeRecords { hub } => format!("take records of jobs as the hub {hub}"),
        Action::Replicate { hub } => format!("keep a copy of the jobs of the hub {hub} here"),
        Action::Work => "have segments of jobs read here".to_owned(),
        Action::Vouch => "say which publisher has a name".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::caller::{Invitation, User};
    use crate::name::Names;

    fn node(name: &str, is_hub: bool) -> Caller {
        Caller::Node(Names { site: "s".to_owned(), node: name.to_owned(), is_hub })
    }

    fn user(name: &str, role: Role, leads: &[&str]) -> Caller {
        let leads: BTreeSet<String> = leads.iter().map(|project| (*project).to_owned()).collect();
        Caller::User(User { name: name.to_owned(), role, leads })
    }

    /// The whole policy: a row for each action, a column for each caller.
    #[test]
    fn the_matrix_of_callers_and_actions() {
        let callers = [
            Caller::Owner,
            node("n01", false),
            node("hub", true),
            user("ann", Role::Member, &[]),
            user("bob", Role::Member, &["astro"]),
            user("eve", Role::Support, &[]),
            user("ida", Role::Admin, &[]),
            Caller::Anybody,
            Caller::Stranger,
            Caller::Invited(Invitation::default()),
            Caller::Invited(Invitation { node: Some("n01".to_owned()), hub_at: Vec::new() }),
        ];
        let job = |owner, project| Action::ReadJob { owner, project };
        let store = |node, owner, is_elsewhere| Action::StoreJob { node, owner, is_elsewhere };
        for (action, expected) in [
            (Action::ReadService, "yes yes yes yes yes yes yes yes yes yes yes"),
            (Action::ReadFacts, "yes yes yes yes yes yes yes yes no no no"),
            (Action::Measure, "yes yes yes no no yes yes yes no no no"),
            (job(Some("ann"), None), "yes no no yes no yes yes no no no no"),
            (job(Some("ann"), Some("astro")), "yes no no yes yes yes yes no no no no"),
            (job(Some("joe"), Some("bio")), "yes no no no no yes yes no no no no"),
            (job(None, None), "yes no no no no yes yes no no no no"),
            (Action::ReadLog, "yes no no no no no yes no no no no"),
            (Action::ReadRules, "yes no no no no no yes no no no no"),
            (store(Some("n01"), None, false), "yes yes no no no no yes no no no no"),
            (store(None, Some("ann"), false), "yes yes yes yes no no yes no no no no"),
            (store(Some("n01"), Some("ann"), true), "yes no no yes no no yes no no no no"),
            (Action::TakeRecords { hub: "hub" }, "yes no yes no no no no no no no no"),
            (Action::TakeRecords { hub: "n01" }, "yes no no no no no no no no no no"),
            (Action::Replicate { hub: "hub" }, "yes no yes no no no no no no no no"),
            (Action::Replicate { hub: "n01" }, "yes no no no no no no no no no no"),
            (Action::Publish { node: "n01" }, "yes yes no no no no no no no no no"),
            (Action::Publish { node: "n02" }, "yes no no no no no no no no no no"),
            (Action::Join { node: "n01" }, "no no no no no no no no no yes yes"),
            (Action::Join { node: "n02" }, "no no no no no no no no no yes no"),
            (Action::Renew { node: "n01" }, "yes yes no no no no no no no no no"),
            (Action::Vouch, "yes no yes no no no no no no no no"),
            (Action::Work, "yes no yes no no no no no no no no"),
        ] {
            let decided: Vec<&str> = callers
                .iter()
                .map(|caller| if may(caller, action).is_ok() { "yes" } else { "no" })
                .collect();
            assert_eq!(decided.join(" "), expected, "{action:?}");
        }
    }

    #[test]
    fn a_refusal_names_the_caller_and_the_action() {
        let denied = may(&node("n01", false), Action::Publish { node: "n02" }).expect_err("denied");
        let text = "the node n01 of the site s may not publish topics of n02";
        assert_eq!((denied.to_string().as_str(), denied.is_stranger), (text, false));
        let denied = may(&Caller::Stranger, Action::ReadFacts).expect_err("denied");
        assert!(denied.is_stranger);
    }
}

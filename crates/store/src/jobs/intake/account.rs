//! The accounts among which the room for records is shared: one for each caller, whatever producers it names.

use std::collections::HashMap;

/// The caller of producers, as the hub has identified it. It is the beginning of the names by which the intake knows them, so no
/// caller has the producer of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account<'n> {
    /// The owner of the hub. Its programs trust each other, and each producer has a share.
    Owner,
    /// A node, which has one share.
    Node(&'n str),
    /// A user, who has one share.
    User(&'n str),
    /// All callers that cannot be told apart, which have one share.
    Other,
}

impl Account<'_> {
    /// Returns the name by which the intake knows a producer.
    pub fn producer(self, name: &str) -> String {
        match self {
            Self::Owner => format!("owner/{name}"),
            Self::Node(node) => format!("node/{node}/{name}"),
            // The name of a user may have a slash, and would be that of another user and its producer.
            Self::User(user) => {
                format!("user/{}/{name}", user.replace('%', "%25").replace('/', "%2F"))
            }
            Self::Other => format!("other/{name}"),
        }
    }
}

/// Returns the account of a producer: the beginning of its name that [`Account::producer`] made, or its whole name.
pub(super) fn account_of(producer: &str) -> &str {
    let depth = match producer.split('/').next() {
        Some("node" | "user") => 1,
        Some("other") => 0,
        _ => return producer,
    };
    let end = producer.match_indices('/').nth(depth).map_or(producer.len(), |(at, _)| at);
    &producer[..end]
}

/// The room that an account holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Bytes of unsealed records.
    pub(super) bytes: u64,
    /// Unsealed jobs, each as often as it has producers of the account.
    pub(super) jobs: u64,
    /// Producers with unsealed records: the others can be forgotten.
    pub(super) producers: u64,
}

/// The room that each account holds. An account that holds nothing is not kept.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    held: HashMap<String, Held>,
    /// Producers with unsealed records.
    producers: u64,
}

impl Accounts {
    /// Returns the room that the account of a producer holds.
    pub(super) fn held(&self, producer: &str) -> Held {
        self.held.get(account_of(producer)).copied().unwrap_or_default()
    }

    /// Returns the number of producers with unsealed records.
    pub(super) fn producers(&self) -> u64 {
        self.producers
    }

    /// Notes that a producer has a record.
    pub(super) fn add_bytes(&mut self, producer: &str, bytes: u32) {
        self.change(producer, |held| held.bytes += u64::from(bytes));
    }

    /// Notes that a record of a producer is sealed.
    pub(super) fn remove_bytes(&mut self, producer: &str, bytes: u32) {
        self.change(producer, |held| held.bytes = held.bytes.saturating_sub(u64::from(bytes)));
    }

    /// Notes that a producer has unsealed records of another job, which may be its first one.
    pub(super) fn add_job(&mut self, producer: &str, is_first: bool) {
        self.producers += u64::from(is_first);
        self.change(producer, |held| {
            held.jobs += 1;
            held.producers += u64::from(is_first);
        });
    }

    /// Notes that a producer has unsealed records of one job less, which may be its last one.
    pub(super) fn remove_job(&mut self, producer: &str, is_last: bool) {
        self.producers = self.producers.saturating_sub(u64::from(is_last));
        self.change(producer, |held| {
            held.jobs = held.jobs.saturating_sub(1);
            held.producers = held.producers.saturating_sub(u64::from(is_last));
        });
    }

    fn change(&mut self, producer: &str, change: impl FnOnce(&mut Held)) {
        let account = account_of(producer);
        match self.held.get_mut(account) {
            Some(held) => {
                change(held);
                if *held == Held::default() {
                    self.held.remove(account);
                }
            }
            None => {
                let mut held = Held::default();
                change(&mut held);
                if held != Held::default() {
                    self.held.insert(account.to_owned(), held);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_producers_of_a_caller_have_one_account_and_those_of_the_owner_several() {
        let of = |account: Account<'_>, name: &str| account_of(&account.producer(name)).to_owned();
        for name in ["p", "agent/n1/7", "", "/", "user/ann/p"] {
            assert_eq!(of(Account::User("ann"), name), "user/ann");
            assert_eq!(of(Account::User("ann/p"), name), "user/ann%2Fp");
            assert_eq!(of(Account::Node("n1"), name), "node/n1");
            assert_eq!(of(Account::Other, name), "other");
            assert_eq!(of(Account::Owner, name), format!("owner/{name}"));
        }
        for name in ["p", "user", "user/", "node/x", "flood-1"] {
            assert!(name.starts_with(account_of(name)), "{name}");
        }
    }

    #[test]
    fn an_account_without_records_is_not_kept() {
        let mut accounts = Accounts::default();
        for (at, name) in ["user/ann/a", "user/ann/b", "owner/c"].into_iter().enumerate() {
            accounts.add_job(name, true);
            accounts.add_bytes(name, 10 + at as u32);
        }
        let held = Held { bytes: 21, jobs: 2, producers: 2 };
        assert_eq!((accounts.held("user/ann/z"), accounts.producers()), (held, 3));
        assert_eq!(accounts.held("user/eve/a"), Held::default());
        for (at, name) in ["user/ann/a", "user/ann/b", "owner/c"].into_iter().enumerate() {
            accounts.remove_bytes(name, 10 + at as u32);
            accounts.remove_job(name, true);
        }
        assert!(accounts.held.is_empty() && accounts.producers() == 0, "{accounts:?}");
    }
}

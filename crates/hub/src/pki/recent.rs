//! Tokens that were looked up a moment ago: programs show theirs with each request.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use skopos_access::Caller;
use skopos_model::unpoisoned;

/// Time for which a token that was valid is taken for valid: as long as a token that was revoked still works.
const VALID_FOR: Duration = Duration::from_secs(1);

/// Number of tokens that are remembered: more than programs that ask within a second.
const MAX_TOKENS: usize = 1024;

/// The callers of valid tokens, by the fingerprints of the tokens, which themselves are kept nowhere.
#[derive(Debug, Default)]
pub(super) struct RecentCallers(Mutex<HashMap<[u8; 32], (Caller, Instant)>>);

impl RecentCallers {
    pub(super) fn get(&self, token: &str) -> Option<Caller> {
        let fingerprint = fingerprint(token);
        let callers = unpoisoned(self.0.lock());
        let (caller, found_at) = callers.get(&fingerprint)?;
        (found_at.elapsed() < VALID_FOR).then(|| caller.clone())
    }

    pub(super) fn add(&self, token: &str, caller: &Caller) {
        let mut callers = unpoisoned(self.0.lock());
        if callers.len() >= MAX_TOKENS {
            callers.retain(|_, (_, found_at)| found_at.elapsed() < VALID_FOR);
        }
        // Otherwise it is looked up again.
        if callers.len() < MAX_TOKENS {
            callers.insert(fingerprint(token), (caller.clone(), Instant::now()));
        }
    }
}

fn fingerprint(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_remembered_for_a_moment_and_no_more_of_them_than_there_is_room_for() {
        let recent = RecentCallers::default();
        recent.add("first", &Caller::Owner);
        assert_eq!((recent.get("first"), recent.get("other")), (Some(Caller::Owner), None));
        (0..2 * MAX_TOKENS).for_each(|number| recent.add(&number.to_string(), &Caller::Owner));
        assert_eq!(unpoisoned(recent.0.lock()).len(), MAX_TOKENS);
        std::thread::sleep(VALID_FOR);
        assert_eq!(recent.get("first"), None);
        recent.add("next", &Caller::Owner);
        assert_eq!(unpoisoned(recent.0.lock()).len(), 1);
    }
}

//! Tickets of downloads: what their payload says, and who may use them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use skopos_access::Caller;
use skopos_hub::jobs::{OfJob, Wanted, holder_of};
use skopos_wire::TicketSigner;
use tonic::{Code, Status};

use super::status;

/// Time for which a ticket is valid: long enough to begin a few downloads one after another.
const VALID_FOR: Duration = Duration::from_secs(300);

/// The longest ticket that is read: the jobs of a portion, which has at most some hundred kilobytes.
const MAX_TICKET_BYTES: usize = 512 << 10;

/// Advice to a client whose ticket is not taken.
const HINT: &str = "ask where the jobs lie again: `GetFlightInfo` gives new tickets";

/// The version of the payload.
const VERSION: u32 = 1;

/// The payload of a ticket. It has no more rights than its holder.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Payload {
    version: u32,
    site: String,
    /// The caller that may use it.
    holder: String,
    /// The end of its time, in seconds of UNIX time.
    until: u64,
    jobs: Vec<OfJob>,
    wanted: Wanted,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    segment: Option<SegmentGrant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    storage: Option<u64>,
}

/// The right to the file of a segment.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SegmentGrant {
    /// The name of the file.
    pub(super) name: String,
    /// Number of its records.
    pub(super) records: u64,
}

/// The records that a ticket is for.
#[derive(Debug, PartialEq)]
pub(super) struct Granted {
    pub(super) jobs: Vec<OfJob>,
    pub(super) wanted: Wanted,
    /// The segment that has the parts of these jobs and no others, if its file is to be sent.
    pub(super) segment: Option<SegmentGrant>,
    /// The storage whose parts are named, if another hub keeps a copy of it.
    pub(super) storage: Option<u64>,
}

/// Returns the time, in seconds of UNIX time.
pub(super) fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Returns the ticket with which a caller downloads records of a site; `None` for a caller that may read no job.
pub(super) fn ticket(
    signer: &TicketSigner,
    (caller, site): (&Caller, &str),
    granted: Granted,
    now: u64,
) -> Option<Vec<u8>> {
    let payload = Payload {
        version: VERSION,
        site: site.to_owned(),
        holder: holder_of(caller)?,
        until: now.saturating_add(VALID_FOR.as_secs()),
        jobs: granted.jobs,
        wanted: granted.wanted,
        segment: granted.segment,
        storage: granted.storage,
    };
    Some(signer.sign(&serde_json::to_vec(&payload).ok()?))
}

/// Returns what a ticket is for, if this caller may use it now at this site.
///
/// # Errors
/// No hub of the site signed it, it has ended, or it is another caller's.
pub(super) fn check(
    signer: &TicketSigner,
    (caller, site): (&Caller, &str),
    ticket: &[u8],
    now: u64,
) -> Result<Granted, Status> {
    let refused = |code, text: &str| Err(status::with_hint(code, text, Some(HINT)));
    let payload = (ticket.len() <= MAX_TICKET_BYTES).then(|| signer.payload(ticket)).flatten();
    let payload = payload.and_then(|payload| serde_json::from_slice::<Payload>(payload).ok());
    // The answer does not say what is wrong with bytes that nobody signed.
    let payload = payload.filter(|it| it.version == VERSION && it.site == site);
    let Some(payload) = payload else {
        return refused(Code::PermissionDenied, "the ticket is not one of this site");
    };
    if holder_of(caller).is_none_or(|holder| holder != payload.holder) {
        return refused(Code::PermissionDenied, "the ticket was given to another caller");
    }
    // A ticket from the future is one of another clock, and would be valid for longer.
    if payload.until < now || payload.until > now + 2 * VALID_FOR.as_secs() {
        return refused(
            Code::PermissionDenied,
            "the ticket has ended; it is valid for five minutes",
        );
    }
    let Payload { jobs, wanted, segment, storage, .. } = payload;
    Ok(Granted { jobs, wanted, segment, storage })
}

#[cfg(test)]
mod tests {
    use skopos_access::{Role, User};

    use super::*;

    fn user(name: &str, role: Role) -> Caller {
        Caller::User(User { name: name.to_owned(), role, leads: [].into() })
    }

    fn granted() -> Granted {
        let jobs = vec![OfJob {
            job: "4711".to_owned(),
            generation: 0,
            parts: vec![(0, 2)],
            open_from: Some(3),
        }];
        let wanted = Wanted { from_ns: Some(7), ..Wanted::default() };
        Granted { jobs, wanted, segment: None, storage: Some(u64::MAX) }
    }

    #[test]
    fn a_ticket_is_for_one_caller_one_site_and_five_minutes() {
        let dir = tempfile::tempdir().expect("a folder");
        let signer = TicketSigner::open(dir.path()).expect("a key");
        let ann = user("ann", Role::Member);
        let bytes = ticket(&signer, (&ann, "a"), granted(), 1000).expect("a ticket");
        let other_dir = tempfile::tempdir().expect("a folder");
        let other = TicketSigner::open(other_dir.path()).expect("a key");
        let forged = ticket(&other, (&ann, "a"), granted(), 1000).expect("a ticket");
        let mut altered = bytes.clone();
        let last = altered.len() - 3;
        altered[last] ^= 1;
        let (bob, eve) = (user("bob", Role::Member), user("eve", Role::Admin));
        assert_eq!(check(&signer, (&ann, "a"), &bytes, 1300).expect("valid"), granted());
        for (caller, site, ticket, now, expected) in [
            (&ann, "a", &bytes, 1301, "the ticket has ended"),
            (&ann, "a", &bytes, 600, "the ticket has ended"),
            (&ann, "b", &bytes, 1001, "not one of this site"),
            (&bob, "a", &bytes, 1001, "given to another caller"),
            (&eve, "a", &bytes, 1001, "given to another caller"),
            (&Caller::Owner, "a", &bytes, 1001, "given to another caller"),
            (&Caller::Anybody, "a", &bytes, 1001, "given to another caller"),
            (&ann, "a", &forged, 1001, "not one of this site"),
            (&ann, "a", &altered, 1001, "not one of this site"),
            // An ended ticket of somebody else says whose it is not, and no more.
            (&bob, "a", &bytes, 9000, "given to another caller"),
        ] {
            let status = check(&signer, (caller, site), ticket, now).expect_err("refused");
            let text = status.message();
            assert!(text.contains(expected) && text.contains("hint: "), "{expected}: {text}");
            assert!(!text.contains("ann") && !text.contains("4711"), "{text}");
            assert_eq!(status.code(), Code::PermissionDenied);
        }
        assert_eq!(ticket(&signer, (&Caller::Anybody, "a"), granted(), 1000), None);
    }
}

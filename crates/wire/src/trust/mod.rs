//! Trust: how programs of a site know each other.
//!
//! A site has an authority, whose certificate every program of the site holds. A program has an [`Identity`]: a key, and
//! a certificate of the authority with its names. TLS keeps strangers out, and the messages themselves say who made them,
//! because messages of many programs come over one connection:
//!
//! - Questions and answers carry a proof: a signature, with the certificate of its key (`proof`).
//! - Batches are many, so a batch carries a short tag for each follower instead (`session`). The key of the tags is
//!   agreed when the follower asks for a snapshot, and both halves of that exchange are signed.
//! - A ticket is signed by the hub that gives it to a client (`ticket`).

mod authority;
mod proof_rules;
mod identity;
mod proof;
mod session;
mod ticket;

pub use authority::Authority;
pub(crate) use identity::{AUTHORITY, IDENTITY};
pub use identity::{Identity, new_key, possession};
pub(crate) use proof_rules::{Message, ProofRules, Received};
pub(crate) use session::{Exchange, MAX_TAGS_BYTES, Session, Sessions, Tagged};
pub use ticket::TicketSigner;

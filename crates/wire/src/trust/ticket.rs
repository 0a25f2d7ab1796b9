//! Tickets: bytes that a hub signs, gives to a client, and takes back later.
//!
//! ```text
//! "SKT" layout   4 bytes
//! certificate    length, bytes; none if the signer has no certificate
//! signature      64 bytes, of the payload
//! payload        the rest
//! ```
//!
//! A hub with a certificate signs with its own key, and every hub of the site takes the ticket: the certificate proves that a
//! hub of the authority made it. A hub without one has a key of its own in a file, and takes its own tickets alone.

use std::io;
use std::path::Path;
use std::sync::Arc;

use pem::Pem;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

use super::identity::{Identity, PRIVATE_KEY, new_key, part, read_private, write_private};
use crate::bytes::{MessageReader, put_varint};
use crate::error::Error;

const MAGIC: [u8; 4] = *b"SKT\x01";

/// Bytes of a signature.
const SIGNATURE_BYTES: usize = 64;

/// The longest certificate that is checked; ours have less than 700 bytes.
const MAX_CERTIFICATE_BYTES: usize = 4096;

/// The beginning of signed bytes, so that no signature of another message is one of a ticket.
const DOMAIN: &[u8] = b"skopos ticket 1\0";

/// The name of the file with the key of a hub without a certificate.
const FILE: &str = "ticket-key.pem";

/// Signs tickets, and checks those that come back.
#[derive(Debug)]
pub struct TicketSigner(Signer);

enum Signer {
    Certified(Arc<Identity>),
    Own(Ed25519KeyPair),
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer")
    }
}

impl TicketSigner {
    /// Returns the signer of a hub that has a certificate.
    pub fn certified(identity: Arc<Identity>) -> Self {
        Self(Signer::Certified(identity))
    }

    /// Returns the signer of a hub without a certificate, whose key is in `folder`. The first call makes the key.
    ///
    /// # Errors
    /// The file cannot be read or written, or other users can read it.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(FILE);
        let failed = |why: String| Error::Identity { file: path.clone(), why };
        let text = match read_private(&path, true) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let made = new_key().and_then(|(pkcs8, _)| {
                    write_private(&path, &pem::encode(&Pem::new(PRIVATE_KEY, pkcs8)))
                });
                made.and_then(|()| read_private(&path, true))
            }
            read => read,
        };
        let text = text.map_err(|e| failed(e.to_string()))?;
        let not_a_key = || failed("it is not a key for Ed25519".to_owned());
        let key = part(&text, PRIVATE_KEY).ok_or_else(not_a_key)?;
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&key).map_err(|_| not_a_key())?;
        Ok(Self(Signer::Own(key)))
    }

    /// Returns the ticket with this payload.
    pub fn sign(&self, payload: &[u8]) -> Vec<u8> {
        let signed = [DOMAIN, payload].concat();
        let (certificate, signature) = match &self.0 {
            Signer::Certified(identity) => {
                let (certificate, signature) = identity.sign(&signed);
                (certificate.to_vec(), signature.to_vec())
            }
            Signer::Own(key) => (Vec::new(), key.sign(&signed).as_ref().to_vec()),
        };
        let mut ticket = MAGIC.to_vec();
        put_varint(&mut ticket, certificate.len() as u64);
        for bytes in [&certificate[..], &signature, payload] {
            ticket.extend_from_slice(bytes);
        }
        ticket
    }

    /// Returns true if bytes begin as a ticket does.
    pub fn is_ticket(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// Returns the payload of a ticket; `None` if no hub of the site signed it.
    pub fn payload<'t>(&self, ticket: &'t [u8]) -> Option<&'t [u8]> {
        let mut reader = MessageReader::new(ticket);
        reader.magic(MAGIC).ok()?;
        let length = reader.count(1).ok()?;
        let certificate = reader.take(length.min(MAX_CERTIFICATE_BYTES + 1)).ok()?;
        let signature = reader.take(SIGNATURE_BYTES).ok()?;
        let before = MAGIC.len() + varint_bytes(length) + length + SIGNATURE_BYTES;
        let payload = ticket.get(before..)?;
        let signed = [DOMAIN, payload].concat();
        let is_signed = match &self.0 {
            Signer::Own(key) => {
                let key = UnparsedPublicKey::new(&ED25519, key.public_key().as_ref());
                length == 0 && key.verify(&signed, signature).is_ok()
            }
            Signer::Certified(identity) => {
                let checked = identity.check(certificate).ok()?;
                // A node has a certificate of the same authority, and gives no tickets.
                checked.names.is_hub && checked.has_signed(&signed, signature)
            }
        };
        is_signed.then_some(payload)
    }
}

/// Returns the bytes of a number as [`put_varint`] writes it.
fn varint_bytes(number: usize) -> usize {
    let mut bytes = Vec::new();
    put_varint(&mut bytes, number as u64);
    bytes.len()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use skopos_access::Names;

    use super::*;
    use crate::trust::Authority;

    fn names(node: &str, is_hub: bool) -> Names {
        Names { site: "s".to_owned(), node: node.to_owned(), is_hub }
    }

    #[test]
    fn each_altered_byte_of_a_ticket_is_noticed() {
        let dir = tempfile::tempdir().expect("a folder");
        let (own, site) = (dir.path().join("own"), dir.path().join("site"));
        std::fs::create_dir(&own).expect("made");
        Authority::create(&site, &names("hub", true), &["hub".to_owned()]).expect("made");
        let identity = Arc::new(Identity::load(&site).expect("sound").expect("there"));
        let (own, certified) =
            (TicketSigner::open(&own).expect("made"), TicketSigner::certified(identity));
        for (signer, other) in [(&own, &certified), (&certified, &own)] {
            let ticket = signer.sign(b"jobs of ann");
            assert_eq!(signer.payload(&ticket), Some(&b"jobs of ann"[..]));
            assert_eq!(other.payload(&ticket), None);
            for at in 0..ticket.len() {
                let mut altered = ticket.clone();
                altered[at] ^= 1;
                assert_eq!(signer.payload(&altered), None, "byte {at}");
                assert_eq!(signer.payload(&ticket[..at]), None, "the first {at} bytes");
            }
            assert_eq!(signer.payload(&[&ticket[..], b" and bob"].concat()), None);
        }
    }

    #[test]
    fn the_key_is_kept_and_is_for_its_owner_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let ticket = TicketSigner::open(dir.path()).expect("made").sign(b"x");
        let again = TicketSigner::open(dir.path()).expect("read");
        assert_eq!(again.payload(&ticket), Some(&b"x"[..]));
        let file = dir.path().join(FILE);
        let mode = std::fs::metadata(&file).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).expect("ours");
        assert!(TicketSigner::open(dir.path()).is_err());
    }

    #[test]
    fn hubs_of_a_site_take_tickets_of_each_other_and_not_of_nodes_and_other_sites() {
        let dir = tempfile::tempdir().expect("a folder");
        let site = |name: &str| {
            let folder = dir.path().join(name);
            Authority::create(&folder, &names("hub", true), &["hub".to_owned()]).expect("made");
            folder
        };
        let (one, other) = (site("one"), site("other"));
        let load = |folder: &Path| {
            TicketSigner::certified(Arc::new(
                Identity::load(folder).expect("sound").expect("there"),
            ))
        };
        let member = |node: &str, is_hub: bool| {
            let authority = Authority::load(&one, "s").expect("sound").expect("there");
            let (pkcs8, public) = new_key().expect("a key");
            let certificate = authority.issue(&names(node, is_hub), &[node.to_owned()], public);
            let folder = dir.path().join(node);
            let pem = std::fs::read_to_string(one.join("authority.pem")).expect("text");
            let authority = part(&pem, "CERTIFICATE").expect("a certificate");
            let certificate = certificate.expect("issued");
            Identity::save(&folder, &pkcs8, &certificate, Some(&authority)).expect("saved");
            load(&folder)
        };
        let hub = load(&one);
        assert!(hub.payload(&member("hub2", true).sign(b"x")).is_some());
        assert!(hub.payload(&member("n01", false).sign(b"x")).is_none(), "of a node");
        assert!(hub.payload(&load(&other).sign(b"x")).is_none(), "of another site");
    }
}

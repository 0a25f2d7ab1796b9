//! The identity of a program: its key, its certificate and the authority of its site, in the files of one folder.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::RwLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pem::Pem;
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use skopos_access::Names;
use skopos_model::unpoisoned;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert, ring::ED25519 as CHECKED};

use crate::error::Error;

/// File with the certificate of the authority.
pub(crate) const AUTHORITY: &str = "authority.pem";
/// File with the key of this program and its certificate. One file, so that both change together.
pub(crate) const IDENTITY: &str = "identity.pem";

/// Tags of the parts of a PEM file.
const CERTIFICATE: &str = "CERTIFICATE";
pub(super) const PRIVATE_KEY: &str = "PRIVATE KEY";

/// The longest file that is read: a certificate and a key have less than 2 KB.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// The head of an Ed25519 public key in a certificate (RFC 8410); the 32 bytes of the key follow.
const KEY_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Time before its end at which the certificate of a hub is renewed. The hub does so when it starts, and when it renews that of
/// a node.
const RENEW_HUB_BEFORE: Duration = Duration::from_secs(90 * 24 * 3600);

/// Time before the end of a certificate at which a new one is asked for: half of the life of a node's certificate.
const RENEW_BEFORE: Duration = Duration::from_secs(7 * 24 * 3600 / 2);

/// The identity of a program.
#[derive(Debug)]
pub struct Identity {
    folder: PathBuf,
    authority: CertificateDer<'static>,
    held: RwLock<Held>,
}

/// The part of an identity that a new certificate replaces.
struct Held {
    names: Names,
    certificate: CertificateDer<'static>,
    pkcs8: Vec<u8>,
    key: Ed25519KeyPair,
}

/// A certificate that the authority signed.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) names: Names,
    key: SubjectPublicKeyInfoDer<'static>,
}

impl Checked {
    /// Returns the public key of the certificate.
    pub(crate) fn public_key(&self) -> Option<[u8; 32]> {
        self.key.as_ref().strip_prefix(&KEY_HEAD)?.try_into().ok()
    }

    /// Returns true if the owner of the certificate signed `message`.
    pub(crate) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let key = self.key.as_ref().strip_prefix(&KEY_HEAD);
        key.is_some_and(|key| is_signed_by(key, message, signature))
    }
}

fn is_signed_by(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok()
}

impl Identity {
    /// Returns the identity in `folder`; `None` if there is none.
    ///
    /// # Errors
    /// A file cannot be read or is damaged, other users can read the key, or the certificate is not one of the
    /// authority.
    pub fn load(folder: &Path) -> Result<Option<Self>, Error> {
        let broken = |file: &str, why: String| Error::Identity { file: folder.join(file), why };
        let read = |file: &str| match read_private(&folder.join(file), file == IDENTITY) {
            Ok(text) => Ok(Some(text)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(broken(file, e.to_string())),
        };
        let Some(identity) = read(IDENTITY)? else { return Ok(None) };
        let missing = || broken(AUTHORITY, "it does not exist".to_owned());
        let authority = read(AUTHORITY)?.ok_or_else(missing)?;
        let authority = part(&authority, CERTIFICATE)
            .ok_or_else(|| broken(AUTHORITY, "it has no certificate".to_owned()))?;
        let authority = CertificateDer::from(authority);
        let held = Held::parse(&identity, &authority).map_err(|why| broken(IDENTITY, why))?;
        Ok(Some(Self { folder: folder.to_path_buf(), authority, held: RwLock::new(held) }))
    }

    /// Returns the names in the certificate in `folder`, which may have ended.
    ///
    /// # Errors
    /// There is no certificate, or it is damaged.
    pub fn names_kept_in(folder: &Path) -> Result<Names, Error> {
        let file = folder.join(IDENTITY);
        let broken = |why: String| Error::Identity { file: file.clone(), why };
        let text = read_private(&file, true).map_err(|e| broken(e.to_string()))?;
        let certificate = part(&text, CERTIFICATE);
        let certificate = certificate.ok_or_else(|| broken("it has no certificate".to_owned()))?;
        let certificate = CertificateDer::from(certificate);
        let parsed = EndEntityCert::try_from(&certificate).map_err(|e| broken(e.to_string()))?;
        Names::parse(parsed.valid_uri_names()).map_err(|e| broken(e.to_string()))
    }

    /// Writes the identity of a program that has the pair of keys `pkcs8` and this certificate, both of which replace
    /// those in `folder`. `authority` is written where it is given.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn save(
        folder: &Path,
        pkcs8: &[u8],
        certificate: &[u8],
        authority: Option<&[u8]>,
    ) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        if let Some(authority) = authority {
            let authority = pem::encode(&Pem::new(CERTIFICATE, authority));
            write_private(&folder.join(AUTHORITY), &authority)?;
        }
        let parts = [Pem::new(PRIVATE_KEY, pkcs8), Pem::new(CERTIFICATE, certificate)];
        write_private(&folder.join(IDENTITY), &pem::encode_many(&parts))
    }

    /// Returns the folder of its files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the certificate of the authority.
    pub fn authority(&self) -> &CertificateDer<'static> {
        &self.authority
    }

    /// Returns the names in the certificate.
    pub fn names(&self) -> Names {
        unpoisoned(self.held.read()).names.clone()
    }

    /// Returns the certificate in DER, and the pair of keys in PKCS #8.
    pub fn pair(&self) -> (Vec<u8>, Vec<u8>) {
        let held = unpoisoned(self.held.read());
        (held.certificate.to_vec(), held.pkcs8.clone())
    }

    /// Returns true if this certificate in DER is the own one.
    pub fn has_certificate(&self, certificate: &[u8]) -> bool {
        *unpoisoned(self.held.read()).certificate == *certificate
    }

    /// Returns the names in a certificate of the own authority; `None` if it is not one, or not valid now.
    pub fn names_in(&self, certificate: &[u8]) -> Option<Names> {
        self.check(certificate).ok().map(|checked| checked.names)
    }

    /// Returns true if a new certificate should be asked for.
    pub fn is_renewal_due(&self) -> bool {
        let (is_hub, certificate) = {
            let held = unpoisoned(self.held.read());
            (held.names.is_hub, held.certificate.clone())
        };
        let later = since_epoch() + if is_hub { RENEW_HUB_BEFORE } else { RENEW_BEFORE };
        check(&certificate, &self.authority, later).is_err()
    }

    /// Replaces key and certificate, here and in the files.
    ///
    /// # Errors
    /// The certificate is not one of the authority, has other names or another key, or the files cannot be written.
    pub fn replace(&self, pkcs8: &[u8], certificate: &[u8]) -> Result<(), Error> {
        let broken = |why: String| Error::Identity { file: self.folder.join(IDENTITY), why };
        let held = Held::new(pkcs8, certificate.to_vec(), &self.authority).map_err(broken)?;
        if held.names != self.names() {
            return Err(broken(format!("the new certificate is one of the {}", held.names)));
        }
        Self::save(&self.folder, pkcs8, certificate, None).map_err(|e| broken(e.to_string()))?;
        *unpoisoned(self.held.write()) = held;
        Ok(())
    }

    /// Returns the certificate and the signature of `message`.
    pub(crate) fn sign(&self, message: &[u8]) -> (CertificateDer<'static>, [u8; 64]) {
        let held = unpoisoned(self.held.read());
        let mut signature = [0; 64];
        signature.copy_from_slice(held.key.sign(message).as_ref());
        (held.certificate.clone(), signature)
    }

    /// Checks a certificate that a message carries.
    ///
    /// # Errors
    /// The authority did not sign it, it is not valid now, or it names no node.
    pub(crate) fn check(&self, certificate: &[u8]) -> Result<Checked, String> {
        check(&CertificateDer::from(certificate), &self.authority, since_epoch())
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Held {
    fn parse(text: &str, authority: &CertificateDer<'static>) -> Result<Self, String> {
        let missing = |what: &str| format!("it has no {what}");
        let key = part(text, PRIVATE_KEY).ok_or_else(|| missing("private key"))?;
        let certificate = part(text, CERTIFICATE).ok_or_else(|| missing("certificate"))?;
        Self::new(&key, certificate, authority)
    }

    fn new(
        pkcs8: &[u8],
        certificate: Vec<u8>,
        authority: &CertificateDer<'static>,
    ) -> Result<Self, String> {
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8)
            .map_err(|_| "the key is not one for Ed25519".to_owned())?;
        let certificate = CertificateDer::from(certificate);
        let checked = check(&certificate, authority, since_epoch())?;
        if checked.key.as_ref().strip_prefix(&KEY_HEAD) != Some(key.public_key().as_ref()) {
            return Err("the certificate is one of another key".to_owned());
        }
        Ok(Self { names: checked.names, certificate, pkcs8: pkcs8.to_vec(), key })
    }
}

/// Checks that `authority` signed a certificate which is valid at `at`, and returns its names.
fn check(
    certificate: &CertificateDer<'_>,
    authority: &CertificateDer<'_>,
    at: Duration,
) -> Result<Checked, String> {
    let refused = |e: webpki::Error| match e {
        webpki::Error::CertExpired { .. } => "the certificate has ended".to_owned(),
        webpki::Error::CertNotValidYet { .. } => {
            "the certificate is not valid yet; is the clock of this machine right?".to_owned()
        }
        e => format!("the certificate is refused: {e}"),
    };
    let anchor = anchor_from_trusted_cert(authority).map_err(refused)?;
    let certificate = EndEntityCert::try_from(certificate).map_err(refused)?;
    let (anchors, at) = ([anchor], UnixTime::since_unix_epoch(at));
    let usage = KeyUsage::client_auth();
    let verified = certificate.verify_for_usage(&[CHECKED], &anchors, &[], at, usage, None, None);
    verified.map_err(refused)?;
    let names = Names::parse(certificate.valid_uri_names()).map_err(|e| e.to_string())?;
    Ok(Checked { names, key: certificate.subject_public_key_info() })
}

/// Makes a pair of keys, as PKCS #8, and returns it with its public key.
///
/// # Errors
/// The system has no random numbers.
pub fn new_key() -> io::Result<(Vec<u8>, [u8; 32])> {
    let none = || io::Error::other("the system has no random numbers");
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| none())?;
    let key = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).map_err(|_| none())?;
    let mut public = [0; 32];
    public.copy_from_slice(key.public_key().as_ref());
    Ok((pkcs8.as_ref().to_vec(), public))
}

/// The proof that a program has the private key of the public key for which it asks a certificate.
pub mod possession {
    use ring::signature::{Ed25519KeyPair, KeyPair as _};

    use super::is_signed_by;

    /// Bytes of a request: the public key and its signature.
    pub const BYTES: usize = 96;

    fn message(key: &[u8], node: &str) -> Vec<u8> {
        [b"skopos certificate request 1\0", key, node.as_bytes()].concat()
    }

    /// Returns the public key of the pair `pkcs8`, with the signature; `None` if it is no pair of keys.
    pub fn prove(pkcs8: &[u8], node: &str) -> Option<Vec<u8>> {
        let key = Ed25519KeyPair::from_pkcs8(pkcs8).ok()?;
        let public = key.public_key().as_ref();
        let signature = key.sign(&message(public, node));
        Some([public, signature.as_ref()].concat())
    }

    /// Returns the public key of a request for this node; `None` if the signature is not one of its key.
    pub fn check(request: &[u8], node: &str) -> Option<[u8; 32]> {
        let (key, signature) = request.split_at_checked(32)?;
        is_signed_by(key, &message(key, node), signature).then(|| key.try_into().ok())?
    }
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the first part of a PEM file that has this tag.
pub(super) fn part(text: &str, tag: &str) -> Option<Vec<u8>> {
    let parts = pem::parse_many(text).ok()?;
    parts.into_iter().find(|part| part.tag() == tag).map(Pem::into_contents)
}

/// Reads a file; refuses one that other users can read if it is `secret`.
pub(super) fn read_private(path: &Path, secret: bool) -> io::Result<String> {
    let metadata = fs::metadata(path)?;
    if secret && metadata.mode() & 0o077 != 0 {
        let text = "other users can use it; make it private with chmod 600";
        return Err(io::Error::other(text));
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(io::Error::other("it is too long for a certificate"));
    }
    fs::read_to_string(path)
}

/// Writes a file that this user alone can read, in one step.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    // Another program may write it at the same time, and the file must never have been another user's.
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let written = written.and_then(|()| fs::rename(&new, path));
    written.inspect_err(|_| drop(fs::remove_file(&new)))
}

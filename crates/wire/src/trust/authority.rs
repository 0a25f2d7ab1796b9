//! The authority of a site: it signs the certificates of the site's programs.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use pem::Pem;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SanType, SignatureAlgorithm,
};
use skopos_access::Names;
use time::OffsetDateTime;

use super::identity::{Identity, new_key, write_private};
use crate::error::Error;

/// File with the key of the authority.
const KEY: &str = "authority-key.pem";

/// Life of the authority's certificate. A new authority means that every node joins again.
const AUTHORITY_LIFE: Duration = Duration::from_secs(3650 * 24 * 3600);

/// Life of a hub's certificate, which the hub renews itself.
const HUB_LIFE: Duration = Duration::from_secs(397 * 24 * 3600);

/// Life of a node's certificate. It is short, because a node that should leave is not renewed.
const NODE_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Time by which the clocks of a site may differ.
const SKEW: Duration = Duration::from_secs(3600);

/// The authority of a site.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

/// The public key of a program.
struct PublicKey([u8; 32]);

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}

impl Authority {
    /// Creates the authority of a site in `folder`, with the identity of its first hub, `names`. Others reach the hub at
    /// `hosts`: names and addresses.
    ///
    /// # Errors
    /// There is an authority already, a host is not one, or the folder cannot be written.
    pub fn create(folder: &Path, names: &Names, hosts: &[String]) -> Result<Self, Error> {
        let broken = |why: String| Error::Identity { file: folder.join(KEY), why };
        if fs::exists(folder.join(KEY)).map_err(|e| broken(e.to_string()))? {
            return Err(broken("there is an authority already".to_owned()));
        }
        let (pkcs8, _) = new_key().map_err(|e| broken(e.to_string()))?;
        let key = pair(&pkcs8).map_err(broken)?;
        let mut params = params_of(&names.site);
        (params.not_before, params.not_after) = life(AUTHORITY_LIFE);
        let certificate = params.self_signed(&key).map_err(|e| broken(e.to_string()))?;
        let authority = Self { issuer: Issuer::new(params, key) };
        let (own, public) = new_key().map_err(|e| broken(e.to_string()))?;
        let issued = authority.issue(names, hosts, public).map_err(broken)?;
        Identity::save(folder, &own, &issued, Some(certificate.der()))
            .map_err(|e| broken(e.to_string()))?;
        // Last, so that a half-made authority is made again.
        let text = pem::encode(&Pem::new("PRIVATE KEY", pkcs8));
        write_private(&folder.join(KEY), &text).map_err(|e| broken(e.to_string()))?;
        Ok(authority)
    }

    /// Returns true if the key of an authority is in `folder`.
    pub fn is_in(folder: &Path) -> bool {
        folder.join(KEY).exists()
    }

    /// Returns the authority in `folder` for this site; `None` if there is none.
    ///
    /// # Errors
    /// Its key cannot be read.
    pub fn load(folder: &Path, site: &str) -> Result<Option<Self>, Error> {
        let broken = |why: String| Error::Identity { file: folder.join(KEY), why };
        let text = match fs::read_to_string(folder.join(KEY)) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(broken(e.to_string())),
        };
        let part = pem::parse(text).map_err(|e| broken(e.to_string()))?;
        let key = pair(part.contents()).map_err(broken)?;
        Ok(Some(Self { issuer: Issuer::new(params_of(site), key) }))
    }

    /// Returns a certificate in DER for a program with these names and this public key, which others reach at `hosts`.
    ///
    /// # Errors
    /// A host is not one.
    pub fn issue(&self, names: &Names, hosts: &[String], key: [u8; 32]) -> Result<Vec<u8>, String> {
        let mut params = CertificateParams::default();
        let failed = |e: rcgen::Error| e.to_string();
        params.distinguished_name.push(DnType::CommonName, names.node.as_str());
        for uri in names.uris() {
            let uri = Ia5String::try_from(uri.as_str()).map_err(failed)?;
            params.subject_alt_names.push(SanType::URI(uri));
        }
        for host in hosts {
            params.subject_alt_names.push(match host.parse::<IpAddr>() {
                Ok(ip) => SanType::IpAddress(ip),
                Err(_) => SanType::DnsName(Ia5String::try_from(host.as_str()).map_err(failed)?),
            });
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        (params.not_before, params.not_after) =
            life(if names.is_hub { HUB_LIFE } else { NODE_LIFE });
        let certificate = params.signed_by(&PublicKey(key), &self.issuer).map_err(failed)?;
        Ok(certificate.der().to_vec())
    }
}

/// Returns the pair of keys in PKCS #8.
fn pair(pkcs8: &[u8]) -> Result<KeyPair, String> {
    let key = KeyPair::from_pkcs8_der_and_sign_algo(&pkcs8.to_vec().into(), &PKCS_ED25519);
    key.map_err(|e| e.to_string())
}

/// Returns the properties of an authority's certificate. They follow from the site, so that the key is enough to issue.
fn params_of(site: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, format!("Skopos authority of {site}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

/// Returns the first and the last time of a certificate that begins now.
fn life(life: Duration) -> (OffsetDateTime, OffsetDateTime) {
    let now = OffsetDateTime::now_utc();
    (now - SKEW, now + life)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::proof::{Kind, Statement};

    fn names(node: &str, is_hub: bool) -> Names {
        Names { site: "s".to_owned(), node: node.to_owned(), is_hub }
    }

    fn folder(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("skopos-authority-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_statement_is_proved_by_certificates_of_the_own_authority_alone() {
        let (here, there, joined) = (folder("here"), folder("there"), folder("joined"));
        let hosts = ["127.0.0.1".to_owned(), "hub1".to_owned()];
        let made = Authority::create(&here, &names("hub1", true), &hosts).expect("an authority");
        drop(made);
        let again = Authority::create(&here, &names("hub1", true), &hosts);
        assert!(again.is_err(), "there is one already");
        let authority = Authority::load(&here, "s").expect("readable").expect("there");
        let hub = Identity::load(&here).expect("readable").expect("there");
        assert_eq!(hub.names(), names("hub1", true));
        let (pkcs8, public) = new_key().expect("a key");
        let certificate = authority.issue(&names("n01", false), &[], public).expect("issued");
        Identity::save(&joined, &pkcs8, &certificate, Some(hub.authority())).expect("saved");
        let node = Identity::load(&joined).expect("readable").expect("there");
        let statement =
            Statement { kind: Kind::Answer, key: "a/b", nonce: b"nonce", payload: b"payload" };
        let proof = statement.prove(&node, b"extra");
        let (found, extra) = statement.check(&hub, &proof).expect("proved");
        assert_eq!((found.names, extra), (names("n01", false), &b"extra"[..]));
        for other in [
            Statement { kind: Kind::Question, ..statement },
            Statement { key: "a/c", ..statement },
            Statement { nonce: b"noncf", ..statement },
            Statement { payload: b"payloae", ..statement },
        ] {
            assert!(other.check(&hub, &proof).is_err(), "{other:?}");
        }
        for at in 0..proof.len() {
            let mut damaged = proof.clone();
            damaged[at] ^= 1;
            assert!(statement.check(&hub, &damaged).is_err(), "byte {at}");
        }
        Authority::create(&there, &names("hub1", true), &hosts).expect("an authority");
        let stranger = Identity::load(&there).expect("readable").expect("there");
        assert!(statement.check(&stranger, &proof).is_err(), "another authority");
        assert!(!node.is_renewal_due() && !hub.is_renewal_due());
        for folder in [here, there, joined] {
            fs::remove_dir_all(folder).expect("removed");
        }
    }

    #[test]
    fn an_identity_that_others_can_read_or_that_is_damaged_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let here = folder("damaged");
        assert!(Identity::load(&here).expect("readable").is_none());
        Authority::create(&here, &names("hub1", true), &[]).expect("an authority");
        let file = here.join("identity.pem");
        let sound = fs::read_to_string(&file).expect("text");
        let open = fs::Permissions::from_mode(0o640);
        fs::set_permissions(&file, open).expect("ours");
        assert!(Identity::load(&here).is_err_and(|e| e.to_string().contains("other users")));
        let (pkcs8, _) = new_key().expect("a key");
        let other = pem::encode(&Pem::new("PRIVATE KEY", pkcs8));
        let certificate = &sound[sound.find("-----BEGIN CERTIFICATE").expect("there")..];
        for text in [String::new(), sound.replace("CERTIFICATE", "X"), other + certificate] {
            write_private(&file, &text).expect("written");
            assert!(Identity::load(&here).is_err(), "{text}");
        }
        fs::remove_dir_all(here).expect("removed");
    }
}

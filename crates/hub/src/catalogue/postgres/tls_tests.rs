//! TLS to Debian's server, with an authority and a certificate that the test makes.

use std::path::{Path, PathBuf};

use pem::Pem;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256,
};
use skopos_store::jobs::catalogue::{Error, conformance};
use skopos_store::jobs::{Catalogue, Change, Filter, Visibility};

use super::server::Server;
use super::{PostgresCatalogue, PostgresUrl};

/// The name in the certificate of the server.
const NAME: &str = "db.example";

/// Makes an authority in a folder, with a certificate of the server. Returns the file of the authority, and the certificate with its
/// key.
fn authority(folder: &Path) -> (PathBuf, Vec<u8>) {
    // OpenSSL 3.0 does not read an Ed25519 key as ring writes it, with the public key beside it.
    let new_key = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
    let (own, key) = (new_key(), new_key());
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "Authority of a test");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let root = params.self_signed(&own).expect("made");
    let of_server = CertificateParams::new([NAME.to_owned()]).expect("a name");
    let of_server = of_server.signed_by(&key, &Issuer::new(params, own)).expect("made");
    let text = |label: &str, der: &[u8]| pem::encode(&Pem::new(label, der));
    let file = folder.join("authority.pem");
    std::fs::create_dir_all(folder).expect("made");
    std::fs::write(&file, text("CERTIFICATE", root.der())).expect("written");
    let certificate = text("CERTIFICATE", of_server.der());
    let both = certificate + &text("PRIVATE KEY", &key.serialize_der());
    (file, both.into_bytes())
}

/// Counts the jobs of a catalogue that is reached with TLS, under a name of the server.
fn count(server: &Server, database: &str, name: &str, authority: &Path) -> Result<u64, String> {
    let url = server.tcp_url(database, name);
    let url = format!("{url}&sslmode=verify-full&sslrootcert={}", authority.display());
    let place: PostgresUrl = url.parse().expect("a URL");
    let catalogue = PostgresCatalogue::new(&place).map_err(told)?;
    let jobs = [conformance::entry("1", &[0])];
    catalogue.apply(&Change { entries: &jobs, ..Change::default() }).map_err(told)?;
    catalogue.count(&Filter::new(Visibility::Everything)).map_err(told)
}

/// Returns an error with its causes.
fn told(e: Error) -> String {
    let first: Option<&dyn std::error::Error> = Some(&e);
    let causes = std::iter::successors(first, |e| e.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[test]
fn a_server_with_the_certificate_of_its_authority_and_its_name_is_connected_to_with_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, certificate) = authority(&folder.path().join("own"));
    let (other, _) = authority(&folder.path().join("other"));
    let files = [("server.pem", certificate.as_slice())];
    let ssl = ["ssl=on", "ssl_cert_file=FOLDER/server.pem", "ssl_key_file=FOLDER/server.pem"];
    let Some(server) = Server::start_with_tcp(&files, &ssl) else { return };
    server.execute("postgres", "CREATE DATABASE jobs");
    assert_eq!(count(&server, "jobs", NAME, &file), Ok(1));
    // The server says the same about a connection of the catalogue.
    let url = server.tcp_url("jobs", NAME);
    let url = format!("{url}&sslmode=verify-full&sslrootcert={}", file.display());
    let catalogue = PostgresCatalogue::new(&url.parse().expect("a URL")).expect("a catalogue");
    assert_eq!(catalogue.segments("").expect("connected"), [""; 0]);
    let encrypted = "DO $$ BEGIN ASSERT (SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name = 'skopos'); END $$";
    server.execute("jobs", encrypted);
    drop(catalogue);

    let refused = |name: &str, authority: &Path, expected: &str| {
        let why = count(&server, "jobs", name, authority).expect_err(name);
        assert!(why.contains(expected), "{why}");
    };
    refused("other.example", &file, "not valid for name");
    refused(NAME, &other, "invalid peer certificate");
    refused(
        NAME,
        &folder.path().join("nowhere"),
        "the certificate of its authority cannot be read",
    );
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "").expect("written");
    refused(NAME, &empty, "it has no certificate in PEM");
}

#[test]
fn a_server_without_tls_is_refused_where_tls_is_demanded() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, _) = authority(folder.path());
    let Some(server) = Server::start_with_tcp(&[], &[]) else { return };
    server.execute("postgres", "CREATE DATABASE jobs");
    let why = count(&server, "jobs", NAME, &file).expect_err("clear text");
    assert!(why.contains("server does not support TLS"), "{why}");
    server.execute("jobs", "CREATE SCHEMA skopos");
}

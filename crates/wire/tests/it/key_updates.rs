//! A connection with TLS whose other end changes its keys all the time, while both ends send.
//!
//! A request to change keys makes the reading side of a connection replace the keys with which its writing side encrypts.
//! The published TLS link of the transport did both at once without a lock (eclipse-zenoh/zenoh#2557), so a node with a
//! certificate could break its connection and corrupt the memory of its hub. `vendor/zenoh-link-tls` has the lock.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, IpAddr, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use zenoh::Wait as _;
use zenoh::config::Config;
use zenoh::qos::CongestionControl;

use crate::forger::{Site, until};

/// Connections at one time, so that several threads of the transport work on them.
const CONNECTIONS: usize = 4;

/// Messages in each direction of a connection: seconds of simultaneous reads and writes. With the published link, a
/// connection broke in each of eleven runs.
const MESSAGES: u64 = 3000;

/// Bytes of a message: a few records, so that encryption takes most of the time.
const MESSAGE_BYTES: usize = 6000;

/// Returns a client of TLS with the identity in `folder`.
fn connector(folder: &Path) -> TlsConnector {
    let identity = folder.join("identity.pem");
    let certificates = CertificateDer::pem_file_iter(&identity).expect("a file");
    let certificates = certificates.collect::<Result<Vec<_>, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_file(&identity).expect("a key");
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(folder.join("authority.pem")).expect("a file");
    roots.add(authority).expect("a certificate");
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("versions");
    let config = config.with_root_certificates(roots).with_client_auth_cert(certificates, key);
    TlsConnector::from(Arc::new(config.expect("a client")))
}

/// Carries the bytes of a connection in clear to one with TLS, and requests new keys after each piece.
async fn carry(mut clear: TcpStream, hub: String, connector: TlsConnector) -> std::io::Result<()> {
    let stream = TcpStream::connect(hub).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::IpAddress(IpAddr::from(std::net::IpAddr::from([127, 0, 0, 1])));
    let mut tls = connector.connect(name, stream).await?;
    let (mut out, mut back) = (vec![0; 4096], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            length = clear.read(&mut out) => {
                let length = length?;
                if length == 0 {
                    return Ok(());
                }
                tls.write_all(&out[..length]).await?;
                tls.get_mut().1.refresh_traffic_keys().map_err(std::io::Error::other)?;
                tls.flush().await?;
            }
            length = tls.read(&mut back) => {
                let length = length?;
                if length == 0 {
                    return Ok(());
                }
                clear.write_all(&back[..length]).await?;
            }
        }
    }
}

/// Starts a program that carries connections to the hub. Returns its endpoint.
fn start_carrier(site: &Site, folder: &Path) -> String {
    let (hub, connector) = (site.at.trim_start_matches("tls/").to_owned(), connector(folder));
    let (sender, port) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            sender.send(listener.local_addr().expect("a port").port()).expect("heard");
            while let Ok((clear, _)) = listener.accept().await {
                tokio::spawn(carry(clear, hub.clone(), connector.clone()));
            }
        });
    });
    format!("tcp/127.0.0.1:{}", port.recv().expect("a port"))
}

/// Opens a session of Zenoh that connects to `at` in clear text.
fn client(at: &str) -> zenoh::Session {
    let mut config = Config::default();
    for (key, value) in [
        ("mode", "\"client\"".to_owned()),
        ("connect/endpoints", format!("[{at:?}]")),
        ("scouting/multicast/enabled", "false".to_owned()),
    ] {
        config.insert_json5(key, &value).expect("a setting");
    }
    zenoh::open(config).wait().expect("a session")
}

/// Counts the messages of a key.
fn count(session: &zenoh::Session, key: String) -> (zenoh::pubsub::Subscriber<()>, Arc<AtomicU64>) {
    let received = Arc::<AtomicU64>::default();
    let counter = received.clone();
    let subscriber = session.declare_subscriber(key).callback(move |sample| {
        assert_eq!(sample.payload().len(), MESSAGE_BYTES);
        counter.fetch_add(1, Ordering::Relaxed);
    });
    (subscriber.wait().expect("it subscribes"), received)
}

/// Sends all messages of a key, on a thread of its own.
fn send(session: &zenoh::Session, key: String) {
    let session = session.clone();
    std::thread::spawn(move || {
        let publisher = session.declare_publisher(key);
        let publisher = publisher.congestion_control(CongestionControl::Block).express(true);
        let publisher = publisher.wait().expect("it publishes");
        for _ in 0..MESSAGES {
            publisher.put(vec![7; MESSAGE_BYTES]).wait().expect("sent");
        }
    });
}

#[test]
fn a_node_that_requests_new_keys_all_the_time_does_not_break_its_connection() {
    let site = Site::new();
    let hub = site.raw_hub();
    let carrier = start_carrier(&site, &site.joined("n01"));
    let ends: Vec<_> = (0..CONNECTIONS)
        .map(|at| {
            let session = client(&carrier);
            let (up, down) = (format!("test/up/{at}"), format!("test/down/{at}"));
            let at_hub = count(&hub, up.clone());
            let at_client = count(&session, down.clone());
            (session, (up, down), at_hub, at_client)
        })
        .collect();
    // Both know of the other's subscription.
    for (session, (up, down), ..) in &ends {
        let known = |session: &zenoh::Session, key: &str| {
            let publisher = session.declare_publisher(key.to_owned()).wait().expect("declared");
            publisher.matching_status().wait().is_ok_and(|status| status.matching())
        };
        until("the subscriptions are known", || known(session, up) && known(&hub, down));
    }
    for (session, (up, down), ..) in &ends {
        send(session, up.clone());
        send(&hub, down.clone());
    }
    for (_, (up, down), (_, at_hub), (_, at_client)) in &ends {
        until(up, || at_hub.load(Ordering::Relaxed) == MESSAGES);
        until(down, || at_client.load(Ordering::Relaxed) == MESSAGES);
    }
}

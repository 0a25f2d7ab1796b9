//! The client that downloads jobs from a hub, by Arrow Flight. It blocks.
//!
//! It verifies what it gets: the records of a stream have the number and the CRC-32 that the last message tells.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{FlightDescriptor, FlightEndpoint, Ticket};
use futures_util::{StreamExt as _, TryStreamExt as _};
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use skopos_hub::jobs::{PlacedRecord, RecordSum, records_of};
use skopos_term::Failure;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::codegen::{Service, http};
use tonic::transport::{Channel, Endpoint as Target};
use tonic::{Code, Request, Status};

use crate::downloads::{EndpointMetadata, PlacesCommand, PlacesMetadata, Trailer};

/// Time for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for an answer about places, and for the next message of a download.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);

/// The longest message: a record has at most 8 MiB, and an answer about places some megabytes.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Bytes that the hub may send before the client has taken any: a few batches.
const WINDOW_BYTES: u32 = 4 << 20;

/// The address of a hub, and what shows who asks.
#[derive(Clone, Debug, Default)]
pub struct HubAddress {
    /// URL of its Flight listener: `grpc://HOST:PORT`, or `grpc+tls://HOST:PORT`.
    pub url: String,
    /// Certificate of its authority in PEM, for `grpc+tls`.
    pub authority: Option<Vec<u8>>,
    /// A token of a user.
    pub token: Option<String>,
}

impl HubAddress {
    /// Reads the certificate of an authority and a token from files.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn new(url: &str, authority: Option<&Path>, token: Option<&Path>) -> Result<Self, Failure> {
        let read = |path: &Path| {
            std::fs::read(path)
                .map_err(|e| Failure::new(format!("{} cannot be read", path.display())).because(&e))
        };
        let authority = authority.map(read).transpose()?;
        let token = token.map(read).transpose()?;
        let token = token.map(|token| String::from_utf8_lossy(&token).trim().to_owned());
        Ok(Self { url: url.to_owned(), authority, token })
    }

    /// Returns the same rights at another hub.
    #[must_use]
    pub fn at(&self, url: &str) -> Self {
        Self { url: url.to_owned(), ..self.clone() }
    }
}

/// The reason why nothing was fetched.
#[derive(Debug)]
pub enum FetchError {
    /// The hub has too much to do; it may have time later.
    Busy(Failure),
    /// The ticket is not taken. The client can ask for a new one.
    Ticket(Failure),
    /// The hub does not answer, or what it sent is not whole. Another location may be better.
    Failed(Failure),
    /// The client itself cannot go on.
    Local(Failure),
}

impl FetchError {
    /// Returns the failure.
    pub fn into_failure(self) -> Failure {
        match self {
            Self::Busy(it) | Self::Ticket(it) | Self::Failed(it) | Self::Local(it) => it,
        }
    }
}

/// Records that can be downloaded at once.
#[derive(Clone, Debug)]
pub struct FoundEndpoint {
    /// The ticket.
    pub ticket: Vec<u8>,
    /// URLs of hubs that have them; the hub that was asked if there are none.
    pub locations: Vec<String>,
    /// The jobs with their parts.
    pub metadata: EndpointMetadata,
}

/// A connection to a hub.
pub struct Fetcher {
    runtime: Runtime,
    client: FlightServiceClient<Channel>,
    token: Option<String>,
    url: String,
}

impl Fetcher {
    /// Connects to a hub.
    ///
    /// # Errors
    /// The URL is not one, or the hub does not answer.
    pub fn connect(address: &HubAddress) -> Result<Self, Failure> {
        let connector = Connector::new(address)?;
        let failed = |e: &dyn std::error::Error| {
            Failure::new(format!("the hub at {} does not answer", address.url)).because(e)
        };
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| failed(&e))?;
        let host = connector.authority();
        let target = Target::from_shared(format!("http://{host}")).map_err(|e| failed(&e))?;
        let target = target
            .connect_timeout(CONNECT_TIMEOUT)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(2 * WINDOW_BYTES);
        let connecting = async { target.connect_with_connector(connector).await };
        let channel = runtime.block_on(connecting).map_err(|e| failed(&e))?;
        let client = FlightServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
        Ok(Self { runtime, client, token: address.token.clone(), url: address.url.clone() })
    }

    fn request<T>(&self, message: T) -> Result<Request<T>, FetchError> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            let value = format!("Bearer {token}").parse();
            let value =
                value.map_err(|_| FetchError::Local(Failure::new("the token is not one")))?;
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }

    /// Asks where jobs lie: one answer, after which others may follow.
    ///
    /// # Errors
    /// The hub refuses the command, or does not answer.
    pub fn places(
        &mut self,
        command: &PlacesCommand,
    ) -> Result<(PlacesMetadata, Vec<FoundEndpoint>), FetchError> {
        let command = serde_json::to_vec(command).map_err(|e| self.not_valid(&e))?;
        let request = self.request(FlightDescriptor::new_cmd(command))?;
        let mut client = self.client.clone();
        let asking = async { timeout(ANSWER_TIMEOUT, client.get_flight_info(request)).await };
        let answered = self.runtime.block_on(asking);
        let info = match answered {
            Err(_) => return Err(self.late()),
            Ok(Err(status)) => return Err(self.refused(&status)),
            Ok(Ok(answer)) => answer.into_inner(),
        };
        let metadata =
            serde_json::from_slice(&info.app_metadata).map_err(|e| self.not_valid(&e))?;
        let endpoint = |endpoint: FlightEndpoint| {
            let metadata = serde_json::from_slice(&endpoint.app_metadata);
            Ok(FoundEndpoint {
                ticket: endpoint.ticket.map(|ticket| ticket.ticket.to_vec()).unwrap_or_default(),
                locations: endpoint.location.into_iter().map(|location| location.uri).collect(),
                metadata: metadata.map_err(|e| self.not_valid(&e))?,
            })
        };
        let endpoints = info.endpoint.into_iter().map(endpoint);
        Ok((metadata, endpoints.collect::<Result<_, FetchError>>()?))
    }

    /// Downloads the records of a ticket, and passes them to `visit`. They are whole once this returns their sum.
    ///
    /// # Errors
    /// The hub refuses the ticket, the stream is not whole, or `visit` failed.
    pub fn get(
        &mut self,
        ticket: &[u8],
        visit: &mut dyn FnMut(PlacedRecord) -> Result<(), Failure>,
    ) -> Result<RecordSum, FetchError> {
        let request = self.request(Ticket::new(ticket.to_vec()))?;
        let mut client = self.client.clone();
        let download = async {
            let asked = timeout(ANSWER_TIMEOUT, client.do_get(request)).await;
            let stream = match asked {
                Err(_) => return Err(self.late()),
                Ok(Err(status)) => return Err(self.refused(&status)),
                Ok(Ok(answer)) => answer.into_inner(),
            };
            let data = stream.map_err(|status| FlightError::Tonic(Box::new(status)));
            let mut messages = FlightDataDecoder::new(data);
            let (mut sum, mut trailer) = (RecordSum::default(), None::<Trailer>);
            loop {
                let next = timeout(ANSWER_TIMEOUT, messages.next()).await;
                let message = match next {
                    Err(_) => return Err(self.late()),
                    Ok(None) => break,
                    Ok(Some(Err(FlightError::Tonic(status)))) => return Err(self.refused(&status)),
                    Ok(Some(Err(e))) => return Err(self.not_valid(&e)),
                    Ok(Some(Ok(message))) => message,
                };
                if !message.inner.app_metadata.is_empty() {
                    let told = serde_json::from_slice(&message.inner.app_metadata);
                    trailer = Some(told.map_err(|e| self.not_valid(&e))?);
                }
                let DecodedPayload::RecordBatch(batch) = message.payload else { continue };
                let records = records_of(&batch);
                let records = records.ok_or_else(|| self.damaged("its columns are others"))?;
                for placed in records {
                    sum.add(&placed.record);
                    visit(placed).map_err(FetchError::Local)?;
                }
            }
            let told = Trailer { records: sum.records(), crc: format!("{:08x}", sum.crc()) };
            match trailer {
                None => Err(self.damaged("it ended too early")),
                Some(trailer) if trailer != told => {
                    Err(self.damaged("its checksum is another one"))
                }
                Some(_) => Ok(sum),
            }
        };
        self.runtime.block_on(download)
    }

    fn late(&self) -> FetchError {
        let failure = Failure::new(format!("the hub at {} does not answer in time", self.url));
        FetchError::Failed(failure)
    }

    fn damaged(&self, why: &str) -> FetchError {
        let failure =
            Failure::new(format!("the stream of the hub at {} is not whole: {why}", self.url));
        FetchError::Failed(failure)
    }

    fn not_valid(&self, e: &dyn std::error::Error) -> FetchError {
        let failure = Failure::new(format!("the answer of the hub at {} is not valid", self.url));
        FetchError::Failed(failure.because(e))
    }

    fn refused(&self, status: &Status) -> FetchError {
        let (text, hint) = match status.message().split_once("\nhint: ") {
            Some((text, hint)) => (text, Some(hint)),
            None => (status.message(), None),
        };
        let failure = Failure::new(format!("the hub at {}: {text}", self.url));
        let failure = match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        };
        match status.code() {
            Code::ResourceExhausted => FetchError::Busy(failure),
            Code::PermissionDenied => FetchError::Ticket(failure),
            _ => FetchError::Failed(failure),
        }
    }
}

/// Connects to the host of a URL, with TLS if its scheme says so.
#[derive(Clone)]
struct Connector {
    host: String,
    port: u16,
    tls: Option<TlsConnector>,
}

impl Connector {
    fn new(address: &HubAddress) -> Result<Self, Failure> {
        let url = &address.url;
        let wrong = || {
            Failure::new(format!("`{url}` is not the URL of a Flight listener"))
                .hint("write it like `grpc+tls://hub1.example:7471`")
        };
        let (is_secure, rest) = match url.strip_prefix("grpc+tls://") {
            Some(rest) => (true, rest),
            None => (false, url.strip_prefix("grpc://").ok_or_else(wrong)?),
        };
        let (host, port) = rest.trim_end_matches('/').rsplit_once(':').ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = port.parse().map_err(|_| wrong())?;
        // A token in clear text could be read on the way.
        let is_near = ["127.0.0.1", "::1", "localhost"].contains(&host.as_str());
        if address.token.is_some() && !is_secure && !is_near {
            return Err(Failure::new("a token is not sent in clear text")
                .hint("use the scheme `grpc+tls`, with `--authority FILE`"));
        }
        let tls = match is_secure {
            true => Some(tls(address.authority.as_deref())?),
            false => None,
        };
        Ok(Self { host, port, tls })
    }

    /// Returns host and port as a URL has them.
    fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    async fn connect(self) -> io::Result<TokioIo<Box<dyn Io>>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = self.tls else { return Ok(TokioIo::new(Box::new(stream))) };
        let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
        let stream = tls.connect(name, stream).await?;
        Ok(TokioIo::new(Box::new(stream)))
    }
}

fn tls(authority: Option<&[u8]>) -> Result<TlsConnector, Failure> {
    let missing = || {
        Failure::new("the certificate of the hub's authority is needed")
            .hint("name it with `--authority FILE`; `authority.pem` is in `pki` in the hub's folder of state")
    };
    let failed = |e: &dyn std::error::Error| {
        Failure::new("the certificate of the authority cannot be used").because(e)
    };
    let certificate = CertificateDer::from_pem_slice(authority.ok_or_else(missing)?);
    let mut roots = RootCertStore::empty();
    roots.add(certificate.map_err(|e| failed(&e))?).map_err(|e| failed(&e))?;
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_protocol_versions(&[&TLS13]).map_err(|e| failed(&e))?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// A connection.
trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl Service<http::Uri> for Connector {
    type Response = TokioIo<Box<dyn Io>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}

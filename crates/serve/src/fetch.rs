//! The client that downloads jobs from a hub, by Arrow Flight. It blocks.
//!
//! It verifies what it gets: the records of a stream have the number and the CRC-32 that the last message tells. The bytes of a
//! file are verified by its reader, which knows their checksums.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{FlightData, FlightDescriptor, FlightEndpoint, Ticket};
use futures_util::{StreamExt as _, TryStreamExt as _};
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use skopos_access::is_loopback;
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
use tonic::{Code, Request, Status, Streaming};

use crate::downloads::{EndpointMetadata, PlacesCommand, PlacesMetadata, Trailer};

/// Time for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for an answer about places, and for the next message of a download.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);

/// The longest message: a record has at most 8 MiB, and an answer about places some megabytes.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// The most parts of an endpoint that a client takes: those of a segment, or of a job of years.
const MAX_PARTS: u64 = 1 << 20;

/// Bytes that the hub may send before the client has taken any: a few batches.
const WINDOW_BYTES: u32 = 4 << 20;

/// The longest frame that the hub may send: a piece of a file, which has a megabyte, and the head of its message. Frames of
/// 16 KiB, the default of HTTP/2, cost two system calls each.
const FRAME_BYTES: u32 = (1 << 20) + 1024;

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
        Self { url: url.to_owned(), ..Self::default() }.with_files(authority, token)
    }

    /// Takes the certificate of an authority and a token from files, where they are named.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn with_files(
        mut self,
        authority: Option<&Path>,
        token: Option<&Path>,
    ) -> Result<Self, Failure> {
        let read = |path: &Path| {
            std::fs::read(path)
                .map_err(|e| Failure::new(format!("{} cannot be read", path.display())).because(&e))
        };
        if let Some(path) = authority {
            self.authority = Some(read(path)?);
        }
        if let Some(path) = token {
            self.token = Some(String::from_utf8_lossy(&read(path)?).trim().to_owned());
        }
        Ok(self)
    }

    /// Returns another hub, which does not get the token: it could use it here.
    #[must_use]
    pub fn elsewhere(&self, url: &str) -> Self {
        Self { url: url.to_owned(), token: None, authority: self.authority.clone() }
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
            .max_frame_size(FRAME_BYTES)
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
            let metadata: EndpointMetadata = metadata.map_err(|e| self.not_valid(&e))?;
            let ranges = metadata.jobs.iter().flat_map(|of| &of.parts);
            let count = |(from, to): &(u32, u32)| u64::from(to.saturating_sub(*from)) + 1;
            if ranges.map(count).sum::<u64>() > MAX_PARTS {
                return Err(self.damaged("an endpoint has too many parts"));
            }
            Ok(FoundEndpoint {
                ticket: endpoint.ticket.map(|ticket| ticket.ticket.to_vec()).unwrap_or_default(),
                locations: endpoint.location.into_iter().map(|location| location.uri).collect(),
                metadata,
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
        self.runtime.block_on(async {
            let data = self.stream(request).await?;
            let data = data.map_err(|status| FlightError::Tonic(Box::new(status)));
            let received = received(FlightDataDecoder::new(data), visit).await;
            received.map_err(|e| self.not_received(e))
        })
    }

    /// Downloads a file of `length` bytes with its ticket, and passes its pieces to `visit`.
    ///
    /// # Errors
    /// The hub refuses the ticket, the file has another length, or `visit` failed.
    pub fn get_file(
        &mut self,
        ticket: &[u8],
        length: u64,
        visit: &mut dyn FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), FetchError> {
        let request = self.request(Ticket::new(ticket.to_vec()))?;
        self.runtime.block_on(async {
            let mut data = self.stream(request).await?;
            let mut left = length;
            loop {
                let piece = match timeout(ANSWER_TIMEOUT, data.next()).await {
                    Err(_) => return Err(self.late()),
                    Ok(Some(Err(status))) => return Err(self.refused(&status)),
                    Ok(Some(Ok(piece))) => piece.data_body,
                    Ok(None) if left == 0 => return Ok(()),
                    Ok(None) => return Err(self.damaged("it ended too early")),
                };
                left = left
                    .checked_sub(piece.len() as u64)
                    .ok_or_else(|| self.damaged("it is longer than it should be"))?;
                visit(&piece).map_err(FetchError::Local)?;
            }
        })
    }

    /// Begins a download.
    async fn stream(&self, request: Request<Ticket>) -> Result<Streaming<FlightData>, FetchError> {
        let mut client = self.client.clone();
        match timeout(ANSWER_TIMEOUT, client.do_get(request)).await {
            Err(_) => Err(self.late()),
            Ok(Err(status)) => Err(self.refused(&status)),
            Ok(Ok(answer)) => Ok(answer.into_inner()),
        }
    }

    fn not_received(&self, e: NotReceived) -> FetchError {
        match e {
            NotReceived::Late => self.late(),
            NotReceived::Refused(status) => self.refused(&status),
            NotReceived::Damaged(why) => self.damaged(&why),
            NotReceived::Local(e) => FetchError::Local(e),
        }
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

/// The reason why a stream was not received.
#[derive(Debug)]
enum NotReceived {
    Late,
    Refused(Status),
    Damaged(String),
    Local(Failure),
}

/// Passes the records of a stream to `visit`, and compares their sum with that of its last message.
async fn received(
    mut messages: FlightDataDecoder,
    visit: &mut dyn FnMut(PlacedRecord) -> Result<(), Failure>,
) -> Result<RecordSum, NotReceived> {
    let damaged = |why: &str| NotReceived::Damaged(why.to_owned());
    let (mut sum, mut trailer) = (RecordSum::default(), None::<Trailer>);
    loop {
        let message = match timeout(ANSWER_TIMEOUT, messages.next()).await {
            Err(_) => return Err(NotReceived::Late),
            Ok(None) => break,
            Ok(Some(Err(FlightError::Tonic(status)))) => return Err(NotReceived::Refused(*status)),
            Ok(Some(Err(e))) => return Err(NotReceived::Damaged(e.to_string())),
            Ok(Some(Ok(message))) => message,
        };
        if trailer.is_some() {
            return Err(damaged("it goes on after its end"));
        }
        let metadata = &message.inner.app_metadata;
        if !metadata.is_empty() {
            let told = serde_json::from_slice(metadata);
            trailer = Some(told.map_err(|e| NotReceived::Damaged(e.to_string()))?);
        }
        let DecodedPayload::RecordBatch(batch) = message.payload else { continue };
        for placed in records_of(&batch).ok_or_else(|| damaged("its columns are others"))? {
            sum.add(&placed.record);
            visit(placed).map_err(NotReceived::Local)?;
        }
    }
    let told = Trailer { records: sum.records(), crc: format!("{:08x}", sum.crc()) };
    match trailer {
        None => Err(damaged("it ended too early")),
        Some(trailer) if trailer != told => Err(damaged("its checksum is another one")),
        Some(_) => Ok(sum),
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
        if address.token.is_some() && !is_secure && !is_loopback(&host) {
            let hint = "use the scheme `grpc+tls`, with `--authority FILE`, or an address of the loopback, such as 127.0.0.1";
            return Err(Failure::new("a token is not sent in clear text").hint(hint));
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

#[cfg(test)]
mod tests {
    use arrow_flight::FlightData;
    use arrow_flight::encode::FlightDataEncoderBuilder;
    use futures_util::stream;
    use skopos_hub::jobs::download_schema;
    use skopos_model::Timestamp;
    use skopos_model::job::{JobRecord, Kind};
    use skopos_query::arrow::array::{
        ArrayRef, BinaryArray, ListArray, RecordBatch, StringArray, TimestampNanosecondArray,
        UInt32Array,
    };
    use skopos_query::arrow::datatypes::DataType;

    use super::*;

    #[test]
    fn a_token_stays_at_its_hub() {
        let (url, token) = ("grpc+tls://a:1".to_owned(), Some("secret".to_owned()));
        let here = HubAddress { url, authority: Some(vec![1]), token };
        let other = here.elsewhere("grpc+tls://c:1");
        assert_eq!((other.url.as_str(), other.token), ("grpc+tls://c:1", None));
        assert_eq!(other.authority, Some(vec![1]));
    }

    /// Returns a batch with a record for each time.
    fn batch(times: &[i64]) -> RecordBatch {
        let text = |text: &'static str| -> ArrayRef {
            Arc::new(times.iter().map(|_| Some(text)).collect::<StringArray>())
        };
        let none = || -> ArrayRef {
            Arc::new(times.iter().map(|_| None::<&str>).collect::<StringArray>())
        };
        let zeros = || -> ArrayRef { Arc::new(times.iter().map(|_| 0).collect::<UInt32Array>()) };
        let stamps = TimestampNanosecondArray::from(times.to_vec()).with_timezone("UTC");
        let lists = ListArray::new_null(
            match download_schema().field(8).data_type() {
                DataType::List(of) => of.clone(),
                other => panic!("{other}"),
            },
            times.len(),
        );
        let raw: BinaryArray = times.iter().map(|_| None::<&[u8]>).collect();
        let columns: Vec<ArrayRef> = vec![
            text("7"),
            zeros(),
            zeros(),
            zeros(),
            text("end"),
            none(),
            text("n01"),
            Arc::new(stamps),
            Arc::new(lists),
            text("{}"),
            Arc::new(raw),
        ];
        RecordBatch::try_new(download_schema(), columns).expect("a batch")
    }

    fn trailer(times: &[i64]) -> Trailer {
        let mut sum = RecordSum::default();
        for time in times {
            let record = JobRecord {
                kind: Kind::End,
                job: "7",
                generation: 0,
                node: "n01",
                time: Timestamp::from_nanos(*time),
                content: b"{}",
            };
            sum.add(&skopos_hub::jobs::StoredRecord::of(&record));
        }
        Trailer { records: sum.records(), crc: format!("{:08x}", sum.crc()) }
    }

    fn end(trailer: &Trailer) -> FlightData {
        let told = serde_json::to_string(trailer).expect("JSON");
        crate::flight::ending(download_schema(), told).expect("encoded")
    }

    /// Receives batches and what follows them.
    fn receive(batches: Vec<RecordBatch>, last: Vec<FlightData>) -> Result<u64, String> {
        let batches = stream::iter(batches.into_iter().map(Ok));
        let data = FlightDataEncoderBuilder::new().with_schema(download_schema()).build(batches);
        let decoder = FlightDataDecoder::new(data.chain(stream::iter(last.into_iter().map(Ok))));
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let received = runtime.block_on(async { received(decoder, &mut |_| Ok(())).await });
        received.map(|sum| sum.records()).map_err(|e| match e {
            NotReceived::Damaged(why) => why,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_stream_that_is_not_whole_is_noticed() {
        let (times, sum) = ([1, 2, 3], trailer(&[1, 2, 3]));
        let both = || vec![batch(&times[..2]), batch(&times[2..])];
        assert_eq!(receive(both(), vec![end(&sum)]), Ok(3));
        assert_eq!(receive(Vec::new(), vec![end(&trailer(&[]))]), Ok(0));
        let failed = |batches, last: Vec<FlightData>, expected: &str| {
            let why = receive(batches, last).expect_err("not whole");
            assert!(why.contains(expected), "{why}");
        };
        failed(both(), Vec::new(), "ended too early");
        failed(both()[..1].to_vec(), vec![end(&sum)], "another one");
        failed(vec![batch(&[1, 2, 4])], vec![end(&sum)], "another one");
        failed(vec![batch(&[2, 1, 3])], vec![end(&sum)], "another one");
        failed(both(), vec![end(&Trailer { records: 4, ..sum.clone() })], "another one");
        failed(both(), vec![end(&sum), end(&sum)], "goes on after its end");
    }

    #[test]
    fn an_url_says_where_and_how() {
        let check = |url: &str, token: Option<&str>| {
            let token = token.map(str::to_owned);
            let address = HubAddress { url: url.to_owned(), authority: None, token };
            Connector::new(&address)
                .map(|connector| connector.authority())
                .map_err(|e| e.message().to_owned())
        };
        assert_eq!(check("grpc://127.0.0.1:7471", Some("t")).as_deref(), Ok("127.0.0.1:7471"));
        assert_eq!(check("grpc://[::1]:7471/", None).as_deref(), Ok("[::1]:7471"));
        for (url, token, expected) in [
            ("http://127.0.0.1:7471", None, "not the URL"),
            ("grpc://127.0.0.1", None, "not the URL"),
            ("grpc://127.0.0.1:70000", None, "not the URL"),
            ("grpc://hub1.example:7471", Some("t"), "not sent in clear text"),
            ("grpc://localhost:7471", Some("t"), "not sent in clear text"),
            ("grpc+tls://hub1.example:7471", Some("t"), "authority is needed"),
        ] {
            let why = check(url, token).expect_err("refused");
            assert!(why.contains(expected), "{url}: {why}");
        }
    }
}

//! Servers and clients of tonic for tests.

use std::net::SocketAddr;

use skopos_rpc::Recorder;
use skopos_rpc::host::tonic::{ClientLayer, ClientService, ServerLayer};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Server};

use super::echo::{EchoClient, EchoServer};

/// Two threads, so that servers and clients do not wait for each other.
pub(super) fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime")
}

/// Serves on a free port.
pub(super) async fn serve(recorder: Recorder, service: EchoServer) -> (SocketAddr, JoinHandle<()>) {
    serve_with(Server::builder(), recorder, service).await
}

/// Serves with the settings of `builder`.
pub(super) async fn serve_with(
    builder: Server,
    recorder: Recorder,
    service: EchoServer,
) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    let server = builder.layer(ServerLayer::with(recorder)).add_service(service);
    let task = tokio::spawn(async { server.serve_with_incoming(incoming).await.expect("serves") });
    (address, task)
}

/// Makes a client whose calls are recorded.
pub(super) fn client(recorder: Recorder, to: SocketAddr) -> EchoClient<ClientService<Channel>> {
    let channel = Channel::from_shared(format!("http://{to}")).expect("an address").connect_lazy();
    EchoClient::new(ClientLayer::with(recorder, Some("echo")).wrap(channel))
}

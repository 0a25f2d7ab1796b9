//! An echo service with tonic whose calls are recorded: three lines, marked below.
//!
//! ```console
//! $ cargo run --example tonic_echo --features tonic -- traces
//! ```
//!
//! It serves `echo.Echo` on a free port, calls itself a thousand times, and leaves its trace in the folder `traces`, for
//! `skopos trace findings --trace traces`. With `serve ADDRESS` before the folder it serves other clients until its input ends.

mod echo;

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use echo::{EchoClient, EchoServer};
use skopos_rpc::Recorder;
use skopos_rpc::host::tonic::{ClientLayer, ServerLayer, options};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};

/// Calls of the example: enough for a distribution, done in a second.
const CALLS: usize = 1000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let folder = words.pop().unwrap_or_else(|| "traces".to_owned());
    std::fs::create_dir_all(&folder)?;

    // First line: the recorder of the process.
    Recorder::start(options("echo").trace_folder(&folder))?.set_global();

    let address = words.get(1).map_or("127.0.0.1:0", String::as_str);
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let channel = Channel::from_shared(format!("http://{address}"))?.connect_lazy();

    // Second line: the channel of the client.
    let client = EchoClient::new(ClientLayer::to("echo").wrap(channel));

    let next = client.clone();
    let service = EchoServer::relay_to(Arc::new(move |message| {
        let next = next.clone();
        Box::pin(async move { next.unary("/echo.Echo/Say", tonic::Request::new(message)).await })
    }));
    // Without it, each answer waits 40 ms for an acknowledgement; findings call that time unaccounted.
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));

    // Third line: the layer of the server.
    let mut server = Server::builder().layer(ServerLayer::new());

    let server = server.add_service(service);
    tokio::spawn(server.serve_with_incoming(incoming));
    if words.first().is_some_and(|word| word == "serve") {
        println!("{address}");
        tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()))
            .await??;
    } else {
        for _ in 0..CALLS {
            let request = tonic::Request::new(Bytes::from_static(b"hello"));
            client.unary("/echo.Echo/Relay", request).await?;
        }
        let mut answers = client.chat(vec![Bytes::from_static(b"hello"); 3]).await?;
        while answers.message().await?.is_some() {}
        println!("{CALLS} calls; now: skopos trace findings --trace {folder}");
    }
    Recorder::global().close()?;
    Ok(())
}

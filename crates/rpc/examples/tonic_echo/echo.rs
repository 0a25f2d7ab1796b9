//! The service `echo.Echo` without generated code: a message is the bytes of the message.
//!
//! `Say` returns the request; `Chat` returns each message of a stream; `Relay` passes the request on to the `Say` of the
//! next service, if there is one; `Slow` takes a tenth of a second; `Fail` fails; `Wait` never answers.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{NamedService, StreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming};
use tower_service::Service;

/// Time that `Slow` takes.
const SLOW: std::time::Duration = std::time::Duration::from_millis(100);

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Messages as they are.
#[derive(Clone, Copy, Default)]
pub(crate) struct RawCodec;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// A client of the service, over any channel.
#[derive(Clone)]
pub(crate) struct EchoClient<T>(tonic::client::Grpc<T>);

impl<T> EchoClient<T>
where
    T: tonic::client::GrpcService<Body> + Clone,
    T::ResponseBody: http_body::Body<Data = Bytes> + Send + 'static,
    <T::ResponseBody as http_body::Body>::Error:
        Into<Box<dyn std::error::Error + Send + Sync>> + Send,
{
    /// Makes a client.
    pub(crate) fn new(channel: T) -> Self {
        Self(tonic::client::Grpc::new(channel))
    }

    /// Calls a method that takes and returns one message: `/echo.Echo/Say`.
    ///
    /// # Errors
    /// The status of the call.
    pub(crate) async fn unary(
        &self,
        path: &'static str,
        request: Request<Bytes>,
    ) -> Result<Bytes, Status> {
        let mut grpc = self.0.clone();
        grpc.ready().await.map_err(|e| Status::unavailable(e.into().to_string()))?;
        let path = http::uri::PathAndQuery::from_static(path);
        Ok(grpc.unary(request, path, RawCodec).await?.into_inner())
    }

    /// Calls `Chat` with `messages` and returns its answers.
    ///
    /// # Errors
    /// The status of the call.
    pub(crate) async fn chat(&self, messages: Vec<Bytes>) -> Result<Streaming<Bytes>, Status> {
        let mut grpc = self.0.clone();
        grpc.ready().await.map_err(|e| Status::unavailable(e.into().to_string()))?;
        let path = http::uri::PathAndQuery::from_static("/echo.Echo/Chat");
        let request = Request::new(tokio_stream::iter(messages));
        Ok(grpc.streaming(request, path, RawCodec).await?.into_inner())
    }
}

/// A method `Say` of another service.
pub(crate) type Next = std::sync::Arc<dyn Fn(Bytes) -> Boxed<Result<Bytes, Status>> + Send + Sync>;

/// The server of the service.
#[derive(Clone, Default)]
pub(crate) struct EchoServer {
    next: Option<Next>,
}

impl EchoServer {
    /// Makes a server whose `Relay` calls `next`.
    pub(crate) fn relay_to(next: Next) -> Self {
        Self { next: Some(next) }
    }
}

impl NamedService for EchoServer {
    const NAME: &'static str = "echo.Echo";
}

impl Service<http::Request<Body>> for EchoServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Boxed<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let mut grpc = tonic::server::Grpc::new(RawCodec);
        let method = match request.uri().path() {
            "/echo.Echo/Say" => Method::Say,
            "/echo.Echo/Relay" => Method::Relay(self.next.clone()),
            "/echo.Echo/Slow" => Method::Slow,
            "/echo.Echo/Fail" => Method::Fail,
            "/echo.Echo/Wait" => Method::Wait,
            "/echo.Echo/Chat" => {
                return Box::pin(async move { Ok(grpc.streaming(Method::Chat, request).await) });
            }
            _ => return Box::pin(ready(Ok(Status::unimplemented("no such method").into_http()))),
        };
        Box::pin(async move { Ok(grpc.unary(method, request).await) })
    }
}

enum Method {
    Say,
    Chat,
    Relay(Option<Next>),
    Slow,
    Fail,
    Wait,
}

impl UnaryService<Bytes> for Method {
    type Response = Bytes;
    type Future = Boxed<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let message = request.into_inner();
        match self {
            Self::Relay(Some(next)) => {
                let answer = next(message);
                Box::pin(async { Ok(Response::new(answer.await?)) })
            }
            Self::Slow => Box::pin(async {
                tokio::time::sleep(SLOW).await;
                Ok(Response::new(message))
            }),
            Self::Fail => Box::pin(ready(Err(Status::invalid_argument("as asked")))),
            Self::Wait => Box::pin(std::future::pending()),
            Self::Say | Self::Chat | Self::Relay(None) => {
                Box::pin(ready(Ok(Response::new(message))))
            }
        }
    }
}

impl StreamingService<Bytes> for Method {
    type Response = Bytes;
    type ResponseStream = Streaming<Bytes>;
    type Future = Boxed<Result<Response<Streaming<Bytes>>, Status>>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        Box::pin(ready(Ok(Response::new(request.into_inner()))))
    }
}

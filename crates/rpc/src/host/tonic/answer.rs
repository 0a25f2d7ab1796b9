//! The response of a call: the future until its headers, and the body until its trailers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::call::{Call, Response};
use super::headers;
use crate::record::Status;

pin_project! {
    /// The future of a response, whose call is recorded.
    #[derive(Debug)]
    pub struct AnswerFuture<F> {
        #[pin]
        inner: F,
        call: Option<Call>,
    }
}

impl<F> AnswerFuture<F> {
    pub(super) fn new(inner: F, call: Option<Call>) -> Self {
        Self { inner, call }
    }
}

impl<F, B, E> Future for AnswerFuture<F>
where
    F: Future<Output = Result<http::Response<B>, E>>,
    B: Body,
{
    type Output = Result<http::Response<AnswerBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let polled = match this.call {
            None => this.inner.poll(cx),
            Some(call) => {
                let _entered = call.enter();
                call.counts().polling(|| this.inner.poll(cx))
            }
        };
        polled.map(|answer| match answer {
            Ok(response) => {
                let call = this.call.take().and_then(|call| answered(call, &response));
                let without_trailers = without_trailers(response.headers());
                let wrap = |inner| AnswerBody {
                    inner,
                    call,
                    response: Response::default(),
                    without_trailers,
                };
                Ok(response.map(wrap))
            }
            Err(e) => {
                if let Some(call) = this.call.take() {
                    call.end(Status::Error, &Response::default());
                }
                Err(e)
            }
        })
    }
}

/// Ends a call whose headers say all, and returns any other one.
fn answered<B: Body>(mut call: Call, response: &http::Response<B>) -> Option<Call> {
    call.respond();
    let status = headers::status(response.headers());
    let fails = response.status() != StatusCode::OK;
    if status.is_none() && !fails && !response.body().is_end_stream() {
        return Some(call);
    }
    let otherwise = if fails { Status::Error } else { without_trailers(response.headers()) };
    call.end(status.unwrap_or(otherwise), &Response::default());
    None
}

/// Returns the status of a response that ends without trailers: with gRPC that is an error, with plain HTTP it is usual.
fn without_trailers(headers: &HeaderMap) -> Status {
    if headers::is_grpc(headers) { Status::Error } else { Status::Ok }
}

pin_project! {
    /// The body of a response, whose call ends with its trailers.
    #[derive(Debug)]
    pub struct AnswerBody<B> {
        #[pin]
        inner: B,
        call: Option<Call>,
        response: Response,
        without_trailers: Status,
    }
}

impl<B: Body<Data = Bytes>> Body for AnswerBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let Some(call) = this.call else { return this.inner.poll_frame(cx) };
        let recorder = call.recorder();
        let from = recorder.ticks();
        let mut inner = this.inner;
        let polled = {
            let _entered = call.enter();
            call.counts().polling(|| inner.as_mut().poll_frame(cx))
        };
        let end = match &polled {
            Poll::Pending => None,
            Poll::Ready(Some(Ok(frame))) => match (frame.data_ref(), frame.trailers_ref()) {
                (Some(data), _) => {
                    this.response.messages.feed(data);
                    this.response.polling += recorder.ticks().saturating_sub(from);
                    // HTTP/2 does not poll such a body again.
                    inner.is_end_stream().then_some(*this.without_trailers)
                }
                (None, Some(trailers)) => {
                    Some(headers::status(trailers).unwrap_or(*this.without_trailers))
                }
                (None, None) => None,
            },
            Poll::Ready(Some(Err(_))) => Some(Status::Error),
            Poll::Ready(None) => Some(*this.without_trailers),
        };
        if let (Some(status), Some(mut call)) = (end, end.and_then(|_| this.call.take())) {
            if this.response.messages.count > 1 {
                // A stream: the handler worked until here.
                call.respond();
            }
            call.end(status, this.response);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

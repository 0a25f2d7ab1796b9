//! A connection of a server: its socket, the region of its origin, and responses that wait for room in the socket.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::error::Result;
use crate::message::{HEAD_BYTES, Head};
use crate::probe::TargetSpan;
use crate::region::RemoteRegion;
use crate::socket::Socket;

use skopos_rpc::PeerId;

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    /// Set by the hello.
    pub(crate) greeted: OnceLock<Greeted>,
    outbox: Mutex<VecDeque<Response>>,
}

/// The contents of a hello.
#[derive(Debug)]
pub(crate) struct Greeted {
    pub(crate) peer: PeerId,
    pub(crate) is_client: bool,
    pub(crate) region: Option<Arc<RemoteRegion>>,
}

/// A response, with its span, which ends when the response is sent (t13).
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) head: [u8; HEAD_BYTES],
    pub(crate) eager: Vec<u8>,
    pub(crate) span: Option<TargetSpan>,
    pub(crate) is_ok: bool,
}

impl Connection {
    pub(crate) fn new(socket: Socket) -> Self {
        Self { socket, greeted: OnceLock::new(), outbox: Mutex::default() }
    }

    /// Sends a response, or keeps it until the socket has room. Returns whether it is kept.
    pub(crate) fn respond(&self, response: Response) -> Result<bool> {
        let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        if outbox.is_empty() && self.socket.try_send([&response.head, &response.eager], None)? {
            drop(outbox);
            response.was_sent();
            return Ok(false);
        }
        outbox.push_back(response);
        Ok(true)
    }

    /// Sends responses that were kept, as far as there is room.
    pub(crate) fn flush(&self) -> Result<()> {
        let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(response) = outbox.front() {
            if !self.socket.try_send([&response.head, &response.eager], None)? {
                break;
            }
            if let Some(response) = outbox.pop_front() {
                response.was_sent();
            }
        }
        Ok(())
    }

    /// Whether responses are kept.
    pub(crate) fn has_responses(&self) -> bool {
        !self.outbox.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

impl Response {
    /// Runs the completion callback of the target (t13).
    fn was_sent(self) {
        if let Some(span) = self.span {
            span.end(self.is_ok);
        }
    }

    /// A response that belongs to no execution.
    pub(crate) fn plain(head: &Head, eager: Vec<u8>) -> Self {
        Self { head: head.to_bytes(), eager, span: None, is_ok: true }
    }
}

//! UNIX sockets that keep the bounds of messages, and descriptors that travel over them.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, listen, recvmsg, sendmsg, socket_with,
};

use crate::config::MAX_EAGER_BYTES;
use crate::error::{Error, Result};
use crate::message::HEAD_BYTES;

/// The longest message: a head and the largest eager buffer.
pub(crate) const MAX_MESSAGE_BYTES: usize = HEAD_BYTES + MAX_EAGER_BYTES as usize;

/// Connections that wait to be accepted: as many as a server may have clients.
const BACKLOG: i32 = 256;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC;

/// The outcome of one try to receive.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A message of this many bytes is in the buffer.
    Message(usize),
    /// No message waits.
    Nothing,
    /// The peer closed its socket.
    End,
}

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Socket {
    descriptor: OwnedFd,
}

impl Socket {
    /// Connects to the listener at `path`.
    ///
    /// # Errors
    /// No listener is there, or it does not accept.
    pub(crate) fn connect(path: &Path) -> Result<Self> {
        let (address, descriptor) = open(path, SocketFlags::empty())?;
        connect(&descriptor, &address).map_err(at(path, "connect"))?;
        Ok(Self { descriptor })
    }

    /// Sends one message in two parts without waiting, and `passed` with it. Returns false if the peer's buffer is full.
    ///
    /// # Errors
    /// The peer closed its socket, or the message is too long for a socket.
    pub(crate) fn try_send(
        &self,
        parts: [&[u8]; 2],
        passed: Option<BorrowedFd<'_>>,
    ) -> Result<bool> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = passed.map(|descriptor| [descriptor]);
        if let Some(descriptors) = &descriptors {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let parts = parts.map(IoSlice::new);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match sendmsg(&self.descriptor, &parts, &mut control, flags) {
            Ok(_) => Ok(true),
            Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
            Err(error) => Err(Error::system("send a message")(error)),
        }
    }

    /// Sends one message, and waits while the peer's buffer is full.
    ///
    /// # Errors
    /// The errors of [`try_send`](Self::try_send).
    pub(crate) fn send(&self, parts: [&[u8]; 2], passed: Option<BorrowedFd<'_>>) -> Result<()> {
        while !self.try_send(parts, passed)? {
            wait(&mut [PollFd::new(&self.descriptor, PollFlags::OUT)])?;
        }
        Ok(())
    }

    /// Receives one message into `buffer` without waiting. A descriptor that came with it is put into `passed`.
    ///
    /// # Errors
    /// The message is longer than the buffer, or the socket is broken.
    pub(crate) fn try_receive(
        &self,
        buffer: &mut [u8],
        passed: Option<&mut Option<OwnedFd>>,
    ) -> Result<Received> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        // Without room for descriptors the kernel closes those that come unasked.
        let wanted = if passed.is_some() { &mut space[..] } else { &mut [] };
        let mut control = RecvAncillaryBuffer::new(wanted);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut parts = [IoSliceMut::new(buffer)];
        let message = match recvmsg(&self.descriptor, &mut parts, &mut control, flags) {
            Ok(message) => message,
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(Received::Nothing),
            Err(Errno::CONNRESET) => return Ok(Received::End),
            Err(error) => return Err(Error::system("receive a message")(error)),
        };
        if let Some(passed) = passed {
            for part in control.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = part {
                    *passed = descriptors.last().or(passed.take());
                }
            }
        }
        if message.flags.contains(ReturnFlags::TRUNC) {
            return Err(Error::Message("it is longer than the eager buffer"));
        }
        // An empty message cannot be told from the end; no kind of message is empty.
        Ok(if message.bytes == 0 { Received::End } else { Received::Message(message.bytes) })
    }

    /// Receives one message, and waits for it.
    ///
    /// # Errors
    /// The errors of [`try_receive`](Self::try_receive); [`Received::End`] is not an error.
    pub(crate) fn receive(
        &self,
        buffer: &mut [u8],
        mut passed: Option<&mut Option<OwnedFd>>,
    ) -> Result<Received> {
        loop {
            match self.try_receive(buffer, passed.as_deref_mut())? {
                Received::Nothing => wait(&mut [PollFd::new(&self.descriptor, PollFlags::IN)])?,
                received => return Ok(received),
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// A socket that accepts connections. Its file is removed with it.
#[derive(Debug)]
pub(crate) struct Listener {
    descriptor: OwnedFd,
    path: std::path::PathBuf,
}

impl Listener {
    /// Makes the socket at `path`, which must not exist.
    ///
    /// # Errors
    /// The path exists, is too long for a socket, or its folder cannot be written.
    pub(crate) fn bind(path: &Path) -> Result<Self> {
        let (address, descriptor) = open(path, SocketFlags::NONBLOCK)?;
        bind(&descriptor, &address).map_err(at(path, "bind the socket"))?;
        listen(&descriptor, BACKLOG).map_err(at(path, "listen"))?;
        Ok(Self { descriptor, path: path.to_owned() })
    }

    /// Accepts a connection, if one waits.
    ///
    /// # Errors
    /// The process has too many open files.
    pub(crate) fn try_accept(&self) -> Result<Option<Socket>> {
        match accept_with(&self.descriptor, FLAGS) {
            Ok(descriptor) => Ok(Some(Socket { descriptor })),
            Err(Errno::WOULDBLOCK | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(Error::system("accept a connection")(error)),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The folder of a case may be gone already, and then there is nothing left to remove.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Waits until one of `descriptors` is ready.
///
/// # Errors
/// The system has no memory.
pub(crate) fn wait(descriptors: &mut [PollFd<'_>]) -> Result<()> {
    match poll(descriptors, None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(Error::system("wait for sockets")(error)),
    }
}

fn open(path: &Path, flags: SocketFlags) -> Result<(SocketAddrUnix, OwnedFd)> {
    let address = SocketAddrUnix::new(path).map_err(at(path, "use it as a socket"))?;
    let descriptor = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS | flags, None)
        .map_err(Error::system("make a socket"))?;
    Ok((address, descriptor))
}

fn at(path: &Path, doing: &'static str) -> impl FnOnce(Errno) -> Error {
    let path = path.to_owned();
    move |source| Error::Path { path, doing, source: io::Error::from(source) }
}

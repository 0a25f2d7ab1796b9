//! A device of a poller: its poll that runs, if one does, with socket, repetitions and deadlines.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use ring::rand::{SecureRandom as _, SystemRandom};

use super::counts::PollerCounts;
use super::pdu::Request;
use super::poll::{Memory, Poll, Snapshot};
use super::refused::Refused;
use super::session::Session;
use super::settings::DeviceSettings;
use super::unknown::Unknown;
use super::usm::Taken;
use crate::Error;

/// The times that a request is sent, the timeout of each twice that of the one before.
const ATTEMPTS: u32 = 3;

/// The times that a request may be sent because the engine or its clock became known: both, and one restart.
const MAX_AGAIN: u32 = 3;

/// The most bytes of responses in a poll: three times those of 4,096 interfaces.
pub const MAX_POLL_BYTES: usize = 8 << 20;

/// The most datagrams that are not the answer to a request. A device that sends more, or a forger that found the port, ends it.
const MAX_REFUSED: u32 = 64;

/// The most datagrams that a device is given in a turn, so that the others have theirs.
const DATAGRAMS_PER_TURN: usize = 8;

/// The longest pause before a device that does not answer is polled again.
pub const MAX_PAUSE: Duration = Duration::from_secs(900);

/// A device.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) settings: DeviceSettings,
    address: SocketAddr,
    /// `None` until its secret could be read.
    session: Option<Session>,
    memory: Memory,
    /// The time of the next poll.
    pub(super) due: Duration,
    /// Polls in a row without any answer.
    silent: u32,
    flight: Option<Flight>,
}

#[derive(Debug)]
struct Flight {
    socket: UdpSocket,
    poll: Poll,
    request: Request,
    began: Duration,
    attempt: u32,
    again: u32,
    /// The time at which the request is sent again.
    deadline: Duration,
    refused: u32,
    bytes: usize,
}

/// The outcome of a poll.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The state of the device; `None` if it answered nothing.
    pub(super) snapshot: Option<Snapshot>,
    /// The reason for which the poll was ended before its end.
    pub(super) failed: Option<Unknown>,
    /// The time that it took.
    pub(super) took: Duration,
}

impl Device {
    /// Makes a device that is polled at once.
    ///
    /// # Errors
    /// The address is wrong.
    pub(super) fn new(settings: DeviceSettings) -> Result<Self, Error> {
        Ok(Self {
            address: settings.socket_address()?,
            session: None,
            settings,
            memory: Memory::default(),
            due: Duration::ZERO,
            silent: 0,
            flight: None,
        })
    }

    /// The socket of the poll that runs.
    pub(super) fn socket(&self) -> Option<&UdpSocket> {
        self.flight.as_ref().map(|flight| &flight.socket)
    }

    /// The time at which the device needs a turn without a datagram.
    pub(super) fn next(&self) -> Duration {
        self.flight.as_ref().map_or(self.due, |flight| flight.deadline)
    }

    /// Begins a poll. A source port of its own makes answers hard to forge.
    ///
    /// # Errors
    /// A secret cannot be read; the next poll tries again. There is no socket for the address, or no random number.
    pub(super) fn begin(&mut self, now: Duration, counts: &mut PollerCounts) -> Result<(), Error> {
        self.due = now + self.settings.interval;
        if self.session.is_none() {
            let identity = self.settings.identity()?;
            let mut random = [0; 8];
            SystemRandom::new().fill(&mut random).map_err(|_| no_random())?;
            self.session = Some(Session::new(identity, u64::from_ne_bytes(random)));
        }
        let any: IpAddr = match self.address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let failed = || format!("reach device {} at {}", self.settings.name, self.address);
        let socket = UdpSocket::bind((any, 0)).map_err(Error::system(failed()))?;
        socket.connect(self.address).map_err(Error::system(failed()))?;
        socket.set_nonblocking(true).map_err(Error::system(failed()))?;
        let mut poll = Poll::new();
        let Some(request) = poll.request() else { return Ok(()) };
        self.flight = Some(Flight {
            socket,
            poll,
            request,
            began: now,
            attempt: 0,
            again: 0,
            deadline: now,
            refused: 0,
            bytes: 0,
        });
        self.send(now, counts)
    }

    fn send(&mut self, now: Duration, counts: &mut PollerCounts) -> Result<(), Error> {
        let (Some(flight), Some(session)) = (&mut self.flight, &mut self.session) else {
            return Ok(());
        };
        let mut random = [0; 4];
        SystemRandom::new().fill(&mut random).map_err(|_| no_random())?;
        let id = i32::from_ne_bytes(random) & i32::MAX;
        let message = session.write(id, &flight.request, now);
        let patience = self.settings.timeout * 2u32.saturating_pow(flight.attempt);
        // A poll lasts no longer than its interval.
        flight.deadline = (now + patience).min(flight.began + self.settings.interval);
        counts.requests += 1;
        // A device that refuses connections, or a full queue, is as silent as a lost datagram: the timeout sees it.
        let _ = flight.socket.send(&message);
        Ok(())
    }

    /// Takes the datagrams that wait, sends again what is late, and returns the outcome if the poll ended.
    ///
    /// # Errors
    /// There is no random number for a request.
    pub(super) fn turn(
        &mut self,
        now: Duration,
        buffer: &mut [u8],
        counts: &mut PollerCounts,
    ) -> Result<Option<Outcome>, Error> {
        for _ in 0..DATAGRAMS_PER_TURN {
            let Some(flight) = &mut self.flight else { return Ok(None) };
            match flight.socket.recv(buffer) {
                // A datagram that fills the buffer was cut off.
                Ok(bytes) if bytes < buffer.len() => {
                    if let Some(outcome) = self.take(&buffer[..bytes], now, counts)? {
                        return Ok(Some(outcome));
                    }
                }
                Ok(_) => self.refuse(counts),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                // The kernel says that the device refused an earlier datagram; it may answer the next.
                Err(_) => {}
            }
        }
        let Some(flight) = &mut self.flight else { return Ok(None) };
        if flight.refused > MAX_REFUSED || flight.bytes > MAX_POLL_BYTES {
            return Ok(self.end(now, Some(Unknown::TooLong), counts));
        }
        if now.saturating_sub(flight.began) >= self.settings.interval {
            let is_silent = flight.attempt > 0 || !flight.poll.is_answered();
            counts.timeouts += u64::from(is_silent);
            let why = if is_silent { Unknown::NoAnswer } else { Unknown::TooLong };
            return Ok(self.end(now, Some(why), counts));
        }
        if now < flight.deadline {
            return Ok(None);
        }
        counts.timeouts += 1;
        flight.attempt += 1;
        if flight.attempt == ATTEMPTS {
            return Ok(self.end(now, Some(Unknown::NoAnswer), counts));
        }
        self.send(now, counts)?;
        Ok(None)
    }

    fn refuse(&mut self, counts: &mut PollerCounts) {
        counts.refused += 1;
        if let Some(flight) = &mut self.flight {
            flight.refused += 1;
        }
    }

    fn take(
        &mut self,
        datagram: &[u8],
        now: Duration,
        counts: &mut PollerCounts,
    ) -> Result<Option<Outcome>, Error> {
        let Some(session) = &mut self.session else { return Ok(None) };
        let taken = session.take(datagram, now);
        let Some(flight) = &mut self.flight else { return Ok(None) };
        flight.bytes = flight.bytes.saturating_add(datagram.len());
        match taken {
            Ok(Taken::Response(response)) => {
                counts.responses += 1;
                (flight.attempt, flight.again, flight.refused) = (0, 0, 0);
                flight.poll.take(response, now);
                match flight.poll.request() {
                    Some(request) => flight.request = request,
                    None => return Ok(self.end(now, None, counts)),
                }
            }
            Ok(Taken::Again) if flight.again < MAX_AGAIN => flight.again += 1,
            Ok(Taken::Again) | Err(Refused::Malformed | Refused::WrongNumber) => {
                self.refuse(counts);
                return Ok(None);
            }
            Err(Refused::Forged | Refused::Unverified | Refused::Old | Refused::Report) => {
                self.refuse(counts);
                return Ok(None);
            }
        }
        self.send(now, counts)?;
        Ok(None)
    }

    fn end(
        &mut self,
        now: Duration,
        why: Option<Unknown>,
        counts: &mut PollerCounts,
    ) -> Option<Outcome> {
        let mut flight = self.flight.take()?;
        if let Some(why) = why {
            flight.poll.fail(why);
            counts.failed_polls += 1;
            if let (Unknown::NoAnswer, Some(session)) = (why, &mut self.session) {
                session.note_silence();
            }
        } else {
            counts.polls += 1;
        }
        let boots = self.session.as_ref().and_then(Session::boots);
        let snapshot = flight.poll.finish(&self.settings.name, boots, &mut self.memory);
        self.silent = if snapshot.is_some() { 0 } else { self.silent.saturating_add(1) };
        if self.silent > 0 {
            self.due = flight.began + self.pause();
        }
        Some(Outcome {
            snapshot,
            failed: flight.poll.failed(),
            took: now.saturating_sub(flight.began),
        })
    }

    /// The time from one poll without an answer to the next: twice as long after each.
    fn pause(&self) -> Duration {
        let longest = MAX_PAUSE.max(self.settings.interval);
        self.settings.interval.saturating_mul(2u32.saturating_pow(self.silent)).min(longest)
    }
}

fn no_random() -> Error {
    Error::malformed("the system", "it gives no random numbers")
}

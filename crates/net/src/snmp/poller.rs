//! Polls many devices from one thread.

use std::collections::HashMap;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::counts::PollerCounts;
use super::device::{Device, Outcome};
use super::published::Published;
use super::settings::{self, DeviceSettings};
use super::stop::Stop;
use super::{snmp_device, snmp_poller};
use crate::Error;
use crate::collector::FactSink;

/// The most polls at a time. They bound the open sockets, and the memory: a poll has at most 8 MiB of responses.
pub const MAX_POLLS: usize = 16;

/// The most bytes of a datagram, and one to see that it was cut off. The poller announces 16,384.
const BUFFER_BYTES: usize = 16_384 + 1;

/// The longest wait, so that the facts of the poller itself stay fresh.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// A poller of devices.
#[derive(Debug)]
pub struct Poller {
    devices: Vec<Device>,
    published: HashMap<String, Published>,
    counts: PollerCounts,
    buffer: Vec<u8>,
    /// The device from which the search for one that is due begins, so that each has its turn.
    first: usize,
}

/// Polls devices and hands their facts to `sink`, until `stop` is stopped. It wants a thread of its own.
///
/// # Errors
/// The settings are wrong, or the system refuses to wait or to give random numbers.
pub fn poll(devices: &[DeviceSettings], sink: &mut dyn FactSink, stop: &Stop) -> Result<(), Error> {
    let mut poller = Poller::new(devices)?;
    let begin = Instant::now();
    loop {
        let wait = poller.turn(begin.elapsed(), sink)?;
        if poller.wait(wait, stop)? {
            return Ok(());
        }
    }
}

impl Poller {
    /// Makes a poller whose devices are polled from the first turn on. A device reads its secret when it is first polled, and
    /// again with each poll until that works.
    ///
    /// # Errors
    /// The settings are wrong.
    pub fn new(devices: &[DeviceSettings]) -> Result<Self, Error> {
        settings::check(devices)?;
        let devices: Vec<Device> =
            devices.iter().map(|device| Device::new(device.clone())).collect::<Result<_, _>>()?;
        let published = HashMap::new();
        Ok(Self {
            devices,
            published,
            counts: PollerCounts::default(),
            buffer: vec![0; BUFFER_BYTES],
            first: 0,
        })
    }

    /// Takes what came, sends what is due, and hands over the facts of devices whose poll ended. `now` is the time since any
    /// fixed point. Returns the time until the next turn, if no datagram comes before.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn turn(&mut self, now: Duration, sink: &mut dyn FactSink) -> Result<Duration, Error> {
        self.begin(now, sink);
        for device in &mut self.devices {
            if device.socket().is_none() {
                continue;
            }
            if let Some(outcome) = device.turn(now, &mut self.buffer, &mut self.counts)? {
                let published = self.published.entry(device.settings.name.clone()).or_default();
                publish(&device.settings.name, &outcome, published, sink);
            }
        }
        // A poll that ended made room for another.
        self.begin(now, sink);
        snmp_poller::publish(&self.counts, sink);
        let is_full = self.flights() == MAX_POLLS;
        let waiting = self.devices.iter().filter(|device| !is_full || device.socket().is_some());
        let next = waiting.map(Device::next).min().unwrap_or(now + MAX_WAIT);
        Ok(next.saturating_sub(now).min(MAX_WAIT))
    }

    fn flights(&self) -> usize {
        self.devices.iter().filter(|device| device.socket().is_some()).count()
    }

    fn begin(&mut self, now: Duration, sink: &mut dyn FactSink) {
        let mut room = MAX_POLLS - self.flights().min(MAX_POLLS);
        let count = self.devices.len();
        for step in 0..count {
            if room == 0 {
                self.first = (self.first + step) % count;
                return;
            }
            let device = &mut self.devices[(self.first + step) % count];
            if device.socket().is_some() || device.due > now {
                continue;
            }
            match device.begin(now, &mut self.counts) {
                Ok(()) => room -= 1,
                // A device without its secret, or without a route to its address, has no values; the others are polled all
                // the same.
                Err(error) => {
                    self.counts.failed_polls += 1;
                    let cause = std::error::Error::source(&error);
                    let cause = cause.map_or(String::new(), |cause| format!(": {cause}"));
                    let why = format!("{error}{cause}");
                    snmp_device::publish_failure(&device.settings.name, &why, sink);
                }
            }
        }
    }

    /// Waits for datagrams; returns true if `stop` was stopped.
    ///
    /// # Errors
    /// The system does not wait.
    pub fn wait(&self, wait: Duration, stop: &Stop) -> Result<bool, Error> {
        let sockets = self.devices.iter().filter_map(Device::socket);
        let mut waiting = vec![PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
        waiting.extend(sockets.map(|socket| PollFd::new(socket, PollFlags::IN)));
        // Rounded up, so that the deadline is over afterwards.
        let wait = wait + Duration::from_millis(1);
        let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        match rustix::event::poll(&mut waiting, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(!waiting[0].revents().is_empty()),
            Err(e) => Err(Error::system("wait for answers of devices")(e.into())),
        }
    }

    /// Returns the numbers since the start.
    pub fn counts(&self) -> PollerCounts {
        self.counts
    }
}

fn publish(device: &str, outcome: &Outcome, published: &mut Published, sink: &mut dyn FactSink) {
    snmp_device::publish(device, outcome, sink);
    if let Some(snapshot) = &outcome.snapshot {
        published.publish(device, snapshot, sink);
    }
}

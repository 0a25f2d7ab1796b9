//! `listener`: connections that wait to be accepted at each listening TCP socket, by [`sock_diag`](crate::sock_diag).
//!
//! An instance is the address and port, such as `127.0.0.1.80`. Several sockets of one address and port (`SO_REUSEPORT`) are one instance.

use std::io;

use skopos_model::schema::Family;
use skopos_model::schema::listener::{self, *};

use crate::instances::Instances;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};
use crate::sock_diag::{Sockets, write_label};

/// The most listeners: a busy host of containers has a hundred.
const MAX_LISTENERS: usize = 256;

pub(crate) struct Listener {
    sockets: Sockets,
    listeners: Instances<Queue>,
    label: Vec<u8>,
}

/// The sums of one instance in this tick.
#[derive(Clone, Copy, Default)]
struct Queue {
    sockets: u64,
    waiting: u64,
    limit: u64,
}

impl Listener {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        if root.proc != Root::default().proc {
            let reason = "the kernel answers for this machine, not for files";
            return Err(Skip::new("listener", reason));
        }
        let sockets = Sockets::listening()
            .map_err(|e| Skip::new("listener", format!("netlink sock_diag: {e}")))?;
        Ok(Self {
            sockets,
            listeners: Instances::new(&listener::FAMILY, MAX_LISTENERS),
            label: Vec::new(),
        })
    }
}

impl Sensor for Listener {
    fn family(&self) -> &'static Family {
        &listener::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let Self { sockets, listeners, label } = self;
        listeners.begin();
        listeners.each(|queue| queue.state = Queue::default());
        sockets.each(|socket| {
            write_label(label, socket.local.0, Some(socket.local.1));
            let Some(queue) = listeners.see(tick.sink, label, Queue::default) else { return };
            queue.state.sockets += 1;
            queue.state.waiting += u64::from(socket.receive_queue);
            queue.state.limit += u64::from(socket.send_queue);
        })?;
        listeners.end(tick.sink);
        listeners.each(|queue| {
            let Queue { sockets, waiting, limit } = queue.state;
            queue.set(tick, &SOCKETS, sockets);
            queue.set(tick, &ACCEPT_QUEUE, waiting);
            queue.set(tick, &ACCEPT_QUEUE_LIMIT, limit);
        });
        Ok(())
    }

    fn skips(&self) -> Vec<Skip> {
        self.listeners.skips()
    }
}

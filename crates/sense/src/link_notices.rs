//! The kernel's notices that a network interface changed (rtnetlink(7), group `RTMGRP_LINK`).

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

/// The group of the notices that a link came, went or changed (`linux/rtnetlink.h`).
const RTMGRP_LINK: u32 = 1;

/// The most notices that a call takes. An interface makes a few when it changes; the next call
/// takes the rest.
const MAX_NOTICES: usize = 1024;

/// A socket that is readable after an interface has changed.
pub(crate) struct LinkNotices {
    socket: OwnedFd,
}

impl LinkNotices {
    /// Subscribes to the notices of this thread's network namespace. Needs no privilege.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Protocol 0 is `NETLINK_ROUTE`.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, RTMGRP_LINK))?;
        Ok(Self { socket })
    }

    /// Returns true if an interface may have changed since the last call. Their content does not
    /// matter, so a few bytes of each notice are enough.
    pub(crate) fn take(&self) -> bool {
        let mut changed = false;
        for _ in 0..MAX_NOTICES {
            match recv(&self.socket, &mut [0; 16], RecvFlags::empty()) {
                Ok(_) => changed = true,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return changed,
                // `ENOBUFS` says that notices were lost. After any other error it is not known.
                Err(_) => return true,
            }
        }
        changed
    }
}

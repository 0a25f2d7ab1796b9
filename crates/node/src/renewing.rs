//! Renews the certificate of this node in time, on a thread that sleeps.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use skopos_term::{Failure, tell};
use skopos_wire::Plane;

/// Time between two looks at the certificate. After a failure the next look tries again: there are dozens before the
/// certificate ends.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// Delay of the first look, so that the connection to the hub is there.
const FIRST_LOOK: Duration = Duration::from_secs(10);

/// Renews the certificate until it is dropped.
pub(crate) struct Renewing {
    /// The thread ends when it is gone.
    _stop: Sender<()>,
}

impl Renewing {
    /// Starts for a session with a certificate; `None` for another one.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(plane: &Plane) -> Result<Option<Self>, Failure> {
        if !plane.has_identity() {
            return Ok(None);
        }
        let (stop, stopped) = channel::<()>();
        let plane = plane.clone();
        let run = move || {
            let mut pause = FIRST_LOOK;
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = LOOK_EVERY;
                if plane.is_renewal_due()
                    && let Err(e) = plane.renew()
                {
                    tell(format!("warning: the certificate of this node is not renewed: {e}"));
                }
            }
        };
        let thread = std::thread::Builder::new().name("renew".to_owned()).spawn(run);
        thread.map_err(|e| Failure::new("a thread cannot be started").because(&e))?;
        Ok(Some(Self { _stop: stop }))
    }
}

//! Renews the certificate of this program in time, on a thread that sleeps.

use std::sync::mpsc::{RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use skopos_term::{Failure, tell};
use skopos_wire::Plane;

/// Time between two looks at the certificate. After a failure the next look tries again: there are dozens before the
/// certificate ends.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// Delay of the first look, so that the connection to the hub is there.
const FIRST_LOOK: Duration = Duration::from_secs(10);

/// Renews the certificate until it is dropped.
pub struct Renewing {
    /// The thread ends when it is gone.
    _stop: Sender<()>,
}

impl Renewing {
    /// Starts for a session with a certificate; `None` for another one. A session that listens shows the certificate with
    /// which it was opened: `reopen` opens another one, with a thread of its own, and this one ends.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        plane: &Plane,
        reopen: Option<impl FnOnce() + Send + 'static>,
    ) -> Result<Option<Self>, Failure> {
        if !plane.has_identity() {
            return Ok(None);
        }
        let (stop, stopped) = channel::<()>();
        let plane = plane.clone();
        let run = move || {
            let mut pause = FIRST_LOOK;
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = LOOK_EVERY;
                match plane.is_renewal_due().then(|| plane.renew()) {
                    Some(Ok(())) if reopen.is_some() => break,
                    Some(Err(e)) => {
                        tell(format!("warning: the certificate of this node is not renewed: {e}"));
                    }
                    _ => {}
                }
            }
            // Open, it would keep its endpoints.
            drop(plane);
            if stopped.try_recv() == Err(TryRecvError::Empty)
                && let Some(reopen) = reopen
            {
                reopen();
            }
        };
        let thread = std::thread::Builder::new().name("renew".to_owned()).spawn(run);
        thread.map_err(|e| Failure::new("a thread cannot be started").because(&e))?;
        Ok(Some(Self { _stop: stop }))
    }
}

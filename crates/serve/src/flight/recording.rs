//! The hub's records of its own calls: the agent of the machine collects them like those of any service.

use std::path::Path;

use skopos_rpc::Recorder;
use skopos_rpc::host::tonic::options;
use skopos_term::Failure;

/// The name of the service in traces.
const NAME: &str = "skopos-hub";

/// Records the calls of a hub until it is dropped.
#[derive(Debug)]
pub(super) struct Recording(Recorder);

impl Recording {
    /// Starts to record into the runtime directory `dir`. A hub that cannot record serves all the same: a full memory must not
    /// keep it from answering.
    pub(super) fn start(dir: &Path) -> Self {
        let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let started = Recorder::start(options(NAME).dir(dir).node(&node));
        Self(started.unwrap_or_else(|error| {
            let why = Failure::new("the hub does not record its own calls").because(&error);
            skopos_term::tell(format!("warning: {}", why.in_one_line()));
            Recorder::off()
        }))
    }

    /// Returns the recorder, for layers.
    pub(super) fn recorder(&self) -> Recorder {
        self.0
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // The files that it could not write are counted in the trace.
        let _ = self.0.close();
    }
}

//! Records the calls of RPC services.
//!
//! A service starts a [`Recorder`], and the library that carries its calls makes a [`Span`] for each side of a call. A span
//! becomes one record of 64 bytes in a ring of the thread in shared memory; a thread of the recorder writes the rings to a
//! trace. A [`Context`] travels with each request, so that the spans of all processes join.
//!
//! ```
//! use skopos_rpc::{Context, Options, Recorder, Status};
//!
//! # let dir = std::env::temp_dir().join(format!("skopos-rpc-doc-{}", std::process::id()));
//! # let (folder, run) = (dir.join("traces"), dir.join("run"));
//! # std::fs::create_dir_all(&folder)?;
//! let recorder = Recorder::start(Options::new("kv").trace_folder(&folder).dir(&run))?;
//! let put = recorder.rpc("put");
//!
//! // The caller: the context goes with the request.
//! let call = recorder.origin(put, Context::current().as_ref());
//! let bytes = call.context().to_bytes();
//!
//! // The callee, usually in another process.
//! let mut served = recorder.target(put, &Context::from_bytes(&bytes)?);
//! served.begin();
//! {
//!     let _here = served.context().attach(); // further calls of this handler belong below
//! }
//! served.end(Status::Ok);
//!
//! call.end(Status::Ok);
//! recorder.close()?;
//! # std::fs::remove_dir_all(&dir).ok();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Read in this order: [`record`], the 64 bytes; [`interval`], the parts of a call; [`callpath`], the hash; [`context`], the
//! bytes on the wire; [`mod@file`], the trace; [`pvar`], performance variables; [`drain`], from
//! memory to disk; [`recorder`], all of it together; `host`, RPC libraries, as features: `tonic`.

#![forbid(unsafe_code)]

pub mod record;
pub mod interval;
pub mod callpath;
pub mod context;
pub mod pvar;
pub mod file;
pub mod drain;
pub mod recorder;
pub mod analysis;
pub mod parts;
pub mod folder;
pub mod export;
pub mod import;
pub mod synthetic;
#[cfg(feature = "tonic")]
pub mod host;
mod text;
mod error;

pub use context::{Attached, Context};
pub use error::Error;
pub use file::{Frame, Frames, TraceWriter};
pub use interval::Interval;
pub use pvar::{Binding, Bound, Pvar, PvarClass, PvarHandle, Registry, Session};
pub use record::{Kind, Record, SpanRecord, Status};
pub use recorder::{Options, PeerId, Recorder, Rpc, Span, Stage, TRACE_VARIABLE};

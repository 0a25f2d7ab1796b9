//! Performance variables: numbers that libraries export and tools sample.
//!
//! A library registers its variables. A tool opens a session, queries the variables, allocates handles for those that it
//! wants, samples them, and finalizes the session. A variable of a request lives as long as its span and rides on the
//! span's record.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, RwLock};

use skopos_model::unpoisoned;

use crate::error::Error;
use crate::record::FIRST_PVAR_TAG;
use crate::text::cut;

/// Most variables of a process: a hundred times those of the paper's stack; their tags end far below 2^16.
pub const MAX_PVARS: usize = 1024;
/// Most variables of the process that ride on each record: half of a span's values.
pub const MAX_RIDING: usize = 7;
/// Longest name or unit of a variable, in bytes.
pub const MAX_PVAR_NAME_BYTES: usize = 128;

/// Longest reason of a failed source that is kept, in bytes: it goes with the description of the process.
const MAX_REASON_BYTES: usize = 256;

/// The class of a variable: the meaning of its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PvarClass {
    /// One of a set of states.
    State = 1,
    /// A number that only grows.
    Counter = 2,
    /// A time between two events.
    Timer = 3,
    /// The use of a resource.
    Level = 4,
    /// The size of a resource.
    Size = 5,
    /// The greatest value so far.
    HighWatermark = 6,
    /// The smallest value so far.
    LowWatermark = 7,
}

impl PvarClass {
    /// All classes, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::State,
        Self::Counter,
        Self::Timer,
        Self::Level,
        Self::Size,
        Self::HighWatermark,
        Self::LowWatermark,
    ];

    /// Returns the class of a number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|class| *class as u8 == code)
    }

    /// Returns the paper's name: `HIGHWATERMARK`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::State => "STATE",
            Self::Counter => "COUNTER",
            Self::Timer => "TIMER",
            Self::Level => "LEVEL",
            Self::Size => "SIZE",
            Self::HighWatermark => "HIGHWATERMARK",
            Self::LowWatermark => "LOWWATERMARK",
        }
    }
}

/// The thing to which a variable is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Binding {
    /// The process: there is one value at a time.
    NoObject = 0,
    /// A request: the value dies with its span and rides on its record.
    Handle = 1,
}

impl Binding {
    /// Returns the binding of a number.
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::NoObject, Self::Handle].into_iter().find(|binding| *binding as u8 == code)
    }

    /// Returns the paper's name: `NO_OBJECT`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoObject => "NO_OBJECT",
            Self::Handle => "HANDLE",
        }
    }
}

/// The description of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvarInfo {
    /// Number of the variable in its process; its tag in records is 64 more.
    pub number: u16,
    /// Name, such as `num_posted_handles`.
    pub name: String,
    /// Class.
    pub class: PvarClass,
    /// Binding.
    pub binding: Binding,
    /// Unit, such as `ns`; empty for a plain number.
    pub unit: String,
}

/// A registered variable, as its library keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pvar {
    number: u16,
}

impl Pvar {
    /// Returns the variable of a number that [`Pvar::number`] returned, for callers that can keep numbers only.
    pub const fn from_number(number: u16) -> Self {
        Self { number }
    }

    /// Returns the number of the variable in its process.
    pub const fn number(self) -> u16 {
        self.number
    }

    /// Returns its tag in records.
    #[inline]
    pub const fn tag(self) -> u16 {
        FIRST_PVAR_TAG.saturating_add(self.number)
    }
}

/// The source of a variable of the process.
type Source = Box<dyn Fn() -> u64 + Send + Sync>;

struct Entry {
    info: PvarInfo,
    source: Option<Source>,
    /// The reason for which the source is not called any more.
    failed: OnceLock<String>,
}

impl Entry {
    /// Calls the source; `None` if there is none, or it panicked now or before.
    fn sample(&self, failures: &AtomicU32) -> Option<u64> {
        let source = self.source.as_ref().filter(|_| self.failed.get().is_none())?;
        // The source is not called again, so no caller meets a state that its panic left behind.
        let sampled = catch_unwind(AssertUnwindSafe(source));
        let reason = match sampled {
            Ok(value) => return Some(value),
            Err(panic) => reason_of(&*panic),
        };
        if self.failed.set(reason).is_ok() {
            failures.fetch_add(1, Ordering::Relaxed);
        }
        None
    }
}

/// Returns the message of a panic.
fn reason_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    cut(text.unwrap_or("it panicked without a message"), MAX_REASON_BYTES).to_owned()
}

/// A function that hears of each new variable.
type Listener = Box<dyn Fn(&PvarInfo) + Send + Sync>;

/// The variables of a process.
#[derive(Default)]
pub struct Registry {
    entries: RwLock<Entries>,
    sessions: AtomicU64,
    listener: OnceLock<Listener>,
    /// Numbers of the variables of the process that ride on each record.
    riding: RwLock<Arc<[u16]>>,
    /// Length of `riding`: the common case, zero, costs one load.
    riders: AtomicU32,
    /// Number of sources that failed.
    failures: AtomicU32,
}

#[derive(Default)]
struct Entries {
    list: Vec<Arc<Entry>>,
    by_name: HashMap<String, u16>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.infos()).finish()
    }
}

impl Registry {
    /// Registers a variable of a request: the host gives its value to a span by [`crate::Span::pvar`]. A variable that is
    /// registered already, in the same way, is returned.
    ///
    /// # Errors
    /// [`Error::PvarsFull`] if there are [`MAX_PVARS`]; [`Error::PvarDiffers`] if the name has another class, binding or
    /// unit; [`Error::PvarName`] if name or unit are longer than [`MAX_PVAR_NAME_BYTES`], or the name is empty.
    pub fn register(&self, name: &str, class: PvarClass, unit: &str) -> Result<Pvar, Error> {
        self.add(name, class, unit, None)
    }

    /// Registers a variable of the process; `source` is called for each sample, from any thread, and returns at once. If
    /// the variable is registered already, the new source replaces the old one. A source that panics is not called again;
    /// [`Registry::failed`] has its reason.
    ///
    /// # Errors
    /// The errors of [`Registry::register`].
    pub fn register_source(
        &self,
        name: &str,
        class: PvarClass,
        unit: &str,
        source: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<Pvar, Error> {
        self.add(name, class, unit, Some(Box::new(source)))
    }

    fn add(
        &self,
        name: &str,
        class: PvarClass,
        unit: &str,
        source: Option<Source>,
    ) -> Result<Pvar, Error> {
        if name.is_empty() || name.len().max(unit.len()) > MAX_PVAR_NAME_BYTES {
            return Err(Error::PvarName(name.chars().take(MAX_PVAR_NAME_BYTES).collect()));
        }
        let binding = if source.is_some() { Binding::NoObject } else { Binding::Handle };
        let mut entries = unpoisoned(self.entries.write());
        let known = entries.by_name.get(name).copied();
        let number = match known {
            Some(number) => number,
            None if entries.list.len() >= MAX_PVARS => {
                return Err(Error::PvarsFull { name: name.to_owned(), capacity: MAX_PVARS });
            }
            None => entries.list.len() as u16,
        };
        let info =
            PvarInfo { number, name: name.to_owned(), class, binding, unit: unit.to_owned() };
        let entry = Arc::new(Entry { info, source, failed: OnceLock::new() });
        match entries.list.get_mut(usize::from(number)) {
            Some(old) if old.info != entry.info => return Err(Error::PvarDiffers(name.to_owned())),
            Some(old) => *old = entry,
            None => {
                // Under the lock, so that the listener hears of the variables by number.
                if let Some(listener) = self.listener.get() {
                    listener(&entry.info);
                }
                entries.list.push(entry);
                entries.by_name.insert(name.to_owned(), number);
            }
        }
        Ok(Pvar { number })
    }

    /// Has `listener` called for each variable that is registered from now on. The first listener stays.
    pub(crate) fn listen(&self, listener: impl Fn(&PvarInfo) + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    /// Samples a variable of the process at the end of each span from now on: the value rides on the span's record.
    ///
    /// # Errors
    /// [`Error::Sample`] if the variable is bound to requests; [`Error::PvarsFull`] if
    /// [`MAX_RIDING`] variables ride already.
    pub fn ride(&self, pvar: Pvar) -> Result<(), Error> {
        let entry = self.entry(pvar.number).ok_or(Error::Session)?;
        let name = entry.info.name.clone();
        if entry.source.is_none() {
            return Err(Error::Sample { name, why: "rides on the record of its request anyway" });
        }
        let mut riding = unpoisoned(self.riding.write());
        if riding.contains(&pvar.number) {
            return Ok(());
        }
        if riding.len() >= MAX_RIDING {
            return Err(Error::PvarsFull { name, capacity: MAX_RIDING });
        }
        *riding = riding.iter().copied().chain([pvar.number]).collect();
        self.riders.store(riding.len() as u32, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the numbers of the variables that ride on each record; `None` if there are none.
    #[inline]
    pub(crate) fn riding(&self) -> Option<Arc<[u16]>> {
        let riders = self.riders.load(Ordering::Relaxed);
        (riders > 0).then(|| Arc::clone(&*unpoisoned(self.riding.read())))
    }

    /// Returns the descriptions of all variables, by number.
    pub fn infos(&self) -> Vec<PvarInfo> {
        unpoisoned(self.entries.read()).list.iter().map(|entry| entry.info.clone()).collect()
    }

    /// Returns the number of variables.
    pub fn len(&self) -> usize {
        unpoisoned(self.entries.read()).list.len()
    }

    /// Returns true if there is no variable.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Samples the variables of the process, by number. The sources run without the registry's lock.
    pub(crate) fn sample_all(&self) -> Vec<(u16, u64)> {
        let entries: Vec<_> = unpoisoned(self.entries.read()).list.clone();
        let sample = |entry: &Arc<Entry>| Some((entry.info.number, entry.sample(&self.failures)?));
        entries.iter().filter_map(sample).collect()
    }

    /// Returns the description of one variable.
    pub(crate) fn info(&self, number: u16) -> Option<PvarInfo> {
        self.entry(number).map(|entry| entry.info.clone())
    }

    fn entry(&self, number: u16) -> Option<Arc<Entry>> {
        unpoisoned(self.entries.read()).list.get(usize::from(number)).cloned()
    }

    /// Samples one variable of the process; `None` if it is bound to requests, or its source failed.
    pub(crate) fn sample_one(&self, number: u16) -> Option<u64> {
        self.entry(number)?.sample(&self.failures)
    }

    /// Returns the number of sources that failed so far.
    pub(crate) fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Returns the variables whose source failed, with the reason. They have no values any more.
    pub fn failed(&self) -> BTreeMap<String, String> {
        let entries = unpoisoned(self.entries.read());
        let failed =
            |entry: &Arc<Entry>| Some((entry.info.name.clone(), entry.failed.get()?.clone()));
        entries.list.iter().filter_map(failed).collect()
    }

    /// Opens a session for a tool.
    pub fn session(&self) -> Session<'_> {
        let id = self.sessions.fetch_add(1, Ordering::Relaxed);
        Session { registry: self, id }
    }
}

/// A session of a tool with the variables of a process. [`Session::finalize`] or dropping it ends it.
#[derive(Debug)]
pub struct Session<'r> {
    registry: &'r Registry,
    id: u64,
}

/// A handle for sampling one variable in one session.
#[derive(Clone, Debug)]
pub struct PvarHandle {
    session: u64,
    pvar: Pvar,
}

impl PvarHandle {
    /// Returns the variable.
    pub const fn pvar(&self) -> Pvar {
        self.pvar
    }
}

/// An object to which variables are bound: a span has their values until it ends.
pub trait Bound {
    /// Returns the value of the variable with this tag; `None` if it was not set.
    fn value_of(&self, tag: u16) -> Option<u64>;
}

impl Session<'_> {
    /// Returns the descriptions of all variables: their number, names, classes and bindings.
    pub fn query(&self) -> Vec<PvarInfo> {
        self.registry.infos()
    }

    /// Allocates a handle for a variable.
    ///
    /// # Errors
    /// [`Error::NoPvar`] if it does not exist.
    pub fn handle(&self, name: &str) -> Result<PvarHandle, Error> {
        let number = unpoisoned(self.registry.entries.read()).by_name.get(name).copied();
        let number = number.ok_or_else(|| Error::NoPvar(name.to_owned()))?;
        Ok(PvarHandle { session: self.id, pvar: Pvar { number } })
    }

    /// Samples a variable. `object` is the request of a variable that is bound to requests.
    ///
    /// # Errors
    /// [`Error::Session`] for a handle of another session; [`Error::SourceFailed`]; [`Error::Sample`] if the variable is bound to requests and
    /// there is no `object`, or the request has no value of it.
    pub fn sample(&self, handle: &PvarHandle, object: Option<&dyn Bound>) -> Result<u64, Error> {
        if handle.session != self.id {
            return Err(Error::Session);
        }
        let entry = self.registry.entry(handle.pvar.number).ok_or(Error::Session)?;
        let refuse = |why| Err(Error::Sample { name: entry.info.name.clone(), why });
        match (&entry.source, object) {
            (Some(_), _) => entry.sample(&self.registry.failures).ok_or_else(|| {
                let reason = entry.failed.get().cloned().unwrap_or_default();
                Error::SourceFailed { name: entry.info.name.clone(), reason }
            }),
            (None, None) => refuse("is bound to a request: sample it with one"),
            (None, Some(object)) => match object.value_of(handle.pvar.tag()) {
                Some(value) => Ok(value),
                None => refuse("has no value in this request"),
            },
        }
    }

    /// Ends the session; its handles are of no use afterwards.
    pub fn finalize(self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Request;

    impl Bound for Request {
        fn value_of(&self, tag: u16) -> Option<u64> {
            (tag == FIRST_PVAR_TAG + 1).then_some(17)
        }
    }

    #[test]
    fn a_tool_queries_and_samples() {
        let registry = Registry::default();
        registry.register_source("posted", PvarClass::Level, "", || 5).expect("new");
        registry.register("rdma_time", PvarClass::Timer, "ns").expect("new");
        registry.register("other_time", PvarClass::Timer, "ns").expect("new");
        let session = registry.session();
        let known: Vec<_> = session.query().into_iter().map(|i| (i.name, i.binding)).collect();
        assert_eq!(
            known[..2],
            [("posted".into(), Binding::NoObject), ("rdma_time".into(), Binding::Handle)]
        );
        let posted = session.handle("posted").expect("registered");
        assert_eq!(session.sample(&posted, None).ok(), Some(5));
        let time = session.handle("rdma_time").expect("registered");
        assert!(matches!(session.sample(&time, None), Err(Error::Sample { .. })));
        assert_eq!(session.sample(&time, Some(&Request)).ok(), Some(17));
        let unset = session.handle("other_time").expect("registered");
        assert!(matches!(session.sample(&unset, Some(&Request)), Err(Error::Sample { .. })));
        assert!(matches!(session.handle("nothing"), Err(Error::NoPvar(_))));
        session.finalize();
        let second = registry.session();
        assert!(matches!(second.sample(&posted, None), Err(Error::Session)));
    }

    /// Such a source once ended the thread of the recorder.
    #[test]
    fn a_source_that_panics_is_marked_with_its_reason_and_the_others_go_on() {
        let registry = Registry::default();
        registry
            .register_source("broken", PvarClass::Level, "", || panic!("no pool"))
            .expect("new");
        registry.register_source("posted", PvarClass::Level, "", || 5).expect("new");
        assert_eq!((registry.sample_all(), registry.sample_all()), (vec![(1, 5)], vec![(1, 5)]));
        assert_eq!((registry.sample_one(0), registry.failures()), (None, 1));
        assert_eq!(registry.failed(), [("broken".to_owned(), "no pool".to_owned())].into());
        let session = registry.session();
        let broken = session.handle("broken").expect("registered");
        let error = session.sample(&broken, None).expect_err("failed");
        assert_eq!(error.to_string(), "the source of the variable `broken` failed: no pool");
        registry.register_source("broken", PvarClass::Level, "", || 7).expect("mended");
        assert_eq!((registry.sample_one(0), registry.failed().len()), (Some(7), 0));
    }

    #[test]
    fn a_name_has_one_description_and_the_number_is_bounded() {
        let registry = Registry::default();
        let first = registry.register("a", PvarClass::Size, "bytes").expect("new");
        assert_eq!(registry.register("a", PvarClass::Size, "bytes").ok(), Some(first));
        assert!(matches!(registry.register("a", PvarClass::Size, ""), Err(Error::PvarDiffers(_))));
        assert!(matches!(registry.register("", PvarClass::Size, ""), Err(Error::PvarName(_))));
        for number in 1..MAX_PVARS {
            registry.register(&format!("v{number}"), PvarClass::Counter, "").expect("room");
        }
        assert!(matches!(
            registry.register("b", PvarClass::Size, ""),
            Err(Error::PvarsFull { .. })
        ));
        assert_eq!(registry.len(), MAX_PVARS);
    }
}

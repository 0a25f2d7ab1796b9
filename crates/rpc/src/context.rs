//! The context of a call: the part of it that travels with the request.
//!
//! # Binary form, 32 bytes, little-endian
//!
//! | offset | type | name |
//! |--:|--|--|
//! | 0 | u8 | version in the upper four bits (1), flags in the lower four |
//! | 1 | u8 | reserved, 0 |
//! | 2 | u16 | order counter |
//! | 4 | u32 | Lamport clock |
//! | 8 | u64 | lower half of the request's id, not 0 |
//! | 16 | u64 | span id |
//! | 24 | u64 | callpath hash |
//!
//! A newer version keeps these fields, so an older program reads them. The upper half of the request's id stays behind.
//!
//! # W3C form
//!
//! `traceparent: 00-HIGHLOW-SPAN-FLAGS` as the recommendation has it, and in `tracestate` the member
//! `skopos=OOOO-LLLLLLLL-CCCCCCCCCCCCCCCC`: order counter, Lamport clock and callpath hash in lower-case hexadecimal. Parts
//! that follow behind a further `-` are of a newer version and are passed over.

use std::cell::Cell;
use std::marker::PhantomData;

use crate::callpath::ROOT;
use crate::error::Error;

/// Length of the binary form.
pub const CONTEXT_BYTES: usize = 32;
/// Version of the binary form that this program writes.
pub const CONTEXT_VERSION: u8 = 1;
/// Flag of a request that is recorded; W3C calls it `sampled`.
pub const RECORDED: u8 = 1;
/// Flag of a context that was read from a newer version. It does not travel: a target counts it.
pub const NEWER: u8 = 0x80;
/// The flags that travel in the binary form.
const FLAGS: u8 = 0x0f;
/// Most members of a `tracestate`, by the recommendation.
const MAX_MEMBERS: usize = 32;
/// Longest `tracestate` that is read or passed on: the recommendation asks for 512 bytes, and proxies cut headers at 8 KiB.
const MAX_TRACESTATE_BYTES: usize = 8192;
/// Our member of a `tracestate`.
const MEMBER: &str = "skopos";
/// Length of a `traceparent`.
pub(crate) const TRACEPARENT_BYTES: usize = 55;
/// Length of our member of a `tracestate`.
pub(crate) const MEMBER_BYTES: usize = 37;

/// The part of a call that travels with the request, and the place below which further calls belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Context {
    /// Lower half of the request's id; never 0.
    pub request_low: u64,
    /// Upper half of the request's id; 0 if it did not travel.
    pub request_high: u64,
    /// Id of the call with which it travels; of the enclosing span, if it is the current context.
    pub span: u64,
    /// Hash of the callpath above the call; [`ROOT`] at the root.
    pub callpath: u64,
    /// Lamport clock.
    pub lamport: u32,
    /// Order counter within the request.
    pub order: u16,
    /// Flags; see [`RECORDED`] and [`NEWER`].
    pub flags: u8,
}

impl Context {
    /// Returns the binary form.
    #[inline]
    pub fn to_bytes(&self) -> [u8; CONTEXT_BYTES] {
        let mut bytes = [0; CONTEXT_BYTES];
        bytes[0] = CONTEXT_VERSION << 4 | self.flags & FLAGS;
        bytes[2..4].copy_from_slice(&self.order.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.lamport.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.request_low.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.span.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.callpath.to_le_bytes());
        bytes
    }

    /// Reads the binary form. Bytes that follow are of a newer version and are passed over; a context of a newer version has
    /// the flag [`NEWER`].
    ///
    /// # Errors
    /// [`Error::Context`] if the bytes are too few, of version 0, or without a request.
    #[inline]
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let Some(bytes) = bytes.first_chunk::<CONTEXT_BYTES>() else {
            return Err(Error::Context("it has 32 bytes"));
        };
        let version = bytes[0] >> 4;
        if version < CONTEXT_VERSION {
            return Err(Error::Context("version 0 does not exist"));
        }
        let newer = if version > CONTEXT_VERSION { NEWER } else { 0 };
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let request_low = word(8);
        if request_low == 0 {
            return Err(Error::Context("the lower half of the request's id is 0"));
        }
        Ok(Self {
            request_low,
            request_high: 0,
            span: word(16),
            callpath: word(24),
            lamport: u32::from_le_bytes(std::array::from_fn(|i| bytes[4 + i])),
            order: u16::from_le_bytes([bytes[2], bytes[3]]),
            flags: bytes[0] & FLAGS | newer,
        })
    }

    /// Returns the value of the header `traceparent`.
    pub fn traceparent(&self) -> String {
        self.traceparent_bytes().map(char::from).iter().collect()
    }

    /// Returns the value of the header `traceparent`, as ASCII.
    #[inline]
    pub(crate) fn traceparent_bytes(&self) -> [u8; TRACEPARENT_BYTES] {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        put_hex(&mut text[3..19], self.request_high);
        put_hex(&mut text[19..35], self.request_low);
        put_hex(&mut text[36..52], self.span);
        put_hex(&mut text[53..55], u64::from(self.flags & FLAGS));
        text
    }

    /// Returns our member of a `tracestate`, as ASCII.
    #[inline]
    pub(crate) fn member_bytes(&self) -> [u8; MEMBER_BYTES] {
        let mut text = *b"skopos=0000-00000000-0000000000000000";
        put_hex(&mut text[7..11], u64::from(self.order));
        put_hex(&mut text[12..20], u64::from(self.lamport));
        put_hex(&mut text[21..37], self.callpath);
        text
    }

    /// Returns the value of the header `tracestate`: our member, and then the members of `others`, which came with the
    /// request, without our own. Members over the number that the recommendation allows are left out.
    pub fn tracestate(&self, others: Option<&str>) -> String {
        let mut state: String = self.member_bytes().map(char::from).iter().collect();
        let others =
            others.filter(|others| others.len() <= MAX_TRACESTATE_BYTES).unwrap_or_default();
        for member in members(others).filter(|(key, _)| *key != MEMBER).take(MAX_MEMBERS - 1) {
            state.push(',');
            state.push_str(member.0);
            state.push('=');
            state.push_str(member.1);
        }
        state
    }

    /// Reads the headers `traceparent` and `tracestate`. Without our member in `tracestate` the callpath begins here.
    ///
    /// A member with further parts, or a `traceparent` of a newer version, gives the flag [`NEWER`].
    ///
    /// An id whose lower half is 0 gets its upper half there, because everything joins by the lower half.
    ///
    /// # Errors
    /// [`Error::Context`] if `traceparent` is not one. A `tracestate` that cannot be read is passed over, as the
    /// recommendation says.
    pub fn from_w3c(traceparent: &str, tracestate: Option<&str>) -> Result<Self, Error> {
        let mut context = parse_traceparent(traceparent.trim())?;
        let state = tracestate.filter(|state| state.len() <= MAX_TRACESTATE_BYTES);
        let ours = members(state.unwrap_or_default()).find(|(key, _)| *key == MEMBER);
        if let Some(member) = ours.and_then(|(_, value)| parse_member(value)) {
            context.order = member.order;
            context.lamport = member.lamport;
            context.callpath = member.callpath;
            context.flags |= if member.is_newer { NEWER } else { 0 };
        }
        Ok(context)
    }
}

/// Returns true if a `tracestate` has members of other systems.
pub(crate) fn has_others(state: &str) -> bool {
    state.len() <= MAX_TRACESTATE_BYTES && members(state).any(|(key, _)| key != MEMBER)
}

/// Writes a number into all of `place` as lower-case hexadecimal digits.
#[inline]
fn put_hex(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 0xf) as usize];
        number >>= 4;
    }
}

/// Returns the members of a `tracestate`, at most as many as there may be.
fn members(state: &str) -> impl Iterator<Item = (&str, &str)> {
    state.split(',').take(MAX_MEMBERS).filter_map(|member| member.trim().split_once('='))
}

/// Our member of a `tracestate`.
struct Member {
    order: u16,
    lamport: u32,
    callpath: u64,
    /// It has parts that this version does not know.
    is_newer: bool,
}

fn parse_member(value: &str) -> Option<Member> {
    let mut parts = value.splitn(4, '-');
    let order = u16::try_from(hex(parts.next()?, 4)?).ok()?;
    let lamport = u32::try_from(hex(parts.next()?, 8)?).ok()?;
    let callpath = hex(parts.next()?, 16)?;
    Some(Member { order, lamport, callpath, is_newer: parts.next().is_some() })
}

fn parse_traceparent(text: &str) -> Result<Context, Error> {
    const SHAPE: Error =
        Error::Context("a traceparent has the form 00-32 digits-16 digits-2 digits");
    let mut parts = text.splitn(5, '-');
    let mut part = |digits| parts.next().and_then(|part| hex_bytes(part, digits)).ok_or(SHAPE);
    let version = part(2)?.1;
    let (request_high, request_low) = part(32)?;
    let (span, flags) = (part(16)?.1, part(2)?.1);
    let is_longer = parts.next().is_some();
    if version == 0xff || version == 0 && is_longer {
        return Err(SHAPE);
    }
    if request_high == 0 && request_low == 0 || span == 0 {
        return Err(Error::Context("the ids of a traceparent are not 0"));
    }
    Ok(Context {
        request_low: if request_low == 0 { request_high } else { request_low },
        request_high,
        span,
        callpath: ROOT,
        lamport: 0,
        order: 0,
        flags: flags as u8 & RECORDED | if version > 0 { NEWER } else { 0 },
    })
}

/// Parses exactly `digits` lower-case hexadecimal digits, at most 16.
fn hex(text: &str, digits: usize) -> Option<u64> {
    if text.len() != digits || digits > 16 {
        return None;
    }
    text.bytes().try_fold(0, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u64::from(digit))
    })
}

/// Parses exactly `digits` digits, at most 32, as an upper and a lower half.
fn hex_bytes(text: &str, digits: usize) -> Option<(u64, u64)> {
    if text.len() != digits || !text.is_ascii() {
        return None;
    }
    let (high, low) = text.split_at(digits.saturating_sub(16));
    let high = if high.is_empty() { 0 } else { hex(high, high.len())? };
    Some((high, hex(low, low.len())?))
}

thread_local! {
    static CURRENT: Cell<Option<Context>> = const { Cell::new(None) };
}

impl Context {
    /// Returns the context in which this thread works; `None` outside of any request.
    #[inline]
    pub fn current() -> Option<Self> {
        CURRENT.get()
    }

    /// Makes this the current context of the thread, until the returned guard is dropped. A task that moves between
    /// threads does this each time it is polled.
    #[inline]
    #[must_use = "the context is current as long as the guard lives"]
    pub fn attach(self) -> Attached {
        Attached { before: CURRENT.replace(Some(self)), not_send: PhantomData }
    }

    /// Sets the current context of the thread and returns the one before; for callers that cannot keep a guard.
    #[inline]
    pub fn replace_current(context: Option<Self>) -> Option<Self> {
        CURRENT.replace(context)
    }

    /// Counts one more call below this context, if it is the current one, and returns the call's order.
    #[inline]
    pub(crate) fn next_order(&self) -> u16 {
        match CURRENT.get() {
            Some(mut current) if current.span == self.span => {
                current.order = current.order.saturating_add(1);
                CURRENT.set(Some(current));
                current.order
            }
            _ => self.order.saturating_add(1),
        }
    }
}

/// Keeps a context current; restores the one before when dropped.
#[derive(Debug)]
pub struct Attached {
    before: Option<Context>,
    not_send: PhantomData<*const ()>,
}

impl Drop for Attached {
    #[inline]
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    prop_compose! {
        fn contexts()(
            request_low in 1u64.., request_high: u64, span in 1u64.., callpath: u64, lamport: u32, order: u16,
        ) -> Context {
            Context { request_low, request_high, span, callpath, lamport, order, flags: RECORDED }
        }
    }

    proptest! {
        #[test]
        fn both_forms_return_the_context(context in contexts()) {
            let bytes = context.to_bytes();
            prop_assert_eq!(Context::from_bytes(&bytes).ok(), Some(Context { request_high: 0, ..context }));
            let state = context.tracestate(Some("vendor=1, skopos=dead"));
            prop_assert!(state.ends_with(",vendor=1"));
            let read = Context::from_w3c(&context.traceparent(), Some(&state));
            prop_assert_eq!(read.ok(), Some(context));
        }

        #[test]
        fn no_bytes_and_no_text_panic(bytes: Vec<u8>, parent: String, state: String) {
            let _ = Context::from_bytes(&bytes);
            let _ = Context::from_w3c(&parent, Some(&state));
        }
    }

    #[test]
    fn a_newer_version_is_read_and_version_0_refused() {
        let context = Context::from_w3c(PARENT, None).expect("of the recommendation");
        let mut bytes = context.to_bytes().to_vec();
        bytes.extend([1, 2, 3]);
        bytes[0] = 0x51;
        let read = Context::from_bytes(&bytes).expect("a newer version");
        let newer = Context { flags: RECORDED | NEWER, ..context };
        assert_eq!(read, Context { request_high: 0, ..newer });
        assert_eq!(read.to_bytes()[0], CONTEXT_VERSION << 4 | RECORDED, "the flag does not travel");
        bytes[0] = 0x01;
        assert!(Context::from_bytes(&bytes).is_err());
        assert!(Context::from_bytes(&bytes[..31]).is_err());
        let parent = format!("01{}-what-is-new", &PARENT[2..]);
        assert_eq!(Context::from_w3c(&parent, None).ok(), Some(newer));
        assert_eq!(newer.traceparent(), PARENT);
        let state = format!("{}-what-is-new", context.tracestate(None));
        assert_eq!(Context::from_w3c(PARENT, Some(&state)).ok(), Some(newer));
    }

    #[test]
    fn text_that_is_not_a_traceparent_is_refused() {
        let zero = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
        let no_span = "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01";
        let upper = PARENT.to_uppercase();
        let longer = format!("{PARENT}-00");
        let last = format!("ff{}", &PARENT[2..]);
        for text in ["", "00", zero, no_span, &upper, &longer, &last, &PARENT[..54]] {
            assert!(Context::from_w3c(text, None).is_err(), "{text}");
        }
    }

    #[test]
    fn an_id_with_an_empty_lower_half_joins_by_the_upper() {
        let text = "00-0af7651916cd43dd0000000000000000-b7ad6b7169203331-00";
        let context = Context::from_w3c(text, Some("skopos=zz")).expect("valid");
        assert_eq!(context.request_low, 0x0af7_6519_16cd_43dd);
        assert_eq!((context.callpath, context.flags), (ROOT, 0));
    }

    #[test]
    fn a_guard_restores_the_context_before() {
        let outer = Context::from_w3c(PARENT, None).expect("valid");
        assert_eq!(Context::current(), None);
        let guard = outer.attach();
        {
            let inner = Context { span: 7, ..outer };
            let _guard = inner.attach();
            assert_eq!([inner.next_order(), inner.next_order(), outer.next_order()], [1, 2, 1]);
        }
        assert_eq!(Context::current(), Some(outer));
        drop(guard);
        assert_eq!(Context::current(), None);
    }
}

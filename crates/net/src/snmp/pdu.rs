//! Requests and responses inside of a message (RFC 3416).

use super::ber;
use super::oid::Oid;
use super::value::Value;
use crate::Error;
use crate::bytes::Reader;

const GET: u8 = 0xa0;
const RESPONSE: u8 = 0xa2;
const GET_BULK: u8 = 0xa5;
const REPORT: u8 = 0xa8;

/// The most objects of a response. A request asks for at most 40; a response with more is not an answer to it.
const MAX_BINDINGS: usize = 256;

/// The agent could not put the response into a message (RFC 3416, section 3).
pub(super) const TOO_BIG: i32 = 1;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// The objects to read, or after which to read.
    pub(super) oids: Vec<Oid>,
    /// The number of objects to read after each; `None` to read the objects themselves.
    pub(super) repetitions: Option<u8>,
}

impl Request {
    /// Appends the request with its number.
    pub(super) fn write(&self, id: i32, out: &mut Vec<u8>) {
        let tag = if self.repetitions.is_some() { GET_BULK } else { GET };
        ber::put_with(out, tag, |pdu| {
            ber::put_i32(pdu, id);
            ber::put_i32(pdu, 0);
            ber::put_i32(pdu, self.repetitions.unwrap_or(0).into());
            ber::put_with(pdu, ber::SEQUENCE, |list| {
                for oid in &self.oids {
                    ber::put_with(list, ber::SEQUENCE, |binding| {
                        ber::put_oid(binding, oid);
                        ber::put(binding, ber::NULL, &[]);
                    });
                }
            });
        });
    }
}

/// A response or a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Response {
    /// True for a report: a message about a message (RFC 3412).
    pub(super) is_report: bool,
    /// The number of the request.
    pub(super) id: i32,
    /// 0, or the reason why the agent refuses.
    pub(super) error: i32,
    /// The place of the object that is refused, from 1; 0 if it is not about one.
    pub(super) error_index: i32,
    /// Objects and values.
    pub(super) bindings: Vec<(Oid, Value)>,
}

impl Response {
    /// Reads the next element.
    ///
    /// # Errors
    /// It is not a response or a report.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let (tag, content) = ber::element(reader)?;
        let is_report = match tag {
            RESPONSE => false,
            REPORT => true,
            _ => {
                return Err(ber::malformed(format!(
                    "the tag {tag:#04x} is not that of a response"
                )));
            }
        };
        let mut pdu = ber::reader(content);
        let id = ber::expect_i32(&mut pdu)?;
        let error = ber::expect_i32(&mut pdu)?;
        let error_index = ber::expect_i32(&mut pdu)?;
        let mut list = ber::reader(ber::expect(&mut pdu, ber::SEQUENCE)?);
        let mut bindings = Vec::new();
        while !list.rest().is_empty() {
            if bindings.len() == MAX_BINDINGS {
                return Err(ber::malformed(format!("it has more than {MAX_BINDINGS} objects")));
            }
            let mut binding = ber::reader(ber::expect(&mut list, ber::SEQUENCE)?);
            let oid = ber::oid(ber::expect(&mut binding, ber::OID)?)?;
            let (tag, content) = ber::element(&mut binding)?;
            bindings.push((oid, Value::read(tag, content)?));
        }
        Ok(Self { is_report, id, error, error_index, bindings })
    }
}

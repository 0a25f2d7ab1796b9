use std::net::Ipv4Addr;

use super::ber;
use super::oid::Oid;
use crate::Error;

const IP_ADDRESS: u8 = 0x40;
const COUNTER32: u8 = 0x41;
const GAUGE32: u8 = 0x42;
const TIME_TICKS: u8 = 0x43;
const OPAQUE: u8 = 0x44;
const COUNTER64: u8 = 0x46;
const NO_SUCH_OBJECT: u8 = 0x80;
const NO_SUCH_INSTANCE: u8 = 0x81;
const END_OF_MIB_VIEW: u8 = 0x82;

/// The value of an object (RFC 3416, section 3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// No value.
    Null,
    /// An integer of 32 bits.
    Integer(i32),
    /// Bytes: a text, an address of a card, or anything.
    Octets(Vec<u8>),
    /// An object identifier.
    Oid(Oid),
    /// An address.
    Address(Ipv4Addr),
    /// A counter that begins at 0 again after 2^32 - 1.
    Counter32(u32),
    /// A number that stops at 2^32 - 1.
    Gauge32(u32),
    /// Hundredths of a second, modulo 2^32.
    Ticks(u32),
    /// Bytes that the agent alone understands.
    Opaque(Vec<u8>),
    /// A counter of 64 bits.
    Counter64(u64),
    /// The agent has no object with this identifier.
    NoSuchObject,
    /// The agent has the object, and not this instance of it.
    NoSuchInstance,
    /// No object follows.
    EndOfMib,
}

impl Value {
    /// Reads the value with this tag and content.
    ///
    /// # Errors
    /// The tag is not one of SNMP, or the content does not fit it.
    pub(super) fn read(tag: u8, content: &[u8]) -> Result<Self, Error> {
        let u32 = |content| ber::unsigned(content, 32).map(|number| number as u32);
        Ok(match tag {
            ber::NULL => Self::Null,
            ber::INTEGER => {
                let number = ber::signed(content)?;
                let fits = i32::try_from(number);
                Self::Integer(
                    fits.map_err(|_| ber::malformed(format!("{number} has more than 32 bits")))?,
                )
            }
            ber::OCTETS => Self::Octets(content.to_vec()),
            ber::OID => Self::Oid(ber::oid(content)?),
            IP_ADDRESS => {
                let bytes: [u8; 4] =
                    content.try_into().map_err(|_| ber::malformed("an address has not 4 bytes"))?;
                Self::Address(bytes.into())
            }
            COUNTER32 => Self::Counter32(u32(content)?),
            GAUGE32 => Self::Gauge32(u32(content)?),
            TIME_TICKS => Self::Ticks(u32(content)?),
            OPAQUE => Self::Opaque(content.to_vec()),
            COUNTER64 => Self::Counter64(ber::unsigned(content, 64)?),
            NO_SUCH_OBJECT => Self::NoSuchObject,
            NO_SUCH_INSTANCE => Self::NoSuchInstance,
            END_OF_MIB_VIEW => Self::EndOfMib,
            _ => return Err(ber::malformed(format!("a value has the unknown tag {tag:#04x}"))),
        })
    }

    /// Returns the value as a number that is not negative.
    pub(super) fn unsigned(&self) -> Option<u64> {
        match self {
            Self::Integer(number) => u64::try_from(*number).ok(),
            Self::Counter32(number) | Self::Gauge32(number) | Self::Ticks(number) => {
                Some(u64::from(*number))
            }
            Self::Counter64(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns true if the agent has a value.
    pub(super) fn is_there(&self) -> bool {
        !matches!(self, Self::Null | Self::NoSuchObject | Self::NoSuchInstance | Self::EndOfMib)
    }
}

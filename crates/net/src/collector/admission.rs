//! Decides about a datagram before it is parsed: its address, its rate, its tag.

use std::collections::HashMap;
use std::net::IpAddr;

use super::counts::CollectorCounts;
use super::settings::CollectorSettings;

/// The most addresses that have a bucket. An address beyond them is refused until one of them was silent.
pub const MAX_SOURCES: usize = 4096;

/// A bucket that is not used for this time is full again, and is discarded for another address.
const IDLE_NS: u64 = 10_000_000_000;

/// Seconds of datagrams that a source may send at once, after it was silent.
const BURST_SECONDS: f64 = 1.0;

/// The state of admission.
#[derive(Debug, Default)]
pub(super) struct Admission {
    buckets: HashMap<IpAddr, Bucket>,
    /// The time before which no bucket can be idle: a full table is searched once a second only.
    search_at: u64,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at: u64,
}

impl Admission {
    /// Returns the content of a datagram that may be parsed. `now` is in nanoseconds.
    pub(super) fn admit<'a>(
        &mut self,
        settings: &CollectorSettings,
        from: IpAddr,
        datagram: &'a [u8],
        now: u64,
        counts: &mut CollectorCounts,
    ) -> Option<&'a [u8]> {
        let from = from.to_canonical();
        if !settings.sources.iter().any(|network| contains(*network, from)) {
            counts.refused_sources += 1;
            return None;
        }
        if !self.has_token(settings, from, now) {
            counts.over_quota += 1;
            return None;
        }
        let Some(key) = &settings.key else { return Some(datagram) };
        let content = key.verified(datagram);
        if content.is_none() {
            counts.bad_tags += 1;
        }
        content
    }

    fn has_token(&mut self, settings: &CollectorSettings, from: IpAddr, now: u64) -> bool {
        let rate = f64::from(settings.datagrams_per_second);
        if self.buckets.len() >= MAX_SOURCES && !self.buckets.contains_key(&from) {
            if now < self.search_at {
                return false;
            }
            self.search_at = now + 1_000_000_000;
            self.buckets.retain(|_, bucket| now.saturating_sub(bucket.at) < IDLE_NS);
            if self.buckets.len() >= MAX_SOURCES {
                return false;
            }
        }
        let full = rate * BURST_SECONDS;
        let bucket = self.buckets.entry(from).or_insert(Bucket { tokens: full, at: now });
        let passed = now.saturating_sub(bucket.at) as f64 / 1e9;
        bucket.tokens = (bucket.tokens + passed * rate).min(full);
        bucket.at = now.max(bucket.at);
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }
}

/// True if the network, an address and the bits of its prefix, contains the address.
fn contains((network, bits): (IpAddr, u8), address: IpAddr) -> bool {
    let number = |address: IpAddr| match address {
        IpAddr::V4(address) => (4, u128::from(u32::from(address)) << 96),
        IpAddr::V6(address) => (6, address.to_bits()),
    };
    let ((version, network), (other, address)) = (number(network), number(address));
    let mask = match bits.min(128) {
        0 => 0,
        bits => u128::MAX << (128 - bits),
    };
    version == other && (network ^ address) & mask == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_their_addresses_only() {
        let check = |network: &str, bits, address: &str, expected| {
            let (network, address) =
                (network.parse().expect("good"), address.parse().expect("good"));
            assert_eq!(contains((network, bits), address), expected, "{network}/{bits} {address}");
        };
        check("10.1.0.0", 16, "10.1.255.3", true);
        check("10.1.0.0", 16, "10.2.0.1", false);
        check("10.1.0.9", 32, "10.1.0.9", true);
        check("10.1.0.9", 32, "10.1.0.8", false);
        check("0.0.0.0", 0, "192.0.2.1", true);
        check("0.0.0.0", 0, "fd00::1", false);
        check("fd00::", 8, "fdff::1", true);
        check("fd00::", 8, "fe80::1", false);
    }
}

//! Once each mechanism has offered what it knows: what the one says of the other.

use skopos_model::task::Completeness;

use super::{Offer, Seen};
use crate::mechanism::{bpf, wait4};

/// Processor time by which the sum of those that were waited for may be behind that of all who ran, and
/// nobody is missing: the two are counted at different moments of an end.
const BEHIND_SECONDS: f64 = 0.01;
const BEHIND_SHARE: f64 = 0.02;

/// Each process has more page faults than these, however small it is.
const FAULTS: f64 = 16.0;

impl Seen {
    /// To be called once, when all have offered.
    pub(crate) fn settle(&mut self) {
        self.find_unwaited();
        self.take_what_was_counted();
    }

    /// What nobody waited for is in no sum of `wait4`; who counts all that ran knows that it was there.
    fn find_unwaited(&mut self) {
        let lacks_time = self.beside_waited("cpu_seconds").is_some_and(|(waited, counted)| {
            counted - waited > BEHIND_SECONDS + BEHIND_SHARE * counted
        });
        let lacks_faults = self
            .beside_waited("minor_faults")
            .is_some_and(|(waited, counted)| counted - waited > FAULTS);
        if !lacks_time && !lacks_faults {
            return;
        }
        for offer in self.offers.values_mut().flatten().filter(|o| o.method == wait4::NAME) {
            if offer.completeness == Completeness::All {
                offer.completeness = Completeness::AtLeast;
                offer.error_bound = None;
                offer.reason = Some(wait4::UNWAITED.to_owned());
            }
        }
    }

    /// What `wait4` and another say that all of a resource is; of the other the least that it can be.
    fn beside_waited(&self, name: &str) -> Option<(f64, f64)> {
        let all = self.offers.get(name)?.iter().filter(|o| o.completeness == Completeness::All);
        let (waited, others): (Vec<&Offer>, Vec<&Offer>) =
            all.partition(|o| o.method == wait4::NAME);
        let counted = others.iter().map(|o| o.value - o.error_bound.unwrap_or(0.0));
        Some((waited.first()?.value, counted.reduce(f64::min)?))
    }

    /// Where two say that they have all bytes, the greater count has some that the other lacks: of those
    /// that nobody waited for, or that were moved by calls that are in no sum of the kernel.
    fn take_what_was_counted(&mut self) {
        for name in ["read_bytes", "written_bytes"] {
            let value = self.reading(name, "").value;
            let Some(offers) = self.offers.get_mut(name) else { continue };
            let is_more = |o: &Offer| o.method == bpf::NAME && Some(o.value) > value;
            if offers.iter().any(is_more) {
                offers.retain(|offer| offer.method == bpf::NAME);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(method: &'static str, value: f64) -> Offer {
        let completeness = Completeness::All;
        Offer { method, value, completeness, error_bound: Some(0.0), reason: None }
    }

    #[test]
    fn what_nobody_waited_for_is_said_to_be_missing() {
        for (waited, counted, is_whole) in
            [(0.001, 1.2, false), (1.19, 1.2, true), (1.2, 1.2, true)]
        {
            let mut seen = Seen::new();
            seen.offer("cpu_seconds", all(wait4::NAME, waited));
            seen.offer("user_seconds", all(wait4::NAME, waited));
            seen.offer("cpu_seconds", all(bpf::NAME, counted));
            seen.settle();
            let user = seen.reading("user_seconds", "");
            assert_eq!(user.completeness == Completeness::All, is_whole, "{waited} of {counted}");
            assert_eq!(user.error_bound.is_some(), is_whole);
            assert_eq!(seen.reading("cpu_seconds", "").completeness, Completeness::All);
        }
        let mut seen = Seen::new();
        seen.offer("minor_faults", all(wait4::NAME, 100.0));
        seen.offer("minor_faults", all(bpf::NAME, 400.0));
        seen.settle();
        let faults = seen.reading("minor_faults", "");
        assert_eq!((faults.value, faults.method.as_str()), (Some(400.0), bpf::NAME));
    }

    #[test]
    fn the_sum_that_has_more_bytes_is_taken() {
        let at_least = Offer { completeness: Completeness::AtLeast, ..all(bpf::NAME, 110.0) };
        for (counted, value, method) in [
            (all(bpf::NAME, 90.0), 100.0, wait4::NAME),
            (all(bpf::NAME, 110.0), 110.0, bpf::NAME),
            (at_least, 110.0, bpf::NAME),
        ] {
            let completeness = counted.completeness;
            let mut seen = Seen::new();
            seen.offer("read_bytes", all(wait4::NAME, 100.0));
            seen.offer("read_bytes", counted);
            seen.settle();
            let read = seen.reading("read_bytes", "");
            assert_eq!((read.value, read.method.as_str()), (Some(value), method));
            assert_eq!(read.completeness, completeness);
        }
    }
}

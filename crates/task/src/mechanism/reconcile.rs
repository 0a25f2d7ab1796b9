//! Compares the offers of mechanisms once all of them are made.

use skopos_model::task::Completeness;

use super::{bpf, cgroup, wait4};
use crate::ledger::{Offer, Offers};

/// Processor time by which the sum of waited-for processes may lag behind that of all processes
/// without a process missing: the two are counted at different moments of an exit.
const LAG_SECONDS: f64 = 0.01;
const LAG_SHARE: f64 = 0.02;

/// Each process has more page faults than this, however small it is.
const FAULTS: f64 = 16.0;

/// Corrects the offers. Called once.
pub(crate) fn reconcile(offers: &mut Offers) {
    mark_unwaited(offers);
    mark_left_group(offers);
    prefer_greater_bytes(offers);
}

/// Marks the sums of `wait4` as incomplete if a mechanism that counts all processes found more: the
/// processes that no parent waited for are missing.
fn mark_unwaited(offers: &mut Offers) {
    let lacks_time = waited_and_counted(offers, "cpu_seconds")
        .is_some_and(|(waited, counted)| counted - waited > LAG_SECONDS + LAG_SHARE * counted);
    let lacks_faults = waited_and_counted(offers, "minor_faults")
        .is_some_and(|(waited, counted)| counted - waited > FAULTS);
    if !lacks_time && !lacks_faults {
        return;
    }
    for offer in offers.all_mut().filter(|o| o.method == wait4::NAME) {
        if offer.completeness == Completeness::All {
            offer.completeness = Completeness::AtLeast;
            offer.error_bound = None;
            offer.reason = Some(wait4::UNWAITED.to_owned());
        }
    }
}

/// Marks the values of a control group as incomplete if another mechanism counted more processor time: a
/// process left the group.
fn mark_left_group(offers: &mut Offers) {
    let all = offers.of("cpu_seconds").iter().filter(|o| o.completeness == Completeness::All);
    let (group, others): (Vec<&Offer>, Vec<&Offer>) = all.partition(|o| o.method == cgroup::NAME);
    let counted = others.iter().map(|o| o.value - o.error_bound.unwrap_or(0.0)).reduce(f64::max);
    let Some((group, counted)) = group.first().map(|o| o.value).zip(counted) else { return };
    if counted - group <= LAG_SECONDS + LAG_SHARE * counted {
        return;
    }
    for offer in offers.all_mut().filter(|o| o.method == cgroup::NAME) {
        offer.completeness = offer.completeness.min(Completeness::AtLeast);
        offer.error_bound = None;
        offer.reason = Some("a process left the control group of the task".to_owned());
    }
}

/// Returns the complete value of `wait4` for a resource, and the least value that any other complete
/// offer allows.
fn waited_and_counted(offers: &Offers, name: &str) -> Option<(f64, f64)> {
    let all = offers.of(name).iter().filter(|o| o.completeness == Completeness::All);
    let (waited, others): (Vec<&Offer>, Vec<&Offer>) = all.partition(|o| o.method == wait4::NAME);
    let counted = others.iter().map(|o| o.value - o.error_bound.unwrap_or(0.0));
    Some((waited.first()?.value, counted.reduce(f64::min)?))
}

/// Prefers the byte count of `bpf` if it is greater: the other lacks processes that no parent waited
/// for, or bytes of calls that the kernel adds to no sum.
fn prefer_greater_bytes(offers: &mut Offers) {
    for name in ["read_bytes", "written_bytes"] {
        let value = offers.best(name, "").value;
        let is_more = |o: &Offer| o.method == bpf::NAME && Some(o.value) > value;
        if offers.of(name).iter().any(is_more) {
            offers.retain(name, |offer| offer.method == bpf::NAME);
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
    fn processes_that_no_parent_waited_for_are_reported_missing() {
        for (waited, counted, is_whole) in
            [(0.001, 1.2, false), (1.19, 1.2, true), (1.2, 1.2, true)]
        {
            let mut offers = Offers::default();
            offers.add("cpu_seconds", all(wait4::NAME, waited));
            offers.add("user_seconds", all(wait4::NAME, waited));
            offers.add("cpu_seconds", all(bpf::NAME, counted));
            reconcile(&mut offers);
            let user = offers.best("user_seconds", "");
            assert_eq!(user.completeness == Completeness::All, is_whole, "{waited} of {counted}");
            assert_eq!(user.error_bound.is_some(), is_whole);
            assert_eq!(offers.best("cpu_seconds", "").completeness, Completeness::All);
        }
        let mut offers = Offers::default();
        offers.add("minor_faults", all(wait4::NAME, 100.0));
        offers.add("minor_faults", all(bpf::NAME, 400.0));
        reconcile(&mut offers);
        let faults = offers.best("minor_faults", "");
        assert_eq!((faults.value, faults.method.as_str()), (Some(400.0), bpf::NAME));
    }

    #[test]
    fn a_group_that_lacks_processor_time_is_not_the_whole_task() {
        for (group, counted, is_whole) in [(0.5, 1.2, false), (1.2, 1.2, true), (1.3, 1.2, true)] {
            let mut offers = Offers::default();
            offers.add("cpu_seconds", all(cgroup::NAME, group));
            offers.add("threads_max", all(cgroup::NAME, 3.0));
            offers.add("cpu_seconds", all(bpf::NAME, counted));
            reconcile(&mut offers);
            let threads = offers.best("threads_max", "");
            assert_eq!(threads.completeness == Completeness::All, is_whole, "{group} of {counted}");
        }
    }

    #[test]
    fn the_greater_byte_count_is_taken() {
        let at_least = Offer { completeness: Completeness::AtLeast, ..all(bpf::NAME, 110.0) };
        for (counted, value, method) in [
            (all(bpf::NAME, 90.0), 100.0, wait4::NAME),
            (all(bpf::NAME, 110.0), 110.0, bpf::NAME),
            (at_least, 110.0, bpf::NAME),
        ] {
            let completeness = counted.completeness;
            let mut offers = Offers::default();
            offers.add("read_bytes", all(wait4::NAME, 100.0));
            offers.add("read_bytes", counted);
            reconcile(&mut offers);
            let read = offers.best("read_bytes", "");
            assert_eq!((read.value, read.method.as_str()), (Some(value), method));
            assert_eq!(read.completeness, completeness);
        }
    }
}

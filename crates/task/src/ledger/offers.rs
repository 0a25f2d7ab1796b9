//! The values that mechanisms offer for each resource, and the choice of the best one.

use std::collections::BTreeMap;

use skopos_model::task::{Completeness, Reading, resource};

/// A value of a resource, as one mechanism measured it.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) method: &'static str,
    pub(crate) value: f64,
    pub(crate) completeness: Completeness,
    pub(crate) error_bound: Option<f64>,
    pub(crate) reason: Option<String>,
}

/// All offers of a run.
#[derive(Debug, Default)]
pub(crate) struct Offers {
    by_resource: BTreeMap<&'static str, Vec<Offer>>,
    /// The reason why the mechanism that usually measures a resource could not.
    unavailable: BTreeMap<&'static str, String>,
}

impl Offers {
    /// Adds the value that a mechanism measured for a resource. An incomplete value loses its error
    /// bound, because nothing bounds the part that is missing.
    pub(crate) fn add(&mut self, name: &'static str, offer: Offer) {
        let is_whole = offer.completeness == Completeness::All;
        let error_bound = offer.error_bound.filter(|_| is_whole);
        if offer.value.is_finite() {
            let offer = Offer { error_bound, ..offer };
            self.by_resource.entry(name).or_default().push(offer);
        }
    }

    /// Records why the mechanism that usually measures a resource cannot do so here. The first
    /// reason is kept.
    pub(crate) fn mark_unavailable(&mut self, name: &'static str, why: impl Into<String>) {
        self.unavailable.entry(name).or_insert_with(|| why.into());
    }

    /// Adds a lower bound that was observed for certain. It replaces an incomplete value that is
    /// less, and is ignored if the complete value is known.
    pub(crate) fn raise_lower_bound(
        &mut self,
        name: &'static str,
        least: f64,
        method: &'static str,
        reason: &str,
    ) {
        let best = self.best(name, "");
        let is_less = best.value.is_none_or(|value| value < least);
        if is_less && best.completeness != Completeness::All {
            let (completeness, reason) = (Completeness::AtLeast, Some(reason.to_owned()));
            let offer = Offer { method, value: least, completeness, error_bound: None, reason };
            self.by_resource.insert(name, vec![offer]);
        }
    }

    /// The offers of one resource.
    pub(crate) fn of(&self, name: &str) -> &[Offer] {
        self.by_resource.get(name).map_or(&[], Vec::as_slice)
    }

    /// Every offer, to correct it.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Offer> {
        self.by_resource.values_mut().flatten()
    }

    /// Drops the offers of a resource that do not satisfy `keep`.
    pub(crate) fn retain(&mut self, name: &str, keep: impl FnMut(&Offer) -> bool) {
        if let Some(offers) = self.by_resource.get_mut(name) {
            offers.retain(keep);
        }
    }

    /// Returns the best offer for a resource, or `why_unknown` if there is no offer.
    ///
    /// The most complete offer wins. Among complete offers the one with the smallest error bound
    /// wins, among lower bounds the greatest, and among equals the first.
    pub(crate) fn best(&self, name: &'static str, why_unknown: &str) -> Reading {
        let unit = resource(name).map_or("", |r| r.unit);
        let bound = |o: &Offer| o.error_bound.unwrap_or(f64::INFINITY);
        // `min_by` keeps the first of equals.
        let better = |a: &&Offer, b: &&Offer| {
            let by_cover = b.completeness.cmp(&a.completeness);
            by_cover.then_with(|| match a.completeness {
                Completeness::AtLeast => b.value.total_cmp(&a.value),
                _ => bound(a).total_cmp(&bound(b)),
            })
        };
        let Some(best) = self.of(name).iter().min_by(better) else {
            let why = self.unavailable.get(name).map_or(why_unknown, String::as_str);
            return Reading::unknown(unit, why);
        };
        Reading {
            value: Some(best.value),
            unit: unit.to_owned(),
            method: best.method.to_owned(),
            completeness: best.completeness,
            error_bound: best.error_bound,
            reason: best.reason.clone(),
            missing: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(method: &'static str, completeness: Completeness, error_bound: Option<f64>) -> Offer {
        Offer { method, value: 1.0, completeness, error_bound, reason: None }
    }

    #[test]
    fn the_most_complete_offer_is_taken_then_the_tightest() {
        let mut offers = Offers::default();
        assert_eq!(offers.best("cpu_seconds", "no offer").reason.as_deref(), Some("no offer"));
        for (next, expected) in [
            (offer("a", Completeness::Sampled, Some(0.0)), "a"),
            (offer("b", Completeness::All, None), "b"),
            (offer("c", Completeness::All, Some(2.0)), "c"),
            (offer("d", Completeness::All, Some(2.0)), "c"),
            (offer("e", Completeness::AtLeast, Some(0.0)), "c"),
        ] {
            offers.add("cpu_seconds", next);
            assert_eq!(offers.best("cpu_seconds", "").method, expected);
        }
        for (next, expected) in [("e", 1.0), ("f", 3.0), ("g", 2.0)] {
            let at_least = offer(next, Completeness::AtLeast, Some(0.0));
            offers.add("user_seconds", Offer { value: expected, ..at_least });
        }
        let most = offers.best("user_seconds", "");
        assert_eq!((most.value, most.error_bound), (Some(3.0), None), "more may be missing");
        offers.add("cores", Offer { value: f64::NAN, ..offer("x", Completeness::All, None) });
        assert_eq!(offers.best("cores", "none").value, None);
    }
}

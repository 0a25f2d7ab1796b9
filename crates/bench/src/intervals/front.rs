//! Points of cost and accuracy, and their comparison.

/// Cost and accuracy of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) cost: f64,
    pub(super) accuracy: f64,
}

/// True if `theirs` is cheaper and more accurate, or better in one and equal in the other.
pub(super) fn beaten(ours: &Point, theirs: &Point) -> bool {
    theirs.cost <= ours.cost && theirs.accuracy >= ours.accuracy && theirs != ours
}

/// True if some point of `front` costs no more than `point` and is no less accurate.
pub(super) fn behind(point: &Point, front: &[Point]) -> bool {
    front.iter().any(|ours| ours.cost <= point.cost && ours.accuracy >= point.accuracy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_in_one_and_worse_in_the_other_is_not_better() {
        let at = |cost, accuracy| Point { cost, accuracy };
        let ours = at(0.2, 0.9);
        for (theirs, expected) in [
            (at(0.1, 0.95), true),
            (at(0.2, 0.95), true),
            (at(0.1, 0.9), true),
            (at(0.2, 0.9), false),
            (at(0.1, 0.8), false),
            (at(0.3, 0.95), false),
        ] {
            assert_eq!(beaten(&ours, &theirs), expected, "{theirs:?}");
        }
        assert!(behind(&at(0.2, 0.9), &[at(0.5, 1.0), ours]));
        assert!(!behind(&at(0.19, 0.9), &[at(0.5, 1.0), ours]));
    }
}

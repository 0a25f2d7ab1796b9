//! The walk that topic patterns and SQL's `LIKE` share.

/// Returns true if `pattern` matches the whole of `text`. A piece for which `is_run` is true takes any
/// number of items, also zero; any other piece takes one item, which `fits` decides.
///
/// Allocates nothing. The work is bounded by the product of both lengths, because a mismatch goes back
/// to the last run only and lets it take one item more.
///
/// ```
/// use skopos_model::wildcard;
///
/// let glob = |pattern: &str, text: &str| {
///     wildcard::matches(pattern.chars(), text.chars(), |piece| *piece == '*', |piece, c| piece == c)
/// };
/// assert!(glob("n*1", "n01") && !glob("n*1", "n02"));
/// ```
// Inlined into each matcher, so that its closures are: twice as fast as calling them.
#[inline]
pub fn matches<P, T>(
    mut pattern: P,
    mut text: T,
    is_run: impl Fn(&P::Item) -> bool,
    fits: impl Fn(&P::Item, &T::Item) -> bool,
) -> bool
where
    P: Iterator + Clone,
    T: Iterator + Clone,
{
    // The pattern after the last run, and the text after the items that this run took.
    let mut retry: Option<(P, T)> = None;
    loop {
        let mut next_pattern = pattern.clone();
        let piece = next_pattern.next();
        if piece.as_ref().is_some_and(&is_run) {
            if next_pattern.clone().next().is_none() {
                return true;
            }
            pattern = next_pattern;
            retry = Some((pattern.clone(), text.clone()));
            continue;
        }
        let mut next_text = text.clone();
        let Some(item) = next_text.next() else { return piece.is_none() };
        if piece.is_some_and(|piece| fits(&piece, &item)) {
            (pattern, text) = (next_pattern, next_text);
            continue;
        }
        let Some((after_run, taken)) = &mut retry else { return false };
        taken.next();
        (pattern, text) = (after_run.clone(), taken.clone());
    }
}

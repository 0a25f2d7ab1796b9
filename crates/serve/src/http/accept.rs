//! The header `Accept`: media types that a client takes, each with its quality.

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

/// A media type or range with its quality, from 0 (refused) to 1.
struct Range {
    name: String,
    quality: f64,
}

/// The media types of all `Accept` headers of a request.
pub(super) struct Accept(Vec<Range>);

impl Accept {
    /// Reads the headers. A quality that is not a number counts as 1.
    pub(super) fn new(headers: &HeaderMap) -> Self {
        let values = headers.get_all(ACCEPT).into_iter();
        let texts = values.flat_map(|value| value.to_str().unwrap_or_default().split(','));
        let range = |text: &str| {
            let mut parts = text.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default().to_ascii_lowercase();
            let quality = parts.find_map(|p| p.strip_prefix("q=")?.trim().parse::<f64>().ok());
            Range { name, quality: quality.unwrap_or(1.0) }
        };
        Self(texts.map(range).collect())
    }

    /// Returns true if the request has no `Accept` header.
    pub(super) fn is_absent(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the highest quality of the types for which `matches` is true; 0 if the client takes none of them.
    pub(super) fn quality(&self, matches: impl Fn(&str) -> bool) -> f64 {
        let matching = self.0.iter().filter(|range| matches(&range.name));
        matching.map(|range| range.quality).fold(0.0, f64::max)
    }

    /// Returns the offer for the type of the highest quality; of equal types, for the first one.
    pub(super) fn best<T>(&self, offer: impl Fn(&str) -> Option<T>) -> Option<T> {
        let mut best: Option<(f64, T)> = None;
        for Range { name, quality } in self.0.iter().filter(|range| range.quality > 0.0) {
            if best.as_ref().is_none_or(|(known, _)| quality > known)
                && let Some(offered) = offer(name)
            {
                best = Some((*quality, offered));
            }
        }
        best.map(|(_, offered)| offered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_of_the_highest_quality_is_chosen() {
        let offer = |name: &str| matches!(name, "a/b" | "c/d").then(|| name.to_owned());
        for (accept, expected) in [
            ("a/b, c/d", Some("a/b")),
            ("a/b;q=0.5, c/d", Some("c/d")),
            ("x/y, c/d;q=0.1", Some("c/d")),
            ("a/b; q=0, c/d;v=1;q=0.0", None),
            ("A/B;q=high", Some("a/b")),
            ("", None),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().expect("a value"))]);
            assert_eq!(Accept::new(&headers).best(offer).as_deref(), expected, "{accept}");
        }
        assert!(Accept::new(&HeaderMap::new()).is_absent());
    }
}

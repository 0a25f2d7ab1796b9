//! The names in a certificate: `skopos://SITE/node/NAME`, and for a hub also `skopos://SITE/hub/NAME`.

use std::fmt;

use skopos_model::Topic;
use thiserror::Error;

/// Scheme of the names.
const SCHEME: &str = "skopos://";

/// The names in the certificate of a program: a node of a site, which may be a hub of it, too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Names {
    /// Name of the site.
    pub site: String,
    /// Name of the node.
    pub node: String,
    /// True if the node may act as a hub.
    pub is_hub: bool,
}

/// The reason why a certificate has no names.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// A name has another form.
    #[error("`{0}` is not of the form skopos://SITE/node/NAME")]
    Form(String),
    /// The names are those of different nodes or sites.
    #[error("the names in the certificate are of different nodes")]
    Different,
    /// There is no name of a node.
    #[error("the certificate names no node")]
    Missing,
}

impl Names {
    /// Returns the names as they stand in a certificate.
    pub fn uris(&self) -> Vec<String> {
        let uri = |role: &str| format!("{SCHEME}{}/{role}/{}", self.site, self.node);
        let mut uris = vec![uri("node")];
        uris.extend(self.is_hub.then(|| uri("hub")));
        uris
    }

    /// Reads the names of a certificate. Names of other schemes are ignored.
    ///
    /// # Errors
    /// A name has another form, the names differ, or there is none.
    pub fn parse<'a>(uris: impl IntoIterator<Item = &'a str>) -> Result<Self, ParseError> {
        let (mut node, mut hub) = (None, None);
        for uri in uris {
            let Some(rest) = uri.strip_prefix(SCHEME) else { continue };
            let form = || ParseError::Form(uri.to_owned());
            let parts: Vec<&str> = rest.split('/').collect();
            let [site, role, name] = parts.as_slice() else { return Err(form()) };
            if !is_segment(site) || !is_segment(name) {
                return Err(form());
            }
            let known = match *role {
                "node" => &mut node,
                "hub" => &mut hub,
                _ => return Err(form()),
            };
            if known.replace((*site, *name)).is_some_and(|other| other != (*site, *name)) {
                return Err(ParseError::Different);
            }
        }
        let Some((site, name)) = node else { return Err(ParseError::Missing) };
        if hub.is_some_and(|hub| hub != (site, name)) {
            return Err(ParseError::Different);
        }
        Ok(Self { site: site.to_owned(), node: name.to_owned(), is_hub: hub.is_some() })
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = if self.is_hub { "hub" } else { "node" };
        write!(f, "{role} {} of the site {}", self.node, self.site)
    }
}

/// Returns true if a text is one segment of a topic, as names of sites and nodes are.
pub fn is_segment(text: &str) -> bool {
    Topic::new(text).is_ok_and(|topic| topic.segments().count() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_certificate() {
        for is_hub in [false, true] {
            let names = Names { site: "hpc1".to_owned(), node: "n01".to_owned(), is_hub };
            let uris = names.uris();
            assert_eq!(Names::parse(uris.iter().map(String::as_str)), Ok(names));
        }
        let with_others = ["https://example.org", "skopos://a/node/n01"];
        assert_eq!(Names::parse(with_others).map(|names| names.node), Ok("n01".to_owned()));
    }

    #[test]
    fn other_names_are_refused() {
        for uris in [
            &[][..],
            &["https://example.org"],
            &["skopos://a/hub/n01"],
            &["skopos://a/node/n01", "skopos://a/node/n02"],
            &["skopos://a/node/n01", "skopos://a/hub/n02"],
            &["skopos://a/node/n01", "skopos://b/hub/n01"],
            &["skopos://a/node/"],
            &["skopos://a/node/n/01"],
            &["skopos://a/node/*"],
            &["skopos://a/root/n01"],
            &["skopos:///node/n01"],
        ] {
            assert!(Names::parse(uris.iter().copied()).is_err(), "{uris:?}");
        }
    }
}

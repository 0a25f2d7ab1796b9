//! Nouns of a download: the places of a site, a task, and what is missing.

use std::collections::BTreeSet;

use serde::Serialize;
use skopos_hub::jobs::OfJob;
use skopos_model::job::JobId;
use skopos_serve::downloads::SAME_HUB;
use skopos_serve::fetch::{FoundEndpoint, HubAddress};

/// The places of the jobs of one site.
pub(super) struct OfSite {
    pub(super) site: String,
    pub(super) hubs: SiteHubs,
    pub(super) endpoints: Vec<FoundEndpoint>,
}

/// The hubs of a site that the user has named.
#[derive(Clone)]
pub(super) struct SiteHubs {
    /// The hub that was asked.
    pub(super) asked: HubAddress,
    /// All of them, each with the token of the user there.
    pub(super) named: Vec<HubAddress>,
}

impl SiteHubs {
    /// Returns the address of a location of Flight; `None` if the user's token is one of another hub. The hub that was asked
    /// named the location, and must not make the client send the token there.
    pub(super) fn at(&self, location: &str) -> Option<HubAddress> {
        if location == SAME_HUB || location == self.asked.url {
            return Some(self.asked.clone());
        }
        let named = self.named.iter().find(|hub| hub.url == location).cloned();
        named.or_else(|| self.asked.token.is_none().then(|| self.asked.elsewhere(location)))
    }
}

/// An endpoint to download.
pub(super) struct Task {
    pub(super) site: String,
    pub(super) hubs: SiteHubs,
    pub(super) endpoint: FoundEndpoint,
}

impl Task {
    /// Returns the sealed parts, sorted.
    pub(super) fn parts(&self) -> BTreeSet<(JobId, u32)> {
        self.endpoint.metadata.jobs.iter().flat_map(parts).collect()
    }
}

/// Something that was not fetched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Missing {
    /// The site, if it is known.
    pub(super) site: Option<String>,
    /// The jobs.
    pub(super) jobs: Vec<String>,
    pub(super) why: String,
}

/// Returns the sealed parts of a job in an endpoint.
pub(super) fn parts(of: &OfJob) -> impl Iterator<Item = (JobId, u32)> + use<> {
    let (id, ranges) = (of.id(), of.parts.clone());
    let numbers = ranges.into_iter().flat_map(|(from, to)| from..=to);
    numbers.filter_map(move |number| Some((id.clone()?, number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_sent_to_the_hub_alone_for_which_it_was_named() {
        let hub = |url: &str, token: Option<&str>| HubAddress {
            url: url.to_owned(),
            token: token.map(str::to_owned),
            ..HubAddress::default()
        };
        let hubs = |token| SiteHubs { asked: hub("a", token), named: vec![hub("b", Some("2"))] };
        let token = |hubs: &SiteHubs, location: &str| hubs.at(location).map(|hub| hub.token);
        let with_token = hubs(Some("1"));
        assert_eq!(token(&with_token, SAME_HUB), Some(Some("1".to_owned())));
        assert_eq!(token(&with_token, "a"), Some(Some("1".to_owned())));
        assert_eq!(token(&with_token, "b"), Some(Some("2".to_owned())));
        assert_eq!(token(&with_token, "c"), None);
        assert_eq!(token(&hubs(None), "c"), Some(None), "there is no token to send");
    }
}

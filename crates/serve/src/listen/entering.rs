//! Bounds the connections of one address that have not shown yet who they are.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use skopos_model::unpoisoned;

/// Maximum number of connections of one address whose clients have not shown who they are. A rack behind one address starts
/// in seconds.
const MAX_OF_AN_ADDRESS: u32 = 64;

/// Numbers of connections that enter, by address.
#[derive(Debug, Default)]
pub(super) struct Entering(Arc<Mutex<HashMap<IpAddr, u32>>>);

/// A connection that enters, until it is dropped.
#[derive(Debug)]
pub(crate) struct Entrant {
    of: IpAddr,
    all: Arc<Mutex<HashMap<IpAddr, u32>>>,
}

impl Entering {
    /// Counts a connection; `None` if too many of its address enter.
    pub(super) fn begin(&self, of: IpAddr) -> Option<Entrant> {
        let mut all = unpoisoned(self.0.lock());
        let count = all.entry(of).or_default();
        if *count >= MAX_OF_AN_ADDRESS {
            return None;
        }
        *count += 1;
        Some(Entrant { of, all: self.0.clone() })
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        unpoisoned(self.0.lock()).is_empty()
    }
}

impl Drop for Entrant {
    fn drop(&mut self) {
        let mut all = unpoisoned(self.all.lock());
        if let Some(count) = all.get_mut(&self.of) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_cannot_hold_up_others() {
        let entering = Entering::default();
        let [one, other] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let held: Vec<Entrant> =
            (0..MAX_OF_AN_ADDRESS).map_while(|_| entering.begin(one)).collect();
        assert_eq!(held.len(), MAX_OF_AN_ADDRESS as usize);
        assert!(entering.begin(one).is_none());
        assert!(entering.begin(other).is_some());
        drop(held);
        assert!(entering.begin(one).is_some());
        assert_eq!(unpoisoned(entering.0.lock()).len(), 0, "nothing stays");
    }
}

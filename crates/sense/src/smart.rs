//! `smart`: health that devices keep themselves, from smartctl(8).

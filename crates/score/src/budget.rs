//! The overhead budget: which sensors to poll less often so that all together cost no more than allowed.

//! The graph of facts and insights: what runs when an input changes.

//! Synthetic.

/// The factor on each error at every sample: its weight halves in 69 samples. That is long enough
/// to tell experts apart on noisy values, and short enough to follow a new phase of a job.
pub(crate) const MEMORY: f32 = 0.99;

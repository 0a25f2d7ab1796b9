//! Parts of the task monitor that a build lacks.

use crate::mechanism::{bpf, preload};

/// Returns what this build cannot measure, each with the reason; nothing for a complete build.
///
/// A build for x86-64, made where there is a C compiler, is complete.
pub fn build_lacks() -> Vec<(&'static str, String)> {
    let by_bpf = bpf::FILES_MISSING.map(|why| ("files of a task by BPF", why.to_owned()));
    let by_library = preload::check_built().err().map(|why| ("files of a task by LD_PRELOAD", why));
    by_bpf.into_iter().chain(by_library).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_build_with_a_c_compiler_lacks_nothing() {
        assert_eq!(super::build_lacks(), []);
    }
}

//! `fsinfo`: what local file systems are, from `/proc/self/mountinfo`.

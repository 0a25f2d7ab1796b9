//! `slurm`: jobs of Slurm that have an allocation on this node.

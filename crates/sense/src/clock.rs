//! `clock`: the system clock beside the hardware counter that it is made from.

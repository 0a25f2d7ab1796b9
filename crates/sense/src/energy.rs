//! `energy`: energy and power, from RAPL and batteries.

//! Delphi: what a value is between two polls, with a bound, from its last five samples.

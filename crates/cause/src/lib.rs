//! Why a node call is wrong: named hypotheses, each of which predicts the wrong values, tested on what was observed.
//! Runs no platform and reads no files.
#![warn(missing_docs)]

//! How strong a suite is: which mutants its cases kill, which cases are enough, and what none of them can see.
//!
//! This is mutation testing: a suite that lets many mutants live would let faults of a platform pass, too.

mod cover;
mod score;

pub use cover::smallest;
pub use score::{
    Blind, KernelCoverage, KilledSurvivor, OpScore, ScoreOptions, SuiteScore, Survivor, recorded_cases,
    score, seek,
};

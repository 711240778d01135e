//! The constants of the verdict.

use serde::{Deserialize, Serialize};

/// Relative amplitude `ε` of the oracle's disturbances: four units of roundoff of f32.
pub const AMPLITUDE: f64 = 4.0 / 16_777_216.0;
/// Disturbed evaluations per call.
pub const COPIES: usize = 8;
/// Roundings, in units of the sensitivity, that an operator without sums may make: a few operations, functions such as
/// `exp` with their permitted error, and the luck of [`COPIES`] draws.
pub const BASE: f64 = 8.0;
/// Factor on `√L`: ten standard deviations. The error of a sum formed one by one has one of at most `0.4·√L·u·T` (each
/// rounding is uniform in half a unit of the partial sum); the largest of millions of elements lies at five of them, and
/// [`COPIES`] draws may see half of `T`.
pub const CHAIN: f64 = 4.0;
/// Factor on `I`. The largest of [`COPIES`] normal draws is 1.4 standard deviations in the mean, and the largest of ten
/// million elements lies at 5.3 of them; where few roundings decide, `I` itself is near the largest change.
pub const INNER: f64 = 4.0;
/// Share of the largest allowed error that all elements may have in common.
pub const SHARED: f64 = 0.5;
/// `λ`: a correct call fails a test on the distribution with probability below `2·exp(−20)`, 4·10⁻⁹.
pub const LAMBDA: f64 = 20.0;
/// Headroom on the rounding of the storage dtype, for the rounding of the oracle itself.
pub const STORAGE: f64 = 1.01;

/// The constants of the verdict as a set, so that a bench of faults can measure what others would decide.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerdictConstants {
    /// See [`BASE`].
    pub base: f64,
    /// See [`CHAIN`].
    pub chain: f64,
    /// See [`SHARED`].
    pub shared: f64,
    /// See [`LAMBDA`].
    pub lambda: f64,
    /// See [`STORAGE`].
    pub storage: f64,
}

impl VerdictConstants {
    /// Those that decide.
    pub const DECIDING: VerdictConstants =
        VerdictConstants { base: BASE, chain: CHAIN, shared: SHARED, lambda: LAMBDA, storage: STORAGE };
    /// Those by which single elements decide, and no test on the distribution of errors.
    pub const ELEMENTS: VerdictConstants =
        VerdictConstants { lambda: f64::INFINITY, ..VerdictConstants::DECIDING };
}

//! Regimes of kernels, counted over checks.

use super::check::OpCheck;
use crate::reached::KernelRegimes;
use serde::{Deserialize, Serialize};

/// Regimes of kernels, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegimeCount {
    /// Regimes that runs can reach.
    pub of: u64,
    /// Those that recorded calls reach.
    pub recorded: u64,
    /// Those that only made calls reach.
    pub made: u64,
}

impl RegimeCount {
    /// The regimes of these checks.
    pub fn of_checks<'a>(checks: impl IntoIterator<Item = &'a OpCheck>) -> RegimeCount {
        RegimeCount::from_kernels(checks.into_iter().flat_map(|check| &check.regimes))
    }

    /// The regimes of these kernels.
    pub fn from_kernels<'a>(kernels: impl IntoIterator<Item = &'a KernelRegimes>) -> RegimeCount {
        kernels.into_iter().fold(RegimeCount::default(), |all, kernel| RegimeCount {
            of: all.of + kernel.of,
            recorded: all.recorded + kernel.recorded,
            made: all.made + kernel.made,
        })
    }

    /// In words; empty if no kernel has any.
    pub fn text(&self) -> String {
        let RegimeCount { of, recorded, made } = *self;
        if of == 0 {
            return String::new();
        }
        let none = of.saturating_sub(recorded + made);
        format!(
            "{of} regimes of kernels: {recorded} reached by recorded calls, {made} by calls made of them, {none} by none"
        )
    }
}

//! The names of causes: a promise to users, who read them in reports and script against them.
//!
//! A name may be added, but none may change. Causes of single calls and of whole programs share the list; hypotheses here give the
//! former, `tapml-diagnose` gives the latter.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use tapml_graph::{Error, Result, known_names};

// One row per cause, so that variant, name and sentence cannot come apart.
macro_rules! causes {
    ($($name:ident, $text:literal, $describe:literal;)+) => {
        /// Why a node call is wrong.
        ///
        /// # Examples
        ///
        /// ```
        /// use tapml_cause::Cause;
        ///
        /// assert_eq!(Cause::LongSum.name(), "long_sum");
        /// assert_eq!("overflow".parse::<Cause>().unwrap(), Cause::Overflow);
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Cause { $(#[doc = $describe] $name),+ }

        impl Cause {
            /// Every cause.
            pub const ALL: &[Cause] = &[$(Cause::$name),+];

            /// The name in reports.
            pub fn name(self) -> &'static str {
                match self { $(Cause::$name => $text),+ }
            }

            /// One sentence for people.
            pub fn describe(self) -> &'static str {
                match self { $(Cause::$name => $describe),+ }
            }
        }
    };
}

causes! {
    Unknown, "unknown", "No hypothesis fits what was observed.";
    F16Accumulation, "f16_accumulation", "Sums are formed in 16 bits, where the kernel declares more.";
    LongSum, "long_sum", "More terms are added up one after the other than the kernel declares.";
    Transposed, "transposed", "A matrix is read or written with its rows and columns exchanged.";
    SwappedOperands, "swapped_operands", "Two inputs are taken for each other.";
    WrongSign, "wrong_sign", "A term or the whole result has the opposite sign.";
    WrongConstant, "wrong_constant", "A constant of the formula, such as eps or a soft cap, has another value.";
    WrongScale, "wrong_scale", "A factor has another value: the result, or what goes into it, is too large or too small.";
    MissingScale, "missing_scale", "A factor, such as the scale or a weight that multiplies, is left out.";
    MissingBias, "missing_bias", "The bias is left out.";
    MissingTerm, "missing_term", "A term or a step of the formula is left out.";
    WrongFormula, "wrong_formula", "Another formula is computed: an activation of another form, a poor approximation.";
    Overflow, "overflow", "An intermediate result exceeds the range of its type where the result does not.";
    ConversionOrder, "conversion_order", "A value is rounded to a narrower type before it should be, within the formula.";
    Rounding, "rounding", "Results are not rounded to the nearest value of their type, but cut off.";
    FlushedDenormals, "flushed_denormals", "Numbers below the smallest normal one are taken for zero.";
    TailDropped, "tail_dropped", "The last elements of a row, a column or a sum are left out.";
    OffByOne, "off_by_one", "An index is one too large or too small.";
    WrongStride, "wrong_stride", "Elements are read or written with a wrong distance between rows, columns or pairs.";
    WrongHead, "wrong_head", "A head reads or writes the elements of another.";
    RowsSwapped, "rows_swapped", "Rows are exchanged.";
    ColumnsSwapped, "columns_swapped", "Columns are exchanged.";
    MaskShifted, "mask_shifted", "Each query sees a few keys more or fewer than it should.";
    MaskIgnored, "mask_ignored", "Queries see keys that the causal mask hides.";
    WindowIgnored, "window_ignored", "Queries see keys outside their window or chunk.";
    PositionShifted, "position_shifted", "Positions are off by a constant.";
    StaleData, "stale_data", "Values of an earlier call, or of an earlier row, stand where new ones belong.";
    WrongSlot, "wrong_slot", "A state is read from or written to the wrong place.";
    WrongLayerState, "wrong_layer_state", "The state of another layer is used.";
    StateNotReset, "state_not_reset", "A state still holds what an earlier text left in it.";
    Uninitialised, "uninitialised", "Memory is read that nobody wrote.";
    Race, "race", "The result depends on the order in which invocations run.";
    OutOfBounds, "out_of_bounds", "A kernel reads or writes outside its buffers.";
    NotWritten, "not_written", "Outputs are not written: they hold zeros, an input, or what memory held before.";
    BufferReused, "buffer_reused", "A buffer is written again before its last reader is done.";
    MissingCopy, "missing_copy", "A value is not copied to where it is read.";
    MissingDependency, "missing_dependency", "A step runs before another whose result it needs.";
    WrongSymbol, "wrong_symbol", "A size or position of an earlier step is used.";
    WrongCast, "wrong_cast", "Numbers pass through another type, or bits are read as a type that they are not.";
    WrongAttribute, "wrong_attribute", "An attribute of the operator is ignored, or taken for another value.";
    InputIgnored, "input_ignored", "An input of the operator, or part of it, is not looked at.";
    NanIgnored, "nan_ignored", "A NaN among the inputs is taken for a number.";
    NearTie, "near_tie", "Two choices are so close that rounding beyond the allowed one decides between them.";
    SourceDeparts, "source_departs", "The source platform, not the target, departs from the exact result.";
    Crash, "crash", "The kernel could not be built or run.";
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Cause {
    type Err = Error;

    /// The cause of this name. Fails on any other text.
    fn from_str(name: &str) -> Result<Cause> {
        Cause::ALL.iter().copied().find(|c| c.name() == name).ok_or_else(|| {
            // The name may come from a file, so it is escaped.
            Error::invalid(format!("unknown cause `{}`", name.escape_debug()))
                .with_hint(known_names(name, Cause::ALL.iter().map(|c| c.name())))
        })
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Cause {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Cause, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_distinct_and_round_trip() {
        let names: HashSet<&str> = Cause::ALL.iter().map(|c| c.name()).collect();
        assert_eq!(names.len(), Cause::ALL.len());
        for &cause in Cause::ALL {
            assert_eq!(cause.name().parse::<Cause>().unwrap(), cause);
            let json = serde_json::to_string(&cause).unwrap();
            assert_eq!(serde_json::from_str::<Cause>(&json).unwrap(), cause);
            assert!(cause.describe().ends_with('.'));
            assert!(cause.name().chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
        }
        assert!("gremlins".parse::<Cause>().unwrap_err().hint().unwrap().contains("race"));
    }
}

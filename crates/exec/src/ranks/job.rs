//! How ranks are loaded, what they are asked for, and what comes of it.

use crate::LoadOptions;
use std::collections::HashMap;
use std::ops::Range;
use tapml_graph::{Symbols, Tensor};

/// How the ranks of a model are loaded.
pub struct RanksOptions<'a> {
    pub options: &'a LoadOptions,
    /// Whether they meet on their devices, without the host.
    pub on_devices: bool,
    /// Whether all must give the same bits.
    pub compared: bool,
}

/// What a rank is asked for.
#[derive(Clone)]
pub enum RankJob {
    Step(Symbols, HashMap<String, Tensor>),
    /// The same, of which these rows of outputs are wanted.
    Rows(Symbols, HashMap<String, Tensor>, Vec<(String, Option<Range<usize>>)>),
    /// Elements of a row of an output of the last step.
    ReadRow(String, usize, Range<usize>),
    /// Steps from a position and a token on, and their number.
    Greedy((u64, u32), u64),
    Reset,
    /// Once all have been reset.
    Clear,
}

/// What comes of a job.
#[derive(Clone, Debug)]
pub enum RankResult {
    Outputs(HashMap<String, Tensor>),
    Rows(Vec<Tensor>),
    /// `None` if the rank does not choose tokens by itself.
    Tokens(Option<Vec<u32>>),
    Done,
}

impl RankResult {
    /// Whether both are the same names, bits and tokens.
    pub fn equals(&self, other: &RankResult) -> bool {
        let same = |a: &Tensor, b: &Tensor| a.bytes()[..] == b.bytes()[..];
        match (self, other) {
            (RankResult::Outputs(a), RankResult::Outputs(b)) => {
                a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
            }
            (RankResult::Rows(a), RankResult::Rows(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
            }
            (RankResult::Tokens(a), RankResult::Tokens(b)) => a == b,
            (RankResult::Done, RankResult::Done) => true,
            _ => false,
        }
    }
}

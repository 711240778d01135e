//! What a call shows that was made to reach where no recorded one does.
//!
//! A probe has no recorded result. It fails only on what no rounding explains.

use serde::{Deserialize, Serialize};

/// What a probe shows: where it gave NaN or infinity, and the exact result is finite, for infinity by a factor of two; or a
/// longer chain of additions than is declared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overflow {
    /// Name of the node whose call was probed.
    pub node: String,
    /// Kernel variants of one operator are told apart by their hash.
    pub kernel_hash: String,
    /// The input nearest to zero where it happens; for operators with products, the largest activation of the row.
    pub input: f64,
    /// The exact result there.
    pub exact: f64,
    /// What the platform gave, in words, because JSON has no NaN.
    pub observed: String,
    /// The largest magnitude of this input in the recorded call.
    pub recorded: f64,
    /// Elements where it happens, and elements of the probe.
    pub elements: [usize; 2],
    /// Whether, among inputs of the sign, it happens to all beyond some bound and to none before it.
    pub sharp: bool,
    /// For a [probe of sums](crate::accumulation_order): the longest chain of additions that the kernel declares, and one that its
    /// error needs at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<[u64; 2]>,
}

impl Overflow {
    /// One sentence.
    pub fn text(&self) -> String {
        let Overflow { node, input, exact, observed, recorded, elements: [wrong, all], .. } = self;
        if let Some([declared, shown]) = self.chain {
            return format!(
                "`{node}` adds up at least {shown} products one after the other, where its kernel declares chains of at most \
                 {declared}: it gives {observed} for {exact} ({wrong} of {all} elements of a made-up call)"
            );
        }
        format!(
            "`{node}` gives {observed} for an input of {input:.4e}, where the exact result is {exact:.4e} ({wrong} of {all} \
             elements of a made-up call); the recorded inputs reach {recorded:.4e}"
        )
    }
}

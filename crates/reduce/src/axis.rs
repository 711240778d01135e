//! An axis of a call: the sizes, attributes and values that shrink together.

use serde_json::Value as Json;
use tapml_graph::Symbol;

/// Where an axis runs along one dimension of an input or output: over `outer · len · inner` positions from `start` on.
///
/// Position `start + (o * len + k) * inner + i` belongs to index `k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxisPlace {
    /// Which input or output.
    pub tensor: usize,
    /// Which of its dimensions.
    pub dim: usize,
    /// First position.
    pub start: usize,
    /// Repetitions of the axis.
    pub outer: usize,
    /// Neighbouring positions of each index.
    pub inner: usize,
}

impl AxisPlace {
    /// The index along the axis of this position; `None` if the axis does not run there.
    pub fn index(&self, len: usize, position: usize) -> Option<usize> {
        let at = position.checked_sub(self.start)?;
        (at < self.outer * len * self.inner).then(|| at / self.inner % len)
    }

    /// Where this position is when only `kept` remains; `None` if it is gone.
    pub fn moved_position(&self, len: usize, kept: &[usize], position: usize) -> Option<usize> {
        let Some(k) = self.index(len, position) else {
            let before = position >= self.start;
            let gone = self.outer * self.inner * (len - kept.len());
            return Some(if before { position - gone } else { position });
        };
        let at = position - self.start;
        let (outer, inner) = (at / (len * self.inner), at % self.inner);
        // `kept` rises, as all lists of indices here do.
        let rank = kept.binary_search(&k).ok()?;
        Some(self.start + (outer * kept.len() + rank) * self.inner + inner)
    }
}

/// An attribute that shrinks with an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// Its place in the JSON object of attributes (RFC 6901).
    pub pointer: String,
    /// For a list, how often the axis runs through it; `None` for a number.
    pub outer: Option<usize>,
}

impl Attribute {
    /// Keeps what belongs to the indices `kept` of `len`.
    pub fn keep(&self, attributes: &mut Json, len: usize, kept: &[usize]) {
        match (attributes.pointer_mut(&self.pointer), self.outer) {
            (Some(Json::Array(list)), Some(outer)) => {
                let inner = (list.len() / (outer * len)).max(1);
                let place = AxisPlace { tensor: 0, dim: 0, start: 0, outer, inner };
                let mut at = 0;
                list.retain(|_| {
                    at += 1;
                    place.index(len, at - 1).is_none_or(|k| kept.contains(&k))
                });
            }
            // A multiple of the length stays one.
            (Some(number), _) => {
                let value = number.as_u64().unwrap_or(0) / len as u64 * kept.len() as u64;
                *number = Json::from(value);
            }
            (None, _) => {}
        }
    }
}

/// Along what a call can be made smaller.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The same for the same axis of a smaller call.
    pub name: String,
    /// Indices now.
    pub len: usize,
    /// Indices that must remain.
    pub least: usize,
    /// The symbol whose value it is.
    pub symbol: Option<Symbol>,
    /// Where it runs in the inputs.
    pub inputs: Vec<AxisPlace>,
    /// Where it runs in the outputs.
    pub outputs: Vec<AxisPlace>,
    /// Attributes that shrink with it.
    pub attributes: Vec<Attribute>,
    /// Elements of integer inputs that shrink with it, such as those of a shape: which input, which element.
    pub values: Vec<(usize, usize)>,
}

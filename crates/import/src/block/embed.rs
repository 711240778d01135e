//! Where tokens enter and leave: the embedding table and the language-model head.

use crate::net::{Net, Path};
use crate::options::Rows;
use tapml_graph::op::{Embedding, LastRow, Linear};
use tapml_graph::{DType, Result, ValueId};

/// Rows of `weight: [vocab, width]` for `ids: [n]`: `[n, width]`.
pub fn embedding(net: &mut Net, at: &Path, ids: ValueId, vocab: u32, width: u32) -> Result<ValueId> {
    let table = net.weight(&at.at("weight"), &[vocab, width])?;
    net.node(at, Embedding { dtype: net.activation() }, &[ids, table])
}

/// Logits in f32 of the wanted rows of `x: [n, width]`, by the matrix `weight: [vocab, width]` of the module `matrix`,
/// which is the embedding's if they are tied, plus `bias: [vocab]` of the module `at` where the model has one.
pub fn head(
    net: &mut Net,
    at: &Path,
    x: ValueId,
    matrix: &Path,
    size: [u32; 2],
    bias: bool,
) -> Result<ValueId> {
    let x = match net.rows() {
        Rows::All => x,
        Rows::Last => net.node(&at.at("last_row"), LastRow {}, &[x])?,
    };
    let mut inputs = vec![x, net.weight(&matrix.at("weight"), &size)?];
    if bias {
        inputs.push(net.weight(&at.at("bias"), &size[..1])?);
    }
    let dtype = (net.activation() != DType::F32).then_some(DType::F32);
    net.node(at, Linear { dtype }, &inputs)
}

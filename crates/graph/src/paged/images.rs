//! The images of a model that sees: their encoder apart from the graph that takes its rows.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::Op;

/// Name of the input with the rows of images that take the places of tokens: `[n, hidden]`, of which a step may fill as many
/// as it needs.
pub const IMAGE_ROWS: &str = "image_rows";
/// Name of the input that says for each token which of [`IMAGE_ROWS`] takes its place, none from `n` on: `u32[n]`.
pub const IMAGE_SLOTS: &str = "image_slots";

/// The rows of images that a graph merges into those of tokens.
pub(super) struct ImageRows {
    /// What the encoder gives.
    source: ValueId,
    pub dtype: DType,
    pub columns: u64,
}

impl ImageRows {
    /// `None` if the model sees no images. Fails if there is more than one kind of rows, or they are not the encoder's.
    pub fn from_graph(graph: &Graph) -> Result<Option<ImageRows>> {
        let merges = graph.nodes().iter().filter(|node| matches!(node.op, Op::MergeRows(_)));
        let mut sources: Vec<[ValueId; 2]> = merges.map(|node| [node.inputs[1], node.inputs[2]]).collect();
        sources.dedup();
        let [source, _] = match sources[..] {
            [] => return Ok(None),
            [one] => one,
            _ => return Err(Error::unsupported("rows of images are merged from several places")),
        };
        let value = graph.value(source);
        let columns = value.ty.shape.get(1).and_then(|size| size.as_const());
        match columns.filter(|_| graph.cached_values() == [source]) {
            Some(columns) => Ok(Some(ImageRows { source, dtype: value.ty.dtype, columns })),
            None => {
                let name = &value.name;
                Err(Error::unsupported(format!("`{name}`, the rows of images, follow from more than pixels")))
            }
        }
    }
}

impl Graph {
    /// The part that makes rows of an image's pixels, as a graph of its own: one input of constant sizes, and one output
    /// `[rows, hidden]` named as the value is. `None` if the model sees no images.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unsupported`] if rows of images come from more than one place, or follow from more than pixels.
    pub fn image_encoder(&self) -> Result<Option<Graph>> {
        let Some(rows) = ImageRows::from_graph(self)? else { return Ok(None) };
        let nodes = (0..).map(NodeId).zip(self.loop_invariant_nodes());
        let nodes: Vec<NodeId> = nodes.filter(|(_, once)| *once).map(|(id, _)| id).collect();
        let encoder = self.extract(&nodes)?;
        let found = (encoder.inputs().count(), encoder.outputs().len());
        if found != (1, 1) {
            let name = &self.value(rows.source).name;
            return Err(Error::unsupported(format!(
                "the encoder of `{name}` has {} inputs and {} outputs, expected one of each",
                found.0, found.1
            )));
        }
        Ok(Some(encoder))
    }

    /// The part beside [`Graph::image_encoder`], as a graph of its own with the same results: a step takes the rows of one image
    /// as an input, named as the value is. `None` if the model sees no images.
    ///
    /// # Errors
    /// As [`Graph::image_encoder`].
    pub fn image_reader(&self) -> Result<Option<Graph>> {
        if ImageRows::from_graph(self)?.is_none() {
            return Ok(None);
        }
        let nodes = (0..).map(NodeId).zip(self.loop_invariant_nodes());
        let nodes: Vec<NodeId> = nodes.filter(|(_, once)| !once).map(|(id, _)| id).collect();
        let mut reader = self.extract(&nodes)?;
        // A part's results go by the names of values.
        for output in &mut reader.outputs {
            let value = &reader.values[output.value.0 as usize].name;
            let own = self.outputs().iter().find(|own| self.value(own.value).name == *value);
            output.name = own.map_or_else(|| value.clone(), |own| own.name.clone());
        }
        Ok(Some(reader))
    }

    /// Rows that [`Graph::image_encoder`] makes of an image; `None` if the model sees no images.
    ///
    /// # Errors
    /// As [`Graph::image_encoder`], and if the number is none of 32 bits.
    pub fn image_rows(&self) -> Result<Option<u32>> {
        let Some(rows) = ImageRows::from_graph(self)? else { return Ok(None) };
        let ty = &self.value(rows.source).ty;
        let count = ty.shape.first().and_then(|size| u32::try_from(size.as_const()?).ok());
        count.map(Some).ok_or_else(|| Error::unsupported(format!("an image becomes {ty}")))
    }
}

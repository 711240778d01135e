//! Runs of a paged graph with one text at a time, as recordings have them.

use super::{
    IMAGE_ROWS, IMAGE_SLOTS, INPUTS, LENGTHS, PAGES, POSITIONS, PageLayout, SCALES, SLOTS, STATES, TEXTS,
    WANTED,
};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::op::Op;
use crate::tensor::Tensor;

/// How a paged graph's single text lies in pages and slots, for runs of one text at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SingleText {
    layout: PageLayout,
    /// Which of [`INPUTS`] the graph has.
    given: [bool; INPUTS.len()],
    /// Dtype and columns of rows of images, if the graph takes them.
    image: Option<(DType, usize)>,
}

impl SingleText {
    /// The layout of a paged graph; `None` of any other.
    ///
    /// # Errors
    /// If the graph's sizes do not fit together, or a step may ask for any number of logits.
    pub fn from_graph(graph: &Graph) -> Result<Option<SingleText>> {
        let paged = graph.nodes().iter().find_map(|node| match &node.op {
            Op::PagedAttention(op) => Some(op.page),
            _ => None,
        });
        let slots = graph.nodes().iter().find_map(|node| match &node.op {
            Op::PagedRecurrence(op) => Some(op.slots),
            _ => None,
        });
        if paged.is_none() && slots.is_none() {
            return Ok(None);
        }
        let sizes = |name: &str| {
            let shape = graph.find_value(name).map(|id| &graph.value(id).ty.shape);
            shape.and_then(|shape| {
                shape.iter().map(|dim| u32::try_from(dim.as_const()?).ok()).collect::<Option<Vec<u32>>>()
            })
        };
        let Some(wanted) = sizes(WANTED) else {
            return Err(Error::unsupported("a graph with pages whose steps give a varying number of logits"));
        };
        let table = sizes(PAGES).or(sizes(STATES)).unwrap_or_default();
        let ([texts, blocks], [1]) = (&table[..], &wanted[..]) else {
            return Err(Error::unsupported(format!(
                "a graph with pages: `{PAGES}` of {table:?}, `{WANTED}` of {wanted:?}"
            )));
        };
        let given = INPUTS.map(|name| graph.inputs().any(|(_, input)| input.name == name));
        let image = graph.inputs().find(|(_, input)| input.name == IMAGE_ROWS);
        let image = image.and_then(|(_, input)| {
            let columns = input.ty.shape.get(1)?.as_const()?;
            Some((input.ty.dtype, usize::try_from(columns).ok()?))
        });
        let states = slots.unwrap_or(0);
        let Some(page) = paged else {
            // No page bounds a text that leaves but a state.
            let most = u32::MAX;
            let layout =
                PageLayout { page: 1, pages: most, texts: *texts, blocks: most, wanted: Some(1), states };
            return Ok(Some(SingleText { layout, given, image }));
        };
        let caches = graph.nodes().iter().filter(|node| node.op.overwrites());
        let rows = caches.filter_map(|node| graph.value(*node.inputs.first()?).ty.shape.first()?.as_const());
        let rows = rows.min().and_then(|rows| u32::try_from(rows).ok());
        let rows =
            rows.ok_or_else(|| Error::unsupported("a graph with pages that no rows are written to"))?;
        let (texts, blocks) = (*texts, *blocks);
        let layout = PageLayout { page, pages: rows / page, texts, blocks, wanted: Some(1), states };
        Ok(Some(SingleText { layout, given, image }))
    }

    /// Most positions of the text.
    pub fn context(&self) -> u64 {
        u64::from(self.layout.page) * u64::from(self.layout.blocks.min(self.layout.pages))
    }

    /// The inputs of a step of `rows` tokens behind `position` others, by name. Pages are taken from the last one on, so that
    /// no two lie one behind the other: what reads a cache without its pages reads something else. A state goes to another
    /// slot with each token. No token stands for an image.
    ///
    /// # Errors
    /// If the text grows beyond [`SingleText::context`].
    pub fn inputs(&self, rows: usize, position: usize) -> Result<Vec<(&'static str, Tensor)>> {
        let PageLayout { page, pages, texts, blocks, states, .. } = self.layout;
        let end = position.saturating_add(rows) as u64;
        if rows == 0 || end > self.context() {
            let most = self.context();
            return Err(Error::invalid(format!("a text of {end} tokens, and pages for {most}"))
                .with_hint("shorten the prompt, or take fewer steps"));
        }
        let place = |block: u32| pages - 1 - block;
        let positions: Vec<u32> = (position as u64..end).map(|at| at as u32).collect();
        let vector = |values: Vec<u32>| Tensor::from_u32(vec![values.len()], values);
        let matrix =
            |columns: u32, values: Vec<u32>| Tensor::from_u32(vec![texts as usize, columns as usize], values);
        let mut inputs = Vec::new();
        for name in INPUTS.iter().zip(self.given).filter_map(|(name, given)| given.then_some(*name)) {
            let tensor = match name {
                POSITIONS => vector(positions.clone())?,
                TEXTS => vector(vec![0; rows])?,
                SLOTS => vector(positions.iter().map(|at| place(at / page) * page + at % page).collect())?,
                PAGES => {
                    let used = blocks.min(pages);
                    let table = 0..texts.saturating_mul(blocks);
                    matrix(blocks, table.map(|at| if at < used { place(at) } else { 0 }).collect())?
                }
                LENGTHS => vector(vec![end as u32; rows])?,
                STATES => {
                    let slot = |at: u64| (at % u64::from(states.max(1))) as u32;
                    let from = if position == 0 { u32::MAX } else { slot(position as u64) };
                    // Other texts have no rows, and no slots.
                    let others = (2..2 * texts).map(|_| u32::MAX);
                    matrix(2, [from, slot(end)].into_iter().chain(others).collect())?
                }
                IMAGE_ROWS => {
                    let (dtype, columns) = self.image.unwrap_or((DType::F32, 0));
                    Tensor::from_f64(dtype, vec![rows, columns], &vec![0.0; rows * columns])?
                }
                IMAGE_SLOTS => vector(vec![u32::MAX; rows])?,
                SCALES => Tensor::from_f32(vec![1], vec![1.0])?,
                _ => vector(vec![rows as u32 - 1])?,
            };
            inputs.push((name, tensor));
        }
        Ok(inputs)
    }
}

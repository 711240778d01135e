//! What a model's graph looks like from outside: the input for token ids, the vocabulary, the logits, and where an image
//! goes if the model sees images.
//!
//! Commands and sessions ask it for the names of inputs and outputs.

use crate::image::{Image, NOWHERE};
use std::collections::HashMap;
use tapml_graph::paged::{SingleText, is_paged_input};
use tapml_graph::{
    Context, DType, Dim, Error, Graph, Op, Origin, Result, Symbol, Symbols, Tensor, Value, ValueId,
};

/// Name of the output that a language model's graph has; a graph without it is an encoder.
pub const LOGITS: &str = "logits";
/// Name of the input for an image: `f32[channels, height, width]`.
pub const PIXELS: &str = "pixels";
/// Name of the input that says which token an image's rows replace: `u32[n]`, see [`Image::slots`].
pub const SLOTS: &str = "slots";

/// The parts of a model's graph that a step needs.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Name of the input for token ids; `None` for a model that takes arrays of constant sizes and no tokens.
    ids: Option<String>,
    /// Ids lie below this; none if no `embedding` reads them.
    vocab: Option<u64>,
    /// Whether logits are computed for the last position only; `None` if there are no logits.
    last_only: Option<bool>,
    /// Names, in the graph's order.
    outputs: Vec<String>,
    image: Option<ImagePlace>,
    /// How a text lies in pages, of a graph that has them.
    paged: Option<SingleText>,
}

/// Where an image goes.
#[derive(Clone, Debug)]
struct ImagePlace {
    /// Of `pixels`.
    shape: Vec<usize>,
    /// Rows that the encoder makes of it.
    rows: usize,
}

impl Interface {
    /// Fails unless the graph has an input for token ids, `u32[n]`, and beside it none, or `pixels` and `slots`; and an
    /// output `logits` of `[n, vocab]` or `[1, vocab]`, or no growing state. A graph with operators of others takes arrays.
    pub fn from_graph(graph: &Graph) -> Result<Interface> {
        Interface::read(graph).context(|| format!("graph `{}`", graph.name()))
    }

    /// See [`Interface::from_graph`].
    fn read(graph: &Graph) -> Result<Interface> {
        if graph.nodes().iter().any(|node| matches!(node.op, Op::Foreign(_))) {
            return Ok(Interface::of_arrays(graph));
        }
        let (mut id, mut pixels, mut slots) = (None, None, None);
        let paged = SingleText::from_graph(graph)?;
        let of_tokens = |name: &str| paged.is_none() || !is_paged_input(name);
        for (value, input) in graph.inputs().filter(|(_, input)| of_tokens(&input.name)) {
            // Any other name is that of the ids: importers may choose it.
            let place = match input.name.as_str() {
                PIXELS => &mut pixels,
                SLOTS => &mut slots,
                _ => &mut id,
            };
            if place.replace((value, input)).is_some() {
                let names: Vec<&str> = graph.inputs().map(|(_, v)| v.name.as_str()).collect();
                return Err(Error::unsupported(format!("expected one input (token ids), found {names:?}")));
            }
        }
        let (id, ids) = id.ok_or_else(|| Error::unsupported("the graph has no input for token ids"))?;
        per_token(ids)?;
        let image = match (pixels, slots) {
            (None, None) => None,
            (Some((_, pixels)), Some((id, slots))) => Some(place(graph, pixels, slots, id)?),
            _ => {
                let text = format!("inputs `{PIXELS}` and `{SLOTS}` come together, found one of them");
                return Err(Error::unsupported(text));
            }
        };
        let outputs = graph.outputs().iter().map(|o| o.name.clone()).collect();
        let last_only = last_only(graph)?;
        Ok(Interface {
            ids: Some(ids.name.clone()),
            vocab: table_rows(graph, id),
            last_only,
            outputs,
            image,
            paged,
        })
    }

    /// Every input is an array, and nothing is known of tokens.
    fn of_arrays(graph: &Graph) -> Interface {
        let outputs = graph.outputs().iter().map(|o| o.name.clone()).collect();
        Interface { ids: None, vocab: None, last_only: None, outputs, image: None, paged: None }
    }

    /// Whether logits are computed for the last position of a step only.
    pub fn last_only(&self) -> bool {
        self.last_only == Some(true)
    }

    /// Whether there are logits: without them the model is an encoder, which sees a whole text in one run.
    pub fn has_logits(&self) -> bool {
        self.last_only.is_some()
    }

    /// Fails if the model is an encoder, saying so.
    pub fn expect_logits(&self) -> Result<()> {
        if self.has_logits() {
            return Ok(());
        }
        let outputs = self.outputs.join("` and `");
        Err(Error::unsupported(format!("the model is an encoder: it gives `{outputs}`, and no logits"))
            .with_hint(
                "an encoder generates no text; `tapml carve`, `tapml check` and `tapml migrate` take it, and `tapml serve` gives \
                 its vectors",
            ))
    }

    /// Rows of the embedding table that the ids index, if an `embedding` node reads them.
    pub fn vocab(&self) -> Option<u64> {
        self.vocab
    }

    /// Name of the input for token ids; `None` for a model that takes arrays.
    pub fn ids(&self) -> Option<&str> {
        self.ids.as_deref()
    }

    /// Whether the model takes an image.
    pub fn sees(&self) -> bool {
        self.image.is_some()
    }

    /// Fails on the first id outside the vocabulary, and if there are no ids.
    pub fn check(&self, ids: &[u32]) -> Result<()> {
        if self.ids.is_none() {
            return Err(Error::unsupported("the model takes arrays, and no tokens"));
        }
        if ids.is_empty() {
            return Err(Error::invalid("no token ids given"));
        }
        // Any id is right where no table says otherwise.
        let vocab = self.vocab.unwrap_or(u64::from(u32::MAX) + 1);
        match ids.iter().position(|&id| u64::from(id) >= vocab) {
            None => Ok(()),
            Some(at) => Err(Error::invalid(format!(
                "token id {} at position {at} is outside the vocabulary",
                ids[at]
            ))
            .with_hint(format!("ids of this model are 0 to {}", vocab.saturating_sub(1)))),
        }
    }

    /// Fails unless the model takes images and this one fits it.
    pub fn check_image(&self, image: &Image) -> Result<()> {
        let Some(place) = &self.image else {
            return Err(Error::unsupported("the model takes no images")
                .with_hint("leave the image away, or take a model with a vision tower, such as LLaVA"));
        };
        let (dtype, shape) = (image.pixels.dtype(), image.pixels.shape());
        if dtype != DType::F32 || shape != place.shape {
            let text = format!("the image must be f32{:?}, found {dtype}{shape:?}", place.shape);
            return Err(Error::invalid(text));
        }
        let wrong = image.slots.iter().find(|&&slot| slot != NOWHERE && slot as usize >= place.rows);
        match wrong {
            None => Ok(()),
            Some(slot) => {
                let rows = place.rows;
                Err(Error::invalid(format!("slot {slot} of an image that becomes {rows} rows")))
            }
        }
    }

    /// The inputs of one step, by name, if there is no image.
    pub fn inputs(&self, ids: &[u32]) -> Result<HashMap<String, Tensor>> {
        self.inputs_at(ids, 0, None)
    }

    /// The inputs of a step with these tokens after `position` others. The pixels are among them in the first step only.
    pub fn inputs_at(
        &self,
        ids: &[u32],
        position: usize,
        image: Option<&Image>,
    ) -> Result<HashMap<String, Tensor>> {
        let ids_of_step = Tensor::from_u32(vec![ids.len()], ids.to_vec())?;
        let name =
            self.ids.clone().ok_or_else(|| Error::unsupported("the model takes arrays, and no tokens"))?;
        let mut inputs = HashMap::from([(name, ids_of_step)]);
        if let Some(paged) = &self.paged {
            let places = paged.inputs(ids.len(), position)?;
            inputs.extend(places.into_iter().map(|(name, tensor)| (name.to_string(), tensor)));
        }
        if self.image.is_some() {
            // Slots are listed for the prompt; tokens behind it have none.
            let known = image.and_then(|image| image.slots.get(position..)).unwrap_or_default();
            let slots = known.iter().copied().chain(std::iter::repeat(NOWHERE)).take(ids.len());
            inputs.insert(SLOTS.to_string(), Tensor::from_u32(vec![ids.len()], slots.collect())?);
            // A prompt may be fed in several steps; the encoder runs in the first.
            if let Some(image) = image.filter(|_| position == 0) {
                inputs.insert(PIXELS.to_string(), image.pixels.clone());
            }
        }
        Ok(inputs)
    }

    /// The symbols of a step with these many new tokens after `position` old ones.
    pub fn symbols(&self, new: usize, position: usize) -> Symbols {
        Symbols::np(new as u64, position as u64)
    }
}

/// Fails unless the input has one id per token.
fn per_token(input: &Value) -> Result<()> {
    if input.ty.dtype == DType::U32 && input.ty.shape == [Dim::symbol(Symbol::N)] {
        return Ok(());
    }
    Err(Error::unsupported(format!("input `{}`: expected u32[n], found {}", input.name, input.ty)))
}

/// The shape of the pixels, and the rows that the graph makes of them.
fn place(graph: &Graph, pixels: &Value, slots: &Value, id: ValueId) -> Result<ImagePlace> {
    per_token(slots)?;
    let sizes = pixels.ty.sizes(&Symbols::new());
    let (DType::F32, Ok(shape)) = (pixels.ty.dtype, sizes) else {
        return Err(Error::unsupported(format!(
            "input `{PIXELS}`: expected f32 of constant sizes, found {}",
            pixels.ty
        )));
    };
    let merges =
        graph.nodes().iter().filter(|n| matches!(n.op, Op::MergeRows(_)) && n.inputs.get(2) == Some(&id));
    let sources = merges.filter_map(|n| n.inputs.get(1)).map(|&source| graph.value(source));
    // If several nodes merge rows, a slot must lie within all of them.
    let rows = sources.filter_map(|source| source.ty.shape.first()?.as_const()).min();
    let rows =
        rows.ok_or_else(|| Error::unsupported(format!("no `merge_rows` reads the input `{SLOTS}`")))?;
    Ok(ImagePlace { shape, rows: usize::try_from(rows).unwrap_or(usize::MAX) })
}

/// See [`Interface::last_only`].
fn last_only(graph: &Graph) -> Result<Option<bool>> {
    let Some(output) = graph.outputs().iter().find(|o| o.name == LOGITS) else {
        return match graph.states().first() {
            // No states and no logits: an encoder.
            None => Ok(None),
            Some(state) => Err(Error::unsupported(format!(
                "the graph has no output `{LOGITS}`, but a state, `{}`",
                state.name
            ))),
        };
    };
    let logits = &graph.value(output.value).ty;
    match logits.shape.as_slice() {
        [rows, _] if *rows == Dim::symbol(Symbol::N) => Ok(Some(false)),
        [rows, _] if rows.as_const() == Some(1) => Ok(Some(true)),
        _ => Err(Error::unsupported(format!("`{LOGITS}` must be [n, vocab] or [1, vocab], found {logits}"))),
    }
}

/// The smallest table that the ids index.
fn table_rows(graph: &Graph, ids: ValueId) -> Option<u64> {
    let tables =
        graph.nodes().iter().filter(|n| matches!(n.op, Op::Embedding(_)) && n.inputs.first() == Some(&ids));
    let tables = tables.filter_map(|n| n.inputs.get(1)).map(|&t| graph.value(t));
    tables.filter(|t| t.origin == Origin::Weight).filter_map(|t| t.ty.shape.first()?.as_const()).min()
}

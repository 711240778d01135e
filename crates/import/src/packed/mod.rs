//! Weights that a checkpoint stores quantised, as its `quantization_config` says: which method, which tensors stand for a
//! weight, and how they become the words and scales that operators read.
//!
//! The graph is built as if all weights were f32. [`Packed::load`] then replaces the type of each weight
//! whose tensors are packed, and tells how to make it. Codes are only moved, never rounded: what another
//! program quantised stays bit for bit.

mod awq;
mod fp8;
mod gptq;
mod mxfp4;
mod parts;

use crate::config::Section;
use crate::source::Source;
use crate::weights::Weights;
use fp8::Fp8Weight;
use parts::Parts;
use std::collections::{HashMap, HashSet};
use tapml_graph::{
    DType, Derived, Error, Graph, Packing, Result, Symbols, Tensor, TensorType, Value, byte_len,
};

/// The key of `config.json`.
const KEY: &str = "quantization_config";
/// Methods that are read, for messages.
const SERVED: &str = "read are `awq` (version gemm, 4 bits, with zero points), `gptq` (4 and 8 bits, without a reordering of \
                      columns), `fp8` (e4m3, scales of tensors, rows or blocks), `mxfp4` and `tapml` (what `tapml quantize` writes); else take the checkpoint with f32, f16 or bf16 \
                      weights";

/// The version of [`Method::Own`] that is written and read.
pub(crate) const VERSION: u32 = 3;

/// The weights that `quantization_config` of [`Method::Own`] lists, with their packings.
fn own_packings(config: &Section) -> Result<HashMap<String, Packing>> {
    let expected =
        || config.expected_error("weights", "names of weights with their dtypes, such as \"int4g32\"");
    let listed = config.get("weights").and_then(serde_json::Value::as_object).ok_or_else(expected)?;
    let packing = |(name, dtype): (&String, &serde_json::Value)| {
        let packing = dtype.as_str().and_then(Packing::parse).ok_or_else(expected)?;
        Ok((name.clone(), packing))
    };
    listed.iter().map(packing).collect()
}

/// How weights of a checkpoint are stored.
#[derive(Clone, Debug, PartialEq)]
pub enum Method {
    /// As `tapml quantize` writes them: the bytes of packed tensors, under the names of the weights. How each is packed is
    /// listed.
    Own(HashMap<String, Packing>),
    /// Numbers of e4m3 in the weight's own tensor.
    Fp8(fp8::Fp8),
    /// Blocks of 32 elements, with their scales in a tensor of their own.
    Mxfp4,
    /// Groups along the inputs, words along the inputs. Frantar et al., "GPTQ", 2023; layout of AutoGPTQ.
    Gptq(gptq::Gptq),
    /// Groups along the inputs, words along the outputs. Lin et al., "AWQ", 2024; layout of AutoAWQ.
    Awq(awq::Awq),
}

impl Method {
    /// What a configuration says; `None` if the weights are not quantised. Fails if they are in a way that is not read.
    ///
    /// # Errors
    /// With advice that lists the methods that are read.
    pub fn read(root: &Section) -> Result<Option<Method>> {
        let Some(config) = root.section(KEY)? else { return Ok(None) };
        let method = match config.text_or("quant_method", "")? {
            "tapml" => match config.size_or("version", 1, 0..=u32::MAX)? {
                VERSION => own_packings(&config).map(Method::Own),
                other => Err(config
                    .unsupported("version", &format!("version {other}, read is {VERSION}"))
                    .with_hint("run `tapml quantize` again on the model that this one was made from")),
            },
            "mxfp4" => Ok(Method::Mxfp4),
            "fp8" => fp8::Fp8::read(&config).map(Method::Fp8),
            "gptq" => gptq::Gptq::read(&config).map(Method::Gptq),
            "awq" => awq::Awq::read(&config).map(Method::Awq),
            "" => Err(config.unsupported("quant_method", "weights that are quantised by no named method")),
            other => {
                let text = format!("weights quantised by `{}` are not supported", other.escape_debug());
                Err(config.unsupported("quant_method", &text))
            }
        };
        method.map(Some).map_err(|e| if e.hint().is_none() { e.with_hint(SERVED) } else { e })
    }

    /// Fails if the configuration describes quantised weights, where only plain ones are served.
    pub fn refuse(root: &Section) -> Result<()> {
        match root.get(KEY) {
            None => Ok(()),
            Some(_) => Err(root
                .unsupported(KEY, "a quantised checkpoint")
                .with_hint("take the configuration of the checkpoint with f32, f16 or bf16 weights")),
        }
    }

    /// The tensor that a weight of this name is stored in, if it is packed.
    /// The name alone decides; whether it is there is asked elsewhere.
    fn tensor(&self, name: &str) -> Option<String> {
        match self {
            Method::Own(packings) => packings.contains_key(name).then(|| name.to_string()),
            Method::Mxfp4 => Some(mxfp4::blocks(name)),
            Method::Fp8(_) => name.ends_with(".weight").then(|| name.to_string()),
            Method::Gptq(_) | Method::Awq(_) => Some(format!("{}.qweight", name.strip_suffix(".weight")?)),
        }
    }
}

/// The packed weights of a checkpoint.
pub struct Packed<'a> {
    method: Option<Method>,
    weights: &'a Weights,
    /// Of [`Method::Own`]: the packed weights, and the tensors that some of them were made of.
    /// A stacked weight's own name stands for tensors that the checkpoint has no more, such as those of
    /// single experts.
    own: HashSet<String>,
}

/// A graph, and what loading it takes beside plain weights.
pub struct LoadedGraph {
    /// The graph with packed weights.
    pub graph: Graph,
    /// Names of the weights that are packed.
    pub packed: HashSet<String>,
    /// Packed weights that the checkpoint holds as they are.
    pub given: HashMap<String, Tensor>,
    /// Those that are made from other tensors.
    pub derived: Vec<(Vec<String>, Derived)>,
    /// Names of tensors that are used so.
    pub used: HashSet<String>,
    /// What scales lose of their size at most, where f16 does not hold them.
    pub lost: f64,
}

impl LoadedGraph {
    /// What to know about the weights that is no failure.
    pub fn note(&self) -> Option<String> {
        let part = (self.lost > 0.0).then(|| (1.0 / self.lost).floor())?;
        Some(format!("scales of fp8 weights are rounded from f32 to f16: by a {part}th part of them at most"))
    }
}

impl<'a> Packed<'a> {
    /// Of these weights under this configuration; see [`Method::read`].
    pub fn from_weights(weights: &'a Weights, root: &Section) -> Result<Packed<'a>> {
        let method = Method::read(root)?;
        let mut own = HashSet::new();
        if let Some(Method::Own(packings)) = &method {
            for name in packings.keys() {
                own.insert(name.clone());
                // Some architectures ask whether `NAME` without its ending is held.
                own.extend(name.rsplit_once('.').map(|(before, _)| before.to_string()));
            }
        }
        Ok(Packed { method, weights, own })
    }

    /// The dtype of a weight, if the checkpoint holds it: f32 if it is packed.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        self.weights
            .dtype(name)
            .or_else(|| (self.own.contains(name) || self.holds(name)).then_some(DType::F32))
    }

    /// Whether the checkpoint stores this weight packed.
    fn holds(&self, name: &str) -> bool {
        let Some(method) = &self.method else { return false };
        method.tensor(name).is_some_and(|tensor| match method {
            Method::Fp8(_) => fp8::Fp8::holds(self.weights, &tensor),
            _ => self.weights.shape(&tensor).is_some(),
        })
    }

    /// The graph with packed weights in the place of those that the checkpoint stores so, if any, and these weights. Fails on
    /// NaN if asked to look for it.
    pub fn load(
        &self,
        graph: &Graph,
        sources: &HashMap<String, Source>,
        check_finite: bool,
    ) -> Result<LoadedGraph> {
        let mut loaded = LoadedGraph {
            graph: graph.clone(),
            packed: HashSet::new(),
            given: HashMap::new(),
            derived: Vec::new(),
            used: HashSet::new(),
            lost: 0.0,
        };
        let Some(method) = &self.method else { return Ok(loaded) };
        let mut packings = HashMap::new();
        for (_, value) in graph.weights() {
            let found = match method {
                Method::Own(packings) => self.own_packing(value, packings, &mut loaded),
                _ => self.foreign(method, value, (sources, check_finite), &mut loaded),
            };
            if let Some(packing) = found.map_err(|e| e.context(format!("weight `{}`", value.name)))? {
                packings.insert(value.name.clone(), packing);
            }
        }
        loaded.graph = tapml_graph::rewrite::quantize(graph, &|w| packings.get(&w.name).copied())?;
        loaded.packed = packings.into_keys().collect();
        Ok(loaded)
    }

    /// A weight that lies in the checkpoint as operators read it.
    fn own_packing(
        &self,
        value: &Value,
        packings: &HashMap<String, Packing>,
        loaded: &mut LoadedGraph,
    ) -> Result<Option<Packing>> {
        let Some(&packing) = packings.get(&value.name) else { return Ok(None) };
        let (dtype, sizes) = (DType::Packed(packing), value.ty.sizes(&Symbols::new())?);
        packing.sections(&sizes)?;
        let len = byte_len(dtype, &sizes).unwrap_or(0);
        let bytes = self.weights.exact(&value.name, DType::U8, &[len])?;
        let tensor = Tensor::new(dtype, sizes, bytes.bytes().clone())?;
        loaded.used.insert(value.name.clone());
        loaded.given.insert(value.name.clone(), tensor);
        Ok(Some(packing))
    }

    /// A weight, or a stack of them, whose tensors another program packed.
    fn foreign(
        &self,
        method: &Method,
        value: &Value,
        (sources, check_finite): (&HashMap<String, Source>, bool),
        loaded: &mut LoadedGraph,
    ) -> Result<Option<Packing>> {
        let source = sources.get(&value.name);
        let names = source.map_or(std::slice::from_ref(&value.name), Source::tensors);
        // A stack is packed as one weight, so all of its parts must be packed alike.
        match names.iter().filter(|name| self.holds(name)).count() {
            0 => return Ok(None),
            some if some < names.len() => {
                return Err(Error::unsupported(
                    "some of the matrices it is put together from are quantised, some not",
                ));
            }
            _ => {}
        }
        // Blocks of MXFP4 lie with the outputs first, whatever the numbers of the same name do.
        let turned = matches!((method, source), (Method::Mxfp4, Some(Source::EachTransposed(_))));
        if !turned && !matches!(source, None | Some(Source::Stacked(_))) {
            return Err(Error::unsupported("a quantised tensor that this architecture takes apart or turns"));
        }
        let sizes = value.ty.sizes(&Symbols::new())?;
        let &[.., outputs, k] = sizes.as_slice() else {
            return Err(Error::unsupported(format!("a quantised weight {}", value.ty)));
        };
        let bases: Vec<&str> = names.iter().filter_map(|name| name.strip_suffix(".weight")).collect();
        let (packing, make) = match method {
            Method::Gptq(gptq) => gptq.weight(self.weights, &bases, outputs, k)?,
            Method::Awq(awq) => awq.weight(self.weights, &bases, outputs, k)?,
            Method::Fp8(fp8) => {
                let Fp8Weight { packing, make, lost } =
                    fp8.weight(self.weights, &bases, [outputs, k], check_finite)?;
                loaded.lost = loaded.lost.max(lost);
                (packing, make)
            }
            Method::Mxfp4 => {
                loaded.used.extend(names.iter().flat_map(|name| mxfp4::tensors(name)));
                mxfp4::weight(self.weights, names, &sizes)?
            }
            Method::Own(_) => return Err(Error::bug("its own method is not another's")),
        };
        for base in &bases {
            let parts =
                ["weight", "qweight", "qzeros", "scales", "g_idx"].map(|part| format!("{base}.{part}"));
            loaded.used.extend(parts.into_iter().chain(fp8::Fp8::other_tensors(base)));
        }
        let ty = TensorType { dtype: DType::Packed(packing), shape: value.ty.shape.clone() };
        // Made when a run asks for it: words take memory beside the mapped file.
        let derived = Derived::new(vec![ty], move || {
            let Parts { words, scales, zeros } = make()?;
            let words: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
            let parts = [&words[..], &scales, &zeros];
            Ok(vec![Tensor::from_packed(packing, sizes.clone(), &parts[..packing.section_count()])?])
        });
        loaded.derived.push((vec![value.name.clone()], derived));
        Ok(Some(packing))
    }
}

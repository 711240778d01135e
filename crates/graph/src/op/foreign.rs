//! Operators of others, by domain, name and version: carried, recorded, judged and moved without an inference of their own.

use super::extreme::Extreme;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// An operator such as `onnx.Conv@11` or `aten.convolution.default`, with its attributes as they stand in the model.
///
/// Its output types are declared by the node and hold for the sizes of the inputs that the node was recorded with: all are
/// constant. Optional inputs and outputs that are not there keep their places.
///
/// Attributes are JSON: an integer, a float (with a point or an exponent), a text, a list of one of these. An empty list is
/// `{"ints":[]}`, `{"floats":[]}` or `{"strings":[]}`, a float that is not finite `{"float":"inf"}`, a list with one
/// `{"floats":[1.0,"nan"]}`, a tensor `{"tensor":{"dtype":"f32","shape":[1],"data":[0.5]}}`, a graph `{"graph":{…}}` (see [`super::Subgraph`]).
#[derive(Clone, Debug, PartialEq)]
pub struct Foreign {
    /// Which operator.
    kind: OperatorKind,
    attributes: Map<String, Value>,
    /// Whether each place of an input is taken.
    inputs: Vec<bool>,
    outputs: Vec<DeclaredType>,
}

/// What is known of an output's type.
#[derive(Clone, Debug, PartialEq)]
pub enum DeclaredType {
    /// Nobody asks for this optional output.
    Absent,
    /// Whoever runs the operator tells. Such an operator is in no graph.
    Unknown,
    /// The type.
    As(TensorType),
}

impl DeclaredType {
    /// The type, if it is declared.
    pub fn ty(&self) -> Option<&TensorType> {
        match self {
            DeclaredType::As(ty) => Some(ty),
            DeclaredType::Absent | DeclaredType::Unknown => None,
        }
    }

    /// Whether somebody asks for the output.
    pub fn is_asked(&self) -> bool {
        *self != DeclaredType::Absent
    }
}

/// Domain, name and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OperatorKind {
    /// Domain, name and version as one text.
    text: &'static str,
    /// Bytes of the domain.
    domain: usize,
    /// The number behind `@`.
    version: Option<u32>,
}

/// Longest name with domain and version, bytes.
const MAX_KIND: usize = 256;

impl OperatorKind {
    /// Reads `DOMAIN.NAME@VERSION` or `DOMAIN.NAME`.
    ///
    /// # Errors
    /// For other characters, a version that is no plain number, or a missing part.
    fn parse(text: &str) -> Result<OperatorKind> {
        let wrong = |why: &str| {
            let text = text.chars().take(80).collect::<String>();
            let error = Error::invalid(format!("operator `{}`: {why}", text.escape_debug()));
            error.with_hint("operators of others are named DOMAIN.NAME@VERSION, such as onnx.Conv@11")
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '@');
        if text.len() > MAX_KIND || !text.chars().all(plain) {
            return Err(wrong("expected at most 256 letters, digits, `_`, `.`, `-` and one `@`"));
        }
        // One spelling of each version: `@011` is refused.
        let (path, version) = match text.split_once('@') {
            None => (text, None),
            Some((path, version)) => {
                let number = version.parse::<u32>().ok().filter(|number| number.to_string() == version);
                (path, Some(number.ok_or_else(|| wrong("expected a number after `@`"))?))
            }
        };
        // A name with a version has no point; `aten.add.Tensor` has two.
        let cut = if version.is_some() { path.rfind('.') } else { path.find('.') };
        let cut = cut.filter(|&at| at > 0 && at + 1 < path.len());
        let domain = cut.ok_or_else(|| wrong("expected a domain and a name with a point between them"))?;
        Ok(OperatorKind { text: intern(text), domain, version })
    }
}

/// One text for each name, for the life of the process: graphs have few kinds of operators, and reports hold their names.
fn intern(text: &str) -> &'static str {
    static KNOWN: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    known.get(text).copied().unwrap_or_else(|| {
        // Names are bounded by `MAX_KIND`, and each is kept only once.
        let kept: &'static str = Box::leak(text.into());
        known.insert(kept);
        kept
    })
}

impl Foreign {
    /// An operator of this kind, such as `onnx.Conv@11`, which takes these places of inputs and gives outputs of these types.
    ///
    /// # Errors
    /// If the kind is no domain and name, or a size of an output is no constant.
    pub fn new(
        kind: &str,
        attributes: Map<String, Value>,
        inputs: Vec<bool>,
        outputs: Vec<DeclaredType>,
    ) -> Result<Foreign> {
        let kind = OperatorKind::parse(kind)?;
        let symbolic = |ty: &&TensorType| ty.shape.iter().any(|size| size.as_const().is_none());
        if let Some(ty) = outputs.iter().filter_map(DeclaredType::ty).find(symbolic) {
            return Err(Error::invalid(format!("`{}`: sizes must be constant, found {ty}", kind.text)));
        }
        if !outputs.iter().any(DeclaredType::is_asked) {
            return Err(Error::invalid(format!("`{}` has no output", kind.text)));
        }
        Ok(Foreign { kind, attributes, inputs, outputs })
    }

    /// Whether this is the name of such an operator: all have a point, and none of TapML's own has.
    pub fn is_kind(name: &str) -> bool {
        name.contains('.')
    }

    /// Reads attributes as [`Op::attributes_text`](super::Op::attributes_text) gives them.
    pub(crate) fn parse(
        kind: &str,
        attributes: &str,
        inputs: Vec<bool>,
        outputs: Vec<DeclaredType>,
    ) -> Result<Foreign> {
        let attributes = serde_json::from_str(attributes)
            .map_err(|e| Error::invalid(format!("attributes of `{kind}`: {e}")))?;
        Foreign::new(kind, attributes, inputs, outputs)
    }

    /// Domain, name and version: `onnx.Conv@11`.
    pub fn kind(&self) -> &'static str {
        self.kind.text
    }

    /// The domain; `onnx` is that of the ONNX standard.
    pub fn domain(&self) -> &'static str {
        &self.kind.text[..self.kind.domain]
    }

    /// The name within the domain.
    pub fn name(&self) -> &'static str {
        let rest = &self.kind.text[self.kind.domain + 1..];
        rest.split('@').next().unwrap_or(rest)
    }

    /// The version of the domain's operators, where it has one.
    pub fn version(&self) -> Option<u32> {
        self.kind.version
    }

    /// The attributes; see [`Foreign`].
    pub fn attributes(&self) -> &Map<String, Value> {
        &self.attributes
    }

    /// Whether each place of an input is taken.
    pub fn inputs(&self) -> &[bool] {
        &self.inputs
    }

    /// What is known of each place of an output.
    pub fn outputs(&self) -> &[DeclaredType] {
        &self.outputs
    }

    /// The given inputs at their places.
    pub fn place_inputs<T>(&self, given: impl IntoIterator<Item = T>) -> Vec<Option<T>> {
        let mut given = given.into_iter();
        self.inputs.iter().map(|&there| if there { given.next() } else { None }).collect()
    }

    /// The same operator with other declared outputs, such as those in another precision.
    pub fn with_outputs(&self, outputs: Vec<DeclaredType>) -> Result<Foreign> {
        Foreign::new(self.kind.text, self.attributes.clone(), self.inputs.clone(), outputs)
    }

    pub(super) fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        let places = self.inputs.iter().filter(|there| **there).count();
        if places != inputs.len() {
            return Err(Error::invalid(format!("expected {places} inputs, found {}", inputs.len())));
        }
        if let Some(ty) = inputs.iter().find(|ty| matches!(ty.dtype, DType::Packed(_))) {
            return Err(Error::invalid(format!(
                "an input is {ty}: operators of others take no packed weights"
            )));
        }
        if self.outputs.contains(&DeclaredType::Unknown) {
            return Err(Error::bug("types of outputs are not known before the operator runs"));
        }
        Ok(self.outputs.iter().filter_map(DeclaredType::ty).cloned().collect())
    }

    pub(super) fn extremes(&self) -> &'static [Extreme] {
        &[]
    }
}

#[cfg(test)]
mod tests {
    use crate::{Graph, Op};

    const TEXT: &str = "graph g
input x: f32[1,3,4,4]
weight w: f32[2,3,3,3]
weight \"_\": i64[]
y: f32[1,2,4,4] = onnx.Conv@11(x, w) {\"dilations\":[1,1],\"pads\":[1,1,1,1]}
_, h: f32[1,2] = com.microsoft.Rest@1(y, _, \"_\", _) {\"alpha\":0.01} as rest
z: bool[] = aten.any.default(h)
output z = z
";

    #[test]
    fn text_keeps_places_attributes_and_declared_types() {
        let graph = Graph::parse(TEXT).unwrap();
        assert_eq!(graph.to_text(), TEXT);
        assert_eq!(graph.op_kinds()[1], ("com.microsoft.Rest@1", 1));
        let Op::Foreign(rest) = &graph.nodes()[1].op else { panic!("{:?}", graph.nodes()[1].op) };
        assert_eq!((rest.domain(), rest.name(), rest.version()), ("com.microsoft", "Rest", Some(1)));
        assert_eq!(rest.inputs(), [true, false, true, false]);
        assert_eq!(rest.place_inputs(["y", "_"]), [Some("y"), None, Some("_"), None]);
        assert!(!rest.outputs()[0].is_asked() && rest.outputs()[1].ty().is_some());
        let Op::Foreign(any) = &graph.nodes()[2].op else { panic!("{:?}", graph.nodes()[2].op) };
        assert_eq!((any.domain(), any.name(), any.version()), ("aten", "any.default", None));
    }

    #[test]
    fn names_that_are_none_and_symbolic_sizes_are_refused() {
        for (from, to, told) in [
            ("onnx.Conv@11", "onnx.Conv@x", "a number after `@`"),
            ("onnx.Conv@11", "onnx.@11", "a domain and a name"),
            ("onnx.Conv@11", "onnx.Conv@011", "a number after `@`"),
            ("z: bool[]", "z: bool[n]", "must be constant"),
            ("(y, _, \"_\", _)", "(y, _, nothing, _)", "found `nothing`"),
        ] {
            let error = Graph::parse(&TEXT.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}

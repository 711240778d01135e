//! What a reduction did, as the command reports it.

use crate::aspect::Aspect;
use crate::body::{BodyPart, ForeignBody};
use crate::reduce::{Reduced, Stability};
use crate::rule::SizeRule;
use crate::specimen::Specimen;
use serde::Serialize;
use serde_json::json;
use tapml_exec::{Call, PlatformInfo};
use tapml_graph::fusion::REGION;
use tapml_graph::{Op, Symbols};
use tapml_migrate::tensor_type;

/// The version of the report's form.
const SCHEMA: u32 = 1;

/// Sizes of a call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallSizes {
    /// Elements of all inputs, weights included.
    pub elements: usize,
    /// Types of the inputs.
    pub inputs: Vec<String>,
    /// Values of the symbols.
    pub symbols: Symbols,
    /// The operator's attributes.
    pub attributes: serde_json::Value,
}

impl CallSizes {
    /// The sizes of this call.
    pub fn from_specimen(specimen: &Specimen) -> CallSizes {
        CallSizes {
            elements: specimen.elements(),
            inputs: specimen.call.inputs.iter().map(|t| tensor_type(t).to_string()).collect(),
            symbols: specimen.call.symbols.clone(),
            attributes: attributes_of(&specimen.call),
        }
    }
}

/// The name of a call's operator; of nodes that run as one model, those of all.
pub fn operators_of(call: &Call) -> String {
    match (&call.op, ForeignBody::from_call(call)) {
        (Op::Fused(fused), Some(body)) if fused.name() == REGION.name => {
            body.parts.iter().map(|part| part.op.kind()).collect::<Vec<_>>().join("+")
        }
        (op, _) => op.name().into(),
    }
}

/// The attributes of a call's operator; of operators of others that run together, a list of each with its own.
pub fn attributes_of(call: &Call) -> serde_json::Value {
    match (&call.op, ForeignBody::from_call(call)) {
        (Op::Fused(_), Some(body)) => {
            let one = |part: &BodyPart| json!({"op": part.op.kind(), "attributes": attributes(&Op::Foreign(part.op.clone()))});
            body.parts.iter().map(one).collect()
        }
        (op, _) => attributes(op),
    }
}

/// The attributes with the shortest digits that give the same `f32` again.
pub fn attributes(op: &Op) -> serde_json::Value {
    serde_json::from_str(&op.attributes_text()).unwrap_or_default()
}

/// The report of one reduction.
#[derive(Clone, Debug, Serialize)]
pub struct ReductionReport {
    /// The version of this form.
    pub schema: u32,
    /// The suite's folder.
    pub suite: String,
    /// The case.
    pub case: String,
    /// The operator; several that run as one model are joined by `+`.
    pub op: String,
    /// The nodes, where several run as one model, or one as a model that the platform optimises.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// The kernel.
    pub kernel: String,
    /// Where it ran.
    pub target: PlatformInfo,
    /// Whether the call fails there.
    pub fails: bool,
    /// What decided, in plain words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub criterion: Option<String>,
    /// The call as it was.
    pub before: CallSizes,
    /// The smallest call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<CallSizes>,
    /// Observed over allowed error of the smallest call; absent if that is infinite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// How often the smallest call fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stability: Option<Stability>,
    /// Whether no single step makes it smaller; else time ran out, or the user asked to stop.
    pub minimal: bool,
    /// Elements with simpler values in the second set of inputs; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simplified: Option<usize>,
    /// With which sizes a call of an operator of others fails, axis by axis; empty where every size fails, or none was tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<SizeRule>,
    /// On which attributes, dtypes, constants and numbers of axes it depends that a call of an operator of others fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aspects: Vec<Aspect>,
    /// Calls that were run.
    pub trials: u64,
    /// The reproducer's folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reproducer: Option<String>,
    /// Time taken.
    pub seconds: f64,
}

impl ReductionReport {
    /// The report of a call that does not fail.
    pub fn for_passing(
        suite: String,
        case: String,
        kernel: String,
        target: PlatformInfo,
        call: &Specimen,
    ) -> ReductionReport {
        ReductionReport {
            schema: SCHEMA,
            suite,
            case,
            op: operators_of(&call.call),
            nodes: Vec::new(),
            kernel,
            target,
            fails: false,
            criterion: None,
            before: CallSizes::from_specimen(call),
            after: None,
            ratio: None,
            stability: None,
            minimal: false,
            simplified: None,
            sizes: Vec::new(),
            aspects: Vec::new(),
            trials: 0,
            reproducer: None,
            seconds: 0.0,
        }
    }

    /// Adds what the reduction found.
    pub fn with_reduction(mut self, found: &Reduced, reproducer: String) -> ReductionReport {
        self.fails = true;
        self.criterion = Some(found.failure.criterion().to_string());
        self.after = Some(CallSizes::from_specimen(&found.smallest));
        // JSON has no infinity.
        self.ratio = Some(found.failure.ratio()).filter(|r| r.is_finite());
        self.stability = Some(found.stability);
        self.minimal = found.minimal;
        self.simplified = found.simplified.as_ref().map(|s| s.changed);
        self.sizes.clone_from(&found.sizes);
        self.aspects.clone_from(&found.aspects);
        self.trials = found.trials;
        self.reproducer = Some(reproducer);
        self.seconds = found.seconds;
        self
    }
}

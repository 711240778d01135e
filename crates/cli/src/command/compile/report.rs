//! The matrix of models and targets, and the cells of its rows.

use crate::output::bytes;
use serde::Serialize;
use tapml::device::Limits;
use tapml::dry_run::{Lengths, ModelPlan, TargetPlan};
use tapml::graph::DType;
use tapml::import::quantize::Scheme;

/// What is written as JSON.
#[derive(Serialize)]
pub(super) struct Report {
    /// The form of the report.
    pub(super) schema: u32,
    /// What was planned for.
    pub(super) lengths: Lengths,
    /// Of the size plan: 4 bits, and a scale in f16 for every 32 weights.
    pub(super) q4_bits_per_weight: f64,
    /// How weights are quantised in the plans `quantized`.
    pub(super) quantize: Option<Scheme>,
    /// The targets with their assumptions.
    pub(super) targets: Vec<TargetReport>,
    /// In the order of the list.
    pub(super) models: Vec<ModelReport>,
    /// How long planning took.
    pub(super) seconds: f64,
}

/// A target that is planned for.
#[derive(Serialize)]
pub(super) struct TargetReport {
    /// The word that chooses it.
    pub(super) target: &'static str,
    /// What it stands for.
    pub(super) about: &'static str,
    /// The dtype of activations there.
    pub(super) activation: DType,
    /// Bytes that are assumed.
    pub(super) memory: u64,
    /// What kernels are checked against.
    pub(super) limits: Limits,
}

/// A model with its plans.
#[derive(Serialize)]
pub(super) struct ModelReport {
    /// Of a list: what is published, for comparison.
    pub(super) published_parameters: Option<u64>,
    #[serde(flatten)]
    pub(super) plan: ModelPlan,
}

/// One row of the matrix.
pub(super) fn cells(plan: &ModelPlan) -> Vec<String> {
    let mut row = vec![plan.model.clone(), plan.model_type.clone()];
    match &plan.size {
        Some(s) => row.extend([
            parameters(s.parameters),
            s.context.to_string(),
            s.positions.to_string(),
            bytes(s.state_bytes),
            bytes(s.weight_bytes_f16),
            bytes(s.weight_bytes_q4),
        ]),
        None => row.extend((0..6).map(|_| "-".to_string())),
    }
    row.extend(plan.targets.iter().map(cell));
    row
}

/// How a model does on a target: with quantised weights, or with weights in f16 and in 4 bits.
fn cell(plan: &TargetPlan) -> String {
    if let Some(quantized) = &plan.quantized {
        let sizes = quantized.memory.zip(quantized.bytes_per_token);
        let sizes =
            sizes.map(|(memory, token)| format!(": {}, {} a token", bytes(memory.peak()), bytes(token)));
        return format!("{}{}", quantized.fit, sizes.filter(|_| quantized.fit.fits()).unwrap_or_default());
    }
    match (plan.f16.fits(), plan.q4.fits()) {
        (true, _) => "fits".into(),
        (false, true) => format!("4-bit fits; f16 {}", plan.f16),
        (false, false) => plan.q4.to_string(),
    }
}

/// A count of parameters for people: in billions, of small models in the unit that leaves digits before the point.
pub(super) fn parameters(count: u64) -> String {
    let (size, unit) = match count {
        100_000_000.. => (1e9, "B"),
        100_000.. => (1e6, "M"),
        _ => return count.to_string(),
    };
    format!("{:.2} {unit}", count as f64 / size)
}

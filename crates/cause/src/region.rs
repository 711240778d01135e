//! Why nodes fail together that are right alone: each of them is assumed to compute something else, and the nodes behind it are
//! evaluated with what that gives.
//!
//! Only the outputs of the region are observed. Values within it are exact ones, evaluated by the oracles in `f64`.

use crate::evidence::Downstream;
use crate::{Cause, Evidence, Explanation, explain_foreign};
use std::cmp::Ordering;
use std::collections::HashMap;
use tapml_exec::{Call, Region, RegionNode};
use tapml_graph::{DType, Error, Op, Result, Symbols, Tensor};
use tapml_migrate::verdict::Precision;
use tapml_migrate::{Oracles, WrongRegion, tensor_type};
use tapml_reference::foreign::{widen_outputs, widened_tensor};

/// Why a region is wrong, and the node that is computed otherwise.
#[derive(Clone, Debug)]
pub struct RegionExplanation {
    /// The name of the node.
    pub node: String,
    /// Its operator.
    pub op: String,
    /// What is wrong with it.
    pub explanation: Explanation,
}

/// Tests every hypothesis about each node of a region with a wrong output; `None` if no cause is known.
///
/// # Errors
/// A node cannot be evaluated, or the outputs are not of the region.
pub fn explain_region(wrong: &WrongRegion, oracles: &Oracles) -> Result<Option<RegionExplanation>> {
    let values = evaluate(&wrong.region, oracles)?;
    let observed = [wrong.observed.clone()];
    let mut found: Vec<RegionExplanation> = Vec::new();
    // Later nodes first: less lies between them and what was observed.
    for (at, node) in wrong.region.nodes.iter().enumerate().rev() {
        let call = call_of(node, &wrong.region, &values)?;
        let behind = Behind { region: &wrong.region, node: at, values: &values, oracles };
        let evidence = Evidence {
            call: &call,
            exact: &wrong.exact,
            observed: &observed,
            // What is allowed is in the exact results.
            precision: Precision { accumulate: DType::F32, terms: 1 },
            earlier: &[],
            findings: &[],
            after: Some(&behind),
        };
        let explanation = explain_foreign(&evidence, oracles)?;
        if explanation.cause != Cause::Unknown {
            found.push(RegionExplanation { node: node.name.clone(), op: node.op.kind().into(), explanation });
        }
    }
    Ok(best(found))
}

/// The explanation that leaves least open; of equal ones that of the later node, since less lies between it and what is seen. The
/// others that fit as well are told: values cannot tell which node it is.
fn best(found: Vec<RegionExplanation>) -> Option<RegionExplanation> {
    let worth = |one: &RegionExplanation| (one.explanation.certain, one.explanation.fit);
    let mut found = found.into_iter();
    let mut best = found.next()?;
    let mut alike: Vec<String> = Vec::new();
    for other in found {
        let note = |one: &RegionExplanation| format!("in `{}`, {}", one.node, one.explanation.cause);
        match worth(&other).partial_cmp(&worth(&best)) {
            // Equal explanations of worse ones are forgotten with them.
            Some(Ordering::Greater) => (best, alike) = (other, Vec::new()),
            Some(Ordering::Equal) => alike.push(note(&other)),
            _ => {}
        }
    }
    if !alike.is_empty() {
        best.explanation.certain = false;
        best.explanation.evidence += &format!("; values cannot tell this from: {}", alike.join("; "));
    }
    Some(best)
}

/// The values of a region by their names, floats in `f64`.
type RegionValues = HashMap<String, Tensor>;

/// The exact values of a region: its inputs, then those of its nodes in order.
fn evaluate(region: &Region, oracles: &Oracles) -> Result<RegionValues> {
    let mut values = RegionValues::new();
    for input in &region.inputs {
        values.insert(input.name.clone(), widened_tensor(&input.tensor)?);
    }
    for node in &region.nodes {
        run(node, region, &mut values, oracles)?;
    }
    Ok(values)
}

/// Adds the exact outputs of a node.
fn run(node: &RegionNode, region: &Region, values: &mut RegionValues, oracles: &Oracles) -> Result<()> {
    let (inputs, constants) = given_inputs(node, region, values)?;
    let outputs = oracles.evaluate(&widen_outputs(&node.op)?, &inputs, &constants)?;
    let names = node.outputs.iter().filter(|name| !name.is_empty());
    values.extend(names.cloned().zip(outputs));
    Ok(())
}

/// The inputs of a node that are there, each with whether it is the same in every run.
///
/// A name that is empty stands for an optional input that is not given.
fn given_inputs(
    node: &RegionNode,
    region: &Region,
    values: &RegionValues,
) -> Result<(Vec<Tensor>, Vec<bool>)> {
    let names = node.inputs.iter().filter(|name| !name.is_empty());
    let value = |name: &String| {
        let tensor = values.get(name).cloned().ok_or_else(|| Error::bug(format!("no value `{name}`")))?;
        let constant = region.inputs.iter().any(|input| input.name == *name && input.constant);
        Ok((tensor, constant))
    };
    Ok(names.map(value).collect::<Result<Vec<(Tensor, bool)>>>()?.into_iter().unzip())
}

/// A node of a region as a call of its own, with exact inputs. Its types are those of the tensors, so it has no symbols.
fn call_of(node: &RegionNode, region: &Region, values: &RegionValues) -> Result<Call> {
    let (inputs, constants) = given_inputs(node, region, values)?;
    let op = Op::Foreign(node.op.clone());
    let input_types: Vec<_> = inputs.iter().map(tensor_type).collect();
    Ok(Call {
        node: node.name.clone(),
        output_types: op.infer(&input_types)?,
        op,
        symbols: Symbols::default(),
        weights: constants.iter().zip(0..).map(|(&is, i)| is.then(|| format!("w{i}"))).collect(),
        input_types,
        inputs,
    })
}

/// The nodes behind one of a region.
struct Behind<'a> {
    /// The region that failed.
    region: &'a Region,
    /// The node whose outputs are replaced.
    node: usize,
    /// The exact values.
    values: &'a RegionValues,
    /// Who evaluates the nodes.
    oracles: &'a Oracles,
}

// Called for each prediction, so the exact values are cloned by reference counts; tensors share their bytes.
impl Downstream for Behind<'_> {
    fn run(&self, outputs: &[Tensor]) -> Option<Vec<Tensor>> {
        let own = &self.region.nodes[self.node];
        let mut values = self.values.clone();
        let names = own.outputs.iter().filter(|name| !name.is_empty()).cloned();
        let mut changed: Vec<String> = names.clone().collect();
        values.extend(names.zip(outputs.iter().cloned()));
        for node in &self.region.nodes[self.node + 1..] {
            // Nodes that do not depend on it keep their exact values.
            if node.inputs.iter().any(|name| changed.contains(name)) {
                run(node, self.region, &mut values, self.oracles).ok()?;
                changed.extend(node.outputs.iter().cloned());
            }
        }
        self.region.outputs.iter().map(|(name, _)| values.get(name).cloned()).collect()
    }
}

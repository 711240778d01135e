//! What an operator of others does without: attributes and optional inputs that the failure does not need.

use crate::search::Search;
use crate::specimen::{Specimen, with_attributes};
use serde_json::Value;
use tapml_graph::op::Foreign;
use tapml_graph::{Op, Result};

/// Leaves out every attribute and every optional input without which the call still fails; whether anything went.
pub fn plain(search: &mut Search<'_, '_>) -> Result<bool> {
    let Op::Foreign(op) = search.best.call.op.clone() else { return Ok(false) };
    let mut smaller = false;
    for name in op.attributes().keys() {
        smaller |= search.attempt(|best| without_attribute(best, name))?;
    }
    for place in (0..op.inputs().len()).rev() {
        smaller |= search.attempt(|best| without_input(best, place))?;
    }
    Ok(smaller)
}

fn without_attribute(specimen: &Specimen, name: &str) -> Option<Specimen> {
    let mut rest = specimen.clone();
    let Value::Object(mut attributes) = rest.call.op.attributes() else { return None };
    attributes.remove(name)?;
    rest.call.op = with_attributes(&rest.call.op, Value::Object(attributes)).ok()?;
    Some(rest)
}

/// The call without the input at this place. Behind the last one that is given there are no places.
fn without_input(specimen: &Specimen, place: usize) -> Option<Specimen> {
    let mut rest = specimen.clone();
    let Op::Foreign(op) = &rest.call.op else { return None };
    let mut places = op.inputs().to_vec();
    if !std::mem::replace(places.get_mut(place)?, false) {
        return None;
    }
    let input = places[..place].iter().filter(|there| **there).count();
    places.truncate(places.iter().rposition(|there| *there).map_or(0, |last| last + 1));
    let op = Foreign::new(op.kind(), op.attributes().clone(), places, op.outputs().to_vec()).ok()?;
    let call = &mut rest.call;
    call.op = Op::Foreign(op);
    drop((call.inputs.remove(input), call.input_types.remove(input), call.weights.remove(input)));
    rest.is_weight.remove(input);
    Some(rest)
}

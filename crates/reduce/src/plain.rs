//! What operators of others do without: nodes, attributes, optional inputs, and results beside the wrong one that the failure
//! does not need.
//!
//! It alternates with the search along axes: either may make room for the other.

use crate::body::ForeignBody;
use crate::search::Search;
use tapml_graph::Result;

/// Leaves out every node, attribute, optional input and result without which the call still fails; whether anything went.
///
/// # Errors
///
/// A platform that can run nothing any more.
pub fn plain(search: &mut Search<'_, '_>) -> Result<bool> {
    let Some(body) = search.best.body() else { return Ok(false) };
    let mut smaller = false;
    // From the last on, so that those before keep their places.
    for (at, part) in body.parts.iter().enumerate().rev() {
        for place in 0..part.inputs.len() {
            smaller |= search.attempt(|body| body.without_part(at, place))?;
        }
    }
    // Anew, because nodes may be gone.
    let Some(body) = search.best.body() else { return Ok(smaller) };
    for (at, part) in body.parts.iter().enumerate() {
        for name in part.op.attributes().keys() {
            smaller |= search.attempt(|body| without_attribute(body, at, name))?;
        }
        // From the last on: leaving one out moves none before it.
        for place in (0..part.op.inputs().len()).rev() {
            smaller |= search.attempt(|body| without_input(body, at, place))?;
        }
    }
    for at in (0..body.outputs.len()).rev().filter(|_| body.parts.len() > 1) {
        smaller |= search.attempt(|body| without_output(body, at))?;
    }
    Ok(smaller)
}

/// `None` if there is no such attribute.
fn without_attribute(mut body: ForeignBody, part: usize, name: &str) -> Option<ForeignBody> {
    let part = body.parts.get_mut(part)?;
    let mut attributes = part.op.attributes().clone();
    attributes.remove(name)?;
    part.set_attributes(attributes).ok()?;
    Some(body)
}

/// Nodes that made only this input go with it.
fn without_input(mut body: ForeignBody, part: usize, place: usize) -> Option<ForeignBody> {
    let part = body.parts.get_mut(part)?;
    *part = part.without_input(place)?;
    body.drop_unused();
    Some(body)
}

/// At least one result remains.
fn without_output(mut body: ForeignBody, at: usize) -> Option<ForeignBody> {
    if body.outputs.len() < 2 || at >= body.outputs.len() {
        return None;
    }
    body.outputs.remove(at);
    body.drop_unused();
    Some(body)
}

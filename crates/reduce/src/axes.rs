//! Axes: along what a call can be made smaller. They are found by asking the operator's shape inference, so that no
//! operator has to be known here.
//!
//! A symbol is an axis: all sizes that name it shrink together. Otherwise an axis of length `L` is a least set of
//! constant sizes and integer attributes, all multiples of `L`, that inference accepts when `L − 1` takes the place of
//! `L` in each: `K` of a matrix product in both its inputs, `kv_heads` in the columns of queries, keys and values and in
//! two attributes. Which of a size's factors is the axis (heads, or the elements of a head) inference does not tell;
//! every order is offered. A wrong one mixes values, which harms nothing: what a smaller call should give is computed
//! anew from the values it has.

mod constant;
mod foreign;

use crate::axis::{Axis, AxisPlace};
use crate::specimen::Specimen;
use constant::ConstantSearch;
use tapml_graph::{Dim, Result, Symbol, Symbols, TensorType};
use tapml_migrate::Oracles;

/// The axes of a call along which something can go. `oracles` tell of an operator of others what it takes.
///
/// Symbols come first, then constant axes, longest first.
///
/// # Errors
///
/// A size that cannot be evaluated.
pub fn axes(specimen: &Specimen, oracles: &Oracles) -> Result<Vec<Axis>> {
    let call = &specimen.call;
    if let Some(body) = specimen.body() {
        return Ok(foreign::axes(specimen, &body, oracles));
    }
    let mut found: Vec<Axis> = call
        .symbols
        .iter()
        .map(|(symbol, value)| of_symbol(specimen, symbol, value as usize))
        .collect::<Result<_>>()?;
    found.retain(|a| a.len > a.least && !(a.inputs.is_empty() && a.outputs.is_empty()));
    found.extend(ConstantSearch::from_specimen(specimen).axes());
    Ok(found)
}

/// The axis of a symbol. At least one row must remain; cached positions may all go.
fn of_symbol(specimen: &Specimen, symbol: Symbol, len: usize) -> Result<Axis> {
    let call = &specimen.call;
    let places = |types: &[TensorType]| -> Result<Vec<AxisPlace>> {
        let mut places = Vec::new();
        for (tensor, ty) in types.iter().enumerate() {
            for (dim, size) in ty.shape.iter().enumerate().filter(|(_, d)| d.symbols().any(|s| s == symbol)) {
                let (start, inner) = segment(size, symbol, &call.symbols)?;
                places.push(AxisPlace { tensor, dim, start, outer: 1, inner });
            }
        }
        Ok(places)
    };
    Ok(Axis {
        name: symbol.to_string(),
        len,
        least: usize::from(symbol != Symbol::P),
        symbol: Some(symbol),
        inputs: places(&call.input_types)?,
        outputs: places(&call.output_types)?,
        attributes: Vec::new(),
        values: Vec::new(),
    })
}

/// Where a symbol's part of a size begins, and its factor. What was cached comes before what is new.
fn segment(size: &Dim, symbol: Symbol, symbols: &Symbols) -> Result<(usize, usize)> {
    // Cached positions first, new rows last, as states are laid out.
    let order = |s: Symbol| (s == Symbol::N, s != Symbol::P, s);
    let at = |s: Symbol, more: u64| {
        let value = symbols.get(s).unwrap_or(0);
        size.eval(&symbols.clone().with_symbol(s, value + more))
    };
    let factor = |s: Symbol| Ok::<_, tapml_graph::Error>(at(s, 1)? - at(s, 0)?);
    let mut start = 0;
    for s in size.symbols().filter(|&s| order(s) < order(symbol)) {
        start += factor(s)? * symbols.get(s).unwrap_or(0);
    }
    Ok((start as usize, factor(symbol)? as usize))
}

#[cfg(test)]
mod tests;

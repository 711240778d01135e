//! Values of symbols from the shapes of arguments.
//!
//! Sizes are affine in the symbols (`a·n + b·p + c`), so one unknown symbol is solved from two evaluations.

use tapml_graph::{Dim, Error, Result, Symbol, Symbols, TensorType};

/// Adds to `known` the symbols that these shapes determine, one after the other. Fails if a size fits no value; that all
/// sizes agree is checked by who binds them.
pub fn symbols<'a>(
    mut known: Symbols,
    arguments: impl Iterator<Item = (&'a TensorType, &'a [usize])> + Clone,
) -> Result<Symbols> {
    loop {
        let mut found = None;
        for (ty, shape) in arguments.clone() {
            for (dim, &size) in ty.shape.iter().zip(shape) {
                let open: Vec<Symbol> = dim.symbols().filter(|s| known.get(*s).is_none()).collect();
                if let [symbol] = open[..] {
                    found = Some((symbol, solve(dim, symbol, &known, size as u64)?));
                }
            }
        }
        match found {
            Some((symbol, value)) => known = known.with_symbol(symbol, value),
            None => return Ok(known),
        }
    }
}

/// The value of a symbol at which an affine expression has this value.
fn solve(dim: &Dim, symbol: Symbol, known: &Symbols, size: u64) -> Result<u64> {
    let at = |value: u64| dim.eval(&known.clone().with_symbol(symbol, value));
    let (zero, one) = (at(0)?, at(1)?);
    // At least 1: a size that does not depend on the symbol must not divide by 0.
    let factor = one.saturating_sub(zero).max(1);
    match size.checked_sub(zero) {
        Some(rest) if rest.is_multiple_of(factor) => Ok(rest / factor),
        _ => Err(Error::invalid(format!("no {symbol} makes `{dim}` {size}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solve_for(known: Symbols, arguments: &[(&str, &[usize])]) -> Result<Symbols> {
        let types: Vec<TensorType> = arguments.iter().map(|(ty, _)| ty.parse().unwrap()).collect();
        symbols(known, types.iter().zip(arguments.iter().map(|a| a.1)))
    }

    #[test]
    fn shapes_bind_symbols() {
        assert_eq!(solve_for(Symbols::new(), &[("f32[8]", &[8])]).unwrap(), Symbols::new());
        assert_eq!(solve_for(Symbols::new(), &[("f32[4*n+2,8]", &[14, 8])]).unwrap().get(Symbol::N), Some(3));
        let both = solve_for(Symbols::new(), &[("f32[n+p,8]", &[9, 8]), ("f32[n]", &[2])]).unwrap();
        assert_eq!(both, Symbols::np(2, 7));
        let after = solve_for(Symbols::new().with_symbol(Symbol::P, 4), &[("f32[n+p]", &[9])]).unwrap();
        assert_eq!(after, Symbols::np(5, 4));
        for (ty, size) in [("f32[4*n]", 7), ("f32[n+8]", 7)] {
            assert!(solve_for(Symbols::new(), &[(ty, &[size])]).is_err(), "{ty}");
        }
    }
}

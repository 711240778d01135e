//! Symbolic sizes: affine expressions over named symbols such as `n` (tokens in this step) and
//! `p` (tokens already cached).
//!
//! Coefficients are not negative, so that a size never is. Arithmetic is checked: sizes come from files.

use crate::error::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A named size that is bound when a graph runs. At most eight ASCII letters, digits or `_`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol([u8; 8]);

impl Symbol {
    /// Tokens processed in this step.
    pub const N: Symbol = Symbol(*b"n\0\0\0\0\0\0\0");
    /// Rows of this step whose logits are wanted, of a step that holds rows of several texts.
    pub const S: Symbol = Symbol(*b"s\0\0\0\0\0\0\0");
    /// Tokens already in the cache before this step.
    pub const P: Symbol = Symbol(*b"p\0\0\0\0\0\0\0");

    /// The symbol of this name; `None` unless it is an identifier of 1 to 8 ASCII characters.
    pub fn new(name: &str) -> Option<Symbol> {
        // The bytes fit in one word, so that a symbol is copied and compared as a number.
        let ok = (1..=8).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && !name.as_bytes()[0].is_ascii_digit();
        if !ok {
            return None;
        }
        let mut bytes = [0; 8];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Some(Symbol(bytes))
    }

    /// The name.
    pub fn name(&self) -> &str {
        // Shorter names are filled up with zeros, which no name holds.
        let len = self.0.iter().position(|&b| b == 0).unwrap_or(8);
        std::str::from_utf8(&self.0[..len]).unwrap_or_default()
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Symbol {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Symbol {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Symbol, D::Error> {
        let name = String::deserialize(d)?;
        Symbol::new(&name).ok_or_else(|| serde::de::Error::custom(format!("`{name}` is no symbol name")))
    }
}

/// The values of symbols for one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Symbols(BTreeMap<Symbol, u64>);

impl Symbols {
    /// No symbols bound.
    pub fn new() -> Symbols {
        Symbols::default()
    }

    /// The usual pair: `n` tokens in this step, `p` cached before it.
    pub fn np(n: u64, p: u64) -> Symbols {
        Symbols::new().with_symbol(Symbol::N, n).with_symbol(Symbol::P, p)
    }

    /// Binds one symbol.
    pub fn with_symbol(mut self, symbol: Symbol, value: u64) -> Symbols {
        self.0.insert(symbol, value);
        self
    }

    /// The value of a symbol.
    pub fn get(&self, symbol: Symbol) -> Option<u64> {
        self.0.get(&symbol).copied()
    }

    /// All bindings in name order.
    pub fn iter(&self) -> impl Iterator<Item = (Symbol, u64)> + '_ {
        self.0.iter().map(|(&s, &v)| (s, v))
    }
}

/// An affine expression `constant + Σ coefficient·symbol`, such as `n + p` or `320*n`.
/// Text form: terms joined by `+` without spaces, symbols in name order, the constant last.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Dim {
    /// The coefficient of each symbol, never 0. Sorted, so that equal expressions are equal.
    terms: BTreeMap<Symbol, u64>,
    /// What is added to them.
    constant: u64,
}

impl Dim {
    /// The expression that is just this symbol.
    pub fn symbol(symbol: Symbol) -> Dim {
        Dim { terms: BTreeMap::from([(symbol, 1)]), constant: 0 }
    }

    /// The constant value, if no symbol occurs.
    pub fn as_const(&self) -> Option<u64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The value under these bindings. Fails on an unbound symbol or on overflow.
    pub fn eval(&self, symbols: &Symbols) -> Result<u64> {
        let mut sum = self.constant;
        for (&symbol, &factor) in &self.terms {
            let value = symbols.get(symbol).ok_or_else(|| {
                Error::invalid(format!("symbol `{symbol}` is not bound (in size `{self}`)"))
            })?;
            // In any order the sum is the same, and so is whether it overflows.
            sum = factor
                .checked_mul(value)
                .and_then(|x| sum.checked_add(x))
                .ok_or_else(|| Error::invalid(format!("size `{self}` overflows with {symbol} = {value}")))?;
        }
        Ok(sum)
    }

    /// All symbols that occur.
    pub fn symbols(&self) -> impl Iterator<Item = Symbol> + '_ {
        self.terms.keys().copied()
    }

    /// The product with a constant; `None` on overflow.
    pub fn checked_mul(&self, factor: u64) -> Option<Dim> {
        // A coefficient of 0 would make the product differ from the constant 0.
        if factor == 0 {
            return Some(Dim::default());
        }
        let mut terms = BTreeMap::new();
        for (&s, &c) in &self.terms {
            terms.insert(s, c.checked_mul(factor)?);
        }
        Some(Dim { terms, constant: self.constant.checked_mul(factor)? })
    }

    /// The sum of two expressions; `None` on overflow.
    pub fn checked_add(&self, other: &Dim) -> Option<Dim> {
        let mut sum = self.clone();
        for (&s, &c) in &other.terms {
            let slot = sum.terms.entry(s).or_insert(0);
            *slot = slot.checked_add(c)?;
        }
        sum.constant = sum.constant.checked_add(other.constant)?;
        Some(sum)
    }
}

impl From<u64> for Dim {
    fn from(constant: u64) -> Dim {
        Dim { terms: BTreeMap::new(), constant }
    }
}

impl From<usize> for Dim {
    fn from(constant: usize) -> Dim {
        Dim::from(constant as u64)
    }
}

impl From<Symbol> for Dim {
    fn from(symbol: Symbol) -> Dim {
        Dim::symbol(symbol)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (symbol, &factor) in &self.terms {
            if !first {
                f.write_str("+")?;
            }
            first = false;
            match factor {
                1 => write!(f, "{symbol}")?,
                _ => write!(f, "{factor}*{symbol}")?,
            }
        }
        match (first, self.constant) {
            (true, c) => write!(f, "{c}"),
            (false, 0) => Ok(()),
            (false, c) => write!(f, "+{c}"),
        }
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Dim {
    type Err = Error;

    fn from_str(text: &str) -> Result<Dim> {
        let bad = || {
            Error::invalid(format!(
                "`{text}` is no size: expected terms like `n`, `320*n` or `40`, joined by `+`"
            ))
        };
        let mut sum = Dim::default();
        for term in text.split('+') {
            let term = term.trim();
            let dim = match term.split_once('*') {
                Some((factor, name)) => {
                    let factor = factor.parse().map_err(|_| bad())?;
                    Dim::symbol(Symbol::new(name).ok_or_else(bad)?).checked_mul(factor).ok_or_else(bad)?
                }
                // No symbol begins with a digit.
                None if term.starts_with(|c: char| c.is_ascii_digit()) => {
                    Dim::from(term.parse::<u64>().map_err(|_| bad())?)
                }
                None => Dim::symbol(Symbol::new(term).ok_or_else(bad)?),
            };
            sum = sum.checked_add(&dim).ok_or_else(bad)?;
        }
        Ok(sum)
    }
}

impl Serialize for Dim {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        match self.as_const() {
            // A constant is a number in JSON, any other size a text.
            Some(c) => s.serialize_u64(c),
            None => s.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Dim {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Dim, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum RawDim {
            Const(u64),
            Text(String),
        }
        match RawDim::deserialize(d)? {
            RawDim::Const(c) => Ok(Dim::from(c)),
            RawDim::Text(t) => t.parse().map_err(serde::de::Error::custom),
        }
    }
}

/// A count that depends on symbols: `ceil(dim / divisor)`. Grid sizes and copy lengths are extents.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Extent {
    /// The dividend.
    pub dim: Dim,
    /// The divisor; at least 1.
    pub divisor: u32,
}

impl Extent {
    /// `ceil(dim / divisor)`; a divisor of 0 counts as 1.
    pub fn ceil_div(dim: impl Into<Dim>, divisor: u32) -> Extent {
        Extent { dim: dim.into(), divisor: divisor.max(1) }
    }

    /// The extent that equals `dim`.
    pub fn from_dim(dim: impl Into<Dim>) -> Extent {
        Extent::ceil_div(dim, 1)
    }

    /// The value under these bindings.
    pub fn eval(&self, symbols: &Symbols) -> Result<u64> {
        Ok(self.dim.eval(symbols)?.div_ceil(u64::from(self.divisor.max(1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        for text in ["0", "40", "n", "n+p", "320*n+2*p+7", "p+1"] {
            let dim: Dim = text.parse().unwrap();
            assert_eq!(dim.to_string(), text);
        }
        assert_eq!("p+n+3+4".parse::<Dim>().unwrap().to_string(), "n+p+7");
        for bad in ["", "n+", "-1", "2*3", "toolongsymbol", "18446744073709551616", "1.5"] {
            assert!(bad.parse::<Dim>().is_err(), "{bad}");
        }
    }

    #[test]
    fn evaluates_and_refuses_unbound_and_overflow() {
        let dim: Dim = "2*n+p+1".parse().unwrap();
        assert_eq!(dim.eval(&Symbols::np(3, 4)).unwrap(), 11);
        assert!(dim.eval(&Symbols::new()).is_err());
        assert!(dim.eval(&Symbols::np(u64::MAX, 1)).is_err());
        assert_eq!(Extent::ceil_div(dim, 4).eval(&Symbols::np(3, 4)).unwrap(), 3);
    }

    #[test]
    fn symbols_are_short_identifiers() {
        assert_eq!(Symbol::new("n"), Some(Symbol::N));
        assert_eq!(Symbol::new("eight_ch").unwrap().name(), "eight_ch");
        for bad in ["", "1n", "nine_char", "n-1", "é", "n "] {
            assert_eq!(Symbol::new(bad), None, "{bad}");
        }
    }

    #[test]
    fn sums_and_products_are_affine_and_checked() {
        let np = Dim::symbol(Symbol::N).checked_add(&Dim::symbol(Symbol::P)).unwrap();
        assert_eq!(np.checked_add(&np).unwrap(), np.checked_mul(2).unwrap());
        assert_eq!(np.checked_mul(0).unwrap().as_const(), Some(0));
        assert_eq!(np.as_const(), None);
        assert_eq!(np.symbols().collect::<Vec<_>>(), [Symbol::N, Symbol::P]);
        assert_eq!(np.checked_mul(u64::MAX).unwrap().checked_add(&np), None);
        assert_eq!(Dim::from(2u64).checked_mul(u64::MAX), None);
        assert_eq!(Dim::from(u64::MAX).checked_add(&Dim::from(1u64)), None);
    }

    #[test]
    fn sizes_in_json_are_numbers_or_text() {
        let shape: Vec<Dim> = serde_json::from_str("[4, \"2*n+1\"]").unwrap();
        assert_eq!(serde_json::to_string(&shape).unwrap(), "[4,\"2*n+1\"]");
        for bad in ["-1", "1.5", "\"n-1\"", "null"] {
            assert!(serde_json::from_str::<Dim>(bad).is_err(), "{bad}");
        }
    }
}

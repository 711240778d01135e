//! Expressions of C as text: numbers, places in memory, and what may stand where.
//!
//! An operator's text stands in parentheses, so that it may be put into any other. A place behind a pointer is written
//! `(*name)`.

use naga::Literal;

/// Whether a text is a name or a number, with components at most: cheap to repeat.
/// Such a text needs no parentheses.
pub fn is_atom(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_' || c == b'.')
}

/// The text without parentheses around all of it.
/// Two groups side by side, as in `(a) + (b)`, keep theirs.
pub fn bare(text: &str) -> &str {
    let Some(inner) = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')) else { return text };
    let mut depth = 0i32;
    for c in inner.bytes() {
        depth += i32::from(c == b'(') - i32::from(c == b')');
        if depth < 0 {
            return text;
        }
    }
    inner
}

/// The address of a place.
/// The address of what a pointer leads to is the pointer.
pub fn address(place: &str) -> String {
    match place.strip_prefix("(*").and_then(|t| t.strip_suffix(')')) {
        Some(name) if is_atom(name) => name.to_string(),
        _ => format!("(&{place})"),
    }
}

/// A member of the struct at a place; `path` begins with its name.
///
/// Behind a pointer it is written with an arrow.
pub fn member(place: &str, path: &str) -> String {
    match place.strip_prefix("(*").and_then(|t| t.strip_suffix(')')) {
        Some(name) if is_atom(name) => format!("{name}->{path}"),
        _ => format!("{place}.{path}"),
    }
}

/// A number as text that may stand before a postfix.
///
/// `None` for numbers of a width that no dialect is written for. A negative number stands in parentheses.
pub fn literal(literal: Literal) -> Option<String> {
    Some(match literal {
        Literal::F32(x) => float(x),
        Literal::AbstractFloat(x) => float(x as f32),
        // An `f16` is kept as its bits.
        Literal::F16(x) => format!("((h16)0x{:04x}u)", x.to_bits()),
        Literal::U32(x) => format!("{x}u"),
        // `2147483648` does not fit in an `int` before its sign is taken.
        Literal::I32(i32::MIN) => "(-2147483647 - 1)".into(),
        Literal::I32(x) if x < 0 => format!("({x})"),
        Literal::I32(x) => x.to_string(),
        Literal::AbstractInt(x) => return self::literal(Literal::I32(i32::try_from(x).ok()?)),
        Literal::Bool(x) => x.to_string(),
        Literal::F64(_) | Literal::U64(_) | Literal::I64(_) | Literal::U16(_) | Literal::I16(_) => {
            return None;
        }
    })
}

/// The shortest decimal that gives this number back. Infinities and NaN have no literal in C and are written by their bits.
fn float(x: f32) -> String {
    match x {
        x if !x.is_finite() => format!("AS_F32(0x{:08x}u)", x.to_bits()),
        // −0 among them: in parentheses, as a minus before it would make `--`.
        x if x.is_sign_negative() => format!("({x:?}f)"),
        x => format!("{x:?}f"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_taken_apart_rightly() {
        assert!(is_atom("a_.x") && is_atom("1.5f") && !is_atom("a_[1]") && !is_atom("(-1)"));
        assert_eq!(bare("(a + b)"), "a + b");
        assert_eq!(bare("(a) + (b)"), "(a) + (b)");
        assert_eq!(address("(*x_)"), "x_");
        assert_eq!(address("x_[3u]"), "(&x_[3u])");
        assert_eq!(member("(*s_)", "n_"), "s_->n_");
        assert_eq!(member("s_.v[1u]", "n_"), "s_.v[1u].n_");
        for x in [1e-5f32, 3.402_823_5e38, 0.1, 1e20, -0.0] {
            let text = literal(Literal::F32(x)).unwrap_or_default();
            let number: f32 = text.trim_matches(['(', ')', 'f']).parse().unwrap_or(f32::NAN);
            assert_eq!(number.to_bits(), x.to_bits(), "{text}");
        }
    }
}

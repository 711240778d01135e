//! The formulas of operators of two numbers.

use tapml_graph::DType;

/// The formulas of an operator, by the numbers that it computes with. Those of unsigned integers are those of signed ones where
/// the same text does for both.
struct Formulas {
    /// The operator's name, without domain and version.
    name: &'static str,
    /// For f32 and f16, which compute in f32.
    floats: Option<&'static str>,
    /// `None` where the operator has no such integers.
    i32: Option<&'static str>,
    /// As `i32`.
    u32: Option<&'static str>,
    /// Integers of 64 bits are pairs of words: WGSL has none.
    i64: Option<&'static str>,
    /// As `i64`.
    u64: Option<&'static str>,
}

impl Formulas {
    /// Of floats alone.
    const fn floats(name: &'static str, text: &'static str) -> Formulas {
        Formulas { floats: Some(text), ..Formulas::bits(name, None, None) }
    }

    /// Of integers as bits, of one word and of two.
    const fn bits(name: &'static str, one: Option<&'static str>, two: Option<&'static str>) -> Formulas {
        Formulas { name, floats: None, i32: one, u32: one, i64: two, u64: two }
    }

    /// The text that declares numbers of this dtype, and the formula.
    fn for_dtype(&self, dtype: DType) -> Option<(&'static str, &'static str)> {
        let (numbers, text) = match dtype {
            DType::F32 | DType::F16 => (include_str!("numbers_float.wgsl"), self.floats),
            DType::I32 => (include_str!("numbers_i32.wgsl"), self.i32),
            DType::U32 => (include_str!("numbers_u32.wgsl"), self.u32),
            DType::I64 => (include_str!("numbers_i64.wgsl"), self.i64),
            DType::U64 => (include_str!("numbers_i64.wgsl"), self.u64),
            _ => return None,
        };
        Some((numbers, text?))
    }
}

/// A formula that is an expression of `a` and `b`.
macro_rules! formula {
    ($value:literal) => {
        concat!("fn formula(a: val, b: val) -> val { return ", $value, "; }")
    };
    ($file:literal, $value:literal) => {
        concat!(include_str!($file), formula!($value))
    };
}

/// A row for each operator.
const FORMULAS: &[Formulas] = &[
    Formulas {
        floats: Some(formula!("a + b")),
        ..Formulas::bits("Add", Some(formula!("a + b")), Some(formula!("sum64(a, b)")))
    },
    Formulas {
        floats: Some(formula!("a - b")),
        ..Formulas::bits("Sub", Some(formula!("a - b")), Some(formula!("difference64(a, b)")))
    },
    Formulas {
        floats: Some(formula!("a * b")),
        ..Formulas::bits("Mul", Some(formula!("a * b")), Some(formula!("product64(a, b)")))
    },
    Formulas {
        // Towards zero; a zero divisor has no result.
        // WGSL makes no promise for a zero divisor; `select` evaluates both sides, so that the divisor is replaced
        // too.
        i32: Some(formula!("select(a / select(b, 1, b == 0), 0, b == 0)")),
        u32: Some(formula!("select(a / max(b, 1u), 0u, b == 0u)")),
        i64: Some(include_str!("divide_i64.wgsl")),
        ..Formulas::floats("Div", formula!("a / b"))
    },
    Formulas {
        i32: Some(include_str!("modulo_i32.wgsl")),
        u32: Some(concat!("override FMOD: u32;\n", formula!("select(a % max(b, 1u), 0u, b == 0u)"))),
        i64: Some(include_str!("modulo_i64.wgsl")),
        ..Formulas::floats("Mod", include_str!("modulo.wgsl"))
    },
    Formulas::floats("Pow", include_str!("pow.wgsl")),
    Formulas::floats("PRelu", formula!("select(a, a * b, a < 0.0)")),
    Formulas {
        // What is not a number stays so.
        floats: Some(formula!("order.wgsl", "larger(a, b)")),
        i64: Some(formula!("select(a, b, less64(a, b))")),
        u64: None,
        ..Formulas::bits("Max", Some(formula!("max(a, b)")), None)
    },
    Formulas {
        floats: Some(formula!("order.wgsl", "smaller(a, b)")),
        i64: Some(formula!("select(a, b, less64(b, a))")),
        u64: None,
        ..Formulas::bits("Min", Some(formula!("min(a, b)")), None)
    },
    Formulas::bits("BitwiseAnd", Some(formula!("a & b")), Some(formula!("a & b"))),
    Formulas::bits("BitwiseOr", Some(formula!("a | b")), Some(formula!("a | b"))),
    Formulas::bits("BitwiseXor", Some(formula!("a ^ b")), Some(formula!("a ^ b"))),
    Formulas {
        i32: None,
        i64: None,
        u32: Some(concat!(
            "override LEFT: u32;\n",
            formula!("select(select(a >> (b & 31u), a << (b & 31u), LEFT == 1u), 0u, b >= 32u)")
        )),
        ..Formulas::bits("BitShift", None, Some(include_str!("shift_u64.wgsl")))
    },
];

/// The numbers and the formula of an operator of two of these, or of more that are taken together two by two.
pub fn formula(name: &str, dtype: DType) -> Option<(&'static str, &'static str)> {
    FORMULAS.iter().find(|row| row.name == name)?.for_dtype(dtype)
}

/// The formula of two floats of the operator of this name.
pub fn formula_of_floats(name: &str) -> Option<&'static str> {
    formula(name, DType::F32).map(|(_, text)| text)
}

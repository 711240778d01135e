//! Built-in functions on floats, integers and vectors. Formulas are those of WGSL section 17.
//!
//! Functions of one component are templates in tables. Others are written once for each shape as a function of their own, so
//! that operands are computed once. Names that begin with `m_` are the dialect's own functions, from the preludes.

use crate::scalar::{Operand, binary, halves};
use crate::types::{COMPONENTS, Kind, Spelt, ValueShape};
use crate::writer::{WriteResult, Writer};
use naga::{BinaryOperator, Expression, Handle, MathFunction as M, TypeInner};

impl Writer<'_> {
    /// A call of a built-in function; `handle` is the call.
    ///
    /// Tables of components are asked first, then packing, then functions on whole vectors.
    ///
    /// # Errors
    /// If no dialect has the function for this type.
    pub fn math(&mut self, handle: Handle<Expression>, fun: M, operands: &[Operand]) -> WriteResult<String> {
        let Some(first) = operands.first() else { return self.fail("a function of nothing") };
        let kind = first.shape.kind();
        if let Some(template) = componentwise(fun, kind) {
            return self.apply(&format!("{fun:?}"), &template, operands, kind);
        }
        if let Some(text) = self.packing(fun, first)? {
            return Ok(text);
        }
        match fun {
            M::Dot4I8Packed => self.apply("Dot4I8", "dot_i8($a, $b)", operands, Kind::I32),
            M::Dot4U8Packed => self.apply("Dot4U8", "dot_u8($a, $b)", operands, Kind::U32),
            M::Transpose | M::Determinant => self.matrix_math(fun, first),
            M::Modf | M::Frexp => self.taken_apart(handle, fun, first),
            _ => self.geometry(fun, kind, operands),
        }
    }

    /// An operator between values of one kind.
    ///
    /// One may be a scalar beside a vector.
    pub fn operate(&mut self, op: BinaryOperator, a: &Operand, b: &Operand) -> WriteResult<Operand> {
        let kind = a.shape.kind();
        let found = binary(op, kind);
        let (template, out) = self.need(found, "an operator on these types")?;
        let text = self.apply(&format!("{op:?}"), &template, &[a.clone(), b.clone()], out)?;
        // The result has the larger shape.
        let shape = if matches!(a.shape, ValueShape::Scalar(_)) { b.shape } else { a.shape };
        Ok(Operand { text, shape: shape.with_kind(out) })
    }

    /// `dot(a, b)`, from the first component to the last.
    ///
    /// Products and sums are operators of their own, which an `f16` rounds one by one.
    pub fn dot(&mut self, a: &Operand, b: &Operand) -> WriteResult<Operand> {
        let (shape, kind) = (a.shape, a.shape.kind());
        let name = format!("dot_{}", shape.tag());
        let scalar = ValueShape::Scalar(kind);
        let ty = self.types.shape(shape);
        self.helper(&name, |writer| {
            let [own, other] = ["a", "b"].map(|name| Operand { text: name.into(), shape });
            // One order for all dialects, so that they round alike.
            let mut sum: Option<Operand> = None;
            for i in 0..own.components() {
                let [x, y] = [&own, &other].map(|o| Operand { text: o.component(i), shape: scalar });
                let product = writer.operate(BinaryOperator::Multiply, &x, &y)?;
                sum = Some(match sum {
                    Some(sum) => writer.operate(BinaryOperator::Add, &sum, &product)?,
                    None => product,
                });
            }
            let sum = writer.need(sum, "a product of empty vectors")?;
            Ok(format!("DEV {} {name}({ty} a, {ty} b) {{ return {}; }}\n", kind.name(), sum.text))
        })?;
        Ok(Operand { text: format!("{name}({}, {})", a.text, b.text), shape: scalar })
    }

    /// A function written once for its operands' shapes; `body` makes its result of the parameters.
    ///
    /// So operands that stand several times in the result are computed once.
    fn function_of(
        &mut self,
        name: &str,
        operands: &[Operand],
        result: ValueShape,
        body: impl FnOnce(&mut Self, &[Operand]) -> WriteResult<String>,
    ) -> WriteResult<String> {
        let tags: Vec<String> = operands.iter().map(|o| o.shape.tag()).collect();
        let name = format!("{name}_{}", tags.join("_"));
        let parameters = self.parameters(operands);
        let ty = self.types.shape(result);
        self.helper(&name, |writer| {
            let own: Vec<Operand> = parameters.iter().map(|(_, o)| o.clone()).collect();
            let list: Vec<String> = parameters.iter().map(|(ty, o)| format!("{ty} {}", o.text)).collect();
            let value = body(writer, &own)?;
            Ok(format!("DEV {ty} {name}({}) {{ return {value}; }}\n", list.join(", ")))
        })?;
        let texts: Vec<&str> = operands.iter().map(|o| o.text.as_str()).collect();
        Ok(format!("{name}({})", texts.join(", ")))
    }

    /// The root of a vector's product with itself.
    ///
    /// That of a scalar is its absolute value.
    fn length_of(&mut self, a: &Operand) -> WriteResult<Operand> {
        let kind = a.shape.kind();
        let shape = ValueShape::Scalar(kind);
        let text = match a.shape {
            ValueShape::Scalar(_) => {
                self.apply("Abs", &halves(kind, "m_abs($a)", kind), std::slice::from_ref(a), kind)?
            }
            _ => {
                let square = self.dot(a, a)?;
                self.apply("Sqrt", &halves(kind, "m_sqrt($a)", kind), &[square], kind)?
            }
        };
        Ok(Operand { text, shape })
    }

    /// Functions on whole vectors, and `insertBits`.
    fn geometry(&mut self, fun: M, kind: Kind, operands: &[Operand]) -> WriteResult<String> {
        use BinaryOperator as B;
        let shape = operands[0].shape;
        match (fun, operands) {
            (M::Dot, [a, b]) => Ok(self.dot(a, b)?.text),
            (M::Length, [_]) => self.function_of("length", operands, ValueShape::Scalar(kind), |w, o| {
                Ok(w.length_of(&o[0])?.text)
            }),
            (M::Distance, [_, _]) => {
                self.function_of("distance", operands, ValueShape::Scalar(kind), |w, o| {
                    let between = w.operate(B::Subtract, &o[0], &o[1])?;
                    let name = Operand { text: between.text, shape: o[0].shape };
                    w.function_of("length", &[name], ValueShape::Scalar(kind), |w, o| {
                        Ok(w.length_of(&o[0])?.text)
                    })
                })
            }
            (M::Normalize, [_]) => self.function_of("normalize", operands, shape, |w, o| {
                let length = w.length_of(&o[0])?;
                Ok(w.operate(B::Divide, &o[0], &length)?.text)
            }),
            (M::Cross, [_, _]) => self.function_of("cross", operands, shape, |w, o| w.cross(&o[0], &o[1])),
            (M::Reflect, [_, _]) => self.function_of("reflect", operands, shape, |w, o| {
                let d = w.dot(&o[1], &o[0])?;
                let two = w.number(2.0, kind);
                let twice = w.operate(B::Multiply, &two, &d)?;
                let along = w.operate(B::Multiply, &o[1], &twice)?;
                Ok(w.operate(B::Subtract, &o[0], &along)?.text)
            }),
            (M::FaceForward, [_, _, _]) => self.function_of("face_forward", operands, shape, |w, o| {
                let d = w.dot(&o[1], &o[2])?;
                let minus = w.number(-1.0, kind);
                let turned = w.operate(B::Multiply, &o[0], &minus)?;
                let zero = w.number(0.0, kind);
                let keep = w.operate(B::Less, &d, &zero)?;
                Ok(format!("{} ? {} : {}", keep.text, o[0].text, turned.text))
            }),
            (M::InsertBits, [a, ..]) => {
                let name = if kind == Kind::I32 { "(i32)" } else { "" };
                let cast = if kind == Kind::I32 { "(u32)" } else { "" };
                let template = format!("({name}insert_bits({cast}$a, {cast}$b, $c, $d))");
                self.apply("InsertBits", &template, operands, a.shape.kind())
            }
            _ => self.fail(format!("the built-in function {fun:?} on {}", shape.name())),
        }
    }

    /// A number of a float kind.
    ///
    /// An `f16` is rounded by the prelude's function.
    pub fn number(&mut self, value: f32, kind: Kind) -> Operand {
        let text = match kind {
            Kind::F16 => format!("float_to_half({value:?}f)"),
            _ => format!("({value:?}f)"),
        };
        Operand { text, shape: ValueShape::Scalar(kind) }
    }

    /// `cross(a, b)`: each component is `a[j]·b[k] − a[k]·b[j]`.
    /// Products and differences are rounded one by one.
    fn cross(&mut self, a: &Operand, b: &Operand) -> WriteResult<String> {
        let kind = a.shape.kind();
        let part = |o: &Operand, i: usize| Operand { text: o.component(i), shape: ValueShape::Scalar(kind) };
        let mut parts = Vec::new();
        for i in 0..3 {
            let (j, k) = ((i + 1) % 3, (i + 2) % 3);
            let left = self.operate(BinaryOperator::Multiply, &part(a, j), &part(b, k))?;
            let right = self.operate(BinaryOperator::Multiply, &part(a, k), &part(b, j))?;
            parts.push(self.operate(BinaryOperator::Subtract, &left, &right)?.text);
        }
        self.vector_of(kind, &parts)
    }

    /// `modf` and `frexp`, whose results are structs.
    ///
    /// # Errors
    /// If the module has no struct for the result.
    fn taken_apart(&mut self, handle: Handle<Expression>, fun: M, a: &Operand) -> WriteResult<String> {
        let ty = self.need(self.current()?.info[handle].ty.handle(), "a result without a type")?;
        let TypeInner::Struct { ref members, .. } = *self.types.inner(ty) else {
            return self.fail("a result that is no struct");
        };
        let names: Vec<String> =
            members.iter().map(|m| crate::names::member(m.name.as_deref().unwrap_or_default())).collect();
        let kind = a.shape.kind();
        // The exponent of `frexp` is an integer, the whole part of `modf` a float.
        let (first, second, second_kind) = match fun {
            M::Modf => (halves(kind, "modf_fraction($a)", kind), halves(kind, "m_trunc($a)", kind), kind),
            _ => (
                halves(kind, "frexp_fraction($a)", kind),
                halves(kind, "frexp_exponent($a)", Kind::I32),
                Kind::I32,
            ),
        };
        let result = self.types.name(ty)?;
        let name = format!("{}_{}", if fun == M::Modf { "modf" } else { "frexp" }, a.shape.tag());
        let parameter = self.types.shape(a.shape);
        self.helper(&name, |writer| {
            let own = Operand { text: "a".into(), shape: a.shape };
            let x = writer.apply(&format!("{fun:?}First"), &first, std::slice::from_ref(&own), kind)?;
            let y = writer.apply(&format!("{fun:?}Second"), &second, &[own], second_kind)?;
            let (Some(one), Some(two)) = (names.first(), names.get(1)) else {
                return writer.fail("a result without parts");
            };
            Ok(format!(
                "DEV {result} {name}({parameter} a) {{ {result} r; r.{one} = {x}; r.{two} = {y}; return r; }}\n"
            ))
        })?;
        Ok(format!("{name}({})", a.text))
    }
}

/// Functions that are applied to each component.
///
/// Integers have tables of their own; those of `f16` are the ones of `f32` between two conversions.
fn componentwise(fun: M, kind: Kind) -> Option<String> {
    if kind.is_float() {
        return float(fun).map(|template| match (fun, kind) {
            // The exponent is an integer.
            (M::Ldexp, Kind::F16) => "float_to_half(m_ldexp(half_to_float($a), $b))".into(),
            _ => halves(kind, template, kind),
        });
    }
    let signed = kind == Kind::I32;
    let pick = |i: &str, u: &str| Some(if signed { i.to_string() } else { u.to_string() });
    match (fun, kind) {
        (_, Kind::Bool) => None,
        (M::Abs, _) => pick("abs_i($a)", "$a"),
        (M::Sign, Kind::I32) => Some("sign_i($a)".into()),
        (M::Min, _) => pick("min_i($a, $b)", "min_u($a, $b)"),
        (M::Max, _) => pick("max_i($a, $b)", "max_u($a, $b)"),
        (M::Clamp, _) => pick("min_i(max_i($a, $b), $c)", "min_u(max_u($a, $b), $c)"),
        (M::CountOneBits, _) => pick("((i32)POPCOUNT((u32)$a))", "POPCOUNT($a)"),
        (M::CountLeadingZeros, _) => pick("((i32)CLZ((u32)$a))", "CLZ($a)"),
        (M::CountTrailingZeros, _) => pick("((i32)count_trailing((u32)$a))", "count_trailing($a)"),
        (M::ReverseBits, _) => pick("((i32)REVERSE((u32)$a))", "REVERSE($a)"),
        // Of 0 it is all ones: 31 − 32 wraps.
        (M::FirstLeadingBit, _) => pick("first_leading_i($a)", "(31u - CLZ($a))"),
        (M::FirstTrailingBit, _) => pick("((i32)first_trailing((u32)$a))", "first_trailing($a)"),
        (M::ExtractBits, _) => pick("extract_i($a, $b, $c)", "extract_u($a, $b, $c)"),
        _ => None,
    }
}

/// Templates of functions of floats, in `f32`.
/// `None` for functions on whole vectors and on integers.
fn float(fun: M) -> Option<&'static str> {
    Some(match fun {
        M::Abs => "m_abs($a)",
        M::Saturate => "min_f(max_f($a, 0.0f), 1.0f)",
        M::Cos => "m_cos($a)",
        M::Cosh => "m_cosh($a)",
        M::Sin => "m_sin($a)",
        M::Sinh => "m_sinh($a)",
        M::Tan => "m_tan($a)",
        M::Tanh => "m_tanh($a)",
        M::Acos => "m_acos($a)",
        M::Asin => "m_asin($a)",
        M::Atan => "m_atan($a)",
        M::Atan2 => "m_atan2($a, $b)",
        M::Asinh => "m_asinh($a)",
        M::Acosh => "m_acosh($a)",
        M::Atanh => "m_atanh($a)",
        M::Radians => "($a * 0.017453292f)",
        M::Degrees => "($a * 57.29578f)",
        M::Ceil => "m_ceil($a)",
        M::Floor => "m_floor($a)",
        // Half to even, as WGSL has it; C's `round` goes away from zero.
        M::Round => "m_rint($a)",
        M::Fract => "fract_f($a)",
        M::Trunc => "m_trunc($a)",
        M::Ldexp => "m_ldexp($a, $b)",
        M::Exp => "m_exp($a)",
        M::Exp2 => "m_exp2($a)",
        M::Log => "m_log($a)",
        M::Log2 => "m_log2($a)",
        M::Pow => "m_pow($a, $b)",
        M::Sign => "sign_f($a)",
        M::Fma => "m_fma($a, $b, $c)",
        M::Mix => "mix_f($a, $b, $c)",
        M::Step => "step_f($a, $b)",
        M::SmoothStep => "smooth_step_f($a, $b, $c)",
        M::Sqrt => "m_sqrt($a)",
        M::InverseSqrt => "m_rsqrt($a)",
        M::Min => "min_f($a, $b)",
        M::Max => "max_f($a, $b)",
        M::Clamp => "min_f(max_f($a, $b), $c)",
        M::QuantizeToF16 => "half_to_float(float_to_half($a))",
        _ => return None,
    })
}

/// The components of a vector, or the scalar itself.
/// At most four.
pub fn parts(a: &Operand) -> Vec<String> {
    (0..a.components().min(COMPONENTS.len())).map(|i| a.component(i)).collect()
}

//! The meaning of every arithmetic instruction, once: the VM applies it to chunks, the compiler to constants.
//!
//! The functions are generic over [`Apply`] and inlined, so that the loop over lanes is inside the `match`, and the compiler makes one
//! vector loop per operation. An operation that is not of a function's group is ignored there.

use super::half;
use super::scalar as s;
use crate::code::{Bin, Tri, Un};

/// What runs an operation: over the lanes of registers, or on constants.
///
/// Values are bits, as registers hold them.
pub trait Apply {
    /// Runs a one-operand operation.
    fn unary(self, f: impl Fn(u32) -> u32);
    /// Runs a two-operand operation.
    fn binary(self, f: impl Fn(u32, u32) -> u32);
    /// Runs a three-operand operation.
    fn ternary(self, f: impl Fn(u32, u32, u32) -> u32);
}

/// The float that a register holds.
#[inline(always)]
fn f(bits: u32) -> f32 {
    f32::from_bits(bits)
}

/// A boolean as a register holds it.
#[inline(always)]
fn b(value: bool) -> u32 {
    if value { !0 } else { 0 }
}

/// Cheap float operations.
/// Each is one or a few vector instructions.
#[inline(always)]
pub fn un_float(op: Un, on: impl Apply) {
    match op {
        // The sign bit alone changes, also of a NaN.
        Un::NegF => on.unary(|x| x ^ 0x8000_0000),
        Un::AbsF => on.unary(|x| x & 0x7fff_ffff),
        Un::SignF => on.unary(|x| s::sign(f(x)).to_bits()),
        Un::FloorF => on.unary(|x| f(x).floor().to_bits()),
        Un::CeilF => on.unary(|x| f(x).ceil().to_bits()),
        Un::RoundF => on.unary(|x| f(x).round_ties_even().to_bits()),
        Un::TruncF => on.unary(|x| f(x).trunc().to_bits()),
        Un::FractF => on.unary(|x| (f(x) - f(x).floor()).to_bits()),
        Un::SqrtF => on.unary(|x| f(x).sqrt().to_bits()),
        Un::InverseSqrtF => on.unary(|x| (1.0 / f(x).sqrt()).to_bits()),
        Un::SaturateF => on.unary(|x| s::min(s::max(f(x), 0.0), 1.0).to_bits()),
        Un::ModfFraction => on.unary(|x| modf_fraction(f(x)).to_bits()),
        Un::RoundHalf => on.unary(half::round),
        // An exponent of 0 is zero or subnormal; the sign stays.
        Un::FlushF => on.unary(|x| if x & 0x7f80_0000 == 0 { x & 0x8000_0000 } else { x }),
        Un::IsNan => on.unary(|x| b(x & 0x7fff_ffff > 0x7f80_0000)),
        Un::IsInf => on.unary(|x| b(x & 0x7fff_ffff == 0x7f80_0000)),
        _ => {}
    }
}

/// The difference of infinities would be NaN.
fn modf_fraction(x: f32) -> f32 {
    if x.is_infinite() { 0.0_f32.copysign(x) } else { x - x.trunc() }
}

/// Float functions that call the mathematics library lane by lane.
#[inline(always)]
pub fn un_math(op: Un, on: impl Apply) {
    match op {
        Un::Exp => on.unary(|x| f(x).exp().to_bits()),
        Un::Exp2 => on.unary(|x| f(x).exp2().to_bits()),
        Un::Log => on.unary(|x| f(x).ln().to_bits()),
        Un::Log2 => on.unary(|x| f(x).log2().to_bits()),
        Un::Sin => on.unary(|x| f(x).sin().to_bits()),
        Un::Cos => on.unary(|x| f(x).cos().to_bits()),
        Un::Tan => on.unary(|x| f(x).tan().to_bits()),
        Un::Asin => on.unary(|x| f(x).asin().to_bits()),
        Un::Acos => on.unary(|x| f(x).acos().to_bits()),
        Un::Atan => on.unary(|x| f(x).atan().to_bits()),
        Un::Sinh => on.unary(|x| f(x).sinh().to_bits()),
        Un::Cosh => on.unary(|x| f(x).cosh().to_bits()),
        Un::Tanh => on.unary(|x| f(x).tanh().to_bits()),
        // In f64, which is more exact than the library's formulas in f32.
        Un::Asinh => on.unary(|x| (f64::from(f(x)).asinh() as f32).to_bits()),
        Un::Acosh => on.unary(|x| (f64::from(f(x)).acosh() as f32).to_bits()),
        Un::Atanh => on.unary(|x| (f64::from(f(x)).atanh() as f32).to_bits()),
        Un::FrexpFraction => on.unary(|x| s::frexp(f(x)).0.to_bits()),
        Un::FrexpExponent => on.unary(|x| s::frexp(f(x)).1 as u32),
        Un::ExpFast => on.unary(|x| super::fast::exp(f(x)).to_bits()),
        Un::LogFast => on.unary(|x| super::fast::log(f(x)).to_bits()),
        _ => {}
    }
}

/// Integer, boolean, conversion and packing operations.
#[inline(always)]
pub fn un_int(op: Un, on: impl Apply) {
    match op {
        Un::NegI => on.unary(u32::wrapping_neg),
        Un::AbsI => on.unary(|x| (x as i32).wrapping_abs() as u32),
        Un::SignI => on.unary(|x| (x as i32).signum() as u32),
        Un::Not => on.unary(|x| !x),
        Un::Clz => on.unary(u32::leading_zeros),
        Un::Ctz => on.unary(u32::trailing_zeros),
        Un::Popcount => on.unary(u32::count_ones),
        Un::Reverse => on.unary(u32::reverse_bits),
        Un::FirstLeadingI => on.unary(|x| s::first_leading_i(x as i32) as u32),
        Un::FirstLeadingU => on.unary(|x| s::first_leading_u(x) as u32),
        Un::FirstTrailing => on.unary(|x| s::first_trailing(x) as u32),
        Un::FloatToI => on.unary(|x| s::to_i(f(x)) as u32),
        Un::FloatToU => on.unary(|x| s::to_u(f(x))),
        Un::IToFloat => on.unary(|x| (x as i32 as f32).to_bits()),
        Un::UToFloat => on.unary(|x| (x as f32).to_bits()),
        Un::FloatToBool => on.unary(|x| b(x & 0x7fff_ffff != 0)),
        Un::IntToBool => on.unary(|x| b(x != 0)),
        // True has all bits set, so a mask gives 1, or the bits of 1.0 below.
        Un::BoolToInt => on.unary(|x| x & 1),
        Un::BoolToFloat => on.unary(|x| x & 0x3f80_0000),
        Un::HalfBits => on.unary(half::to_bits),
        Un::HalfFromBits => on.unary(|x| half::from_bits(x & 0xffff)),
        Un::Snorm8 => on.unary(|x| s::pack_norm(f(x), -1.0, 127.0) as u32 & 0xff),
        // The clamp keeps it within its bits; signed values need a mask.
        Un::Unorm8 => on.unary(|x| s::pack_norm(f(x), 0.0, 255.0) as u32),
        Un::Snorm16 => on.unary(|x| s::pack_norm(f(x), -1.0, 32767.0) as u32 & 0xffff),
        Un::Unorm16 => on.unary(|x| s::pack_norm(f(x), 0.0, 65535.0) as u32),
        // Both -127 and -128 mean -1.
        Un::FromSnorm8 => on.unary(|x| s::max((x as i32) as f32 / 127.0, -1.0).to_bits()),
        Un::FromUnorm8 => on.unary(|x| (x as f32 / 255.0).to_bits()),
        Un::FromSnorm16 => on.unary(|x| s::max((x as i32) as f32 / 32767.0, -1.0).to_bits()),
        Un::FromUnorm16 => on.unary(|x| (x as f32 / 65535.0).to_bits()),
        _ => {}
    }
}

/// Float operations with two operands.
#[inline(always)]
pub fn bin_float(op: Bin, on: impl Apply) {
    match op {
        Bin::AddF => on.binary(|x, y| (f(x) + f(y)).to_bits()),
        Bin::SubF => on.binary(|x, y| (f(x) - f(y)).to_bits()),
        Bin::MulF => on.binary(|x, y| (f(x) * f(y)).to_bits()),
        Bin::DivF => on.binary(|x, y| (f(x) / f(y)).to_bits()),
        Bin::RemF => on.binary(|x, y| s::rem_f(f(x), f(y)).to_bits()),
        Bin::MinF => on.binary(|x, y| s::min(f(x), f(y)).to_bits()),
        Bin::MaxF => on.binary(|x, y| s::max(f(x), f(y)).to_bits()),
        Bin::Pow => on.binary(|x, y| f(x).powf(f(y)).to_bits()),
        Bin::Atan2 => on.binary(|y, x| f(y).atan2(f(x)).to_bits()),
        Bin::Step => on.binary(|edge, x| if f(edge) <= f(x) { 1.0_f32.to_bits() } else { 0 }),
        Bin::Ldexp => on.binary(|x, e| s::ldexp(f(x), e as i32).to_bits()),
        Bin::EqF => on.binary(|x, y| b(f(x) == f(y))),
        Bin::NeF => on.binary(|x, y| b(f(x) != f(y))),
        Bin::LtF => on.binary(|x, y| b(f(x) < f(y))),
        Bin::LeF => on.binary(|x, y| b(f(x) <= f(y))),
        _ => {}
    }
}

/// Integer operations with two operands.
#[inline(always)]
pub fn bin_int(op: Bin, on: impl Apply) {
    match op {
        Bin::Add => on.binary(u32::wrapping_add),
        Bin::Sub => on.binary(u32::wrapping_sub),
        Bin::Mul => on.binary(u32::wrapping_mul),
        Bin::DivI => on.binary(|x, y| s::div_i(x as i32, y as i32) as u32),
        Bin::DivU => on.binary(s::div_u),
        Bin::RemI => on.binary(|x, y| s::rem_i(x as i32, y as i32) as u32),
        Bin::RemU => on.binary(s::rem_u),
        Bin::And => on.binary(|x, y| x & y),
        Bin::Or => on.binary(|x, y| x | y),
        Bin::Xor => on.binary(|x, y| x ^ y),
        // WGSL takes the distance modulo the width of 32 bits.
        Bin::Shl => on.binary(|x, y| x << (y & 31)),
        Bin::ShrI => on.binary(|x, y| ((x as i32) >> (y & 31)) as u32),
        Bin::ShrU => on.binary(|x, y| x >> (y & 31)),
        Bin::MinI => on.binary(|x, y| (x as i32).min(y as i32) as u32),
        Bin::MinU => on.binary(u32::min),
        Bin::MaxI => on.binary(|x, y| (x as i32).max(y as i32) as u32),
        Bin::MaxU => on.binary(u32::max),
        Bin::Eq => on.binary(|x, y| b(x == y)),
        Bin::Ne => on.binary(|x, y| b(x != y)),
        Bin::LtI => on.binary(|x, y| b((x as i32) < y as i32)),
        Bin::LtU => on.binary(|x, y| b(x < y)),
        Bin::LeI => on.binary(|x, y| b(x as i32 <= y as i32)),
        Bin::LeU => on.binary(|x, y| b(x <= y)),
        Bin::DotI8 => on.binary(s::dot_i8),
        Bin::DotU8 => on.binary(s::dot_u8),
        _ => {}
    }
}

/// Operations with three operands.
/// They are cheap and work at vector width.
#[inline(always)]
pub fn tri(op: Tri, on: impl Apply) {
    match op {
        Tri::Fma => on.ternary(|x, y, z| f(x).mul_add(f(y), f(z)).to_bits()),
        Tri::Select => on.ternary(|x, y, c| (y & c) | (x & !c)),
        Tri::ExtractI => on.ternary(|x, o, c| s::extract_i(x, o, c) as u32),
        Tri::ExtractU => on.ternary(s::extract_u),
        Tri::FieldMask => on.ternary(|o, c, _| s::field_mask(o, c)),
    }
}

/// Whether an operation works on integers alone.
/// It decides which of [`bin_int`] and [`bin_float`] runs the operation.
pub fn is_int(op: Bin) -> bool {
    use Bin as B;
    !matches!(
        op,
        B::AddF
            | B::SubF
            | B::MulF
            | B::DivF
            | B::RemF
            | B::MinF
            | B::MaxF
            | B::Pow
            | B::Atan2
            | B::Step
            | B::Ldexp
            | B::EqF
            | B::NeF
            | B::LtF
            | B::LeF
    )
}

/// Which group a one-operand operation belongs to.
/// The groups are compiled apart, so that calls of the mathematics library stay out of the vector loops.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum UnGroup {
    Float,
    Math,
    Int,
}

/// The group of an operation.
/// By position in [`Un`], which is a comparison or two instead of a table.
#[inline(always)]
pub fn group(op: Un) -> UnGroup {
    match op as u8 {
        x if x <= Un::SaturateF as u8 => UnGroup::Float,
        x if x <= Un::FrexpExponent as u8 => UnGroup::Math,
        x if x <= Un::FlushF as u8 => UnGroup::Float,
        x if x <= Un::LogFast as u8 => UnGroup::Math,
        x if x < Un::IsNan as u8 => UnGroup::Int,
        _ => UnGroup::Float,
    }
}

/// Evaluates on constants.
/// The same functions fold constants, so a folded value has the bits that the VM would compute.
pub struct ConstantEval<'a> {
    /// Operands that an operation does not have are ignored.
    pub operands: [u32; 3],
    pub result: &'a mut u32,
}

impl Apply for ConstantEval<'_> {
    fn unary(self, f: impl Fn(u32) -> u32) {
        *self.result = f(self.operands[0]);
    }

    fn binary(self, f: impl Fn(u32, u32) -> u32) {
        *self.result = f(self.operands[0], self.operands[1]);
    }

    fn ternary(self, f: impl Fn(u32, u32, u32) -> u32) {
        *self.result = f(self.operands[0], self.operands[1], self.operands[2]);
    }
}

/// `op(a)` on a constant.
pub fn fold_un(op: Un, a: u32) -> u32 {
    let mut result = 0;
    let on = ConstantEval { operands: [a, 0, 0], result: &mut result };
    match group(op) {
        UnGroup::Float => un_float(op, on),
        UnGroup::Math => un_math(op, on),
        UnGroup::Int => un_int(op, on),
    }
    result
}

/// `op(a, b)` on constants.
pub fn fold_bin(op: Bin, a: u32, b: u32) -> u32 {
    let mut result = 0;
    let on = ConstantEval { operands: [a, b, 0], result: &mut result };
    if is_int(op) {
        bin_int(op, on)
    } else {
        bin_float(op, on)
    }
    result
}

/// `op(a, b, c)` on constants.
pub fn fold_tri(op: Tri, a: u32, b: u32, c: u32) -> u32 {
    let mut result = 0;
    tri(op, ConstantEval { operands: [a, b, c], result: &mut result });
    result
}

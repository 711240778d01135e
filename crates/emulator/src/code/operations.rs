//! The operations that instructions name: arithmetic, atomics, and those of a subgroup.
//!
//! What each computes is written once, in `crate::vm::alu`, `crate::vm::atomic` and `crate::vm::subgroup`.

// The order of the variants matters: `vm::alu::group` tells cheap, library and integer operations apart by their position.
/// Operations with one operand. Suffix: `F` float, `I` signed, `U` unsigned or bits, `B` boolean.
///
/// Operations on `f16` work on the equal `f32` and are followed by [`Un::RoundHalf`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Un {
    NegF,
    AbsF,
    /// -1, 0 or 1.
    SignF,
    FloorF,
    CeilF,
    /// To the nearest integer, ties to even.
    RoundF,
    TruncF,
    /// `x - floor(x)`.
    FractF,
    SqrtF,
    /// `1 / sqrt(x)`, rounded twice.
    InverseSqrtF,
    /// Clamped to 0 .. 1.
    SaturateF,
    /// From here to `FrexpExponent`: functions of the mathematics library.
    Exp,
    Exp2,
    Log,
    Log2,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    /// The first result of `frexp`: magnitude in [0.5, 1), with the sign of the operand.
    FrexpFraction,
    /// The second result of `frexp`, an `i32`.
    FrexpExponent,
    /// `x - trunc(x)`; a signed zero for infinities.
    ModfFraction,
    /// Rounds to the nearest `f16`, kept as `f32`.
    RoundHalf,
    /// Subnormal `f32` become a zero of the same sign.
    FlushF,
    /// Approximations of the `fast-math` profile.
    ExpFast,
    LogFast,
    NegI,
    AbsI,
    SignI,
    /// All bits flipped, which also negates a boolean.
    Not,
    /// Leading zero bits; 32 for 0.
    Clz,
    /// Trailing zero bits; 32 for 0.
    Ctz,
    Popcount,
    Reverse,
    /// Position of the highest bit unlike the sign bit; -1 if there is none.
    FirstLeadingI,
    /// Position of the highest set bit; -1 if there is none.
    FirstLeadingU,
    /// Position of the lowest set bit; -1 if there is none.
    FirstTrailing,
    /// Truncated and clamped; NaN gives 0.
    FloatToI,
    /// Truncated and clamped; NaN gives 0.
    FloatToU,
    IToFloat,
    UToFloat,
    /// False for both zeros only.
    FloatToBool,
    IntToBool,
    BoolToInt,
    BoolToFloat,
    /// The 16 bits of an `f16` that is held as `f32`.
    HalfBits,
    /// The `f32` equal to the `f16` in the low 16 bits.
    HalfFromBits,
    /// From here to `Unorm16`: one component of `pack4x8snorm` and its kin.
    Snorm8,
    Unorm8,
    Snorm16,
    Unorm16,
    /// From here to `FromUnorm16`: one component of `unpack4x8snorm` and its kin.
    FromSnorm8,
    FromUnorm8,
    FromSnorm16,
    FromUnorm16,
    /// Tests of floats stand last, so that they fall into the cheap group.
    IsNan,
    IsInf,
}

/// Operations with two operands.
/// Suffixes are those of [`Un`]; without one, signed and unsigned agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bin {
    AddF,
    SubF,
    MulF,
    DivF,
    /// `a - b * trunc(a / b)`.
    RemF,
    MinF,
    MaxF,
    Pow,
    /// The first operand is `y`.
    Atan2,
    /// 1 where the first operand, the edge, is at most the second.
    Step,
    /// The second operand is an `i32`.
    Ldexp,
    EqF,
    /// True if an operand is NaN.
    NeF,
    LtF,
    LeF,
    Add,
    Sub,
    Mul,
    /// A zero divisor gives the dividend.
    DivI,
    DivU,
    /// A zero divisor gives 0; the result has the sign of the dividend.
    RemI,
    RemU,
    And,
    Or,
    Xor,
    /// Shifts take the low five bits of the distance.
    Shl,
    ShrI,
    ShrU,
    MinI,
    MinU,
    MaxI,
    MaxU,
    Eq,
    Ne,
    LtI,
    LtU,
    LeI,
    LeU,
    /// Sum of four products of signed bytes, wrapped to 32 bits.
    DotI8,
    /// Sum of four products of unsigned bytes, wrapped to 32 bits.
    DotU8,
}

/// Operations with three operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tri {
    /// `a * b + c`, rounded once.
    Fma,
    /// `c ? b : a`.
    /// It chooses bit by bit, so `c` must be a boolean or a mask of bits.
    Select,
    /// Bits `b .. b + c` of `a`, sign-extended.
    ExtractI,
    /// Bits `b .. b + c` of `a`.
    ExtractU,
    /// The mask of the bits `a .. a + b` (the third operand is unused).
    FieldMask,
}

/// Read-modify-write operations on memory.
///
/// Suffix `I` compares as signed, `U` as unsigned. All but `Load` write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOp {
    Load,
    Store,
    Add,
    Sub,
    And,
    Or,
    Xor,
    MinI,
    MinU,
    MaxI,
    MaxU,
    Exchange,
    /// Writes where the old value equals the one compared with; never fails spuriously.
    CompareExchange,
}

/// Operations across the invocations of a subgroup.
///
/// Suffixes are those of [`Un`]. `All` and `Any` work on booleans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Collective {
    AddF,
    AddI,
    MulF,
    MulI,
    MinF,
    MinI,
    MinU,
    MaxF,
    MaxI,
    MaxU,
    And,
    Or,
    Xor,
    All,
    Any,
}

/// Which invocations of the subgroup a collective operation covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scan {
    /// All active lanes; each gets the whole result.
    Reduce,
    /// Active lanes up to and with the own one.
    Inclusive,
    /// Active lanes before the own one; the first gets the operation's identity.
    Exclusive,
}

/// Where a subgroup gather takes its value from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gather {
    /// The lowest active lane.
    First,
    /// The lane with the given number.
    Lane,
    /// The own number plus the given one.
    Down,
    /// The own number minus the given one.
    Up,
    /// The own number, its bits flipped where the given one has ones.
    Xor,
    /// The given lane of the own four.
    QuadLane,
    /// The neighbour in the own four: 0 across x, 1 across y, 2 across both.
    QuadSwap,
}

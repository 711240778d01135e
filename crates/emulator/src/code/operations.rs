//! The operations that instructions name: arithmetic, atomics, and those of a subgroup.

/// Operations with one operand. Suffix: `F` float, `I` signed, `U` unsigned or bits, `B` boolean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Un {
    NegF,
    AbsF,
    SignF,
    FloorF,
    CeilF,
    RoundF,
    TruncF,
    FractF,
    SqrtF,
    InverseSqrtF,
    SaturateF,
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
    FrexpFraction,
    FrexpExponent,
    ModfFraction,
    RoundHalf,
    FlushF,
    ExpFast,
    LogFast,
    NegI,
    AbsI,
    SignI,
    Not,
    Clz,
    Ctz,
    Popcount,
    Reverse,
    FirstLeadingI,
    FirstLeadingU,
    FirstTrailing,
    FloatToI,
    FloatToU,
    IToFloat,
    UToFloat,
    FloatToBool,
    IntToBool,
    BoolToInt,
    BoolToFloat,
    HalfBits,
    HalfFromBits,
    Snorm8,
    Unorm8,
    Snorm16,
    Unorm16,
    FromSnorm8,
    FromUnorm8,
    FromSnorm16,
    FromUnorm16,
    IsNan,
    IsInf,
}

/// Operations with two operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bin {
    AddF,
    SubF,
    MulF,
    DivF,
    RemF,
    MinF,
    MaxF,
    Pow,
    Atan2,
    Step,
    Ldexp,
    EqF,
    NeF,
    LtF,
    LeF,
    Add,
    Sub,
    Mul,
    DivI,
    DivU,
    RemI,
    RemU,
    And,
    Or,
    Xor,
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
    DotI8,
    DotU8,
}

/// Operations with three operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tri {
    /// `a * b + c`, rounded once.
    Fma,
    /// `c ? b : a`.
    Select,
    /// Bits `b .. b + c` of `a`, sign-extended.
    ExtractI,
    /// Bits `b .. b + c` of `a`.
    ExtractU,
    /// The mask of the bits `a .. a + b` (the third operand is unused).
    FieldMask,
}

/// Read-modify-write operations on memory.
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
    CompareExchange,
}

/// Operations across the invocations of a subgroup.
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
    Reduce,
    Inclusive,
    Exclusive,
}

/// Where a subgroup gather takes its value from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gather {
    First,
    Lane,
    Down,
    Up,
    Xor,
    QuadLane,
    QuadSwap,
}

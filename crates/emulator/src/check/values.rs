//! Finds the instruction where a NaN or infinity is born from finite operands.
//!
//! Later instructions that carry the value on are not reported: one of their operands is not finite.

use super::Watcher;
use crate::code::{Bin, Inst, LANES, Reg, Tri, Un};
use crate::vm::Vm;
use tapml_device::FindingKind;

/// Neither NaN nor infinity: the exponent is not all ones.
fn is_finite(bits: u32) -> bool {
    bits & 0x7f80_0000 != 0x7f80_0000
}

/// The float result and float operands of an instruction that can turn finite numbers into others.
/// `None` for operations that cannot, such as comparisons and integer arithmetic.
fn floats(inst: &Inst) -> Option<(Reg, [Option<Reg>; 3])> {
    match *inst {
        Inst::Un { op, d, a } if un_overflows(op) => Some((d, [Some(a), None, None])),
        Inst::Bin { op, d, a, b } => {
            let second = match op {
                Bin::AddF | Bin::SubF | Bin::MulF | Bin::DivF | Bin::RemF | Bin::Pow | Bin::Atan2 => Some(b),
                // The exponent is an integer.
                Bin::Ldexp => None,
                _ => return None,
            };
            Some((d, [Some(a), second, None]))
        }
        Inst::Tri { op: Tri::Fma, d, a, b, c } => Some((d, [Some(a), Some(b), Some(c)])),
        _ => None,
    }
}

/// Operations whose result may be NaN or infinite for a finite operand.
/// Sine and cosine are not among them: they are bounded, and defined for all finite numbers.
fn un_overflows(op: Un) -> bool {
    use Un as U;
    matches!(
        op,
        U::SqrtF
            | U::InverseSqrtF
            | U::Exp
            | U::Exp2
            | U::Log
            | U::Log2
            | U::Tan
            | U::Asin
            | U::Acos
            | U::Sinh
            | U::Cosh
            | U::Tanh
            | U::Acosh
            | U::Atanh
            | U::RoundHalf
            | U::ExpFast
            | U::LogFast
    )
}

/// The operation as WGSL writes it.
/// For messages only.
/// Operands are printed with all digits, so that the operation can be repeated.
fn spell(inst: &Inst, operands: &[f32]) -> String {
    let name = match inst {
        Inst::Un { op, .. } => format!("{op:?}"),
        Inst::Bin { op, .. } => format!("{op:?}"),
        _ => "fma".into(),
    };
    let symbol = match name.as_str() {
        "AddF" => "+",
        "SubF" => "-",
        "MulF" => "*",
        "DivF" => "/",
        "RemF" => "%",
        _ => "",
    };
    // WGSL writes these between their operands.
    if let (false, [a, b]) = (symbol.is_empty(), operands) {
        return format!("{a:?} {symbol} {b:?}");
    }
    let name = match name.as_str() {
        "SqrtF" => "sqrt".into(),
        "InverseSqrtF" => "inverseSqrt".into(),
        "RoundHalf" => "f16".into(),
        "ExpFast" => "exp".into(),
        "LogFast" => "log".into(),
        other => other.to_lowercase(),
    };
    let list: Vec<_> = operands.iter().map(|x| format!("{x:?}")).collect();
    format!("{name}({})", list.join(", "))
}

impl Watcher<'_> {
    /// Looks at the result of an arithmetic instruction in active lanes. Operands must not have been overwritten: see
    /// [`crate::lower::LowerChoices::keep_operands`].
    /// Each execution of the instruction records one defect, with the number of lanes.
    pub(super) fn values(&mut self, vm: &Vm<'_>, pc: usize, inst: &Inst) {
        let active = vm.mask();
        if active.is_empty() || !matches!(inst, Inst::Un { .. } | Inst::Bin { .. } | Inst::Tri { .. }) {
            return;
        }
        let Some((d, operands)) = floats(inst) else { return };
        let result = vm.view(d);
        let operands = operands.map(|r| r.map(|r| vm.view(r)));
        // A value that came in infinite or NaN was reported where it was born.
        let born = |lane: usize| {
            !is_finite(result.lane(lane)) && operands.iter().flatten().all(|v| is_finite(v.lane(lane)))
        };
        let (mut first, mut count) = (None, 0);
        for c in active.low..active.high {
            let odd =
                result.get(c).zip(active.chunk(c), |x, m| if x & 0x7f80_0000 == 0x7f80_0000 { m } else { 0 });
            // Operands are looked at only where the result is not finite, which is rare.
            if odd.any_all().0 == 0 {
                continue;
            }
            for lane in (0..LANES).filter(|&i| odd.0[i] != 0).map(|i| c * LANES + i).filter(|&l| born(l)) {
                first = first.or(Some(lane));
                count += 1;
            }
        }
        if let Some(lane) = first {
            let values: Vec<_> = operands.iter().flatten().map(|v| f32::from_bits(v.lane(lane))).collect();
            let value = f32::from_bits(result.lane(lane));
            self.record_defect(vm, FindingKind::NonFinite, pc, lane, count, || {
                format!("{} gives {value:?}", spell(inst, &values))
            });
        }
    }
}

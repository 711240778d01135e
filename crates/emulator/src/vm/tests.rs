//! Every instruction set computes the same bits, and the same as the compiler's folding of constants.

use super::chunk::{Chunk, Isa};
use super::{Env, Unwatched, Vm, alu};
use crate::code::{Bin, Code, Inst, LANES, Reg, Tri, Un};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const BITS: [u32; 24] = [
    0,
    1,
    2,
    31,
    32,
    33,
    0x7fff_ffff,
    0x8000_0000,
    0x8000_0001,
    0xffff_ffff,
    0x3f80_0000,
    0xbf80_0000,
    0x3fc0_0000,
    0x4020_0000,
    0xc020_0000,
    0x7f7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0x0080_0000,
    0x4b80_0001,
    0x4f00_0000,
    0x477f_f000,
    0x3300_0000,
];

const UNARY: [Un; 44] = [
    Un::NegF,
    Un::AbsF,
    Un::SignF,
    Un::FloorF,
    Un::CeilF,
    Un::RoundF,
    Un::TruncF,
    Un::FractF,
    Un::SqrtF,
    Un::InverseSqrtF,
    Un::SaturateF,
    Un::ModfFraction,
    Un::RoundHalf,
    Un::FlushF,
    Un::IsNan,
    Un::IsInf,
    Un::NegI,
    Un::AbsI,
    Un::SignI,
    Un::Not,
    Un::Clz,
    Un::Ctz,
    Un::Popcount,
    Un::Reverse,
    Un::FirstLeadingI,
    Un::FirstLeadingU,
    Un::FirstTrailing,
    Un::FloatToI,
    Un::FloatToU,
    Un::IToFloat,
    Un::UToFloat,
    Un::FloatToBool,
    Un::IntToBool,
    Un::BoolToInt,
    Un::BoolToFloat,
    Un::HalfBits,
    Un::HalfFromBits,
    Un::Snorm8,
    Un::Unorm8,
    Un::Snorm16,
    Un::Unorm16,
    Un::FromSnorm8,
    Un::FromUnorm16,
    Un::Exp,
];

const BINARY: [Bin; 34] = [
    Bin::AddF,
    Bin::SubF,
    Bin::MulF,
    Bin::DivF,
    Bin::RemF,
    Bin::MinF,
    Bin::MaxF,
    Bin::Step,
    Bin::EqF,
    Bin::NeF,
    Bin::LtF,
    Bin::LeF,
    Bin::Add,
    Bin::Sub,
    Bin::Mul,
    Bin::DivI,
    Bin::DivU,
    Bin::RemI,
    Bin::RemU,
    Bin::And,
    Bin::Or,
    Bin::Xor,
    Bin::Shl,
    Bin::ShrI,
    Bin::ShrU,
    Bin::MinI,
    Bin::MinU,
    Bin::MaxI,
    Bin::MaxU,
    Bin::LtI,
    Bin::LtU,
    Bin::LeI,
    Bin::LeU,
    Bin::DotI8,
];

fn sets() -> Vec<Isa> {
    let mut sets = vec![Isa::Baseline, Isa::detect()];
    #[cfg(target_arch = "x86_64")]
    if Isa::detect() == Isa::Avx512 {
        sets.push(Isa::Avx2);
    }
    sets
}

/// NaNs of different payloads are one value.
fn canonical(bits: u32) -> u32 {
    if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fc0_0000 } else { bits }
}

/// Runs an instruction on registers 0 to 2 into register 3, in every pair of `BITS`.
fn check(inst: Inst, fold: impl Fn(u32, u32, u32) -> u32) {
    let lanes = BITS.len() * BITS.len();
    let code =
        Code { varying_regs: 4, workgroup_size: [lanes as u32, 1, 1], subgroup_size: 32, ..Code::default() };
    for isa in sets() {
        let mut vm = Vm::new(&code);
        vm.isa = isa;
        let operands = |lane: usize| [BITS[lane % BITS.len()], BITS[lane / BITS.len()], BITS[lane % 7]];
        for lane in 0..lanes {
            for (r, bits) in operands(lane).into_iter().enumerate() {
                vm.view(Reg::varying(r as u32)).set_lane(lane, bits);
            }
        }
        vm.compute(&[inst]);
        for lane in 0..lanes {
            let [a, b, c] = operands(lane);
            let (got, want) = (vm.view(Reg::varying(3)).lane(lane), fold(a, b, c));
            assert_eq!(canonical(got), canonical(want), "{inst:?} on {a:#x}, {b:#x}, {c:#x} with {isa:?}");
        }
    }
}

#[test]
fn instruction_sets_agree() {
    let [a, b, c, d] = [0, 1, 2, 3].map(Reg::varying);
    for op in UNARY {
        check(Inst::Un { op, d, a }, |a, _, _| alu::fold_un(op, a));
    }
    for op in BINARY {
        check(Inst::Bin { op, d, a, b }, |a, b, _| alu::fold_bin(op, a, b));
    }
    for op in [Tri::Fma, Tri::Select, Tri::ExtractI, Tri::ExtractU, Tri::FieldMask] {
        check(Inst::Tri { op, d, a, b, c }, |a, b, c| alu::fold_tri(op, a, b, c));
    }
}

/// A run gives what its instructions give one by one, also where one reads what the one before it wrote.
#[test]
fn runs_are_their_instructions_in_order() {
    let [a, b, c, d] = [0, 1, 2, 3].map(Reg::varying);
    let (op, one, two) = (Bin::Add, Reg::uniform(0), Reg::uniform(1));
    let insts = vec![
        Inst::Bin { op, d: c, a, b },
        Inst::Bin { op, d, a: c, b: one },
        Inst::Bin { op, d: a, a: d, b: c },
        Inst::Bin { op, d: two, a: one, b: one },
        Inst::Bin { op: Bin::Mul, d: b, a, b: two },
        Inst::Assign { d: c, s: b },
        Inst::Assign { d, s: c },
        Inst::Copy { d: a, s: two },
        Inst::End,
    ];
    let mut code = Code {
        insts,
        uniform_regs: 2,
        varying_regs: 4,
        workgroup_size: [40, 1, 1],
        subgroup_size: 32,
        ..Code::default()
    };
    let stop = AtomicBool::new(false);
    let env = Env {
        buffers: Vec::new(),
        lengths: Vec::new(),
        groups: [1; 3],
        limit: Duration::from_secs(10),
        stop: &stop,
    };
    let results = |code: &Code| {
        let mut vm = Vm::new(code);
        vm.view(one).set(0, Chunk::splat(7));
        for lane in 0..40 {
            vm.view(a).set_lane(lane, lane as u32);
            vm.view(b).set_lane(lane, 100 * lane as u32);
        }
        assert_eq!(vm.run(&env, [0; 3], &mut Unwatched), Ok(()));
        let lanes = |r: Reg| (0..40).map(|lane| vm.view(r).lane(lane)).collect::<Vec<_>>();
        [a, b, c, d, two].map(lanes)
    };
    let alone = results(&code);
    code.find_runs();
    assert_eq!(code.runs, [4, 3, 2, 1, 1, 2, 1, 1, 1]);
    assert_eq!(results(&code), alone);
    // ((a + b + 7) + (a + b)) * 14 of lane 3.
    assert_eq!((alone[0][3], alone[1][3], alone[3][3], alone[4][39]), (14, 613 * 14, 613 * 14, 14));
}

#[test]
fn masks_narrow_and_widen() {
    let code = Code {
        varying_regs: 3,
        workgroup_size: [40, 1, 1],
        subgroup_size: 32,
        labels: vec![0],
        ..Code::default()
    };
    let mut vm = Vm::new(&code);
    let [c, save, x] = [0, 1, 2].map(Reg::varying);
    (0..40).for_each(|lane| vm.view(c).set_lane(lane, if lane >= 20 { !0 } else { 0 }));
    assert_eq!(vm.control(&Inst::IfBegin { c, save, to: 0 }), None);
    assert_eq!((vm.mask().low, vm.mask().high, vm.mask().full), (1, 3, false));
    assert!(vm.mask().lanes().eq(20..40));
    vm.view(x).set(0, Chunk([5; LANES]));
    vm.assign(x, c);
    assert_eq!((vm.view(x).lane(0), vm.view(x).lane(19), vm.view(x).lane(20)), (5, 0, !0));
    assert_eq!(vm.control(&Inst::IfElse { save, to: 0 }), None);
    assert!(vm.mask().lanes().eq(0..20));
    assert_eq!(vm.control(&Inst::Leave { mask: x }), None);
    assert!(vm.mask().is_empty());
    assert_eq!(vm.control(&Inst::IfEnd { save }), None);
    assert!(vm.mask().lanes().eq(20..40));
    assert_eq!(vm.control(&Inst::JumpIfNone { to: 0 }), None);
    assert_eq!(vm.control(&Inst::LeaveIf { c, when: true, mask: save, to: 0 }), Some(0));
}

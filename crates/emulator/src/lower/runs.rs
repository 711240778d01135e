//! Finding runs of instructions that do the same to neighbouring registers. The VM decodes a run once.

use crate::code::{Inst, InstRun, Reg};

/// The run that begins with each instruction.
pub fn find_runs(insts: &[Inst]) -> Vec<InstRun> {
    let mut runs = vec![InstRun::ONE; insts.len()];
    for at in (0..insts.len().saturating_sub(1)).rev() {
        let rest = runs[at + 1];
        if let Some(steps) = steps_between(&insts[at], &insts[at + 1])
            && (rest.count == 1 || rest.steps == steps)
        {
            runs[at] = InstRun { count: rest.count + 1, steps };
        }
    }
    runs
}

/// Which operands step from an instruction to the next, if both do the same and the result steps.
fn steps_between(inst: &Inst, next: &Inst) -> Option<[bool; 3]> {
    let (Some(d), Some(next_d)) = (inst.result(), next.result()) else { return None };
    let (a, b) = (operands(inst), operands(next));
    let same = match (inst, next) {
        (Inst::Un { op, .. }, Inst::Un { op: other, .. }) => op == other,
        (Inst::Bin { op, .. }, Inst::Bin { op: other, .. }) => op == other,
        (Inst::Tri { op, .. }, Inst::Tri { op: other, .. }) => op == other,
        (Inst::Copy { .. }, Inst::Copy { .. }) => true,
        _ => false,
    };
    let fits = |i: usize| b[i] == a[i] || b[i] == a[i].offset(1);
    (same && next_d == d.offset(1) && (0..3).all(fits)).then(|| [0, 1, 2].map(|i| b[i] != a[i]))
}

/// The operands of an instruction that has a result; the last one repeated where there are fewer than three.
fn operands(inst: &Inst) -> [Reg; 3] {
    match *inst {
        Inst::Bin { a, b, .. } => [a, b, b],
        Inst::Tri { a, b, c, .. } => [a, b, c],
        Inst::Un { a, .. } | Inst::Copy { s: a, .. } => [a; 3],
        _ => [Reg::uniform(0); 3],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{Bin, Tri};

    fn fma(d: u32, a: u32, b: u32, c: u32) -> Inst {
        let [d, a, b, c] = [d, a, b, c].map(Reg::varying);
        Inst::Tri { op: Tri::Fma, d, a, b, c }
    }

    #[test]
    fn components_of_a_vector_are_a_run() {
        // part += a.x * v, part += a.y * v: the second run begins where the vector's registers begin again.
        let vector = |a: u32| (0..4).map(move |i| fma(20 + i, a, 10 + i, 20 + i));
        let insts: Vec<Inst> = vector(0).chain(vector(1)).collect();
        let counts: Vec<u32> = find_runs(&insts).iter().map(|run| run.count).collect();
        assert_eq!(counts, [4, 3, 2, 1, 4, 3, 2, 1]);
        assert_eq!(find_runs(&insts)[0].steps, [false, true, true]);
    }

    #[test]
    fn other_operations_operands_and_classes_end_a_run() {
        let [d, e, x] = [Reg::varying(3), Reg::varying(4), Reg::varying(9)];
        let add = |d: Reg, a: Reg| Inst::Bin { op: Bin::AddF, d, a, b: x };
        let count = |insts: &[Inst]| find_runs(insts)[0].count;
        assert_eq!(count(&[add(d, x), add(e, x)]), 2);
        assert_eq!(count(&[add(d, x), Inst::Bin { op: Bin::MulF, d: e, a: x, b: x }]), 1);
        assert_eq!(count(&[add(d, x), add(e, Reg::varying(11))]), 1);
        assert_eq!(count(&[add(d, x), add(d, x)]), 1);
        assert_eq!(count(&[add(d, Reg::uniform(1)), add(e, Reg::varying(2))]), 1);
        assert_eq!(count(&[add(d, x), Inst::End]), 1);
        assert!(find_runs(&[]).is_empty());
    }
}

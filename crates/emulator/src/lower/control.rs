//! Control flow: branches, switches, loops and the ways out of them.
//!
//! Where a condition is uniform the code jumps; where it is varying the mask narrows. Registers that hold masks live
//! from the construct's start to its end.
//!
//! Lanes that leave a construct by `break`, `continue` or `return` go to a mask of the construct that they leave. They are inactive until
//! that construct lets them rejoin. Constructs in between end when no lane is left in them.

use super::{Ctrl, CtrlKind, Lower, LowerResult};
use crate::code::{Bin, Inst, Reg, Un};
use naga::{Block, Expression, Handle, Statement, SwitchCase, SwitchValue};

impl<'a> Lower<'a> {
    /// Opens a construct and gives its index. It is divergent if the caller says so, or if an earlier round found it to be.
    fn push_ctrl(&mut self, kind: CtrlKind, divergent: bool) -> usize {
        // Numbers must not depend on what is known so far: an `if` may be lowered in several ways and has none.
        let id = if kind == CtrlKind::If { 0 } else { self.id() };
        let divergent = divergent || (id != 0 && self.facts.is_divergent(id));
        let end = self.label();
        self.ctrl.push(Ctrl { kind, id, divergent, leave: None, wait: None, next: end, end, left: false });
        self.ctrl.len() - 1
    }

    /// Whether only some of the lanes that are in construct `index` may be active here.
    fn divergent_above(&self, index: usize) -> bool {
        self.ctrl[index + 1..].iter().any(|c| c.divergent)
    }

    /// The innermost construct of the current function that `accept` takes.
    fn enclosing(&self, accept: impl Fn(CtrlKind) -> bool) -> Option<usize> {
        // The function itself is at `base`: a statement cannot leave a caller's construct.
        let base = self.frame().ctrl;
        (base..self.ctrl.len()).rev().find(|&i| accept(self.ctrl[i].kind))
    }

    /// `if`. Both arms may be at the tail of the function.
    pub(super) fn branch(
        &mut self,
        condition: Handle<Expression>,
        accept: &'a Block,
        reject: &'a Block,
    ) -> LowerResult<()> {
        let c = self.reg(condition)?;
        let tail = self.tail;
        let result = self.branch_on(c, accept, reject);
        self.tail = tail;
        result
    }

    /// Chooses the form of an `if`: one arm for a known condition, a jump for a uniform one, masks for a varying one.
    /// After a uniform jump over the first arm the lanes are those of before, so no mask changes.
    fn branch_on(&mut self, c: Reg, accept: &'a Block, reject: &'a Block) -> LowerResult<()> {
        // Overrides are constants here, so branches on them disappear.
        if let Some(&known) = self.known.get(&c) {
            return self.block(if known != 0 { accept } else { reject });
        }
        if c.is_varying() {
            // naga writes the condition of `for` and `while` as such an `if`. One instruction does, and no mask is saved.
            if let Some(when) = lone_break(accept, reject)
                && self.leave_if(c, when)?
            {
                return Ok(());
            }
            return self.divergent_branch(c, accept, reject);
        }
        let otherwise = self.label();
        self.push_ctrl(CtrlKind::If, false);
        self.emit(Inst::JumpIfZero { c, to: otherwise })?;
        self.block(accept)?;
        let ctrl = self.pop_if();
        if !reject.is_empty() {
            self.emit(Inst::Jump { to: ctrl.end })?;
        }
        self.place_label(otherwise);
        self.ctrl.push(ctrl);
        self.block(reject)?;
        let ctrl = self.pop_if();
        self.place_label(ctrl.end);
        Ok(())
    }

    /// Leaves an `if`; the construct around it learns whether an invocation left from inside.
    ///
    /// # Panics
    ///
    /// Without a construct on the stack: each call stands after a push of the same function.
    fn pop_if(&mut self) -> Ctrl {
        let ctrl = self.ctrl.pop().expect("an if was pushed");
        if let Some(outer) = self.ctrl.last_mut().filter(|outer| outer.kind == CtrlKind::If) {
            outer.left |= ctrl.left;
        }
        ctrl
    }

    /// Runs both arms one after the other, each with the lanes that take it.
    fn divergent_branch(&mut self, c: Reg, accept: &'a Block, reject: &'a Block) -> LowerResult<()> {
        let save = self.regs.take(true, 1);
        let otherwise = self.label();
        self.push_ctrl(CtrlKind::If, true);
        self.emit(Inst::IfBegin { c, save, to: otherwise })?;
        self.block(accept)?;
        self.place_label(otherwise);
        if !reject.is_empty() {
            let end = self.ctrl.last().map_or(otherwise, |c| c.end);
            self.emit(Inst::IfElse { save, to: end })?;
            self.block(reject)?;
        }
        let ctrl = self.pop_if();
        self.place_label(ctrl.end);
        self.emit(Inst::IfEnd { save })?;
        self.regs.free(&[save]);
        // Without this, lanes that all left would still walk through what follows.
        if ctrl.left {
            self.skip_rest()?;
        }
        Ok(())
    }

    /// After lanes may have left: skips what no lane executes any more, if nothing waits for it.
    /// Only where no construct in between has saved lanes, since these would be skipped too.
    fn skip_rest(&mut self) -> LowerResult<()> {
        let target = self.enclosing(|kind| kind != CtrlKind::If);
        if let Some(index) = target.filter(|&i| !self.divergent_above(i)) {
            let to = self.ctrl[index].next;
            self.emit(Inst::JumpIfNone { to })?;
        }
        Ok(())
    }

    /// `if !c { break; }` and `if c { break; }` of a loop without a nested mask; false if it must be lowered in full.
    fn leave_if(&mut self, c: Reg, when: bool) -> LowerResult<bool> {
        let Some(index) = self.enclosing(|kind| kind != CtrlKind::If) else { return Ok(false) };
        // A saved mask in between would give the lanes back when it is restored.
        if self.ctrl[index].kind != CtrlKind::Loop || self.divergent_above(index) {
            return Ok(false);
        }
        let (id, to) = (self.ctrl[index].id, self.ctrl[index].next);
        self.facts.set_divergent(id);
        // Without the mask this round's code is thrown away.
        if let Some(mask) = self.ctrl[index].leave {
            self.emit(Inst::LeaveIf { c, when, mask, to })?;
        }
        Ok(true)
    }

    /// `break`, or `continue` if `wait`.
    pub(super) fn leave(&mut self, wait: bool) -> LowerResult<()> {
        let target = self.enclosing(|kind| kind == CtrlKind::Loop || (!wait && kind == CtrlKind::Switch));
        let index = self.need(target, "a break or continue outside a loop")?;
        self.leave_to(index, wait)
    }

    /// Active lanes leave to construct `index`, or to its continuing part if `wait`.
    ///
    /// Where only some lanes can be active, the target and every loop and switch on the way become divergent, since their lanes end at
    /// different times.
    fn leave_to(&mut self, index: usize, wait: bool) -> LowerResult<()> {
        let divergent = self.divergent_above(index);
        if divergent {
            for i in index..self.ctrl.len() {
                self.ctrl[i].left = true;
                if self.ctrl[i].kind != CtrlKind::If
                    && (i == index || !wait || self.ctrl[i].kind == CtrlKind::Switch)
                {
                    let id = self.ctrl[i].id;
                    self.facts.set_divergent(id);
                }
            }
        }
        let target = self.ctrl[index].clone();
        if target.divergent {
            if let Some(mask) = if wait { target.wait } else { target.leave } {
                self.emit(Inst::Leave { mask })?;
            }
            // All lanes of the construct leave together, so nobody is left to run what follows.
            if !divergent {
                self.emit(Inst::Jump { to: target.next })?;
            }
        } else {
            self.emit(Inst::Jump { to: if wait { target.next } else { target.end } })?;
        }
        Ok(())
    }

    /// `return`: the value goes to the result variable of the frame.
    pub(super) fn ret(&mut self, value: Option<Handle<Expression>>) -> LowerResult<()> {
        if let (Some(value), Some(variable)) = (value, self.frame().result) {
            let regs = self.regs(value)?;
            self.assign_result(variable, &regs)?;
        }
        // Nothing follows in this function, so lanes need not leave.
        if self.tail {
            return Ok(());
        }
        let index = self.frame().ctrl;
        self.leave_to(index, false)
    }

    /// `loop`, `for` and `while`, which naga makes one statement. `next` is where `continue` goes.
    /// The labels are `top` of the body, `next` of the continuing part, and the end. A divergent loop ends when no lane is left.
    pub(super) fn repeat(
        &mut self,
        body: &'a Block,
        continuing: &'a Block,
        break_if: Option<Handle<Expression>>,
    ) -> LowerResult<()> {
        self.tail = false;
        let index = self.push_ctrl(CtrlKind::Loop, false);
        let (top, next) = (self.label(), self.label());
        self.ctrl[index].next = next;
        let end = self.ctrl[index].end;
        // Cleared even when no lane enters: the end lets those in `leave` rejoin.
        if self.ctrl[index].divergent {
            let (leave, wait) = (self.regs.take(true, 1), continues(body).then(|| self.regs.take(true, 1)));
            (self.ctrl[index].leave, self.ctrl[index].wait) = (Some(leave), wait);
            for mask in [Some(leave), wait].into_iter().flatten() {
                self.emit(Inst::ClearMask { mask })?;
            }
        }
        // The mask is empty here if all lanes left before; the loop is then skipped.
        self.emit(Inst::JumpIfNone { to: end })?;
        self.place_label(top);
        self.block(body)?;
        self.place_label(next);
        if self.ctrl[index].divergent {
            if let Some(mask) = self.ctrl[index].wait {
                self.emit(Inst::Rejoin { mask })?;
            }
            self.emit(Inst::JumpIfNone { to: end })?;
        }
        self.block(continuing)?;
        if let Some(condition) = break_if {
            self.break_if(index, condition)?;
        }
        // The way back counts an iteration, so that an endless loop is stopped.
        self.emit(Inst::Back { to: top })?;
        self.place_label(end);
        self.close(index)
    }

    /// `break if` at the end of `continuing`.
    fn break_if(&mut self, index: usize, condition: Handle<Expression>) -> LowerResult<()> {
        let c = self.reg(condition)?;
        let Ctrl { id, end, leave, .. } = self.ctrl[index];
        if c.is_varying() {
            self.facts.set_divergent(id);
            if let Some(mask) = leave {
                self.emit(Inst::LeaveIf { c, when: true, mask, to: end })?;
            }
            return Ok(());
        }
        // There is a jump on zero only.
        let stays = self.un(Un::Not, c)?;
        self.emit(Inst::JumpIfZero { c: stays, to: end })
    }

    /// Ends a loop, switch or function: those that left come back.
    /// Masks are freed only here, since jumps to the end may come from anywhere inside.
    pub(super) fn close(&mut self, index: usize) -> LowerResult<()> {
        let ctrl = self.ctrl[index].clone();
        self.ctrl.truncate(index);
        if let Some(mask) = ctrl.leave {
            self.emit(Inst::Rejoin { mask })?;
        }
        let masks: Vec<_> = [ctrl.leave, ctrl.wait].into_iter().flatten().collect();
        self.regs.free(&masks);
        Ok(())
    }

    /// Opens a function, whose `return`s leave to its end.
    pub(super) fn open_function(&mut self) -> LowerResult<usize> {
        let index = self.push_ctrl(CtrlKind::Function, false);
        self.open_mask(index)?;
        Ok(index)
    }

    /// Takes and clears the mask of lanes that leave, if the construct needs one.
    fn open_mask(&mut self, index: usize) -> LowerResult<()> {
        if self.ctrl[index].divergent {
            let mask = self.regs.take(true, 1);
            self.ctrl[index].leave = Some(mask);
            self.emit(Inst::ClearMask { mask })?;
        }
        Ok(())
    }

    /// `switch`. Each case is compared in turn; a table of jumps would not work with masks.
    /// A uniform selector jumps over the cases that do not match; a varying one narrows the mask for each.
    pub(super) fn switch(
        &mut self,
        selector: Handle<Expression>,
        cases: &'a [SwitchCase],
    ) -> LowerResult<()> {
        self.tail = false;
        let selector = self.reg(selector)?;
        let mut groups: Vec<(Option<Reg>, &'a Block)> = Vec::new();
        let (mut matches, mut any, mut is_default) = (None, None, false);
        for case in cases {
            match case.value {
                SwitchValue::Default => is_default = true,
                SwitchValue::I32(v) => self.add_match(selector, v as u32, &mut matches, &mut any)?,
                SwitchValue::U32(v) => self.add_match(selector, v, &mut matches, &mut any)?,
            }
            // WGSL has no fall-through. naga writes a case with several selectors as empty cases that fall through.
            if case.fall_through {
                if !case.body.is_empty() {
                    return self.fail("a switch case that falls through after statements");
                }
                continue;
            }
            groups.push((if is_default { None } else { matches }, &case.body));
            (matches, is_default) = (None, false);
        }
        // The default runs last, when every other case has been tried.
        groups.sort_by_key(|(c, _)| c.is_none());
        if selector.is_varying() {
            return self.divergent_switch(any, &groups);
        }
        let index = self.push_ctrl(CtrlKind::Switch, false);
        self.open_mask(index)?;
        let end = self.ctrl[index].end;
        for (c, body) in groups {
            let other = self.label();
            if let Some(c) = c {
                self.emit(Inst::JumpIfZero { c, to: other })?;
            }
            self.block(body)?;
            self.emit(Inst::Jump { to: end })?;
            self.place_label(other);
        }
        self.place_label(end);
        self.close(index)
    }

    /// Adds `selector == value` to the condition of the case in work, and to that of all cases.
    fn add_match(
        &mut self,
        selector: Reg,
        value: u32,
        matches: &mut Option<Reg>,
        any: &mut Option<Reg>,
    ) -> LowerResult<()> {
        let value = self.constant(value);
        let equal = self.bin(Bin::Eq, selector, value)?;
        for sum in [matches, any] {
            *sum = Some(match *sum {
                Some(sum) => self.bin(Bin::Or, sum, equal)?,
                None => equal,
            });
        }
        Ok(())
    }

    /// Each case is an `if` with a mask of its own; the default takes the lanes that no other case took.
    /// `any` is the condition of all cases together; without cases the default takes all lanes.
    fn divergent_switch(&mut self, any: Option<Reg>, groups: &[(Option<Reg>, &'a Block)]) -> LowerResult<()> {
        let index = self.push_ctrl(CtrlKind::Switch, true);
        self.open_mask(index)?;
        for &(c, body) in groups {
            let c = match (c, any) {
                (Some(c), _) => c,
                (None, Some(any)) => self.un(Un::Not, any)?,
                (None, None) => self.constant(u32::MAX),
            };
            let save = self.regs.take(true, 1);
            self.push_ctrl(CtrlKind::If, true);
            let skip = self.label();
            self.emit(Inst::IfBegin { c, save, to: skip })?;
            self.block(body)?;
            self.place_label(skip);
            let ctrl = self.pop_if();
            self.place_label(ctrl.end);
            self.emit(Inst::IfEnd { save })?;
            self.regs.free(&[save]);
        }
        let end = self.ctrl[index].end;
        self.place_label(end);
        self.close(index)
    }
}

/// Whether an `if` does nothing but break: the condition's value for which it does.
fn lone_break(accept: &Block, reject: &Block) -> Option<bool> {
    let is_break = |block: &Block| matches!(**block, [Statement::Break]);
    match (accept.is_empty(), reject.is_empty()) {
        (true, false) if is_break(reject) => Some(false),
        (false, true) if is_break(accept) => Some(true),
        _ => None,
    }
}

/// Whether a loop's body has a `continue` of this loop.
/// Inner loops are not looked into: their `continue` is their own.
fn continues(block: &Block) -> bool {
    block.iter().any(|statement| match statement {
        Statement::Continue => true,
        Statement::Block(inner) => continues(inner),
        Statement::If { accept, reject, .. } => continues(accept) || continues(reject),
        Statement::Switch { cases, .. } => cases.iter().any(|case| continues(&case.body)),
        _ => false,
    })
}

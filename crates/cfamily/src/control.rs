//! Branches, switches and loops.
//!
//! Every loop is `for (;;)`: what ends it is a `break` in its body or at the end of its continuing part.

use crate::text::{bare, is_atom};
use crate::writer::{Line, WriteResult, Writer};
use naga::{Block, Expression, Function, Handle, Statement, SwitchCase, SwitchValue};

impl<'a> Writer<'a> {
    /// `if`; an empty branch is left out.
    ///
    /// Values of the branches are declared within them.
    pub fn branch(
        &mut self,
        condition: Handle<Expression>,
        accept: &'a Block,
        reject: &'a Block,
    ) -> WriteResult<()> {
        let condition = self.value(condition)?;
        if accept.is_empty() {
            self.line(format!("if (!{condition}) {{"));
            self.write_nested(reject)?;
        } else {
            self.line(format!("if ({}) {{", bare(&condition)));
            self.write_nested(accept)?;
            if !reject.is_empty() {
                self.line("} else {");
                self.write_nested(reject)?;
            }
        }
        self.line("}");
        Ok(())
    }

    /// `switch`. A case without statements that falls through is one more label of the next.
    pub fn switch(&mut self, selector: Handle<Expression>, cases: &'a [SwitchCase]) -> WriteResult<()> {
        let selector = self.value(selector)?;
        self.line(format!("switch ({}) {{", bare(&selector)));
        for case in cases {
            let label = match case.value {
                // C has no literal for the least integer: `2147483648` does not fit before its sign is taken.
                SwitchValue::I32(i32::MIN) => "case (-2147483647 - 1):".into(),
                SwitchValue::I32(value) => format!("case {value}:"),
                SwitchValue::U32(value) => format!("case {value}u:"),
                SwitchValue::Default => "default:".into(),
            };
            if case.fall_through && case.body.is_empty() {
                self.line(label);
                continue;
            }
            self.line(format!("{label} {{"));
            self.write_nested(&case.body)?;
            // C falls through to the next case without it.
            if !case.fall_through && !leaves(&case.body) {
                self.indent += 1;
                self.line("break;");
                self.indent -= 1;
            }
            self.line("}");
        }
        self.line("}");
        Ok(())
    }

    /// A loop. A `continue` must pass through the continuing part, which then stands at the loop's head and is skipped
    /// in the first round.
    ///
    /// `break_if` is the condition of WGSL's `break if`, at the end of the continuing part.
    pub fn write_loop(
        &mut self,
        body: &'a Block,
        continuing: &'a Block,
        break_if: Option<Handle<Expression>>,
    ) -> WriteResult<()> {
        // Without a `continue` the continuing part simply stands behind the body.
        let first = (!continuing.is_empty() || break_if.is_some()) && continues(body);
        let again = if first { Some(self.temporary()?) } else { None };
        // The parts are written one after the other and put together at the end, when it is known what they share.
        let mut before = std::mem::take(&mut self.out);
        self.indent += 1;
        self.block(body)?;
        let mut rounds = std::mem::take(&mut self.out);
        self.indent += u32::from(first) as usize;
        self.block(continuing)?;
        if let Some(condition) = break_if {
            let condition = self.value(condition)?;
            self.line(format!("if ({}) break;", bare(&condition)));
        }
        self.indent -= 1 + u32::from(first) as usize;
        let mut ends = std::mem::take(&mut self.out);
        if first {
            self.hoist(&mut before, &mut rounds, &ends);
        }
        self.out = before;
        match again {
            None => {
                self.line("for (;;) {");
                self.out.append(&mut rounds);
                self.out.append(&mut ends);
            }
            Some(again) => {
                self.line(format!("bool {again} = false;"));
                self.line("for (;;) {");
                self.indent += 1;
                self.line(format!("if ({again}) {{"));
                self.out.append(&mut ends);
                self.line("}");
                self.line(format!("{again} = true;"));
                self.indent -= 1;
                self.out.append(&mut rounds);
            }
        }
        self.line("}");
        Ok(())
    }

    /// Declares before the loop what its body computes and its continuing part uses.
    ///
    /// Where the continuing part stands at the loop's head, it is outside of the scope of such variables.
    fn hoist(&self, before: &mut Vec<Line>, rounds: &mut [Line], ends: &[Line]) {
        for line in rounds {
            let Some((declared, value)) = line.text.split_once(" = ") else { continue };
            let Some((ty, name)) = declared.strip_prefix("const ").and_then(|d| d.rsplit_once(' ')) else {
                continue;
            };
            // Braced lists only initialize, so that they stay where they are.
            if !is_atom(name) || value.starts_with('{') || !ends.iter().any(|end| mentions(&end.text, name)) {
                continue;
            }
            // Not `const`: it is set in each round.
            before.push(Line { indent: self.indent, text: format!("{ty} {name};"), from: line.from });
            line.text = format!("{name} = {value}");
        }
    }
}

/// Whether a text holds a name as a whole word.
/// So `e1` is not found in `e12`.
fn mentions(text: &str, name: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(part) && !text[at + name.len()..].starts_with(part))
}

/// Whether control never reaches the end of a block.
/// `false` is always right: it costs a statement that is never reached.
fn leaves(block: &Block) -> bool {
    // Only the last statement is looked at: a `break` too many does no harm.
    matches!(block.last(), Some(Statement::Break | Statement::Continue | Statement::Return { .. }))
}

/// Whether a loop's body holds a `continue` of this loop.
/// A loop within has its own.
fn continues(block: &Block) -> bool {
    block.iter().any(|statement| match statement {
        Statement::Continue => true,
        Statement::Block(inner) => continues(inner),
        Statement::If { accept, reject, .. } => continues(accept) || continues(reject),
        // A `continue` within a `switch` is one of the loop around it.
        Statement::Switch { cases, .. } => cases.iter().any(|case| continues(&case.body)),
        _ => false,
    })
}

/// Tells `seen` all functions that a block calls.
///
/// One may be told several times.
pub fn calls(block: &Block, seen: &mut impl FnMut(Handle<Function>)) {
    for statement in block.iter() {
        match statement {
            Statement::Call { function, .. } => seen(*function),
            Statement::Block(inner) => calls(inner, seen),
            Statement::If { accept, reject, .. } => {
                calls(accept, seen);
                calls(reject, seen);
            }
            Statement::Switch { cases, .. } => cases.iter().for_each(|case| calls(&case.body, seen)),
            Statement::Loop { body, continuing, .. } => {
                calls(body, seen);
                calls(continuing, seen);
            }
            _ => {}
        }
    }
}

//! The instructions of a template with checks around those whose cost grows with their operands. The library counts steps
//! only, and one step may double a text, so the checks are calls of functions that no template can name.
//!
//! A check is a call that takes the operands off the stack and puts them back. Jumps are moved to where
//! their targets are after the insertion.

use super::budget::{self, Result};
use minijinja::machinery::{CompiledTemplate, Instruction, Instructions};
use minijinja::value::{Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, Output, State, escape_formatter};

/// Names of the checks. `!` cannot be part of a template's names.
///
/// Measures operands that an instruction looks through.
const LOOK: &str = "!look";
const INDEX: &str = "!index";
/// Before a text or list is repeated.
const MULTIPLY: &str = "!multiply";
/// Counts a result.
const MADE: &str = "!made";
/// Before an attribute of a namespace is set.
const SET: &str = "!set";
/// Before a macro keeps its surroundings.
const ENCLOSE: &str = "!enclose";

/// Adds the checks to an environment.
pub fn add_checks(environment: &mut Environment) {
    environment.add_function(LOOK, |operands: Rest<ValueOrKwargs>| -> Result<Value> {
        let operands = operands.into_values();
        operands.iter().try_for_each(|operand| budget::measure(operand).map(drop))?;
        Ok(put_back(operands))
    });
    environment.add_function(INDEX, |value: Value, index: Value| -> Result<Value> {
        // A character is looked for from the text's beginning; a list is not looked through.
        budget::work(value.as_str().map_or(0, str::len) / 64)?;
        Ok(put_back(vec![value, index]))
    });
    environment.add_function(MULTIPLY, |a: Value, b: Value| -> Result<Value> {
        check_product(&a, &b)?;
        check_product(&b, &a)?;
        Ok(put_back(vec![a, b]))
    });
    environment.add_function(MADE, |value: ValueOrKwargs| budget::count_value(value.into(), false));
    environment.add_function(SET, |value: Value, namespace: Value| -> Result<Value> {
        // As a part: a namespace that holds a namespace could come to hold itself.
        budget::measure(&Value::from(vec![value.clone()]))?;
        budget::make(budget::SLOT)?;
        Ok(put_back(vec![value, namespace]))
    });
    // What a macro encloses is kept to the end.
    environment.add_function(ENCLOSE, || -> Result<Value> {
        budget::make(2 * budget::SLOT)?;
        Ok(put_back(Vec::new()))
    });
    environment.set_formatter(print);
}

/// Operands as the list that `UnpackList` puts back on the stack: it reverses.
fn put_back(mut operands: Vec<Value>) -> Value {
    operands.reverse();
    Value::from(operands)
}

/// Fails if `value`, repeated so often, would be too large.
fn check_product(value: &Value, times: &Value) -> Result<()> {
    if !matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Iterable) {
        return Ok(());
    }
    let bytes = budget::measure(value)?;
    budget::check_size(bytes.saturating_mul(times.as_usize().unwrap_or(0)))
}

fn print(out: &mut Output, state: &mut State, value: &Value) -> std::result::Result<(), Error> {
    // Escaping makes at most six characters of one.
    let escapes = if matches!(state.auto_escape(), AutoEscape::None) { 1 } else { 6 };
    budget::make(budget::printed_len(value)? * escapes)?;
    escape_formatter(out, state, value)
}

/// A compiled template with its checks.
pub fn guard(template: &mut CompiledTemplate<'_>) {
    template.instructions = with_checks(&template.instructions);
    for block in template.blocks.values_mut() {
        *block = with_checks(block);
    }
}

/// The same instructions with checks before and after.
fn with_checks<'s>(old: &Instructions<'s>) -> Instructions<'s> {
    let all: Vec<&Instruction<'s>> = (0..).map_while(|at| old.get(at)).collect();
    // Where each instruction and its checks begin.
    let mut starts = Vec::with_capacity(all.len() + 1);
    let mut count = 0;
    for instruction in &all {
        starts.push(count);
        let (before, after) = checks(instruction);
        count += (2 * usize::from(before.is_some()) + 1 + usize::from(after)) as u32
            + u32::from(matches!(instruction, Instruction::EmitRaw(_)));
    }
    starts.push(count);
    let mut new = Instructions::new(old.name(), old.source());
    for (at, instruction) in all.iter().enumerate() {
        let line = old.get_line(at as u32).unwrap_or(0) as u16;
        let (before, after) = checks(instruction);
        let mut add = |instruction| new.add_with_line(instruction, line);
        if let Some((check, operands)) = before {
            add(Instruction::CallFunction(check, Some(operands as u16)));
            add(Instruction::UnpackList(operands));
        }
        if let Instruction::EmitRaw(text) = instruction {
            // Printed like a value, so that it counts.
            add(Instruction::LoadConst(Value::from(*text)));
            add(Instruction::Emit);
        } else {
            add(move_target(instruction, &starts));
        }
        if after {
            add(Instruction::CallFunction(MADE, Some(1)));
        }
    }
    new
}

/// The check of an instruction's operands with their number, and whether its result is one that it made.
fn checks(instruction: &Instruction<'_>) -> (Option<(&'static str, usize)>, bool) {
    use Instruction as I;
    match instruction {
        I::Eq | I::Ne | I::Gt | I::Gte | I::Lt | I::Lte | I::In | I::CompareAndPreserve(_) => {
            (Some((LOOK, 2)), false)
        }
        I::Add | I::StringConcat => (Some((LOOK, 2)), true),
        I::Mul => (Some((MULTIPLY, 2)), true),
        I::Slice => (Some((LOOK, 4)), true),
        I::GetItem => (Some((INDEX, 2)), false),
        I::SetAttr(_) => (Some((SET, 2)), false),
        I::Enclose(_) | I::BuildMacro(..) => (Some((ENCLOSE, 0)), false),
        I::PushLoop(_) => (Some((LOOK, 1)), false),
        I::UnpackLists(count) => (Some((LOOK, *count)), false),
        I::BuildMap(_) | I::BuildList(_) | I::BuildTuple(_) | I::MergeKwargs(_) => (None, true),
        _ => (None, false),
    }
}

/// An instruction with its target where that now is.
fn move_target<'s>(instruction: &Instruction<'s>, starts: &[u32]) -> Instruction<'s> {
    use Instruction as I;
    let to = |target: &u32| starts.get(*target as usize).copied().unwrap_or(*target);
    match instruction {
        I::Iterate(target) => I::Iterate(to(target)),
        I::Jump(target) => I::Jump(to(target)),
        I::JumpIfFalse(target) => I::JumpIfFalse(to(target)),
        I::JumpIfFalseOrPop(target) => I::JumpIfFalseOrPop(to(target)),
        I::JumpIfTrueOrPop(target) => I::JumpIfTrueOrPop(to(target)),
        I::BuildMacro(name, target, flags) => I::BuildMacro(name, to(target), *flags),
        other => other.clone(),
    }
}

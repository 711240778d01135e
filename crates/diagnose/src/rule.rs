//! When an operator fails, as far as its recorded calls tell: what all calls that fail have in common, and no other has.
//!
//! Only operators of others get a rule. What a condition looks like is fixed by `tapml_migrate::attributes`.

use crate::context::DiagnosisContext;
use crate::group::Group;
use crate::report::{Fault, UNKNOWN};
use std::collections::{BTreeMap, BTreeSet};
use tapml_cause::Cause;
use tapml_graph::{Op, Result, TensorType};
use tapml_migrate::attributes::condition;
use tapml_migrate::suite::Case;

/// Sizes that vectors and tiles of kernels have: where a size is no multiple of one, a tail is left.
/// Smaller ones come first, because a smaller one says more.
const DIVISORS: [u64; 7] = [2, 3, 4, 8, 16, 32, 64];

/// Conditions that one call meets, the more telling ones first.
/// Texts serve as keys: equal conditions of different calls have equal texts.
struct Met {
    /// Attributes, then types, then sizes.
    conditions: Vec<String>,
    /// Whether the call is wrong.
    failed: bool,
}

/// Adds to a fault of an operator of others when it shows: the condition that its cause names, with the calls that meet it, or
/// else one that just the failing calls meet.
pub(crate) fn add_rule(run: &DiagnosisContext<'_>, group: &Group, fault: &mut Fault) -> Result<()> {
    let graph = run.suite.graph();
    let foreign = |case: Case| matches!(graph.node(case.node).op, Op::Foreign(_));
    if !group.results.iter().all(|result| foreign(result.case)) {
        return Ok(());
    }
    let names = attribute_names(run, group);
    let met = group.results.iter().map(|result| {
        let node = graph.node(result.case.node);
        let mut conditions = of_attributes(&node.op, &names);
        conditions.extend(of_types(&graph.input_types(node)));
        Met { conditions, failed: result.is_failed() }
    });
    let met: Vec<Met> = met.collect();
    fault.rule = match fault.rule.take() {
        Some(rule) => Some(with_calls(&met, rule)),
        // A cause that says nothing of the call, such as stale memory, has no such rule.
        None if [UNKNOWN, Cause::Crash.name()].contains(&fault.cause.as_str()) => find_separating(&met),
        None => None,
    };
    Ok(())
}

/// The names of all attributes that a node of the group has.
fn attribute_names(run: &DiagnosisContext<'_>, group: &Group) -> BTreeSet<String> {
    let nodes = group.results.iter().map(|result| run.suite.graph().node(result.case.node));
    let attributes = nodes.map(|node| node.op.attributes());
    attributes
        .filter_map(|a| Some(a.as_object()?.keys().cloned().collect::<Vec<String>>()))
        .flatten()
        .collect()
}

/// One condition per attribute name that any node has; a missing attribute is a condition too.
fn of_attributes(op: &Op, names: &BTreeSet<String>) -> Vec<String> {
    let attributes = op.attributes();
    names.iter().map(|name| condition(name, attributes.get(name))).collect()
}

/// Conditions on the number, the types and the fixed sizes of inputs. Sizes that are symbols differ from run to run.
fn of_types(types: &[TensorType]) -> Vec<String> {
    let mut conditions = vec![format!("there are {} inputs", types.len())];
    for (i, ty) in types.iter().enumerate() {
        conditions.push(format!("input {i} is {}", ty.dtype));
        conditions.push(format!("input {i} has {} axes", ty.shape.len()));
    }
    for (i, ty) in types.iter().enumerate() {
        for (axis, size) in ty.shape.iter().enumerate() {
            let Some(size) = size.as_const() else { continue };
            // The condition on a tail stands before the one on the exact size, which is rarely the reason.
            let no_multiple = DIVISORS.iter().filter(|&divisor| !size.is_multiple_of(*divisor));
            let axis = format!("size {axis} of input {i}");
            conditions.extend(no_multiple.map(|divisor| format!("{axis} is no multiple of {divisor}")));
            conditions.push(format!("{axis} is {size}"));
        }
    }
    conditions
}

/// A rule with how many calls that meet it fail, and how many others.
fn with_calls(met: &[Met], rule: String) -> String {
    let (inside, outside): (Vec<&Met>, Vec<&Met>) = met.iter().partition(|m| m.conditions.contains(&rule));
    // The cause names a condition in words of its own; there is nothing to count.
    if inside.is_empty() {
        return rule;
    }
    let failed = |calls: &[&Met]| calls.iter().filter(|m| m.failed).count();
    let others = match outside.len() {
        0 => "there is no other call".into(),
        all => format!("{} of {all} others", failed(&outside)),
    };
    format!("{rule}: {} of {} such calls fail, {others}", failed(&inside), inside.len())
}

/// The first condition that all failing calls meet, and no other.
fn find_separating(met: &[Met]) -> Option<String> {
    let failing: Vec<&Met> = met.iter().filter(|m| m.failed).collect();
    let right: Vec<&Met> = met.iter().filter(|m| !m.failed).collect();
    // Without a right call every condition of a failing one would separate.
    let first = failing.first().filter(|_| !right.is_empty())?;
    let mut counts: BTreeMap<&str, [bool; 2]> = BTreeMap::new();
    for condition in &first.conditions {
        let all = failing.iter().all(|m| m.conditions.contains(condition));
        let none = !right.iter().any(|m| m.conditions.contains(condition));
        counts.insert(condition, [all, none]);
    }
    let mut rules = first.conditions.iter().filter(|condition| counts[condition.as_str()] == [true, true]);
    let told = with_calls(met, rules.next()?.clone());
    Some(match rules.count() {
        0 => told,
        1 => format!("{told}; 1 other condition tells them apart as well"),
        more => format!("{told}; {more} other conditions tell them apart as well"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meet_conditions(conditions: &[&str], failed: bool) -> Met {
        Met { conditions: conditions.iter().map(ToString::to_string).collect(), failed }
    }

    #[test]
    fn what_just_the_failing_calls_have_is_the_rule() {
        let calls = [
            meet_conditions(&["`group` is 4", "input 0 is f32", "size 1 is no multiple of 4"], true),
            meet_conditions(&["`group` is 2", "input 0 is f32", "size 1 is no multiple of 4"], true),
            meet_conditions(&["`group` is 4", "input 0 is f32"], false),
        ];
        let rule = find_separating(&calls).unwrap();
        assert_eq!(rule, "size 1 is no multiple of 4: 2 of 2 such calls fail, 0 of 1 others");
        assert_eq!(find_separating(&calls[..2]), None, "with no call that passes nothing is known");
        let told = find_separating(&calls[1..]).unwrap();
        assert_eq!(
            told,
            "`group` is 2: 1 of 1 such calls fail, 0 of 1 others; 1 other condition tells them apart as well"
        );
    }

    #[test]
    fn a_rule_of_the_cause_is_told_with_the_calls_that_meet_it() {
        let calls = [
            meet_conditions(&["`axis` is 1"], true),
            meet_conditions(&["`axis` is 0"], false),
            meet_conditions(&["`axis` is 1"], false),
        ];
        let told = with_calls(&calls, "`axis` is 1".into());
        assert_eq!(told, "`axis` is 1: 1 of 2 such calls fail, 0 of 1 others");
        assert_eq!(with_calls(&calls, "input 2 is given".into()), "input 2 is given");
    }
}

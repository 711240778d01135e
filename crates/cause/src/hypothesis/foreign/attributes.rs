//! Attributes of an operator of others that a platform ignores, or reads as something else.
//!
//! Each trial carries a condition on the attribute, which `tapml-diagnose` turns into the rule of a fault.

use super::known;
use super::subject::{Assumed, ForeignSubject};
use crate::Cause;
use crate::trials::{Rank, Trials};
use serde_json::{Map, Value};
use tapml_migrate::attributes::{AS_ZERO, Variant, condition, short, variants};

/// Every attribute left out, alone and with another one that means nothing without it, and with other values.
/// Values are those that `tapml_migrate::attributes::variants` lists for the name.
pub(in crate::hypothesis) fn try_changed(trials: &mut Trials<'_, '_>) {
    let Some(subject) = ForeignSubject::from_trials(trials) else { return };
    let own = subject.op.attributes().clone();
    for name in own.keys() {
        let fits = left_out(trials, &subject, name, None);
        let others = || own.keys().filter(|other| *other != name);
        // A second attribute is left out only where the first alone does not explain it: pairs are many.
        if !fits {
            others().any(|other| left_out(trials, &subject, name, Some(other)));
        }
    }
    for (name, value) in &own {
        let rank = subject.inputs.first().map_or(0, |input| input.shape().len());
        for Variant { value: other, how } in variants(name, value, rank) {
            let assumed = Assumed {
                cause: Cause::WrongAttribute,
                // What a platform assumes that never looks at the attribute.
                rank: if how == AS_ZERO { Rank::Named } else { Rank::Placed },
                note: format!("`{name}` {how}: {} in the place of {}", short(&other), short(value)),
                rule: condition(name, Some(value)),
            };
            let mut attributes = own.clone();
            attributes.insert(name.clone(), other);
            subject.test_attributes(trials, assumed, attributes);
        }
    }
}

/// Whether an attribute left out, and another one with it, is what was computed.
///
/// The note names both; the condition names the first.
fn left_out(
    trials: &mut Trials<'_, '_>,
    subject: &ForeignSubject,
    name: &str,
    with: Option<&String>,
) -> bool {
    let mut attributes = subject.op.attributes().clone();
    let value = attributes.remove(name).unwrap_or_default();
    let beside = with.map(|with| format!(", and `{with}` with it")).unwrap_or_default();
    with.map(|with| attributes.remove(with));
    let assumed = Assumed {
        cause: Cause::WrongAttribute,
        rank: if with.is_some() { Rank::Placed } else { Rank::Named },
        note: format!("`{name}` is ignored{beside}: it is {}", short(&value)),
        rule: condition(name, Some(&value)),
    };
    subject.test_attributes(trials, assumed, attributes).fits()
}

/// Attributes that are absent, taken for something else than what the standard says of them then.
/// The table names the operators whose defaults are known.
pub(in crate::hypothesis) fn try_assumed(trials: &mut Trials<'_, '_>) {
    let Some(subject) = ForeignSubject::from_trials(trials) else { return };
    let own: &Map<String, Value> = subject.op.attributes();
    let absent = known::ABSENT
        .iter()
        .filter(|known| known.op == subject.op.name() && !own.contains_key(known.attribute));
    for known::Absent { attribute, default, other, .. } in absent {
        // The table holds valid JSON; a row that is not would be skipped.
        let Ok(value) = serde_json::from_str(other) else { continue };
        let assumed = Assumed {
            cause: Cause::WrongAttribute,
            rank: Rank::Named,
            note: format!("`{attribute}` is absent, and taken for {other} instead of {default}"),
            rule: condition(attribute, None),
        };
        let mut attributes = own.clone();
        attributes.insert((*attribute).into(), value);
        subject.test_attributes(trials, assumed, attributes);
    }
}

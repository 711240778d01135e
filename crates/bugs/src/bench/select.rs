//! Which mutants are tried, and in which order: every operator of every model gets its turn before any gets a second.

use crate::mutant::{Family, Mutant};
use std::collections::HashMap;

/// Which mutants are tried.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Families; all if empty.
    pub families: Vec<Family>,
    /// Operators of models; all if empty.
    pub ops: Vec<String>,
    /// Ids; all if empty.
    pub ids: Vec<String>,
    /// At most so many; all if `None`.
    pub limit: Option<usize>,
    /// At most so many of each mutation operator in each operator, of all models together; all if `None`.
    pub each: Option<usize>,
    /// Decides which of equal ones come first.
    pub seed: u64,
}

/// A number that depends on the text and the seed alone.
fn draw(text: &str, seed: u64) -> u64 {
    let hash = blake3::hash(format!("{seed}/{text}").as_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(bytes)
}

/// Whether a mutant, a clean run or anything else of this name is among those that constants were tuned on; the others
/// are held out.
pub fn tuned_on(id: &str) -> bool {
    draw(id, 0).is_multiple_of(2)
}

impl Selection {
    /// Whether the mutant is of the families, operators and ids, so that it may be chosen.
    pub fn includes(&self, m: &Mutant) -> bool {
        (self.families.is_empty() || self.families.contains(&m.family))
            && (self.ops.is_empty() || self.ops.contains(&m.op))
            && (self.ids.is_empty() || self.ids.contains(&m.id))
    }

    /// The chosen mutants in the order in which they are tried.
    pub fn choose_mutants(&self, mutants: impl IntoIterator<Item = Mutant>) -> Vec<Mutant> {
        let included = mutants.into_iter().filter(|m| self.includes(m));
        let mut all: Vec<(u64, Mutant)> = included.map(|m| (draw(&m.id, self.seed), m)).collect();
        // By the drawn number, and by id where two draw the same.
        all.sort_by(|a, b| (a.0, &a.1.id).cmp(&(b.0, &b.1.id)));
        // The rank within its kind decides first: model, operator of the model, mutation operator.
        let mut kinds: HashMap<(String, String, String), usize> = HashMap::new();
        let mut ranked: Vec<(usize, u64, Mutant)> = Vec::with_capacity(all.len());
        for (number, mutant) in all {
            let kind = (mutant.model.clone(), mutant.op.clone(), mutant.operator.clone());
            let rank = kinds.entry(kind).or_default();
            ranked.push((*rank, number, mutant));
            *rank += 1;
        }
        // All first ones of their kinds, then all second ones.
        ranked.sort_by_key(|(rank, number, _)| (*rank, *number));
        let mut taken: HashMap<(String, String), usize> = HashMap::new();
        // `each` counts over models, unlike the kinds above.
        let mut wanted = |m: &Mutant| {
            let count = taken.entry((m.op.clone(), m.operator.clone())).or_default();
            *count += 1;
            self.each.is_none_or(|each| *count <= each)
        };
        let limit = self.limit.unwrap_or(usize::MAX);
        ranked.into_iter().map(|(_, _, mutant)| mutant).filter(|m| wanted(m)).take(limit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Diagnosed, PlannedCase};
    use crate::mutant::Edit;

    #[test]
    fn a_diagnosis_is_kept_for_the_same_faults_only() {
        let mutants = vec![mutant("a", "linear", 1), mutant("a", "append", 2)];
        let case = PlannedCase { name: "several/a/0.0".into(), model: "a".into(), mutants };
        let told = |bugs: &[&str], equivalent: &[&str]| {
            let ids = |ids: &[&str]| ids.iter().map(|id| format!("a/{id}")).collect::<Vec<_>>();
            let (bugs, equivalent) = (ids(bugs), ids(equivalent));
            let told = serde_json::json!({ "name": case.name, "model": "a", "tuned_on": false, "reports": [],
                "named": 0, "seconds": 0.0, "bugs": bugs, "equivalent": equivalent });
            case.is_of(&serde_json::from_value::<Diagnosed>(told).unwrap())
        };
        assert!(
            told(&["append/late/2", "linear/late/1"], &[]) && told(&["linear/late/1"], &["append/late/2"])
        );
        assert!(!told(&["linear/late/1"], &[]) && !told(&["linear/late/1", "append/late/3"], &[]));
        assert!(!told(&["linear/late/1", "append/late/2", "append/late/3"], &[]));
    }

    fn mutant(model: &str, op: &str, number: usize) -> Mutant {
        Mutant {
            id: format!("{model}/{op}/late/{number}"),
            model: model.into(),
            family: if op == "append" { Family::State } else { Family::Between },
            operator: "late".into(),
            op: op.into(),
            row: String::new(),
            parts: Vec::new(),
            target: String::new(),
            source: String::new(),
            edit: Edit::Late,
            diff: String::new(),
            causes: Vec::new(),
        }
    }

    #[test]
    fn kinds_take_turns_and_seeds_change_the_order() {
        let all: Vec<Mutant> = ["a", "b"]
            .iter()
            .flat_map(|m| {
                ["linear", "append"].iter().flat_map(move |op| (0..9).map(move |i| mutant(m, op, i)))
            })
            .collect();
        let chosen = Selection { limit: Some(4), ..Selection::default() }.choose_mutants(all.clone());
        let mut kinds: Vec<String> = chosen.iter().map(|m| format!("{}{}", m.model, m.op)).collect();
        kinds.sort();
        assert_eq!(kinds, ["aappend", "alinear", "bappend", "blinear"]);
        let ids = |seed| {
            let selection = Selection { seed, ..Selection::default() };
            selection.choose_mutants(all.clone()).into_iter().map(|m| m.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(1), ids(1));
        assert_ne!(ids(1), ids(2));
        let state =
            Selection { families: vec![Family::State], ops: vec!["append".into()], ..Selection::default() };
        assert_eq!(state.choose_mutants(all.clone()).len(), 18);
        let each = Selection { each: Some(3), ..Selection::default() }.choose_mutants(all.clone());
        let of = |op: &str| each.iter().filter(|m| m.op == op).count();
        assert_eq!((of("linear"), of("append")), (3, 3), "of both models together");
        let half = all.iter().filter(|m| tuned_on(&m.id)).count();
        assert!((8..=28).contains(&half), "{half} of 36");
    }
}

//! Applying rules until none of them finds a place.

use super::{Patch, RULES, Rule};
use crate::error::{Context, Error, Result};
use crate::graph::Graph;
use crate::known_names::known_names;
use serde::{Deserialize, Serialize};

/// One application of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The rule's name.
    pub rule: String,
    /// Names of what was removed: nodes, and weights without a user.
    pub before: Vec<String>,
    /// Names of the nodes put in their place.
    pub after: Vec<String>,
}

/// Applies the rules of these names, in this order, again and again until none finds a place.
/// The graph is verified after every change. Errors name the rule.
pub fn rewrite(graph: &Graph, rules: &[&str]) -> Result<(Graph, Vec<Applied>)> {
    let rules = rules.iter().map(|name| find(name)).collect::<Result<Vec<Rule>>>()?;
    let mut graph = graph.clone();
    let mut applied = Vec::new();
    // Each rule removes more nodes and weights than it adds, so this many rounds always suffice.
    for _ in 0..=graph.values().len() + 1 {
        let before = applied.len();
        for rule in &rules {
            if let Some(next) =
                step(&graph, rule, &mut applied).context(|| format!("rule `{}`", rule.name))?
            {
                graph = next;
            }
        }
        if applied.len() == before {
            return Ok((graph, applied));
        }
    }
    let names: Vec<&str> = rules.iter().map(|r| r.name).collect();
    Err(Error::bug(format!("the rules {} undo each other", names.join(", "))))
}

/// Applies all of [`RULES`] until none finds a place.
pub fn fuse(graph: &Graph) -> Result<Graph> {
    let names: Vec<&str> = RULES.iter().map(|r| r.name).collect();
    Ok(rewrite(graph, &names)?.0)
}

/// The rule of this name.
///
/// # Errors
/// If there is none; the hint lists all.
fn find(name: &str) -> Result<Rule> {
    RULES.iter().find(|r| r.name == name).copied().ok_or_else(|| {
        Error::invalid(format!("unknown rule `{}`", name.escape_debug()))
            .with_hint(known_names(name, RULES.iter().map(|r| r.name)))
    })
}

/// Applies one rule once, at all of its places; `None` if there is none.
fn step(graph: &Graph, rule: &Rule, applied: &mut Vec<Applied>) -> Result<Option<Graph>> {
    let mut patch = Patch::new(graph);
    (rule.apply)(graph, &mut patch)?;
    if patch.is_empty() {
        return Ok(None);
    }
    let (graph, edits) = patch.apply()?;
    applied.extend(edits.into_iter().map(|edit| Applied {
        rule: rule.name.to_string(),
        before: edit.before,
        after: edit.after,
    }));
    Ok(Some(graph))
}

//! Every row of the kernel list is one that calls of a model run on. Which rows these are is what a test finds by planning
//! (`crates/migrate/tests/kernel_rows.rs`); this rule compares the list with what the test wrote.

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::Path;
use syn::visit::Visit;

const LIST: &str = "crates/kernels/src/kernel/list.rs";
const REACHED: &str = "docs/data/kernel_rows.tsv";

pub fn check(root: &Path, errors: &mut Vec<String>) -> Result<()> {
    let list = std::fs::read_to_string(root.join(LIST)).context(LIST)?;
    let reached = std::fs::read_to_string(root.join(REACHED)).context(REACHED)?;
    errors.extend(compare(&rows(&list)?, &reached));
    Ok(())
}

/// The names of the rows of the list.
fn rows(list: &str) -> Result<BTreeSet<String>> {
    let mut names = Names(BTreeSet::new());
    for item in syn::parse_file(list).context(LIST)?.items {
        if let syn::Item::Const(item) = item
            && item.ident == "KERNELS"
        {
            names.visit_expr(&item.expr);
        }
    }
    anyhow::ensure!(!names.0.is_empty(), "{LIST}: no rows in `KERNELS`");
    Ok(names.0)
}

/// Collects the texts of the form `OP/VARIANT` but for a row's second name.
struct Names(BTreeSet<String>);

impl<'a> Visit<'a> for Names {
    fn visit_field_value(&mut self, field: &'a syn::FieldValue) {
        if !matches!(&field.member, syn::Member::Named(name) if name == "also") {
            syn::visit::visit_field_value(self, field);
        }
    }

    fn visit_lit_str(&mut self, text: &'a syn::LitStr) {
        let text = text.value();
        if text.split_once('/').is_some() {
            self.0.insert(text);
        }
    }
}

fn compare(rows: &BTreeSet<String>, reached: &str) -> Vec<String> {
    let mut known = BTreeSet::new();
    let mut errors = Vec::new();
    for line in reached.lines().skip(1) {
        let (row, model) = line.split_once('\t').unwrap_or((line, ""));
        known.insert(row.to_string());
        if model.is_empty() || model.trim_end() == "none:" {
            errors.push(format!("{REACHED}: `{row}` names neither a model nor why there is none"));
        }
    }
    let advice = "run the test `kernel_rows` with TAPML_BLESS=1";
    let missing = rows.difference(&known);
    errors.extend(missing.map(|row| format!("no model reaches the kernel row `{row}` of {LIST}; {advice}")));
    let gone = known.difference(rows);
    errors.extend(gone.map(|row| format!("{REACHED} has `{row}`, which is no kernel row; {advice}")));
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"
        const fn portable(name: &str) {}
        pub const KERNELS: &[KernelRow] = &[
            portable("linear/portable", linear::plan),
            KernelRow { also: Some("add/row"), ..portable("add/portable", add::plan) },
        ];
    "#;

    #[test]
    fn a_row_without_a_model_is_found() {
        let rows = rows(SAMPLE).unwrap();
        assert_eq!(rows.iter().collect::<Vec<_>>(), ["add/portable", "linear/portable"]);
        let all = "row\tmodel\nadd/portable\tllama\nlinear/portable\tnone: no such model\n";
        assert!(compare(&rows, all).is_empty());
        let found = compare(&rows, "row\tmodel\nadd/portable\tllama\n");
        assert!(found.len() == 1 && found[0].contains("`linear/portable`"), "{found:?}");
        let found = compare(&rows, &format!("{all}mul/portable\tllama\n"));
        assert!(found.len() == 1 && found[0].contains("`mul/portable`, which is no kernel row"), "{found:?}");
        let found = compare(&rows, "row\tmodel\nadd/portable\t\nlinear/portable\tnone: \n");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(super::rows("const OTHER: u32 = 1;").is_err());
    }
}

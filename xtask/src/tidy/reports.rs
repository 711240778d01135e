//! Every field of a JSON report is named on `docs/reference/reports.md`: what users may rely on is what they can read.
//!
//! Reports are the types whose names end in `Report`, and those of [`ROOTS`]. A field is named where a piece of code of the page
//! has it as a word.

use super::File;
use anyhow::{Context, Result};
use std::collections::HashSet;
use std::path::Path;
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ExprLit, Item, Lit, Meta, Token};

/// From the root.
const PAGE: &str = "docs/reference/reports.md";
/// Reports whose types are called otherwise.
const ROOTS: [&str; 2] = ["Diagnosis", "SuiteScore"];

/// Says which fields the page lacks.
pub fn check(root: &Path, files: &[File], errors: &mut Vec<String>) -> Result<()> {
    let page = std::fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    let words = named_words(&page);
    for file in files.iter().filter(|file| file.path.starts_with("crates") && !file.is_test()) {
        // Most files write nothing, and parsing takes time.
        if !file.text.contains("Serialize") {
            continue;
        }
        let path = file.path.display();
        for (report, field) in fields(&syn::parse_file(&file.text).with_context(|| path.to_string())?.items) {
            if !words.contains(field.as_str()) {
                errors.push(format!("{path}: the field `{field}` of `{report}` is not named in {PAGE}"));
            }
        }
    }
    Ok(())
}

/// The words of the page's pieces of code.
fn named_words(page: &str) -> HashSet<&str> {
    let code = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    code.flat_map(|code| code.split(|c: char| !c.is_alphanumeric() && c != '_')).collect()
}

/// The reports among these items with the names of the fields that are written.
fn fields(items: &[Item]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for item in items {
        let Item::Struct(item) = item else { continue };
        let report = item.ident.to_string();
        let is_report = report.ends_with("Report") || ROOTS.contains(&report.as_str());
        if !is_report || !derives_serialize(&item.attrs) {
            continue;
        }
        for field in &item.fields {
            // The fields of what is flattened are those of another type.
            let hidden = ["skip", "skip_serializing", "flatten"];
            let Some(name) = &field.ident else { continue };
            if hidden.iter().all(|option| serde_option(&field.attrs, option).is_none()) {
                let renamed = serde_option(&field.attrs, "rename");
                found.push((report.clone(), renamed.unwrap_or_else(|| name.to_string())));
            }
        }
    }
    found
}

fn derives_serialize(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("derive")).any(|attribute| {
        let derived = attribute.parse_args_with(Punctuated::<syn::Path, Token![,]>::parse_terminated);
        let serializes = |path: &syn::Path| path.segments.last().is_some_and(|s| s.ident == "Serialize");
        derived.is_ok_and(|paths| paths.iter().any(serializes))
    })
}

/// The value of an option of `serde`; empty for one without a value.
fn serde_option(attributes: &[Attribute], option: &str) -> Option<String> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("serde")).find_map(|attribute| {
        let options = attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()?;
        let found = options.iter().find(|meta| meta.path().is_ident(option))?;
        match found {
            Meta::NameValue(pair) => match &pair.value {
                Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
                _ => Some(String::new()),
            },
            _ => Some(String::new()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_are_written_are_found_and_looked_for() {
        let text = r#"
            #[derive(Clone, serde::Serialize)]
            pub struct RunReport {
                state: u32,
                #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
                place: Option<u32>,
                #[serde(skip)]
                inner: u32,
                #[serde(flatten)]
                more: More,
            }
            #[derive(Serialize)]
            struct More { other: u32 }
            #[derive(Deserialize)]
            struct ReadReport { given: u32 }
        "#;
        let found: Vec<String> =
            fields(&syn::parse_file(text).unwrap().items).into_iter().map(|(_, f)| f).collect();
        assert_eq!(found, ["state", "where"]);
        let words = named_words("The state is `{state, when}`, not where.\nThe `place` of it.\n");
        assert!(words.contains("state") && words.contains("place") && !words.contains("where"));
    }
}

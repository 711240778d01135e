//! `docs/results/records.md`, made from the files of dated records in `docs/results/data`.

use crate::packed::read_text;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The page, from the root.
const PAGE: &str = "docs/results/records.md";

/// Where the files are, from the root.
const FOLDER: &str = "docs/results/data";

const INTRO: &str = "# Recorded runs

Runs behind numbers of other pages, from the files of [data](data/faults.json.gz): one file a section, one record a run or a
case of it. This page is generated. `cargo xtask tidy` checks that it is current. `TAPML_BLESS=1 cargo xtask tidy` writes it.
";

/// A file of records.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordFile {
    schema: u32,
    title: String,
    /// What the records are of, in a sentence or two.
    about: String,
    /// The machine of all of them, where it is known and the records do not say it.
    machine: Option<String>,
    /// What makes them.
    command: Option<String>,
    /// Fields by whose values records are counted on the page. Without any the page has every record.
    #[serde(default)]
    group_by: Vec<String>,
    /// Numbers of which the page has median and spread in each group.
    #[serde(default)]
    medians: Vec<String>,
    records: Vec<Map<String, Value>>,
}

impl RecordFile {
    fn read(path: &Path) -> Result<Self> {
        let label = || path.display().to_string();
        let text = read_text(path).with_context(label)?;
        let file: Self = serde_json::from_str(&text).with_context(label)?;
        ensure!(file.schema == 1, "{}: schema {}, expected 1", path.display(), file.schema);
        for (number, record) in file.records.iter().enumerate() {
            let date = record.get("date").and_then(Value::as_str).unwrap_or_default();
            ensure!(
                is_date(date),
                "{}: record {}: `date` is {date:?}, expected YYYY-MM-DD",
                path.display(),
                number + 1
            );
        }
        Ok(file)
    }

    /// The fields of the records, in the order in which they first stand there.
    fn fields(&self) -> Vec<&str> {
        let mut fields: Vec<&str> = Vec::new();
        for name in self.records.iter().flat_map(Map::keys) {
            if !fields.contains(&name.as_str()) {
                fields.push(name);
            }
        }
        fields
    }

    /// The part of the page about this file, which has this name.
    fn section(&self, name: &str) -> String {
        let mut text = format!("\n## {}\n\n{}\n\n", self.title, self.about);
        let dates: BTreeSet<&str> =
            self.records.iter().filter_map(|record| record.get("date")?.as_str()).collect();
        let count = self.records.len();
        let _ = write!(text, "* {count} records of ");
        let _ = writeln!(text, "{}: [{name}](data/{name})", dates.into_iter().collect::<Vec<_>>().join(", "));
        if let Some(machine) = &self.machine {
            let _ = writeln!(text, "* Machine: {machine}");
        }
        if let Some(command) = &self.command {
            let _ = writeln!(text, "* Command: `{command}`");
        }
        text.push('\n');
        text + &if self.group_by.is_empty() { self.every_record() } else { self.groups() }
    }

    fn every_record(&self) -> String {
        let fields = self.fields();
        let row = |record: &Map<String, Value>| {
            let cells: Vec<String> = fields.iter().map(|field| cell(record.get(*field))).collect();
            cells
        };
        table(&fields, self.records.iter().map(row))
    }

    /// The number of records of each group, with medians and spreads.
    fn groups(&self) -> String {
        let mut groups: BTreeMap<Vec<String>, Vec<&Map<String, Value>>> = BTreeMap::new();
        for record in &self.records {
            let key = self.group_by.iter().map(|field| cell(record.get(field))).collect();
            groups.entry(key).or_default().push(record);
        }
        let names = self.group_by.iter().map(String::as_str).chain(["records"]);
        let fields: Vec<&str> = names.chain(self.medians.iter().map(String::as_str)).collect();
        let row = |(key, records): (Vec<String>, Vec<&Map<String, Value>>)| {
            let medians = self.medians.iter().map(|field| {
                median_and_spread(records.iter().filter_map(|record| record.get(field)?.as_f64()).collect())
            });
            key.into_iter().chain([records.len().to_string()]).chain(medians).collect()
        };
        table(&fields, groups.into_iter().map(row))
    }
}

/// Says what is wrong with the page or the files it is made from; see [`crate::pages::check`].
pub fn check(root: &Path, bless: bool, errors: &mut Vec<String>) -> Result<()> {
    let from = format!("the files in {FOLDER}");
    crate::pages::check(root, (PAGE, &from), make(root), bless, errors)
}

/// The text of the page.
fn make(root: &Path) -> Result<String> {
    let folder = root.join(FOLDER);
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(&folder).context(FOLDER)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.sort();
    let mut text = INTRO.to_string();
    for path in paths {
        let name = path.file_name().context("a file has a name")?.to_string_lossy();
        text += &RecordFile::read(&path)?.section(&name);
    }
    Ok(text)
}

fn is_date(text: &str) -> bool {
    let form =
        |(at, byte): (usize, u8)| if at == 4 || at == 7 { byte == b'-' } else { byte.is_ascii_digit() };
    text.len() == 10 && text.bytes().enumerate().all(form)
}

fn table(fields: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut text = format!("| {} |\n|{}\n", fields.join(" | "), "---|".repeat(fields.len()));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

/// A value in a cell of a table. What is not known is left out.
fn cell(value: Option<&Value>) -> String {
    let text = match value {
        None => return String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    text.replace('|', "\\|").replace('\n', " ")
}

/// The median, and the least and the greatest in brackets.
fn median_and_spread(mut numbers: Vec<f64>) -> String {
    numbers.sort_by(f64::total_cmp);
    let (Some(least), Some(greatest)) = (numbers.first(), numbers.last()) else { return String::new() };
    let middle = numbers.len() / 2;
    let lower = if numbers.len().is_multiple_of(2) { numbers[middle - 1] } else { numbers[middle] };
    format!("{:.1} ({least:.1}–{greatest:.1})", f64::midpoint(lower, numbers[middle]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_page_that_is_not_made_from_the_files_is_a_violation() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let violations = |bless| {
            let mut errors = Vec::new();
            check(root, bless, &mut errors).unwrap();
            errors
        };
        std::fs::create_dir_all(root.join(FOLDER)).unwrap();
        assert!(violations(false)[0].contains("records.md is not what"), "{:?}", violations(false));
        assert_eq!(violations(true), Vec::<String>::new());
        assert_eq!(violations(false), Vec::<String>::new());
        let file = r#"{"schema":1,"title":"T","about":"A.","records":[{"date":"2026-01-02"}]}"#;
        std::fs::write(root.join(FOLDER).join("a.json"), file).unwrap();
        assert!(violations(false)[0].contains("from line 5 on"), "{:?}", violations(false));
        std::fs::write(root.join(FOLDER).join("a.json"), "{}").unwrap();
        assert!(violations(false)[0].contains("a.json: missing field"), "{:?}", violations(false));
    }

    fn page(file: &str) -> Result<String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join(FOLDER)).unwrap();
        std::fs::write(folder.path().join(FOLDER).join("a.json"), file).unwrap();
        make(folder.path())
    }

    #[test]
    fn every_record_is_a_row_and_what_is_not_known_is_empty() {
        let text = page(
            r#"{"schema":1,"title":"T","about":"A.","machine":"M","command":"C","records":[
            {"date":"2026-01-02","commit":"abc","ms":1.50},{"date":"2026-01-03","ms":2,"told":"a|b"}]}"#,
        )
        .unwrap();
        let rows = "| date | commit | ms | told |\n|---|---|---|---|\n| 2026-01-02 | abc | 1.5 |  |\n| 2026-01-03 |  | 2 | a\\|b |\n";
        assert!(text.contains(rows), "{text}");
        let about = "A.\n\n* 2 records of 2026-01-02, 2026-01-03: [a.json](data/a.json)\n* Machine: M\n* Command: `C`\n";
        assert!(text.contains(about), "{text}");
    }

    #[test]
    fn groups_have_counts_medians_and_spreads() {
        let records: Vec<String> = [("x", 4.0), ("y", 7.0), ("x", 1.0), ("x", 2.0), ("y", 8.0)]
            .map(|(kind, us)| format!(r#"{{"date":"2026-01-02","kind":"{kind}","us":{us}}}"#))
            .to_vec();
        let text = page(&format!(
            r#"{{"schema":1,"title":"T","about":"A.","group_by":["kind"],"medians":["us"],"records":[{}]}}"#,
            records.join(",")
        ))
        .unwrap();
        assert!(text.contains("| x | 3 | 2.0 (1.0–4.0) |\n| y | 2 | 7.5 (7.0–8.0) |\n"), "{text}");
    }

    #[test]
    fn a_record_without_a_date_is_refused() {
        for record in ["{}", r#"{"date":"yesterday"}"#, r#"{"date":"2026-1-02 "}"#, r#"{"date":5}"#] {
            let file = format!(r#"{{"schema":1,"title":"T","about":"A.","records":[{record}]}}"#);
            let error = format!("{:#}", page(&file).unwrap_err());
            assert!(error.contains("record 1: `date`"), "{error}");
        }
        let error =
            format!("{:#}", page(r#"{"schema":2,"title":"T","about":"A.","records":[]}"#).unwrap_err());
        assert!(error.contains("schema 2, expected 1"), "{error}");
    }
}

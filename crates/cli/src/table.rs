//! Tables without borders that fit the terminal.
//!
//! A table that is wider than the terminal leaves columns out, those that its maker names as least important first, and says which.
//! What is still too wide is broken within its cells. Where standard output is no terminal a table is whole: other programs read it.

use comfy_table::{ContentArrangement, presets};
use std::fmt;

/// A header, and rows of as many cells.
pub struct ReportTable {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Columns that may be left out, the least important one first.
    optional: Vec<&'static str>,
}

impl ReportTable {
    /// A table without rows.
    pub fn new(header: &[&str]) -> ReportTable {
        let header = header.iter().map(ToString::to_string).collect();
        ReportTable { header, rows: Vec::new(), optional: Vec::new() }
    }

    /// Names the columns that a narrow terminal may leave out, the least important one first.
    pub fn with_optional(mut self, columns: &[&'static str]) -> ReportTable {
        self.optional = columns.to_vec();
        self
    }

    /// Adds a row.
    pub fn add_row<T: ToString>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(|cell| cell.to_string()).collect());
    }

    /// The text for so many columns of a terminal, or for any width.
    fn fit(&self, width: Option<u16>) -> String {
        let mut left_out = Vec::new();
        let mut optional = self.optional.iter().copied();
        loop {
            let table = self.shown_columns(&left_out);
            let text = table.to_string();
            let Some(width) = width.filter(|&width| widest(&text) > usize::from(width)) else {
                return text + &footnote(&left_out);
            };
            match optional.next() {
                Some(column) => left_out.push(column),
                None => return break_cells(table, width) + &footnote(&left_out),
            }
        }
    }

    /// The table without these columns.
    fn shown_columns(&self, left_out: &[&str]) -> comfy_table::Table {
        let kept = |at: &usize| self.header.get(*at).is_none_or(|name| !left_out.contains(&name.as_str()));
        let pick = |cells: &Vec<String>| -> Vec<String> {
            (0..cells.len()).filter(kept).map(|at| cells[at].clone()).collect()
        };
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::NOTHING).set_header(pick(&self.header));
        table.add_rows(self.rows.iter().map(pick));
        table
    }
}

impl fmt::Display for ReportTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terminal = console::Term::stdout();
        let width = terminal.is_term().then(|| terminal.size_checked()).flatten();
        f.write_str(&self.fit(width.map(|(_, columns)| columns)))
    }
}

/// The text with cells that are broken to fit.
fn break_cells(mut table: comfy_table::Table, width: u16) -> String {
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table.to_string()
}

/// Which columns were left out, on a line of its own behind an empty one; nothing if none were.
fn footnote(left_out: &[&str]) -> String {
    match left_out {
        [] => String::new(),
        names => format!("\n\nnot shown in this width: {}", names.join(", ")),
    }
}

/// Columns of the widest line, without the blanks at its end.
fn widest(text: &str) -> usize {
    text.lines().map(|line| console::measure_text_width(line.trim_end())).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernels() -> ReportTable {
        let mut table =
            ReportTable::new(&["OP", "KERNEL", "CASES", "SECONDS"]).with_optional(&["SECONDS", "CASES"]);
        table.add_row(["rms_norm", "rms_norm/portable", "42", "0.20"]);
        table
    }

    #[test]
    fn a_narrow_terminal_leaves_the_least_important_columns_out_and_says_which() {
        let whole = kernels().fit(None);
        assert_eq!(whole, kernels().fit(Some(80)));
        assert!(whole.contains("SECONDS") && !whole.contains("not shown"), "{whole}");
        let narrow = kernels().fit(Some(40));
        assert!(narrow.ends_with("not shown in this width: SECONDS") && narrow.contains("CASES"), "{narrow}");
        let narrower = kernels().fit(Some(32));
        assert!(narrower.ends_with("not shown in this width: SECONDS, CASES"), "{narrower}");
        assert!(narrower.contains("rms_norm/portable") && !narrower.contains("42"), "{narrower}");
    }

    #[test]
    fn what_may_not_be_left_out_is_broken() {
        let text = kernels().fit(Some(20));
        let table = text.split("\n\n").next().unwrap();
        assert!(widest(table) <= 20, "{text}");
        let letters = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).count();
        assert_eq!(letters(table), letters("OP KERNEL rms_norm rms_norm/portable"), "{text}");
    }
}

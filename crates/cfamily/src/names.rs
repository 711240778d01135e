//! Names of the WGSL in the text. Each ends with an underscore, or with one and a number: no keyword, no function of a
//! dialect and no name that the printer makes up does.

use std::collections::HashSet;

/// Names in use within one scope.
#[derive(Clone, Default)]
pub struct ScopeNames {
    /// Every name that was given.
    used: HashSet<String>,
}

impl ScopeNames {
    /// A name like `wanted` that no earlier call gave.
    pub fn unique(&mut self, wanted: Option<&str>) -> String {
        let base = member(wanted.unwrap_or("unnamed"));
        let numbered = (2..).map(|n| format!("{base}{n}"));
        let mut candidates = std::iter::once(base.clone()).chain(numbered);
        let free = candidates.find(|name| !self.used.contains(name)).unwrap_or(base);
        self.used.insert(free.clone());
        free
    }
}

/// The name of a struct's member: unique within the struct because it is in WGSL.
pub fn member(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 1);
    for c in name.chars() {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => out.push(c),
            // C's identifiers are ASCII here; another letter is its number.
            other => out.push_str(&format!("u{:x}", u32::from(other))),
        }
    }
    // A name that begins with two underscores belongs to the compiler.
    let out = out.trim_start_matches('_');
    let digit = out.starts_with(|c: char| c.is_ascii_digit());
    format!("{}{out}_", if digit || out.is_empty() { "n" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_no_keywords() {
        let mut names = ScopeNames::default();
        assert_eq!(names.unique(Some("half")), "half_");
        assert_eq!(names.unique(Some("half")), "half_2");
        assert_eq!(names.unique(Some("half_2")), "half_2_");
        assert_eq!(names.unique(Some("__fract")), "fract_");
        assert_eq!(names.unique(Some("größe")), "gruf6udfe_");
        assert_eq!(names.unique(None), "unnamed_");
    }
}

//! The public Rust API. `crates/tapml/public_api.txt` lists what the facade names, with signatures, so that a change of it is seen in review.
//! `TAPML_BLESS=1 cargo xtask tidy` writes the list.

mod declaration;

use super::File;
use super::modules::{Crates, leaves};
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use syn::{Item, Visibility};

const FACADE: &str = "crates/tapml/src/lib.rs";
const LIST: &str = "crates/tapml/public_api.txt";

/// A name that the facade gives on.
struct Named {
    /// Where users find it, without the name of the facade.
    public: Vec<String>,
    /// Crate, modules and name that it comes from.
    source: Vec<String>,
}

pub fn check(root: &Path, files: &[File], crates: &Crates, errors: &mut Vec<String>) -> Result<()> {
    let list = match list(files, crates) {
        Ok(list) => list,
        Err(error) => {
            errors.push(format!("{FACADE}: {error:#}"));
            return Ok(());
        }
    };
    let path = root.join(LIST);
    if std::env::var_os("TAPML_BLESS").is_some() {
        return std::fs::write(&path, list).with_context(|| path.display().to_string());
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    let line = known.lines().zip(list.lines()).position(|(known, now)| known != now);
    let line = line.or_else(|| (known != list).then(|| known.lines().count().min(list.lines().count())));
    if let Some(line) = line {
        let at = |text: &str| text.lines().nth(line).unwrap_or("(nothing)").trim().to_string();
        errors.push(format!(
            "{LIST}:{}: the public API has changed: listed is `{}`, found is `{}`; `TAPML_BLESS=1 cargo xtask tidy` writes the list",
            line + 1,
            at(&known),
            at(&list)
        ));
    }
    Ok(())
}

fn list(files: &[File], crates: &Crates) -> Result<String> {
    let facade = files.iter().find(|file| file.path == Path::new(FACADE)).context("no such file")?;
    let mut named = Vec::new();
    find_names(&syn::parse_file(&facade.text)?.items, &mut Vec::new(), &mut named)?;
    named.sort_by(|a, b| a.public.cmp(&b.public));
    let mut text = String::new();
    for Named { public, source } in named {
        let found =
            crates.resolve(&source).with_context(|| format!("nothing is named `{}`", source.join("::")))?;
        for line in declaration::lines(&public.join("::"), &found) {
            text.push_str(&line);
            text.push('\n');
        }
    }
    Ok(text)
}

/// The names in modules of the facade. Nothing but modules and `pub use` of names may stand there.
fn find_names(items: &[Item], modules: &mut Vec<String>, named: &mut Vec<Named>) -> Result<()> {
    for item in items {
        match item {
            Item::Mod(module) => {
                let (_, inside) = module.content.as_ref().context("a module in a file of its own")?;
                modules.push(module.ident.to_string());
                find_names(inside, modules, named)?;
                modules.pop();
            }
            Item::Use(used) if matches!(used.vis, Visibility::Public(_)) => {
                for (source, name) in leaves(&used.tree) {
                    ensure!(name != "*", "`{}::*` hides what it gives on; name each", source.join("::"));
                    ensure!(source.len() > 1, "`{name}` gives a whole crate on; name what users need of it");
                    named.push(Named { public: modules.iter().cloned().chain([name]).collect(), source });
                }
            }
            _ => bail!("an item of its own; a facade has names of other crates only"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn file(path: &str, text: &str) -> File {
        File { path: PathBuf::from(path), text: text.into() }
    }

    fn list_of(facade: &str) -> Result<String> {
        let files = [
            file(FACADE, facade),
            file("crates/a/src/lib.rs", "mod inner; pub mod deep { pub fn act(&self) {} }\npub use inner::{Thing as Renamed, *};"),
            file(
                "crates/a/src/inner.rs",
                "pub struct Thing { pub size: usize, hidden: u8 }\nimpl Thing { pub const MOST: u8 = 1; pub fn size(&self) -> usize { self.size } fn no(&self) {} }
                 pub enum Kind { A, B(u8) } pub trait Does { fn act(&self, n: &[u8]) -> Vec<u8>; } pub const N: u32 = 4;",
            ),
        ];
        list(&files, &Crates::parse(&files)?)
    }

    #[test]
    fn names_are_listed_with_what_can_be_used_of_them() {
        let text = list_of("pub mod x { pub use tapml_a::{Renamed, Kind, Does, N, deep::act}; }").unwrap();
        let expected = "trait x::Does\n    fn act(&self, n: &[u8]) -> Vec<u8>\nenum x::Kind\n    A\n    B(u8)\nconst x::N: u32\nstruct x::Renamed\n    \
                        size: usize\n    const MOST: u8\n    fn size(&self) -> usize\nfn x::act(&self)\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_no_facade_has_is_refused() {
        let refused = |facade: &str| format!("{:#}", list_of(facade).unwrap_err());
        assert!(refused("pub use tapml_a as a;").contains("whole crate"));
        assert!(refused("pub mod x { pub use tapml_a::*; }").contains("name each"));
        assert!(refused("pub fn own() {}").contains("an item of its own"));
        assert!(refused("pub mod x { pub use tapml_a::Gone; }").contains("nothing is named `tapml_a::Gone`"));
    }
}

//! Pages that are generated as a whole from files of the repository.

use anyhow::{Context, Result};
use std::path::Path;

/// Says where the page is not what `from` gives, or what is wrong with the files that it is made from. With `bless` it writes
/// the page.
pub fn check(
    root: &Path,
    (page, from): (&str, &str),
    made: Result<String>,
    bless: bool,
    errors: &mut Vec<String>,
) -> Result<()> {
    let made = match made {
        Ok(made) => made,
        Err(error) => {
            errors.push(format!("{error:#}"));
            return Ok(());
        }
    };
    if bless {
        return std::fs::write(root.join(page), made).with_context(|| page.to_string());
    }
    let stored = std::fs::read_to_string(root.join(page)).unwrap_or_default();
    if stored != made {
        let same = stored.lines().zip(made.lines()).take_while(|(old, new)| old == new).count();
        errors.push(format!(
            "{page} is not what {from} give, from line {} on; `TAPML_BLESS=1 cargo xtask tidy` writes it",
            same + 1
        ));
    }
    Ok(())
}

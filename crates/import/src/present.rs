//! Whether a file is there, and nothing else that may be wrong with it.

use std::path::Path;
use tapml_graph::{Error, Result};

/// Whether there is such a file or folder. Fails if that cannot be told, such as without permission to look.
pub fn is_present(path: &Path) -> Result<bool> {
    path.try_exists().map_err(|e| Error::io("look for", path, &e))
}

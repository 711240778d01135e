//! A model in one GGUF file, or split over several: `NAME-00001-of-00003.gguf` and so on.
//!
//! The names are those of `gguf-split` of llama.cpp. Only the first file has the model's metadata; every
//! file says its own place.

use super::{File, GgufEntry, Metadata};
use crate::present::is_present;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tapml_graph::{Context, Error, Result};

/// Number of files that the model is split over.
const COUNT: &str = "split.count";
/// This file's place among them, from 0.
const PLACE: &str = "split.no";
/// Tensors of all files together.
const TENSORS: &str = "split.tensors.count";
// Five digits in the names.
/// The most files of one model.
const MOST_FILES: u64 = 99_999;

/// Whether a path names a GGUF file, by its ending.
pub fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf")) && !path.is_dir()
}

/// All files of a model. The first has the metadata.
///
/// `index` maps a tensor's name to its file and its place there.
#[derive(Clone, Debug)]
pub struct Model {
    files: Vec<File>,
    index: HashMap<String, (usize, usize)>,
}

impl Model {
    /// Opens the file, and those beside it if it is the first of several.
    ///
    /// # Errors
    /// If the path names a later part, a part is missing or misplaced, two parts hold one tensor, or
    /// tensors are missing.
    pub fn open(path: &Path) -> Result<Model> {
        let first = File::open(path)?;
        let context = || path.display().to_string();
        let count = first.metadata().whole(COUNT).context(context)?.unwrap_or(1);
        let mut files = vec![first];
        if count > 1 {
            let place = place(&files[0])?;
            if place != 0 {
                let text =
                    format!("{}: this is file {} of a model split over {count}", path.display(), place + 1);
                return Err(
                    Error::invalid(text).with_hint("name the first file; the others are found beside it")
                );
            }
            // Bounded, because the count is a claim of the file. The first part that is not there ends the
            // loop.
            for number in 2..=count.min(MOST_FILES + 1) {
                files.push(sibling(path, number, count)?);
            }
        }
        let model = Model { index: index(&files)?, files };
        let claimed = model.metadata().whole(TENSORS).context(context)?;
        match claimed {
            Some(claimed) if count > 1 && claimed != model.index.len() as u64 => {
                let found = model.index.len();
                Err(Error::invalid(format!(
                    "{}: {claimed} tensors are claimed, {found} found",
                    path.display()
                ))
                .with_hint(
                    "the files belong to different models, or one is damaged; fetch all of them again",
                ))
            }
            _ => Ok(model),
        }
    }

    /// The file that was named.
    pub fn path(&self) -> &Path {
        self.files[0].path()
    }

    /// The files in order.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// The key/value pairs of the model.
    pub fn metadata(&self) -> &Metadata {
        self.files[0].metadata()
    }

    /// The file and entry of a tensor.
    pub fn find(&self, name: &str) -> Option<(&File, &GgufEntry)> {
        let &(file, entry) = self.index.get(name)?;
        let file = self.files.get(file)?;
        Some((file, file.entries().get(entry)?))
    }
}

/// Where each tensor is.
fn index(files: &[File]) -> Result<HashMap<String, (usize, usize)>> {
    let mut index = HashMap::new();
    for (at, file) in files.iter().enumerate() {
        for (place, entry) in file.entries().iter().enumerate() {
            if let Some((other, _)) = index.insert(entry.name.clone(), (at, place)) {
                let other = files[other].path().display();
                let text = format!("tensor `{}` is in {} and in {other}", entry.name, file.path().display());
                return Err(Error::invalid(text).with_hint("fetch all files of one and the same model"));
            }
        }
    }
    Ok(index)
}

/// From 0; 0 for a file that is not split.
fn place(file: &File) -> Result<u64> {
    let place = file.metadata().whole(PLACE).context(|| file.path().display().to_string())?;
    Ok(place.unwrap_or_default())
}

/// File `number` (from 1) of the model that `path` is the first of.
fn sibling(path: &Path, number: u64, count: u64) -> Result<File> {
    let sibling = sibling_path(path, number, count).ok_or_else(|| {
        let text = format!("{}: the model is split over {count} files", path.display());
        let name = format!("NAME-00001-of-{count:05}.gguf");
        Error::invalid(text)
            .with_hint(format!("the first must be called {name}, so that the others can be found"))
    })?;
    if !is_present(&sibling)? {
        let text = format!("{} is missing, file {number} of the model's {count}", sibling.display());
        return Err(Error::invalid(text).with_hint("put all files of the model into one folder"));
    }
    let file = File::open(&sibling)?;
    let found = place(&file)?;
    if found + 1 != number {
        let text =
            format!("{}: expected file {number} of {count}, found file {}", sibling.display(), found + 1);
        return Err(Error::invalid(text).with_hint("a file was renamed or damaged; fetch it again"));
    }
    Ok(file)
}

/// `None` if the first file is not named as `gguf-split` names it.
fn sibling_path(path: &Path, number: u64, count: u64) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let stem = name.strip_suffix(&format!("-00001-of-{count:05}.gguf"))?;
    Some(path.with_file_name(format!("{stem}-{number:05}-of-{count:05}.gguf")))
}

//! Files for the inputs of an ONNX model: which there are, and how each becomes an array.
//!
//! A file's ending decides how it is read; what the model declares decides the shape and dtype. Every
//! conversion is told to the user in words, because a wrong one looks like a wrong model.

use super::options::Options;
use super::source::{Filled, InputSource};
use super::{numbers, picture, sound, tokens};
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tapml_engine::Tokenizer;
use tapml_graph::{Context, Dim, Error, Graph, Result, Tensor, Value};
use tapml_import::npy;
use tapml_import::onnx::{File, InputType, read_tensor};
use tapml_migrate::Progress;

/// Where the inputs of a model's runs are.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Inputs {
    /// `NAME=FILE` for each input of one run. `FILE` is an array (`.npy`, `.pb`), an image, sound, a text or numbers, by its
    /// ending; options may stand behind a `?`, such as `photo.png?scale=1/255`.
    pub files: Vec<String>,
    /// A folder with `NAME.npy`, or a file of another of these kinds, for each input of one run, or with a folder of these for
    /// each of several. Options behind a `?` are for those files that have them.
    pub folder: Option<PathBuf>,
}

/// The inputs of one run, by name, and what they are called.
pub struct InputSet {
    /// The name of a file or a folder.
    pub label: String,
    /// Arrays by the names of inputs.
    pub arrays: HashMap<String, Tensor>,
}

/// How files of some endings fill inputs.
struct FileKind {
    /// What such a file is.
    what: &'static str,
    /// In lower case, without the dot.
    endings: &'static [&'static str],
    /// Names that may stand behind the `?`.
    options: &'static [&'static str],
    /// Makes the array.
    read: fn(&InputSource<'_>) -> Result<Filled>,
}

/// All kinds. What has another ending is read as `.npy`.
const KINDS: [FileKind; 6] = [
    FileKind {
        what: "an array",
        endings: &["npy"],
        options: &[],
        read: |source| plain(npy::read(source.path)?),
    },
    FileKind {
        what: "a tensor",
        endings: &["pb"],
        options: &[],
        read: |source| plain(read_tensor(source.path)?.1),
    },
    FileKind {
        what: "an image",
        endings: &["png", "jpg", "jpeg", "webp"],
        options: &picture::OPTIONS,
        read: picture::read,
    },
    FileKind { what: "sound", endings: &["wav"], options: &sound::OPTIONS, read: sound::read },
    FileKind { what: "a text", endings: &["txt"], options: &tokens::OPTIONS, read: tokens::read },
    FileKind { what: "numbers", endings: &["csv"], options: &numbers::OPTIONS, read: numbers::read },
];

/// An array that is taken as it is.
fn plain(tensor: Tensor) -> Result<Filled> {
    Ok(Filled { tensor, how: String::new(), ids: None })
}

/// The kind of a file by its ending.
fn kind_of(path: &Path) -> Option<&'static FileKind> {
    // Endings are compared in lower case: cameras write `.JPG`.
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    KINDS.iter().find(|kind| kind.endings.contains(&ending.as_str()))
}

/// A file or folder and its options.
fn split(word: &str) -> Result<(PathBuf, Options)> {
    match word.split_once('?') {
        // A file may have the sign in its name.
        Some((path, options)) if !Path::new(word).exists() => Ok((path.into(), Options::parse(options)?)),
        _ => Ok((word.into(), Options::default())),
    }
}

/// The last part of a path, for messages.
fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// What a model says of its inputs.
pub trait Takes {
    /// All of them.
    fn types(&self) -> Vec<InputType>;

    /// The input of this name.
    ///
    /// # Errors
    /// There is none; says which there are.
    fn find(&self, name: &str) -> Result<InputType>;
}

impl Takes for File {
    fn types(&self) -> Vec<InputType> {
        self.input_types()
    }

    fn find(&self, name: &str) -> Result<InputType> {
        self.input_type(name)
    }
}

impl Takes for Graph {
    fn types(&self) -> Vec<InputType> {
        let size = |dim: &Dim| dim.as_const().and_then(|size| usize::try_from(size).ok());
        let of = |(_, input): (_, &Value)| InputType {
            name: input.name.clone(),
            dtype: Some(input.ty.dtype),
            shape: Some(input.ty.shape.iter().map(size).collect()),
            text: input.ty.to_string(),
        };
        self.inputs().map(of).collect()
    }

    fn find(&self, name: &str) -> Result<InputType> {
        let all = self.types();
        let known: Vec<String> = all.iter().map(|ty| format!("{}: {}", ty.name, ty.text)).collect();
        let found = all.into_iter().find(|ty| ty.name == name);
        found.ok_or_else(|| {
            let error = Error::invalid(format!("the model has no input `{name}`"));
            error.with_hint(format!("it takes {}", known.join(", ")))
        })
    }
}

/// Reads files for one model, and tells how each became an array.
struct Reader<'a> {
    /// Beside which a tokenizer is looked for.
    model: &'a Path,
    /// What the model declares.
    takes: &'a dyn Takes,
    progress: &'a dyn Progress,
    /// By folder: a tokenizer takes long to open, and several inputs may share one.
    tokenizers: RefCell<BTreeMap<PathBuf, Rc<Tokenizer>>>,
}

impl Inputs {
    /// Whether nothing is given.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.folder.is_none()
    }

    /// Reads the arrays for what the model at `model` takes. How a file that is no array became one is told.
    ///
    /// # Errors
    /// A file cannot be read, does not fit what the model says of the input, or has an option that its kind has not.
    pub fn read(&self, model: &Path, takes: &dyn Takes, progress: &dyn Progress) -> Result<Vec<InputSet>> {
        let reader = Reader { model, takes, progress, tokenizers: RefCell::default() };
        let mut sets = Vec::new();
        if !self.files.is_empty() {
            sets.push(reader.files(&self.files)?);
        }
        if let Some(folder) = &self.folder {
            sets.extend(reader.folder(folder)?);
        }
        if sets.is_empty() {
            Err(Error::invalid("no inputs given")
                .with_hint("--input NAME=FILE for each input of the model, or --inputs DIR"))
        } else {
            Ok(sets)
        }
    }
}

impl Reader<'_> {
    /// One set from `NAME=FILE` words.
    fn files(&self, files: &[String]) -> Result<InputSet> {
        let mut given = Vec::new();
        for word in files {
            let (name, file) = word.split_once('=').ok_or_else(|| {
                Error::invalid(format!("`--input {word}`: expected NAME=FILE"))
                    .with_hint("for example `--input image=photo.png`; `tapml inspect` tells the names")
            })?;
            let (path, options) = split(file)?;
            let (what, known) =
                kind_of(&path).map_or(("an array", &[][..]), |kind| (kind.what, kind.options));
            options.expect(known, what).context(|| format!("input `{name}`"))?;
            given.push(GivenFile { name: name.to_string(), path, options });
        }
        let label = given.first().map(|file| name_of(&file.path)).unwrap_or_default();
        self.set(label, &given)
    }

    /// The arrays of one run.
    fn set(&self, label: String, given: &[GivenFile]) -> Result<InputSet> {
        let mut arrays = HashMap::new();
        let mut texts = Vec::new();
        for GivenFile { name, path, options } in given {
            if arrays.contains_key(name) {
                return Err(Error::invalid(format!("input `{name}` is given twice")));
            }
            let filled = self.fill(name, path, options)?;
            if let Some(ids) = filled.ids {
                texts.push((name.as_str(), filled.tensor.shape().to_vec(), ids));
            }
            arrays.insert(name.clone(), filled.tensor);
        }
        // Masks beside a text follow from it; the first text decides.
        if let [(text, shape, ids), ..] = &texts[..] {
            for wanted in self.takes.types() {
                if arrays.contains_key(&wanted.name) {
                    continue;
                }
                let Some((tensor, how)) = tokens::companion_input(&wanted, shape, *ids)? else { continue };
                self.progress.note(&format!("input `{}`: {how}, for the text of `{text}`", wanted.name));
                arrays.insert(wanted.name, tensor);
            }
        }
        Ok(InputSet { label, arrays })
    }

    /// One input from one file.
    fn fill(&self, name: &str, path: &Path, options: &Options) -> Result<Filled> {
        let context = || format!("input `{name}`");
        let wanted = self.takes.find(name)?;
        let tokenizer = |named: Option<&Path>| self.tokenizer(named);
        let source = InputSource { path, options, wanted: &wanted, tokenizer: &tokenizer };
        // An array may have any name.
        let Some(kind) = kind_of(path) else {
            let others = KINDS.iter().flat_map(|kind| kind.endings).map(|ending| format!(".{ending}"));
            let others = others.collect::<Vec<_>>().join(", ");
            let array =
                npy::read(path).map_err(|e| e.with_hint(format!("by their endings are read {others}")));
            return plain(array.context(context)?);
        };
        let filled = (kind.read)(&source).context(context)?;
        if !filled.how.is_empty() {
            let tensor = &filled.tensor;
            let ty = format!("{}{:?}", tensor.dtype(), tensor.shape());
            self.progress.note(&format!("input `{name}`: {}, {}, as {ty}", name_of(path), filled.how));
        }
        Ok(filled)
    }

    /// The tokenizer of a folder, or of the model's.
    fn tokenizer(&self, named: Option<&Path>) -> Result<Rc<Tokenizer>> {
        let folder = match named {
            // The file itself may be named.
            Some(path) if path.is_file() => tapml_files::parent(path),
            Some(path) => path.to_path_buf(),
            None => tapml_files::parent(self.model),
        };
        if let Some(known) = self.tokenizers.borrow().get(&folder) {
            return Ok(known.clone());
        }
        let opened = Tokenizer::open(&folder).map_err(|e| {
            e.context("the tokenizer").with_hint(
                "a text becomes ids by the tokenizer.json beside the model, or by that of the folder `tokenizer=FOLDER`",
            )
        })?;
        let opened = Rc::new(opened);
        self.tokenizers.borrow_mut().insert(folder, opened.clone());
        Ok(opened)
    }

    /// One set from a folder of files, or one for each folder within.
    fn folder(&self, word: &Path) -> Result<Vec<InputSet>> {
        let (folder, options) = match word.to_str() {
            Some(text) => split(text)?,
            None => (word.to_path_buf(), Options::default()),
        };
        let all: Vec<&str> = KINDS.iter().flat_map(|kind| kind.options).copied().collect();
        options.expect(&all, "no file of a folder")?;
        let entries = entries(&folder)?;
        let mut sets = Vec::new();
        // A folder holds either files or folders of them.
        let own = files_of(&entries, &options);
        if !own.is_empty() {
            sets.push((name_of(&folder), own));
        } else {
            for (name, path) in entries.iter().filter(|(_, path)| path.is_dir()) {
                sets.push((name.clone(), files_of(&self::entries(path)?, &options)));
            }
        }
        let kinds = || KINDS.iter().flat_map(|kind| kind.endings).map(|ending| format!(".{ending}"));
        let hint = || format!("files are named NAME and {}", kinds().collect::<Vec<_>>().join(", "));
        if let Some((empty, _)) = sets.iter().find(|(_, files)| files.is_empty()) {
            let text = format!("{}/{empty} holds no file for an input", folder.display());
            return Err(Error::invalid(text).with_hint(hint()));
        }
        if sets.is_empty() {
            let text = format!("{} holds neither files for inputs nor folders of them", folder.display());
            return Err(Error::invalid(text).with_hint(hint()));
        }
        // An option that no file of the folder has would silently do nothing.
        let used = |option: &str| {
            sets.iter().flat_map(|(_, files)| files).any(|file| file.options.get(option).is_some())
        };
        if let Some(unused) = options.names().find(|name| !used(name)) {
            return Err(Error::invalid(format!("no file of {} has the option `{unused}`", folder.display())));
        }
        sets.into_iter().map(|(label, files)| self.set(label, &files)).collect()
    }
}

/// A file that fills an input.
struct GivenFile {
    /// Of the input.
    name: String,
    path: PathBuf,
    options: Options,
}

/// The files among these entries that fill inputs.
fn files_of(entries: &BTreeMap<String, PathBuf>, options: &Options) -> Vec<GivenFile> {
    let one = |(_, path): (&String, &PathBuf)| {
        // Other files, such as notes, are left alone.
        let kind = kind_of(path).filter(|_| path.is_file())?;
        let name = path.file_stem()?.to_string_lossy().into_owned();
        Some(GivenFile { name, path: path.clone(), options: options.select(kind.options) })
    };
    entries.iter().filter_map(one).collect()
}

/// The entries of a folder, by name.
fn entries(folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let read = std::fs::read_dir(folder).map_err(|e| Error::io("read", folder, &e))?;
    let entry = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.map_err(|e| Error::io("read", folder, &e))?.path();
        Ok((name_of(&path), path))
    };
    read.map(entry).collect()
}

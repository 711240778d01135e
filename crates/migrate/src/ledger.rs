//! The ledger: the state of a migration on disk. Written whole after every step, beside its name and then renamed, so
//! that a migration killed at any moment goes on where it was.

pub use crate::entry::{Entry, OpState};

use crate::hash::Hash;
use crate::identity::ModelIdentity;
use crate::noise::MovementLimits;
use crate::progress::Progress;
use crate::report::RegionReport;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use tapml_exec::PlatformInfo;
use tapml_files::Lock;
use tapml_graph::{Error, Result};

/// Version of the ledger's format and of the rules by which it decides. Evidence of another version is not reused.
pub const VERSION: u32 = 3;
/// Name of the ledger's file within its folder.
pub const LEDGER: &str = "ledger.json";
/// Name of the suite's folder within the ledger's.
pub const SUITE: &str = "suite";
/// Larger files are no ledgers.
const MAX_BYTES: u64 = 256 << 20;
/// Beside the ledger, so that renaming the ledger does not lose it.
const LOCK: &str = "ledger.lock";

/// The limits of the model-wise check and what they were measured for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyedLimits {
    /// What they depend on, as one hash.
    pub key: Hash,
    /// The limits.
    pub limits: MovementLimits,
}

/// What became of regions of accepted nodes, and what that was measured for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyedRegions {
    /// What they depend on, as one hash.
    pub key: Hash,
    /// The regions.
    pub reports: Vec<RegionReport>,
}

/// What the file holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// See [`VERSION`].
    pub version: u32,
    /// The model.
    pub model: ModelIdentity,
    /// Hash of the graph's text.
    pub graph: Hash,
    /// The source platform.
    pub source: PlatformInfo,
    /// The target platform.
    pub target: PlatformInfo,
    /// Hash of the suite; absent until it is carved.
    pub suite: Option<Hash>,
    /// The operators in graph order.
    pub ops: Vec<Entry>,
    /// Limits of the model-wise check; absent until they are measured.
    pub limits: Option<KeyedLimits>,
    /// Accepted nodes run as one model; absent until that is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regions: Option<KeyedRegions>,
}

/// A ledger's folder, held by this process alone.
pub struct LedgerFolder {
    /// The folder.
    path: PathBuf,
    /// Held until the value is dropped.
    _lock: Lock,
}

impl LedgerFolder {
    /// Takes the folder, made if it does not exist. Fails if another process holds it.
    pub fn take(path: &Path) -> Result<LedgerFolder> {
        fs::create_dir_all(path).map_err(|e| Error::io("create", path, &e))?;
        let lock = Lock::take(&path.join(LOCK))?.ok_or_else(|| {
            Error::invalid(format!("the ledger {} is in use by another process", path.display()))
                .with_hint("wait for it, or choose another folder with `--ledger`")
        })?;
        Ok(LedgerFolder { path: path.to_path_buf(), _lock: lock })
    }

    /// The folder of the suite.
    pub fn suite(&self) -> PathBuf {
        self.path.join(SUITE)
    }

    /// What the folder holds; `None` if nothing in it can be used, which `progress` is told unless there is nothing. Fails
    /// on a ledger that cannot be read or is of another model.
    pub fn load(
        &self,
        graph: Hash,
        model: &ModelIdentity,
        progress: &dyn Progress,
    ) -> Result<Option<Ledger>> {
        let again =
            |why: &str| progress.note(&format!("starting over: the ledger {} {why}", self.path.display()));
        let file = self.path.join(LEDGER);
        if fs::metadata(&file).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
            return Ok(None);
        }
        let text = tapml_files::read(&file, MAX_BYTES, "a ledger")?;
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let broken = |e: serde_json::Error| {
            Error::invalid(format!("{}: {e}", file.display())).with_hint(
                "the file is damaged: delete it to start over, or choose another folder with `--ledger`",
            )
        };
        // Read first: another version may have other fields.
        let version = serde_json::from_slice::<Version>(&text).map_err(broken)?.version;
        if version > VERSION {
            return Err(Error::invalid(format!(
                "{}: expected version {VERSION} or older, found {version}: a newer TapML wrote it",
                file.display()
            ))
            .with_hint("update TapML, or choose another folder with `--ledger`"));
        }
        if version < VERSION {
            again(&format!("is of version {version}, whose evidence does not hold for version {VERSION}"));
            return Ok(None);
        }
        let ledger: Ledger = serde_json::from_slice(&text).map_err(broken)?;
        // An error and no new start: someone else's evidence is not thrown away.
        if ledger.model.weights != model.weights {
            let (old, own) = (&ledger.model, self.path.display());
            return Err(Error::invalid(format!(
                "the ledger {own} is of model `{}` at `{}` (weights {:.12}), this is `{}` (weights {:.12})",
                old.name, old.path, old.weights, model.name, model.weights
            ))
            .with_hint("choose another folder with `--ledger`, or delete this one"));
        }
        // Another graph of the same weights, such as one with other fusions: no evidence holds for it.
        if ledger.graph != graph {
            again("is of another graph of these weights, such as one with other fusions");
            return Ok(None);
        }
        Ok(Some(ledger))
    }

    /// Writes the ledger: a reader sees the old one or the new one, never a part.
    ///
    /// # Errors
    /// If the file cannot be written; the old one is then still there.
    pub fn save(&self, ledger: &Ledger) -> Result<()> {
        let file = self.path.join(LEDGER);
        let text =
            serde_json::to_vec_pretty(ledger).map_err(|e| Error::bug(format!("the ledger as JSON: {e}")))?;
        tapml_files::write(&file, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        let info = PlatformInfo { platform: "cpu".into(), device: "d".into(), driver: "1".into() };
        Ledger {
            version: VERSION,
            model: ModelIdentity { name: "toy".into(), weights: "ab".into(), ..ModelIdentity::default() },
            graph: Hash::compute(b"graph"),
            source: info.clone(),
            target: info,
            suite: None,
            ops: vec![Entry { op: "add".into(), ..Entry::default() }],
            limits: None,
            regions: None,
        }
    }

    #[test]
    fn round_trips_and_refuses_other_models_and_damage() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LedgerFolder::take(dir.path()).unwrap();
        let (l, notes) = (ledger(), Notes::default());
        let load = |graph: Hash, model: &ModelIdentity| folder.load(graph, model, &notes);
        assert!(load(l.graph, &l.model).unwrap().is_none());
        folder.save(&l).unwrap();
        assert_eq!(load(l.graph, &l.model).unwrap(), Some(l.clone()));
        let other = ModelIdentity { weights: "cd".into(), ..l.model.clone() };
        let error = load(l.graph, &other).unwrap_err();
        assert!(error.to_string().contains("`toy`") && error.hint().unwrap().contains("--ledger"), "{error}");
        fs::write(dir.path().join(LEDGER), "{\"version\": 1, \"mod").unwrap();
        let error = load(l.graph, &l.model).unwrap_err();
        assert!(error.hint().unwrap().contains("delete it"), "{error}");
        assert!(notes.0.lock().unwrap().is_empty());
    }

    /// What a progress display is told.
    #[derive(Default)]
    struct Notes(std::sync::Mutex<Vec<String>>);

    impl Progress for Notes {
        fn note(&self, text: &str) {
            self.0.lock().unwrap().push(text.to_string());
        }
    }

    #[test]
    fn starting_over_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LedgerFolder::take(dir.path()).unwrap();
        let (l, notes) = (ledger(), Notes::default());
        folder.save(&l).unwrap();
        assert_eq!(folder.load(Hash::compute(b"other"), &l.model, &notes).unwrap(), None);
        // Of an older version nothing but the number is looked at.
        fs::write(dir.path().join(LEDGER), "{\"version\": 0, \"operators\": {}}").unwrap();
        assert_eq!(folder.load(l.graph, &l.model, &notes).unwrap(), None);
        let notes = notes.0.into_inner().unwrap();
        assert!(notes[0].contains("another graph") && notes[1].contains("is of version 0"), "{notes:?}");
        assert!(notes.iter().all(|note| note.contains(&dir.path().display().to_string())), "{notes:?}");
    }

    #[test]
    fn one_process_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let held = LedgerFolder::take(dir.path()).unwrap();
        assert!(LedgerFolder::take(dir.path()).err().unwrap().to_string().contains("in use"));
        drop(held);
        LedgerFolder::take(dir.path()).unwrap();
    }
}

//! What is run, as data: `plan.toml`, and the steps that it gives for a device and the models that are there.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::path::Path;

/// The plan that ships within the program, so that a carried one needs no other file.
const BUILT_IN: &str = include_str!("plan.toml");

/// See `plan.toml`, which explains each field.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    identify: Template,
    step: Vec<Template>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Template {
    name: String,
    command: Vec<String>,
    report: ReportKind,
    limit: u64,
    #[serde(default)]
    needs: Vec<Need>,
    models: Option<Vec<String>>,
    #[serde(default)]
    quick: Vec<String>,
    #[serde(default)]
    case: Vec<PlanCase>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanCase {
    name: String,
    #[serde(default)]
    arguments: Vec<String>,
    #[serde(default)]
    needs: Vec<Need>,
}

/// How the JSON report of a step is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportKind {
    DeviceCheck,
    Migrate,
    Bugs,
    Decode,
}

/// What a device must have for a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    F16,
    Hardware,
}

/// A model, as the program opens it and as the record shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundModel {
    pub name: String,
    pub path: String,
    pub shown: String,
}

/// One command to run.
#[derive(Clone, Debug)]
pub struct Step {
    pub name: String,
    /// Arguments of `tapml`; [`SCRATCH`] stands for the folder that the runner makes.
    pub arguments: Vec<String>,
    /// The command line of the record, without what only this machine has.
    pub shown: String,
    pub report: ReportKind,
    /// Seconds.
    pub limit: u64,
    pub needs: Vec<Need>,
    /// Whether `--quick` runs it.
    pub quick: bool,
}

/// Stands in a command for an empty folder of the step's own.
pub const SCRATCH: &str = "{scratch}";

impl Plan {
    /// The plan of a file, or the one that is built in.
    pub fn read(file: Option<&Path>) -> Result<Plan> {
        let text = match file {
            Some(path) => std::fs::read_to_string(path).with_context(|| path.display().to_string())?,
            None => BUILT_IN.to_string(),
        };
        let name = file.map_or("plan.toml".into(), |path| path.display().to_string());
        toml::from_str(&text).with_context(|| format!("{name} is no plan"))
    }

    /// The step that says which device this is.
    pub fn identify(&self, target: &str) -> Result<Step> {
        let steps = self.identify.steps(target, &[])?;
        steps.into_iter().next().context("the plan's [identify] gives no step")
    }

    /// All other steps, in order. Fails if two have one name.
    pub fn steps(&self, target: &str, models: &[FoundModel]) -> Result<Vec<Step>> {
        let mut steps: Vec<Step> = Vec::new();
        for template in &self.step {
            for step in template.steps(target, models)? {
                if steps.iter().any(|s| s.name == step.name) || step.name == self.identify.name {
                    bail!("the plan has two steps with the name {}", step.name);
                }
                steps.push(step);
            }
        }
        Ok(steps)
    }
}

impl Template {
    fn steps(&self, target: &str, models: &[FoundModel]) -> Result<Vec<Step>> {
        let cases = if self.case.is_empty() { vec![PlanCase::default()] } else { self.case.clone() };
        if cases.len() > 1 && !self.name.contains("{case}") {
            bail!("the step {} of the plan has several cases, but its name lacks {{case}}", self.name);
        }
        let wanted = |m: &&FoundModel| self.models.as_ref().is_none_or(|names| names.contains(&m.name));
        let models: Vec<Option<&FoundModel>> = if self.command.iter().any(|word| word.contains("{model}")) {
            models.iter().filter(wanted).map(Some).collect()
        } else {
            vec![None]
        };
        let pairs = cases.iter().flat_map(|case| models.iter().map(move |model| (case, *model)));
        Ok(pairs.map(|(case, model)| self.step(target, case, model)).collect())
    }

    fn step(&self, target: &str, case: &PlanCase, model: Option<&FoundModel>) -> Step {
        let fill = |word: &str, model: &str| word.replace("{target}", target).replace("{model}", model);
        let words = || self.command.iter().chain(&case.arguments);
        let name = self.name.replace("{case}", &case.name);
        let name = fill(&name, model.map_or("", |m| &m.name));
        let shown: Vec<String> =
            words().map(|word| quote(&fill(word, model.map_or("", |m| &m.shown)))).collect();
        Step {
            arguments: words().map(|word| fill(word, model.map_or("", |m| &m.path))).collect(),
            shown: format!("tapml {}", shown.join(" ").replace(SCRATCH, "SCRATCH")),
            report: self.report,
            limit: self.limit,
            needs: [self.needs.as_slice(), &case.needs].concat(),
            quick: self.quick.iter().any(|pattern| matches(pattern, &name)),
            name,
        }
    }
}

/// A word as a shell takes it.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,{}$".contains(c);
    if word.chars().all(plain) { word.into() } else { format!("'{word}'") }
}

/// Whether a pattern names a step: the same parts between slashes, `*` for any, as far as the pattern reaches.
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = name.split('/');
    pattern.split('/').all(|wanted| parts.next().is_some_and(|part| wanted == "*" || wanted == part))
}

/// The models in these folders, or that are these folders: the first of each name, in order of names within a folder.
/// What lies in the root is shown from there on; the rest by its own name in `$TAPML_MODELS`.
pub fn find_models(root: &Path, folders: &[std::path::PathBuf]) -> Vec<FoundModel> {
    let is_model = |path: &Path| path.join("config.json").is_file();
    let mut found: Vec<FoundModel> = Vec::new();
    for folder in folders {
        let mut paths = vec![folder.clone()];
        if !is_model(folder) {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            paths = entries.map(|entry| entry.path()).filter(|path| is_model(path)).collect();
            paths.sort();
        }
        for path in paths {
            let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else {
                continue;
            };
            if found.iter().any(|m| m.name == name) {
                continue;
            }
            let inside = path.strip_prefix(root).ok().map(|path| path.display().to_string());
            let shown = inside.clone().unwrap_or_else(|| format!("$TAPML_MODELS/{name}"));
            found.push(FoundModel {
                path: inside.unwrap_or_else(|| path.display().to_string()),
                shown,
                name,
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn models() -> Vec<FoundModel> {
        let model = |name: &str, folder: &str| FoundModel {
            name: name.into(),
            path: format!("/somewhere/{name}"),
            shown: format!("{folder}/{name}"),
        };
        let bundled = ["llama", "llama_head64", "qwen2_moe_head128"].map(|name| model(name, "models"));
        bundled.into_iter().chain([model("qwen2_moe", "$TAPML_MODELS")]).collect()
    }

    #[test]
    fn built_in_plan_covers_every_model_in_every_type() {
        let plan = Plan::read(None).unwrap();
        let steps = plan.steps("cuda:1", &models()).unwrap();
        let named = |name: &str| {
            let found = steps.iter().find(|s| s.name == name);
            found.unwrap_or_else(|| panic!("no step {name} in {:?}", steps.iter().map(|s| &s.name)))
        };
        for model in ["llama", "qwen2_moe"] {
            for types in ["f32", "f16", "f16-q4", "f16-q8", "f16-fp8"] {
                named(&format!("migrate/{model}/{types}"));
            }
        }
        let step = named("migrate/qwen2_moe/f16-q4");
        assert_eq!(step.arguments[..4], ["migrate", "/somewhere/qwen2_moe", "--target", "cuda:1"]);
        assert_eq!(
            step.shown,
            "tapml migrate $TAPML_MODELS/qwen2_moe --target cuda:1 --ledger SCRATCH/ledger --activation f16 --quantize q4"
        );
        assert_eq!(step.needs, [Need::F16]);
        assert_eq!(named("migrate/llama/f32").needs, []);
        assert_eq!(named("decode/llama-3.1-8b/f16").needs, [Need::Hardware, Need::F16]);
        assert_eq!(plan.identify("cuda").unwrap().arguments, ["device", "check", "cuda"]);
    }

    #[test]
    fn every_quick_pattern_names_steps() {
        let plan = Plan::read(None).unwrap();
        let steps = plan.steps("cuda", &models()).unwrap();
        for pattern in plan.step.iter().flat_map(|t| &t.quick) {
            assert!(steps.iter().any(|s| s.quick && matches(pattern, &s.name)), "{pattern}");
        }
        let quick = steps.iter().filter(|s| s.quick).count();
        assert!(quick >= 8 && quick < steps.len() / 2 + 4, "{quick} of {}", steps.len());
    }

    #[test]
    fn patterns_match_from_the_front_by_parts() {
        for (pattern, name, expected) in [
            ("migrate", "migrate/llama/f16", true),
            ("migrate/llama", "migrate/llama/f16", true),
            ("migrate/*/f16", "migrate/llama/f16", true),
            ("migrate/*/f16", "migrate/llama/f16-q4", false),
            ("migrate/lla", "migrate/llama/f16", false),
            ("migrate/llama/f16/more", "migrate/llama/f16", false),
            ("*", "samples", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn one_name_for_two_steps_is_refused() {
        let text = r#"
            [identify]
            name = "c"
            command = ["device", "check", "{target}"]
            report = "device_check"
            limit = 1
            [[step]]
            name = "s"
            command = ["migrate", "{model}"]
            report = "migrate"
            limit = 1
        "#;
        let plan: Plan = toml::from_str(text).unwrap();
        let error = plan.steps("cuda", &models()).err().unwrap().to_string();
        assert!(error.contains("two steps with the name s"), "{error}");
        assert_eq!(plan.steps("cuda", &models()[..1]).unwrap().len(), 1);
    }

    #[test]
    fn the_first_model_of_a_name_counts_and_the_root_is_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        for model in ["root/models/b", "root/models/a", "more/b", "more/c"] {
            let path = folder.path().join(model);
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("config.json"), "{}").unwrap();
        }
        let found = find_models(&root, &[root.join("models"), folder.path().join("more")]);
        let shown: Vec<&str> = found.iter().map(|m| m.shown.as_str()).collect();
        assert_eq!(shown, ["models/a", "models/b", "$TAPML_MODELS/c"]);
        assert_eq!(found[0].path, "models/a");
        assert_eq!(found[2].path, folder.path().join("more/c").display().to_string());
        assert_eq!(find_models(&root, &[root.join("models/b")])[0].name, "b");
    }
}

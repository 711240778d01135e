//! Which of several built-in kernels each node runs on one device, as a measurement found: plain text that can be shipped.
//!
//! Choices are looked up by operator, attributes and input types, all as text. They are advice: a kernel that does
//! not serve a node is passed over, and the first preferred row is taken instead.

use serde::{Deserialize, Serialize};
use tapml_device::DeviceInfo;
use tapml_graph::{Error, Op, Result, TensorType};

/// The form of the text.
/// A file of another form is refused.
const SCHEMA: u32 = 1;
/// In the place of a kernel: the fused operator is left as the operators that it stands for.
pub const UNFUSED: &str = "unfused";

/// Choices for one device and driver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TuningCache {
    /// Always [`SCHEMA`] in what [`TuningCache::parse`] gives.
    schema: u32,
    /// The word of the platform.
    pub platform: String,
    /// The device's own name.
    pub device: String,
    /// Its driver.
    pub driver: String,
    /// One for each operator at the types that were measured.
    pub choices: Vec<Choice>,
}

/// The kernel that one operator runs at given types.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// Operator.
    pub op: String,
    /// Its attributes, as [`Op::attributes_text`] writes them.
    pub attributes: String,
    /// Types of its inputs.
    /// Written as [`TensorType`] prints itself, with symbolic sizes.
    pub inputs: Vec<String>,
    /// The kernel: operator and variant; [`UNFUSED`] for a fused operator that is not put in.
    pub kernel: String,
    /// Seconds of one run of each kernel that was measured and found right, by name.
    #[serde(default)]
    pub seconds: Vec<(String, f64)>,
}

impl TuningCache {
    /// None yet, for this device.
    pub fn new(info: &DeviceInfo) -> TuningCache {
        let (platform, device, driver) = (info.platform.clone(), info.name.clone(), info.driver.clone());
        TuningCache { schema: SCHEMA, platform, device, driver, choices: Vec::new() }
    }

    /// Reads the text of [`TuningCache::text`]. Fails with [`tapml_graph::ErrorKind::InvalidInput`] on any other.
    pub fn parse(text: &str) -> Result<TuningCache> {
        let hint = "`tapml tune` writes such files";
        let choices: TuningCache = serde_json::from_str(text)
            .map_err(|e| Error::invalid(format!("no choices of kernels: {e}")).with_hint(hint))?;
        // The schema is compared after parsing, since its place is within the text.
        match choices.schema {
            SCHEMA => Ok(choices),
            other => {
                Err(Error::invalid(format!("choices of schema {other}, expected {SCHEMA}")).with_hint(hint))
            }
        }
    }

    /// As text: JSON, one choice after the other.
    pub fn text(&self) -> Result<String> {
        let text = serde_json::to_string_pretty(self);
        text.map(|text| text + "\n").map_err(|e| Error::bug(format!("choices of kernels: {e}")))
    }

    /// Whether they were measured on such a device with such a driver.
    /// All three must be equal: a driver brings its own compiler.
    pub fn fit(&self, info: &DeviceInfo) -> bool {
        (&self.platform, &self.device, &self.driver) == (&info.platform, &info.name, &info.driver)
    }

    /// Adds a choice in the place of an earlier one for the same operator and types.
    pub fn add(&mut self, choice: Choice) {
        let same = |c: &Choice| {
            (&c.op, &c.attributes, &c.inputs) == (&choice.op, &choice.attributes, &choice.inputs)
        };
        // A text that was edited by hand may hold several: all of them go.
        self.choices.retain(|c| !same(c));
        self.choices.push(choice);
    }

    /// The kernel chosen for a node.
    ///
    /// `None` if nothing was measured for it. The first of several equal entries counts.
    pub fn kernel(&self, op: &Op, inputs: &[TensorType]) -> Option<&str> {
        let named: Vec<&Choice> = self.choices.iter().filter(|c| c.op == op.name()).collect();
        // Texts of attributes and types cost more than names: most operators have no entry at all.
        if named.is_empty() {
            return None;
        }
        let (attributes, inputs) = (op.attributes_text(), texts(inputs));
        let found = named.into_iter().find(|c| c.attributes == attributes && c.inputs == inputs);
        found.map(|c| c.kernel.as_str())
    }

    /// Whether a fused operator is to be left as the operators that it stands for.
    pub fn leaves_unfused(&self, op: &Op, inputs: &[TensorType]) -> bool {
        self.kernel(op, inputs) == Some(UNFUSED)
    }
}

impl Choice {
    /// The choice of a kernel for a node, with what was measured.
    pub fn new(op: &Op, inputs: &[TensorType], kernel: &str, seconds: Vec<(String, f64)>) -> Choice {
        let (name, attributes) = (op.name().to_string(), op.attributes_text());
        Choice { op: name, attributes, inputs: texts(inputs), kernel: kernel.into(), seconds }
    }
}

/// Types as [`Choice::inputs`] holds them.
fn texts(types: &[TensorType]) -> Vec<String> {
    types.iter().map(TensorType::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::any_device;

    #[test]
    fn text_round_trips_and_other_texts_are_refused() {
        let mut choices = TuningCache::new(&any_device());
        let choice = |kernel: &str| Choice {
            op: "linear".into(),
            attributes: "{}".into(),
            inputs: vec!["f32[n,64]".into()],
            kernel: kernel.into(),
            seconds: vec![("linear/portable".into(), 1.5e-3)],
        };
        choices.add(choice("linear/portable"));
        choices.add(choice("linear/subgroup"));
        assert_eq!(choices.choices.len(), 1);
        assert_eq!(TuningCache::parse(&choices.text().unwrap()).unwrap(), choices);
        assert!(choices.fit(&any_device()));
        for bad in ["", "{}", &choices.text().unwrap().replace("\"schema\": 1", "\"schema\": 2")] {
            assert!(TuningCache::parse(bad).unwrap_err().hint().unwrap().contains("tapml tune"), "{bad}");
        }
    }
}

//! The words for platforms on the command line: `cpu`, `vulkan:1`, `emulator?check=all&profile=mobile`,
//! `ws://host:port/vulkan:1`, `hub/webgpu`. Several ranks have commas between them: `cuda:0,cuda:1`.
//!
//! Only words and their form are known here; which options a platform takes is for the platform to say.
//! Printing a spec gives its word again.

use std::fmt;
use tapml_graph::{Error, Result};

/// The words that name a platform. Which of them a build serves is decided by its cargo features.
pub const WORDS: [&str; 9] =
    ["cpu", "emulator", "vulkan", "metal", "dx12", "cuda", "hip", "opencl", "webgpu"];

/// The words of other people's runtimes, which run in a Python process of their own: `python -m tapml.agents WORD`.
pub const RUNTIMES: [&str; 11] = [
    "ort",
    "openvino",
    "iree",
    "tvm",
    "tract",
    "litert",
    "executorch",
    "inductor",
    "reference",
    "torch",
    "torch-f64",
];

/// A platform's word, the index of a device on it, and options.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlatformSpec {
    /// One of [`WORDS`] or of [`RUNTIMES`], or the address of a remote device: `ws://host:port/NAME`, `wss://host:port/NAME` or `hub/NAME`.
    pub word: String,
    /// Which of the platform's devices, from 0.
    pub index: usize,
    /// Options after `?`, joined by `&`, in the order given; names are unique.
    pub options: Vec<(String, String)>,
}

impl PlatformSpec {
    /// Whether this is a device behind an agent.
    pub fn is_remote(&self) -> bool {
        is_remote(&self.word)
    }

    /// Whether this is another runtime, in a process of its own.
    pub fn is_runtime(&self) -> bool {
        RUNTIMES.contains(&self.word.as_str())
    }

    /// Reads `WORD[:INDEX][?NAME=VALUE[&NAME=VALUE]…]`. The index of a remote device is part of its name. An option without `=VALUE` has the value `on`.
    pub fn parse(text: &str) -> Result<PlatformSpec> {
        // Options may hold what nobody shall see.
        // Messages must not hold a secret that an address carries.
        let shown = if text.contains("token=") { text.split('?').next().unwrap_or_default() } else { text };
        PlatformSpec::parts(text).map_err(|e| e.context(format!("platform `{shown}`")))
    }

    /// Reads the words of one platform or of several ranks: each as [`PlatformSpec::parse`] takes it, with commas between
    /// them. Never empty.
    pub fn parse_ranks(text: &str) -> Result<Vec<PlatformSpec>> {
        split_words(text).iter().map(|word| PlatformSpec::parse(word)).collect()
    }

    /// The words of so many ranks, with commas between them: those of a list as they are; of one word the devices from its
    /// own on, and the same word again where there are no devices by number.
    ///
    /// # Errors
    /// If a list has another length, or the word is that of a device elsewhere or of a runtime, which are named one by one.
    pub fn rank_words(text: &str, ranks: u32) -> Result<String> {
        let specs = PlatformSpec::parse_ranks(text)?;
        let [spec] = &specs[..] else {
            if specs.len() == ranks as usize {
                return Ok(text.into());
            }
            let text = format!("expected platforms for {ranks} ranks, found {}: `{text}`", specs.len());
            return Err(Error::invalid(text).with_hint("name one for each rank, or the first one alone"));
        };
        if ranks > 1 && (spec.is_remote() || spec.is_runtime()) {
            let text = format!("`{spec}` is one device, and there are {ranks} ranks");
            return Err(Error::invalid(text).with_hint("name one for each rank, with commas between them"));
        }
        let numbered = !["cpu", "emulator"].contains(&spec.word.as_str());
        let word = |rank: usize| {
            let index = if numbered { spec.index.saturating_add(rank) } else { spec.index };
            PlatformSpec { index, ..spec.clone() }.to_string()
        };
        Ok((0..ranks.max(1) as usize).map(word).collect::<Vec<_>>().join(","))
    }

    /// See [`PlatformSpec::parse`].
    fn parts(text: &str) -> Result<PlatformSpec> {
        if split_words(text).len() > 1 {
            return Err(Error::invalid("expected one platform, found several").with_hint(
                "`serve`, `generate`, `bench decode`, `check` and `migrate` take one for each rank",
            ));
        }
        let (head, tail) = text.split_once('?').map_or((text, None), |(head, tail)| (head, Some(tail)));
        // An address has colons of its own.
        let (word, index) = if is_remote(head) {
            (head, None)
        } else {
            head.split_once(':').map_or((head, None), |(word, index)| (word, Some(index)))
        };
        if !WORDS.contains(&word) && !RUNTIMES.contains(&word) && !is_remote(word) {
            return Err(Error::invalid(format!("unknown platform `{word}`")).with_hint(format!(
                "known: {}; runtimes: {}; `:N` chooses a device, options follow `?`; `ws://host:port/NAME` and `hub/NAME` are devices elsewhere",
                WORDS.join(", "),
                RUNTIMES.join(", ")
            )));
        }
        let index = match index {
            None => 0,
            Some(digits) => digits.parse().map_err(|_| {
                Error::invalid(format!("expected a device number after `:`, found `{digits}`"))
                    .with_hint(format!("for example `{word}:1`"))
            })?,
        };
        let mut options: Vec<(String, String)> = Vec::new();
        for part in tail.into_iter().flat_map(|t| t.split('&')) {
            let (name, value) = part.split_once('=').unwrap_or((part, "on"));
            if name.is_empty() || options.iter().any(|(n, _)| n == name) {
                let what = if name.is_empty() { "an option has no name" } else { "an option is given twice" };
                let shown = if name.is_empty() { part } else { name };
                return Err(Error::invalid(format!("{what}: `{shown}`"))
                    .with_hint("options look like `?check=all&profile=mobile`"));
            }
            options.push((name.into(), value.into()));
        }
        Ok(PlatformSpec { word: word.into(), index, options })
    }

    /// The value of an option.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Fails if an option other than `known` is given.
    pub fn expect_options(&self, known: &[&str]) -> Result<()> {
        let Some((name, _)) = self.options.iter().find(|(n, _)| !known.contains(&n.as_str())) else {
            return Ok(());
        };
        let hint = match known {
            [] => format!("`{}` takes no options", self.word),
            _ => format!("`{}` knows: {}", self.word, known.join(", ")),
        };
        Err(Error::invalid(format!("platform `{self}`: unknown option `{name}`")).with_hint(hint))
    }
}

impl fmt::Display for PlatformSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.word)?;
        if self.index > 0 {
            write!(f, ":{}", self.index)?;
        }
        for (i, (name, value)) in self.options.iter().enumerate() {
            write!(f, "{}{name}={value}", if i == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

/// The words between commas. A comma within options is no end of a word: another one follows it.
fn split_words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for part in text.split(',') {
        let word = part.split([':', '?']).next().unwrap_or_default();
        let begins = WORDS.contains(&word) || RUNTIMES.contains(&word) || is_remote(part);
        match words.last_mut().filter(|last| last.contains('?') && !begins) {
            Some(last) => *last = format!("{last},{part}"),
            None => words.push(part.into()),
        }
    }
    words
}

/// By its beginning alone.
fn is_remote(word: &str) -> bool {
    word.starts_with("ws://") || word.starts_with("wss://") || word.starts_with("hub/") || word == "hub"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_indices_and_options_round_trip() {
        for text in [
            "cpu",
            "vulkan:1",
            "emulator?check=all&profile=mobile",
            "opencl:2?x=y",
            "ws://h:1/vulkan:1?a=b",
            "hub/lab3/vulkan:1?a=b",
        ] {
            assert_eq!(PlatformSpec::parse(text).unwrap().to_string(), text);
        }
        let remote = PlatformSpec::parse("wss://h:1/vulkan:1?trace").unwrap();
        assert_eq!((remote.is_remote(), remote.word.as_str(), remote.index), (true, "wss://h:1/vulkan:1", 0));
        assert_eq!(remote.option("trace"), Some("on"));
        let spec = PlatformSpec::parse("emulator?check&profile=mobile").unwrap();
        assert_eq!(
            (spec.option("check"), spec.option("profile"), spec.option("x")),
            (Some("on"), Some("mobile"), None)
        );
        assert!(spec.expect_options(&["check", "profile"]).is_ok());
        let error = spec.expect_options(&["profile"]).unwrap_err();
        assert!(error.to_string().contains("unknown option `check`"), "{error}");
        assert!(error.hint().unwrap().contains("profile"));
    }

    #[test]
    fn ranks_have_commas_between_them() {
        let words = |text: &str| -> Vec<String> {
            PlatformSpec::parse_ranks(text).unwrap().iter().map(ToString::to_string).collect()
        };
        assert_eq!(words("cuda:0,cuda:1?f16=off,hub/x"), ["cuda", "cuda:1?f16=off", "hub/x"]);
        assert_eq!(words("vulkan?tuning=a,b.json,cpu"), ["vulkan?tuning=a,b.json", "cpu"]);
        assert!(PlatformSpec::parse_ranks("cpu,").is_err());
        assert!(PlatformSpec::parse_ranks("cpu,cpus").is_err());
        let error = PlatformSpec::parse("cpu,cpu").unwrap_err();
        assert!(error.to_string().contains("expected one platform, found several"), "{error}");
        let ranks = |text, count| PlatformSpec::rank_words(text, count);
        assert_eq!(ranks("cuda:2?f16=off", 2).unwrap(), "cuda:2?f16=off,cuda:3?f16=off");
        assert_eq!(ranks("emulator?check=all", 2).unwrap(), "emulator?check=all,emulator?check=all");
        assert_eq!(ranks("cpu,emulator", 2).unwrap(), "cpu,emulator");
        assert_eq!(ranks("cuda", 1).unwrap(), "cuda");
        let error = ranks("cpu,cpu", 3).unwrap_err().to_string();
        assert!(error.contains("expected platforms for 3 ranks, found 2"), "{error}");
        assert!(ranks("hub/x", 2).unwrap_err().to_string().contains("`hub/x` is one device"));
    }

    #[test]
    fn errors_name_the_known_words() {
        let error = PlatformSpec::parse("vulcan").unwrap_err();
        assert!(error.hint().unwrap().contains("vulkan, metal"), "{error}");
        for bad in ["", "cpu:", "cpu:x", "cpu:-1", "emulator?", "emulator?=1", "emulator?a=1&a=2"] {
            assert!(PlatformSpec::parse(bad).is_err(), "{bad}");
        }
    }
}

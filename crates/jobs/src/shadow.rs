//! Live calls of a served model, checked on a source beside the service.

use crate::job::open_platform;
use crate::model::identity;
use std::path::PathBuf;
use tapml_engine::{BatchLimits, PagedRunner};
use tapml_exec::{Phase, Platform};
use tapml_graph::{Error, Model, Result};
use tapml_import::Checkpoint;
use tapml_migrate::shadow::{Shadow, ShadowCounts, ShadowOptions, ShadowSampler, deployed_kernels};
use tapml_server::{ServedShadow, ShadowFailures, ShadowStats};

/// The word of the platform that shows all nodes and has no kernels.
const CPU: &str = "cpu";

/// A source and the share of the calls that it checks, as `cpu:0.01`.
#[derive(Clone, Debug)]
pub(crate) struct ShadowSpec {
    source: String,
    share: f64,
}

/// A source that is open.
pub(crate) struct ShadowSource {
    spec: ShadowSpec,
    platform: Box<dyn Platform>,
}

impl ShadowSpec {
    /// Reads `PLATFORM:SHARE`.
    pub fn parse(text: &str) -> Result<ShadowSpec> {
        let wrong = |what: String| {
            Err(Error::invalid(what).with_hint(
                "write the source, a colon, and the share of calls above 0 and at most 1, such as `cpu:0.01`",
            ))
        };
        // The word of a platform may hold colons itself.
        let Some((source, number)) = text.rsplit_once(':').filter(|(source, _)| !source.is_empty()) else {
            return wrong(format!("`{text}` names no source with a share"));
        };
        match number.parse::<f64>() {
            Ok(share) if share > 0.0 && share <= 1.0 => Ok(ShadowSpec { source: source.into(), share }),
            _ => wrong(format!("`{number}` in `{text}` is no share above 0 and at most 1")),
        }
    }

    /// Opens the source.
    pub fn open(self) -> Result<ShadowSource> {
        let platform = open_platform(&self.source, &[]).map_err(|e| e.context("the source of --shadow"))?;
        Ok(ShadowSource { spec: self, platform })
    }
}

impl ShadowSource {
    /// Starts to check what the sampler will record of this model in pages of these sizes on the target; calls that fail leave
    /// suites in the folder `cases`.
    pub fn start(
        self,
        (target, platform): (&str, &dyn Platform),
        (checkpoint, model): (&Checkpoint, &Model),
        limits: BatchLimits,
        cases: PathBuf,
    ) -> Result<(ServedShadow, ShadowSampler)> {
        let ShadowSource { spec: ShadowSpec { source: word, share }, platform: source } = self;
        let graph = model.graph().to_paged_with_encoder(PagedRunner::layout(limits)?)?;
        // The CPU shows nodes as it runs them, and devices those of their programs.
        if platform.word() != CPU && platform.lower(&graph, Phase::Prefill)?.is_none() {
            let text = format!("`{target}` runs operators itself and shows no single nodes while it serves");
            return Err(Error::unsupported(text).with_hint("serve without --shadow"));
        }
        let options = ShadowOptions {
            share,
            model: model.clone(),
            identity: identity(checkpoint)?,
            source,
            target: target.to_string(),
            kernels: deployed_kernels(platform, &graph)?,
            cases: cases.clone(),
            report: Box::new(|text| log::error!("{text}")),
        };
        let (shadow, sampler) = Shadow::start(options)?;
        let stats = Box::new(move || stats(shadow.counts()));
        Ok((ServedShadow { source: word, share, cases, stats }, sampler))
    }
}

/// The counts as a server tells them.
fn stats(counts: ShadowCounts) -> ShadowStats {
    let failures = counts.failures.into_iter().map(|failed| ShadowFailures {
        op: failed.op,
        kernel: failed.kernel,
        calls: failed.calls,
    });
    ShadowStats {
        calls: counts.calls,
        dropped: counts.dropped,
        skipped: counts.skipped,
        unwritten: counts.unwritten,
        failures: failures.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_and_a_share_are_read() {
        for (text, source, share) in [
            ("cpu:0.01", "cpu", 0.01),
            ("cpu:1", "cpu", 1.0),
            ("ws://a:7072/gpu:0.5", "ws://a:7072/gpu", 0.5),
        ] {
            let spec = ShadowSpec::parse(text).unwrap();
            assert_eq!((spec.source.as_str(), spec.share), (source, share));
        }
        for text in ["cpu", "cpu:", ":0.5", "cpu:0", "cpu:1.5", "cpu:-1", "cpu:NaN", "cpu:inf", "cpu:x", ""] {
            let error = ShadowSpec::parse(text).map(|_| ()).unwrap_err();
            assert!(error.hint().is_some_and(|hint| hint.contains("cpu:0.01")), "{text}: {error}");
        }
    }
}

//! The two sides of a hybrid.

/// Which platform runs a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HybridSide {
    /// The platform that the model already works on.
    Source,
    /// The platform it is brought to.
    Target,
}

impl HybridSide {
    pub(super) fn name(self) -> &'static str {
        match self {
            HybridSide::Source => "source",
            HybridSide::Target => "target",
        }
    }

    pub(super) fn opposite(self) -> HybridSide {
        match self {
            HybridSide::Source => HybridSide::Target,
            HybridSide::Target => HybridSide::Source,
        }
    }
}

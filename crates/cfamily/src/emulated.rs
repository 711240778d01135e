//! Subgroup operations where a dialect has none: through an array of workgroup memory, between barriers. Subgroups are 8
//! neighbouring invocations, all of which are active, since only what the whole workgroup reaches together is written.
//! Results are those of `subgroup`, to the bit.

use crate::collective::{from_bits, identity, to_bits};
use crate::scalar::Operand;
use crate::types::{Kind, Spelt, ValueShape};
use crate::writer::{WriteResult, Writer};
use naga::{CollectiveOperation, Expression, Handle, SubgroupOperation as S};

/// The array's name, in the kernel and in every function.
pub const WORDS: &str = "subgroup_words";

impl Writer<'_> {
    /// Whether subgroup operations are written in this way.
    pub fn emulates(&self) -> bool {
        self.is_opencl() && self.options.emulate_subgroups
    }

    /// Fails for an operation that perhaps not the whole workgroup reaches.
    pub fn reached_together(&self, result: Handle<Expression>) -> WriteResult<()> {
        let function = self.current()?.key;
        // A barrier that not all invocations reach is undefined in OpenCL.
        if !self.emulates() || !self.diverging.contains(&(function, result)) {
            return Ok(());
        }
        self.fail(
            "a subgroup operation that perhaps not all invocations of a workgroup reach, which workgroup memory stands in \
             for here: move it out of the condition, or take a device with subgroups",
        )
    }

    /// Each component of a value by the function of this name, one after the other.
    ///
    /// `more` are further arguments, each behind a comma. Each result gets a variable, so that barriers come in one order.
    pub fn emulate_components(
        &mut self,
        function: &str,
        operand: &Operand,
        kind: Kind,
        more: &str,
    ) -> WriteResult<String> {
        let mut parts = Vec::new();
        for i in 0..operand.components() {
            let own = to_bits(kind, &operand.component(i));
            let part = format!("{function}({WORDS}, {own}{more})");
            parts.push(self.temporary_of(kind.name(), &from_bits(kind, &part))?);
        }
        match operand.shape {
            // There is one part.
            ValueShape::Scalar(_) => Ok(parts.concat()),
            _ => self.vector_of(kind, &parts),
        }
    }

    /// Adds the function that all others here call.
    pub fn emulated_basics(&mut self) -> WriteResult<()> {
        self.helper("subgroup_share", |_| Ok(SHARE.into()))
    }

    /// A function over the bits of a subgroup's values; its name.
    ///
    /// `combined` is C that combines `sum` and `other`.
    pub fn emulated_reduction(
        &mut self,
        function: &str,
        (op, kind): (S, Kind),
        combined: &str,
        scan: CollectiveOperation,
    ) -> WriteResult<String> {
        self.emulated_basics()?;
        let name = format!("{function}_bits");
        let first = identity(op, kind);
        let first = self.need(first, "a subgroup operation on this type")?;
        let (ty, result) = (kind.name(), to_bits(kind, "sum"));
        let word = |at: &str| from_bits(kind, &format!("words[{at}]"));
        // A full subgroup adds by halves, as the shuffles of `subgroup` do; fewer invocations add in order.
        let whole = match scan {
            CollectiveOperation::Reduce => format!(
                "    if (count == LANES) {{\n        {ty} parts[LANES];\n        for (u32 i = 0u; i < LANES; ++i) parts[i] = {};\n        for (u32 step = LANES / 2u; step > 0u; step >>= 1u) {{\n            for (u32 i = 0u; i < step; ++i) {{\n                const {ty} sum = parts[i];\n                const {ty} other = parts[i + step];\n                parts[i] = {combined};\n            }}\n        }}\n        const {ty} sum = parts[0];\n        return {result};\n    }}\n",
                word("i")
            ),
            _ => String::new(),
        };
        // A scan goes through the invocations before its own one.
        let end = match scan {
            CollectiveOperation::Reduce => "count",
            CollectiveOperation::InclusiveScan => "LANE() + 1u",
            CollectiveOperation::ExclusiveScan => "LANE()",
        };
        self.helper(&name, |_| {
            Ok(format!(
                "DEV u32 {name}(LOCAL u32* words, u32 own) {{\n    const u32 count = subgroup_share(words, own);\n    words += LOCAL_INDEX() - LANE();\n{whole}    {ty} sum = {first};\n    for (u32 lane = 0u; lane < {end}; ++lane) {{\n        const {ty} other = {};\n        sum = {combined};\n    }}\n    return {result};\n}}\n",
                word("lane")
            ))
        })?;
        Ok(name)
    }
}

/// Each invocation's word where all others can read it; how many the subgroup has. What was read before has been read by
/// all.
const SHARE: &str = "DEV u32 subgroup_share(LOCAL u32* words, u32 own) {
    BARRIER_LOCAL();
    words[LOCAL_INDEX()] = own;
    BARRIER_LOCAL();
    const u32 left = INVOCATIONS() - (LOCAL_INDEX() - LANE());
    return left < LANES ? left : LANES;
}
";

/// The word of another invocation of the subgroup, its own if there is none.
pub const GATHER: &str = "DEV u32 subgroup_gather(LOCAL u32* words, u32 own, u32 from) {
    const u32 count = subgroup_share(words, own);
    return from < count ? words[LOCAL_INDEX() - LANE() + from] : own;
}
";

/// A bit for each invocation of the subgroup.
pub const BALLOT: &str = "DEV u32 subgroup_ballot(LOCAL u32* words, u32 own) {
    const u32 count = subgroup_share(words, own);
    words += LOCAL_INDEX() - LANE();
    u32 mask = 0u;
    for (u32 lane = 0u; lane < count; ++lane) mask |= words[lane] << lane;
    return mask;
}
";

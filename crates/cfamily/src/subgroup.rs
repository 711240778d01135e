//! Subgroup operations: of CUDA and HIP over the invocations that are active. When all are, sums go by halves; else from
//! the first lane to the last. What stands in for them in OpenCL is in `emulated`.
//!
//! Values go between invocations as 32 bits; see [`to_bits`]. Where WGSL leaves a result open, such as that of a lane which is
//! not active, an invocation gets its own value.

use crate::collective::{from_bits, identity, to_bits};
use crate::emulated;
use crate::scalar::{Operand, binary};
use crate::types::{Kind, Spelt, ValueShape};
use crate::writer::{WriteResult, Writer};
use naga::{
    BinaryOperator, CollectiveOperation, Direction, Expression, GatherMode, Handle, SubgroupOperation as S,
};

impl Writer<'_> {
    /// Refuses OpenCL C without emulation, and with it what not all invocations reach.
    fn supports_subgroups(&self, result: Handle<Expression>) -> WriteResult<()> {
        if self.is_opencl() && !self.emulates() {
            self.fail("subgroup operations in OpenCL C")
        } else {
            self.reached_together(result)
        }
    }

    /// `subgroupBallot`: a bit for each active invocation whose predicate holds, as four words.
    pub fn ballot(
        &mut self,
        result: Handle<Expression>,
        predicate: Option<Handle<Expression>>,
    ) -> WriteResult<()> {
        self.supports_subgroups(result)?;
        let predicate = match predicate {
            Some(predicate) => self.value(predicate)?,
            None => "true".into(),
        };
        if self.emulates() {
            self.emulated_basics()?;
            self.helper("subgroup_ballot", |_| Ok(emulated::BALLOT.into()))?;
            let own = format!("subgroup_ballot({}, ({predicate}) ? 1u : 0u)", emulated::WORDS);
            let mask = self.temporary_of("u32", &own)?;
            let value = self.vector_of(Kind::U32, &[mask, "0u".into(), "0u".into(), "0u".into()])?;
            return self.define(result, &value);
        }
        self.reduction("or", Kind::U32, S::Or, CollectiveOperation::Reduce)?;
        let mask = self.temporary_of("lanes", &format!("BALLOT({predicate})"))?;
        let words: Vec<String> = (0..4).map(|k| format!("subgroup_or_u(BALLOT_WORD({mask}, {k}))")).collect();
        let value = self.vector_of(Kind::U32, &words)?;
        self.define(result, &value)
    }

    /// Broadcasts, shuffles and quad operations: all of them read the value of one other lane.
    /// A lane outside of the subgroup, or one that is not active, gives the own value.
    pub fn gather(
        &mut self,
        mode: GatherMode,
        argument: Handle<Expression>,
        result: Handle<Expression>,
    ) -> WriteResult<()> {
        self.supports_subgroups(result)?;
        let from = match mode {
            // All invocations are active there, so that the first one is lane 0.
            GatherMode::BroadcastFirst if self.emulates() => "0u".into(),
            GatherMode::BroadcastFirst => "first_lane(ACTIVE())".into(),
            GatherMode::Broadcast(lane) | GatherMode::Shuffle(lane) => self.lane_index(lane)?,
            // Distances may lead outside: `subgroup_gather` keeps the own value there.
            GatherMode::ShuffleDown(by) => format!("LANE() + {}", self.lane_index(by)?),
            GatherMode::ShuffleUp(by) => format!("LANE() - {}", self.lane_index(by)?),
            GatherMode::ShuffleXor(by) => format!("LANE() ^ {}", self.lane_index(by)?),
            GatherMode::QuadBroadcast(lane) => format!("(LANE() & ~3u) | ({} & 3u)", self.lane_index(lane)?),
            GatherMode::QuadSwap(Direction::X) => "LANE() ^ 1u".into(),
            GatherMode::QuadSwap(Direction::Y) => "LANE() ^ 2u".into(),
            GatherMode::QuadSwap(Direction::Diagonal) => "LANE() ^ 3u".into(),
        };
        let a = self.operand(argument)?;
        let kind = a.shape.kind();
        if self.emulates() {
            self.emulated_basics()?;
            self.helper("subgroup_gather", |_| Ok(emulated::GATHER.into()))?;
            let lane = self.temporary_of("u32", &from)?;
            let value = self.emulate_components("subgroup_gather", &a, kind, &format!(", {lane}"))?;
            return self.define(result, &value);
        }
        self.first_lane()?;
        self.helper("subgroup_gather", |_| Ok(GATHER.into()))?;
        let template = from_bits(kind, &format!("subgroup_gather({}, $b)", to_bits(kind, "$a")));
        let lane = Operand { text: self.temporary_of("u32", &from)?, shape: ValueShape::Scalar(Kind::U32) };
        let value = self.apply("SubgroupGather", &template, &[a, lane], kind)?;
        self.define(result, &value)
    }

    /// A lane or a distance as `u32`.
    fn lane_index(&mut self, lane: Handle<Expression>) -> WriteResult<String> {
        Ok(format!("(u32){}", self.value(lane)?))
    }

    /// Adds the function that finds the first active lane.
    fn first_lane(&mut self) -> WriteResult<()> {
        self.helper("first_lane", |_| Ok(FIRST_LANE.into()))
    }

    /// A reduction or scan over the active invocations, for each component of its argument.
    /// Booleans go as words: `all` is `and`, `any` is `or`.
    pub fn collective(
        &mut self,
        op: S,
        scan: CollectiveOperation,
        argument: Handle<Expression>,
        result: Handle<Expression>,
    ) -> WriteResult<()> {
        self.supports_subgroups(result)?;
        let a = self.operand(argument)?;
        let kind = a.shape.kind();
        let name = format!("{op:?}").to_lowercase();
        let (kind_in, name) = match kind {
            // `all` and `any` are `and` and `or` of words.
            Kind::Bool => (Kind::U32, if op == S::All { "and".to_string() } else { "or".to_string() }),
            kind => (kind, name),
        };
        let op = match op {
            S::All => S::And,
            S::Any => S::Or,
            op => op,
        };
        let function = self.reduction(&name, kind_in, op, scan)?;
        if self.emulates() {
            let value = self.emulate_components(&function, &a, kind, "")?;
            return self.define(result, &value);
        }
        let template = match kind {
            Kind::Bool => format!("({function}($a ? 1u : 0u) != 0u)"),
            _ => format!("{function}($a)"),
        };
        let value = self.apply(&format!("Each{function}"), &template, &[a], kind)?;
        self.define(result, &value)
    }

    /// A function over the active invocations; its name.
    ///
    /// A reduction over a full subgroup gives every lane the same result: all add the same pairs. With inactive lanes all go through the
    /// active ones in order.
    fn reduction(&mut self, name: &str, kind: Kind, op: S, scan: CollectiveOperation) -> WriteResult<String> {
        let form = match scan {
            CollectiveOperation::Reduce => "",
            CollectiveOperation::InclusiveScan => "inclusive_",
            CollectiveOperation::ExclusiveScan => "exclusive_",
        };
        let function = format!("subgroup_{form}{name}_{}", kind.letter());
        let combined = self.combine(op, kind)?;
        if self.emulates() {
            return self.emulated_reduction(&function, (op, kind), &combined, scan);
        }
        let first = identity(op, kind);
        let first = self.need(first, "a subgroup operation on this type")?;
        self.helper(&function, |_| {
            let ty = kind.name();
            let other = from_bits(kind, &format!("SHUFFLE(active, {}, lane)", to_bits(kind, "own")));
            let half = from_bits(kind, &format!("SHUFFLE(active, {}, LANE() ^ step)", to_bits(kind, "sum")));
            // With all lanes active a tree takes as many steps as the logarithm of their number.
            let by_halves = match scan {
                CollectiveOperation::Reduce => format!(
                    "    if (active == ALL_LANES) {{\n        {ty} sum = own;\n        for (u32 step = LANES / 2u; step > 0u; step >>= 1u) {{\n            const {ty} other = {half};\n            sum = {combined};\n        }}\n        return sum;\n    }}\n"
                ),
                _ => String::new(),
            };
            let condition = match scan {
                CollectiveOperation::Reduce => "",
                CollectiveOperation::InclusiveScan => " && lane <= LANE()",
                CollectiveOperation::ExclusiveScan => " && lane < LANE()",
            };
            Ok(format!(
                "DEV {ty} {function}({ty} own) {{\n    const lanes active = ACTIVE();\n{by_halves}    {ty} sum = {first};\n    for (u32 lane = 0u; lane < LANES; ++lane) {{\n        if (((active >> lane) & 1u) == 0u) continue;\n        const {ty} other = {other};\n        if (true{condition}) sum = {combined};\n    }}\n    return sum;\n}}\n"
            ))
        })?;
        Ok(function)
    }

    /// `sum` and `other` combined.
    ///
    /// # Errors
    /// If WGSL has no such operation on this kind.
    fn combine(&mut self, op: S, kind: Kind) -> WriteResult<String> {
        let operator = match op {
            S::Add => BinaryOperator::Add,
            S::Mul => BinaryOperator::Multiply,
            S::And | S::All => BinaryOperator::And,
            S::Or | S::Any => BinaryOperator::InclusiveOr,
            S::Xor => BinaryOperator::ExclusiveOr,
            S::Min | S::Max => {
                let name = if op == S::Min { "min" } else { "max" };
                let function =
                    format!("{name}_{}($a, $b)", if kind == Kind::F16 { 'f' } else { kind.letter() });
                let template = crate::scalar::halves(kind, &function, kind);
                return Ok(template.replace("$a", "sum").replace("$b", "other"));
            }
        };
        let found = binary(operator, kind);
        let (template, _) = self.need(found, "a subgroup operation on this type")?;
        Ok(template.replace("$a", "sum").replace("$b", "other"))
    }
}

/// The word of another active lane; its own if there is none.
const GATHER: &str = "DEV u32 subgroup_gather(u32 own, u32 from) {
    const lanes active = ACTIVE();
    const u32 other = SHUFFLE(active, own, from & (LANES - 1u));
    return from < LANES && ((active >> (from & (LANES - 1u))) & 1u) != 0u ? other : own;
}
";

/// The lowest active lane.
const FIRST_LANE: &str = "DEV u32 first_lane(lanes active) {
    u32 lane = 0u;
    while (lane < LANES - 1u && ((active >> lane) & 1u) == 0u) ++lane;
    return lane;
}
";

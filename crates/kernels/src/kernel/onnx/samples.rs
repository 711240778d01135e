//! Sample cases of the operators, one in a line: kind, inputs, `->`, outputs, attributes. `+` behind an input asks for
//! positive numbers, `=` for these, `<` for integers from 0 below this one.

use tapml_graph::op::{DeclaredType, Fill, Foreign, Sample};
use tapml_graph::{DType, Dim, TensorType};

/// The sample cases of an operator, which is named without its version.
pub fn samples_of(name: &str) -> Vec<Sample> {
    let of_name = |line: &&str| line.split([' ', '@']).next() == Some(name);
    lines().filter(of_name).filter_map(parse).collect()
}

/// The samples of operators of the standard, and of those of PyTorch.
fn lines() -> impl Iterator<Item = &'static str> {
    include_str!("samples.txt").lines().chain(include_str!("../aten/samples.txt").lines())
}

/// A line that does not parse is left out, which the tests do not allow.
fn parse(line: &'static str) -> Option<Sample> {
    let (types, attributes) = line.split_once(" {")?;
    let (inputs, outputs) = types.split_once(" -> ")?;
    let (kind, inputs) = inputs.split_once(' ').unwrap_or((inputs, ""));
    let inputs = inputs.split(' ').filter(|text| !text.is_empty());
    let places: Vec<Option<(TensorType, Fill)>> = inputs.map(input).collect();
    let declared = outputs.split(' ').map(|text| match input(text) {
        Some((ty, _)) => DeclaredType::As(ty),
        None => DeclaredType::Absent,
    });
    let attributes = serde_json::from_str(&format!("{{{attributes}")).ok()?;
    let taken = places.iter().map(Option::is_some).collect();
    let op = Foreign::new(kind, attributes, taken, declared.collect()).ok()?;
    let mut sample = Sample::new(types, op, 1, 0);
    for (ty, fill) in places.into_iter().flatten() {
        sample.inputs.push(tapml_graph::op::SampleInput { ty, fill });
    }
    Some(sample)
}

/// A type and how its values are made; `None` for a place that is not taken.
fn input(text: &'static str) -> Option<(TensorType, Fill)> {
    let (dtype, rest) = text.split_once('[')?;
    let (sizes, fill) = rest.split_once(']')?;
    let dtype = DType::ALL.into_iter().find(|known| known.name() == dtype)?;
    let sizes = sizes.split(',').filter(|size| !size.is_empty());
    let shape = sizes.map(|size| size.parse::<Dim>().ok()).collect::<Option<_>>()?;
    let fill = match fill.strip_prefix('=') {
        Some(values) => Fill::Values(values),
        None if fill.starts_with('<') => Fill::Below(fill[1..].parse().ok()?),
        None if fill == "+" => Fill::Around(2.0, 0.3),
        None => Fill::Normal(1.0),
    };
    Some((TensorType { dtype, shape }, fill))
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_line_is_a_sample_and_every_row_has_one() {
        for line in super::lines() {
            assert!(super::parse(line).is_some(), "{line}");
        }
        for row in crate::kernel::KERNELS.iter().filter(|row| row.op().contains('.')) {
            assert!(!super::samples_of(row.op()).is_empty(), "{}", row.name);
        }
    }
}

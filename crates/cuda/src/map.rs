//! Tensor maps: what the copy engine of a Hopper chip is told of an array, so that it brings boxes of it to shared memory by
//! itself.
//!
//! Source: "Tensor Memory Access" in the CUDA Programming Guide, and `cuTensorMapEncodeTiled` of the
//! driver's reference.

use crate::driver::{Argument, Driver};
use crate::error::call_error;
use crate::sys::{self, CuAddress};
use tapml_device::KernelDesc;
use tapml_graph::{Error, Result};

/// Elements of a box in a direction at most.
const MOST: u32 = 256;

/// A map that a kernel in CUDA C++ takes behind its bindings, as a `__grid_constant__` structure of 128 bytes. The constants
/// of its description ask for it: `MAP0` is the binding, `MAP0_BYTES` the bytes of an element, 2 or 4, `MAP0_ROW` the elements
/// of a row, `MAP0_WIDTH` and `MAP0_HEIGHT` the box. `MAP1` comes behind it, and so on. There are as many rows as the binding
/// has. A box is 32, 64 or 128 bytes wide, and swizzled over them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Map {
    pub(crate) binding: u32,
    /// Of an element.
    bytes: u32,
    /// Elements of a row.
    row: u32,
    /// Width and height of a box, elements.
    size: [u32; 2],
}

impl Map {
    /// The maps that a kernel asks for, in order.
    pub(crate) fn all(desc: &KernelDesc) -> Result<Vec<Map>> {
        (0..).map_while(|i| Map::for_binding(desc, i)).collect()
    }

    /// Map `index`; `None` if the description has none of that number.
    fn for_binding(desc: &KernelDesc, index: u32) -> Option<Result<Map>> {
        let constant = |what: &str| {
            let name = format!("MAP{index}{what}");
            let value = desc.constants.iter().find(|(n, _)| *n == name)?.1;
            let whole = value >= 0.0 && value <= f64::from(u32::MAX) && value.fract() == 0.0;
            // A value that is no whole number becomes 0, which `holds` refuses.
            Some(if whole { value as u32 } else { 0 })
        };
        let binding = constant("")?;
        let number = |what| constant(what).unwrap_or(0);
        let map = Map {
            binding,
            bytes: number("_BYTES"),
            row: number("_ROW"),
            size: [number("_WIDTH"), number("_HEIGHT")],
        };
        Some(if map.holds(desc.bindings.len()) { Ok(map) } else { Err(map.map_error(desc, index)) })
    }

    /// Whether the driver will take the map: the limits of `cuTensorMapEncodeTiled`.
    fn holds(&self, bindings: usize) -> bool {
        let [width, height] = self.size;
        let whole = self.row.checked_mul(self.bytes).is_some_and(|row| row > 0 && row.is_multiple_of(16));
        let fits = width <= MOST && (1..=MOST).contains(&height) && self.swizzle().is_some();
        (self.binding as usize) < bindings && matches!(self.bytes, 2 | 4) && whole && fits
    }

    /// Tells what the constants were.
    fn map_error(&self, desc: &KernelDesc, index: u32) -> Error {
        let text = format!("kernel `{}`: its constants make no tensor map MAP{index}: {self:?}", desc.name);
        Error::invalid(text).with_detail("kernel", &desc.name).with_hint(
            "a box is 32, 64 or 128 bytes wide and at most 256 rows high, a row is a multiple of 16 bytes",
        )
    }

    /// The driver's number of the swizzle.
    fn swizzle(&self) -> Option<i32> {
        match self.size[0].checked_mul(self.bytes)? {
            32 => Some(1),
            64 => Some(2),
            128 => Some(3),
            _ => None,
        }
    }

    /// The map of so many bytes at an address.
    pub(crate) fn argument(&self, driver: &Driver, at: CuAddress, bytes: u64) -> Result<Argument> {
        let row = u64::from(self.row) * u64::from(self.bytes);
        let shape = sys::MapShape {
            dtype: if self.bytes == 2 { sys::MAP_F16 } else { sys::MAP_U32 },
            // The driver wants 1 to 2³² rows.
            sizes: [u64::from(self.row), (bytes / row).clamp(1, 1 << 32)],
            row,
            area: self.size,
            swizzle: self.swizzle().unwrap_or(0),
        };
        let map = driver.map(at, &shape).map_err(|failure| call_error("make a tensor map", failure))?;
        Ok(Argument::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::CudaOptions;
    use crate::{adapter, stub};
    use tapml_device::{BindingKind, Language, Source};

    fn desc(constants: &[(&str, f64)]) -> KernelDesc {
        let source = Source {
            language: Language::Cuda,
            file: "k.cu".into(),
            prelude: String::new(),
            text: String::new(),
        };
        KernelDesc {
            name: "op/cuda".into(),
            source,
            entry: "k".into(),
            constants: constants.iter().map(|&(name, value)| (name.to_string(), value)).collect(),
            bindings: vec![BindingKind::Read, BindingKind::ReadWrite],
            workgroup: [32, 1, 1],
            workgroup_memory: 0,
            needs_f16: false,
            needs_subgroups: false,
            dependent_launch: false,
        }
    }

    const F16: [(&str, f64); 5] =
        [("MAP0", 1.0), ("MAP0_BYTES", 2.0), ("MAP0_ROW", 96.0), ("MAP0_WIDTH", 64.0), ("MAP0_HEIGHT", 16.0)];

    #[test]
    fn constants_ask_for_maps() {
        assert_eq!(Map::all(&desc(&[("K", 4.0), ("MAPS", 1.0)])).unwrap(), []);
        let map = Map { binding: 1, bytes: 2, row: 96, size: [64, 16] };
        assert_eq!(Map::all(&desc(&F16)).unwrap(), [map]);
        for (name, wrong) in [
            ("MAP0", 2.0),
            ("MAP0_BYTES", 8.0),
            ("MAP0_ROW", 60.5),
            ("MAP0_ROW", 4_000_000_000.0),
            ("MAP0_WIDTH", 48.0),
            ("MAP0_HEIGHT", 0.0),
            ("MAP0_HEIGHT", 257.0),
        ] {
            let constants = F16.map(|(n, value)| (n, if n == name { wrong } else { value }));
            let error = Map::all(&desc(&constants)).unwrap_err();
            assert!(error.message().contains("MAP0") && error.hint().is_some(), "{name} {wrong}: {error}");
        }
    }

    #[test]
    fn a_map_has_the_rows_of_its_binding() {
        let opened = adapter::open_on(&stub::API, 0, 13_000, CudaOptions::default()).unwrap();
        let map = Map { binding: 0, bytes: 4, row: 24, size: [8, 64] };
        for (bytes, rows) in [(96 * 7, 7), (96 * 7 + 95, 7), (0, 1)] {
            let Argument::Map(made) = map.argument(&opened.driver, 4096, bytes).unwrap() else { panic!() };
            assert_eq!(made.0[..8], [4096, 2, 24, rows, 96, 8, 64, 1]);
        }
    }
}

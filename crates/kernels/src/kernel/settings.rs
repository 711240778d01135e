//! Sizes that kernels leave free, and what is tried for each: the settings that `tapml tune` measures beside the defaults,
//! which stand in the planners. A new setting is a row in [`SETTINGS`].
//!
//! A tuning cache names kernels with their settings, so that a name must keep its meaning: a setting that is changed
//! is another one, with another name.

use std::fmt;

/// Sizes by name, as far as they are not the kernel's defaults. The text of the kernel has a constant for each, named alike
/// in capitals.
///
/// Settings are static, so that they are copied freely and compared by value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting(&'static [(&'static str, u32)]);

impl Setting {
    /// All sizes as the kernel declares them.
    pub const DEFAULT: Setting = Setting(&[]);
}

/// Runs for which a setting makes a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingRows {
    /// Those of few rows, [`FEW`] at most.
    Skinny,
    /// Those of more.
    Many,
    /// Any.
    All,
}

/// A setting, and the kernels that can take it.
#[derive(Clone, Copy, Debug)]
pub struct SettingRow {
    /// Operators and variants.
    pub kernels: &'static [&'static str],
    /// The sizes.
    pub setting: Setting,
    /// Where it matters.
    pub rows: SettingRows,
}

/// Rows up to which kernels treat all of them in each workgroup.
pub const SKINNY_ROWS: u64 = 8;

/// Products that every device takes. `outputs`: of a workgroup, when there are few rows. Else `rows`, `columns` and `depth`
/// of a tile.
const PORTABLE: &[&str] =
    &["linear/portable", "gated_linear/portable", "linear/packed", "gated_linear/packed"];
/// Products by octets of columns. `each`: octets of a workgroup, when there are few rows. `batch`: rows for which a workgroup
/// reads its weights, however many rows there are. Else as above.
const SUBGROUP: &[&str] =
    &["linear/subgroup", "gated_linear/subgroup", "linear/packed_subgroup", "gated_linear/packed_subgroup"];
/// Products with the weights of experts that were chosen.
const EXPERTS: &[&str] = &[
    "expert_linear/portable",
    "expert_linear/packed",
    "expert_gated_linear/portable",
    "expert_gated_linear/packed",
];
/// Products of many rows on a Hopper chip. `usual`: rows of a run that tiles are chosen for. `tile`: rows of a tile.
/// `stagger`: whether groups of warps end their first sums at different times. `slices`: of rows of weights, added up last, at most.
const HOPPER: &[&str] = &["linear/gemm_hopper", "gated_linear/gemm_hopper", "linears/gemm_hopper"];
/// `parts`: of the keys, when there are few rows. `block`: heads of a workgroup, at most.
const SPLIT: &[&str] = &["attention/split"];

/// Few rows are treated as many are.
pub const TILES: Setting = Setting(&[("few", 0)]);

/// Any number of rows is treated eight at a time, in the same order.
pub const BATCHES: Setting = Setting(&[("few", 0), ("batch", 8)]);

/// Tiles are chosen for runs of so few rows that weights are what takes time: more blocks read them at once, with fewer rows.
pub const NARROW: Setting = Setting(&[("usual", 64), ("tile", 64), ("stagger", 0), ("slices", 2)]);

/// Where a run of products ends depends on their number alone, not on the tile that they are computed in: on slices as those of
/// [`NARROW`].
pub const EVEN: Setting = Setting(&[("stagger", 0), ("slices", 2)]);

/// The settings.
pub const SETTINGS: &[SettingRow] = &[
    // More outputs in a workgroup mean fewer workgroups, which read the row less often.
    SettingRow { kernels: PORTABLE, setting: Setting(&[("outputs", 8)]), rows: SettingRows::Skinny },
    SettingRow { kernels: PORTABLE, setting: Setting(&[("outputs", 16)]), rows: SettingRows::Skinny },
    SettingRow {
        kernels: PORTABLE,
        setting: Setting(&[("rows", 16), ("columns", 64), ("depth", 8)]),
        rows: SettingRows::Many,
    },
    SettingRow {
        kernels: PORTABLE,
        setting: Setting(&[("rows", 64), ("columns", 16), ("depth", 8)]),
        rows: SettingRows::Many,
    },
    // As above, in octets.
    SettingRow { kernels: SUBGROUP, setting: Setting(&[("each", 2)]), rows: SettingRows::Skinny },
    SettingRow { kernels: SUBGROUP, setting: Setting(&[("each", 4)]), rows: SettingRows::Skinny },
    SettingRow {
        kernels: SUBGROUP,
        setting: Setting(&[("rows", 32), ("columns", 128), ("depth", 16)]),
        rows: SettingRows::Many,
    },
    SettingRow {
        kernels: SUBGROUP,
        setting: Setting(&[("rows", 128), ("columns", 32), ("depth", 16)]),
        rows: SettingRows::Many,
    },
    // Tiles for any number of rows: a row is added up in the same order then, whatever rows are beside it.
    SettingRow { kernels: PORTABLE, setting: TILES, rows: SettingRows::Skinny },
    SettingRow { kernels: SUBGROUP, setting: BATCHES, rows: SettingRows::All },
    SettingRow { kernels: EXPERTS, setting: TILES, rows: SettingRows::Skinny },
    SettingRow { kernels: HOPPER, setting: NARROW, rows: SettingRows::All },
    SettingRow { kernels: HOPPER, setting: EVEN, rows: SettingRows::Many },
    // Fewer parts have less to bring together; more parts fill a larger GPU.
    SettingRow { kernels: SPLIT, setting: Setting(&[("parts", 8)]), rows: SettingRows::Skinny },
    SettingRow { kernels: SPLIT, setting: Setting(&[("parts", 16)]), rows: SettingRows::Skinny },
    SettingRow { kernels: SPLIT, setting: Setting(&[("parts", 64)]), rows: SettingRows::Skinny },
    SettingRow { kernels: SPLIT, setting: Setting(&[("block", 1)]), rows: SettingRows::All },
    SettingRow { kernels: SPLIT, setting: Setting(&[("block", 2)]), rows: SettingRows::All },
];

impl Setting {
    /// A size.
    pub fn size(self, name: &str, default: u32) -> u32 {
        self.0.iter().find(|(own, _)| *own == name).map_or(default, |&(_, value)| value)
    }

    /// The sizes that are not the defaults.
    pub fn sizes(self) -> &'static [(&'static str, u32)] {
        self.0
    }

    /// Whether all sizes are the defaults.
    pub fn is_default(self) -> bool {
        self.0.is_empty()
    }

    /// What a kernel with this setting is called, such as `linear/portable@outputs=8`.
    pub fn name(self, kernel: &str) -> String {
        if self.is_default() { kernel.into() } else { format!("{kernel}@{self}") }
    }

    /// Whether a name that [`Setting::parse`] gave this setting for names no other one.
    pub fn is_of(self, name: &str) -> bool {
        name.contains('@') != self.is_default()
    }

    /// Kernel and setting of a name; the default if there is no such setting.
    pub fn parse(name: &str) -> (&str, Setting) {
        let Some((kernel, _)) = name.split_once('@') else { return (name, Setting::default()) };
        // The whole name is compared: sizes in another order name no setting.
        let row = rows_of(kernel).find(|row| row.setting.name(kernel) == name);
        (kernel, row.map_or(Setting::default(), |row| row.setting))
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (at, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name}={value}", if at > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

impl SettingRows {
    /// Whether runs of so many rows are among them.
    pub fn hold(self, rows: u64) -> bool {
        match self {
            SettingRows::Skinny => rows <= SKINNY_ROWS,
            SettingRows::Many => rows > SKINNY_ROWS,
            SettingRows::All => true,
        }
    }
}

/// The settings of a kernel.
pub fn rows_of(kernel: &str) -> impl Iterator<Item = &'static SettingRow> {
    SETTINGS.iter().filter(move |row| row.kernels.contains(&kernel))
}

/// Whether a setting makes a difference in runs of so many rows; defaults do.
pub fn matters(kernel: &str, rows: u64) -> bool {
    let (plain, setting) = Setting::parse(kernel);
    setting.is_default() || rows_of(plain).any(|row| row.setting == setting && row.rows.hold(rows))
}

/// Cuts `KERNEL@SETTING=REST`, the names of settings having signs of equality too.
pub fn cut(spec: &str) -> Option<(&str, &str)> {
    let (kernel, _) = spec.split_once('@')?;
    // The longest match is not needed: no setting's name with `=` behind it begins another one.
    rows_of(kernel).find_map(|row| {
        let rest = spec.strip_prefix(&row.setting.name(kernel))?.strip_prefix('=')?;
        Some((&spec[..spec.len() - rest.len() - 1], rest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_kernel_and_setting() {
        let name = "linear/subgroup@rows=32,columns=128,depth=16";
        let (kernel, setting) = Setting::parse(name);
        assert_eq!((kernel, setting.size("rows", 1), setting.size("each", 7)), ("linear/subgroup", 32, 7));
        assert_eq!(setting.name(kernel), name);
        assert!(matters(name, 9) && !matters(name, 8) && matters("add/row", 3));
        for other in ["add/row", "add/row@rows=1", "linear/subgroup@rows=32"] {
            let (kernel, setting) = Setting::parse(other);
            assert!(setting.is_default() && other.starts_with(kernel) && !kernel.contains('@'), "{other}");
        }
        let spec = format!("{name}=a=b.wgsl");
        assert_eq!(cut(&spec), Some((name, "a=b.wgsl")));
        assert_eq!(cut("linear/subgroup=a@b.wgsl"), None);
    }

    #[test]
    fn each_setting_is_listed_once_and_is_no_default() {
        let all: Vec<String> = SETTINGS
            .iter()
            .flat_map(|row| row.kernels.iter().map(|kernel| row.setting.name(kernel)))
            .collect();
        for (at, name) in all.iter().enumerate() {
            assert!(name.contains('@') && !all[..at].contains(name), "{name}");
        }
    }
}

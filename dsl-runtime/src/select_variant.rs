//! Selects a variant at run time, for code that knows its types or sizes only then.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::{Kernel, Variant};

/// What is wanted of one const parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// This value; `false` is 0 and `true` is 1.
    Exact(i128),
    /// The smallest declared value that is not below this one: the smallest block that covers a row, say.
    AtLeast(i128),
    /// Any declared value.
    Open,
}

impl Choice {
    fn allows(self, value: i128) -> bool {
        match self {
            Choice::Exact(wanted) => value == wanted,
            Choice::AtLeast(wanted) => value >= wanted,
            Choice::Open => true,
        }
    }
}

/// The variant of a launch, for a grid that depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    pub(crate) kernel: &'static Kernel,
    pub(crate) variant: &'static Variant,
    pub(crate) parallelism: usize,
}

impl Chosen {
    /// The value of a const parameter; `false` is 0 and `true` is 1.
    ///
    /// # Panics
    /// If the kernel has no const parameter of this name, or its value is negative.
    #[track_caller]
    pub fn constant(&self, name: &str) -> usize {
        let position = self.kernel.consts.iter().position(|own| *own == name);
        let value = position.and_then(|position| self.variant.consts.get(position));
        let Some(&value) = value else {
            panic!(
                "kernel `{}` has no constant `{name}`: it has {}",
                self.kernel.name,
                self.kernel.consts.join(", ")
            );
        };
        usize::try_from(value)
            .unwrap_or_else(|_| panic!("`{name}` is {value}, which is no number of elements"))
    }

    /// How many programs run at once on the device of the launch: see [`Device::parallelism`](crate::Device::parallelism).
    /// For a kernel whose programs take one row after the other, `|chosen| rows.min(chosen.parallelism())`.
    pub fn parallelism(&self) -> usize {
        self.parallelism
    }

    /// The variant: its label, types and constants.
    pub fn variant(&self) -> &'static Variant {
        self.variant
    }
}

impl Variant {
    fn fits(&self, types: &[DType], choices: &[Choice]) -> bool {
        self.types == types
            && self.consts.len() == choices.len()
            && self.consts.iter().zip(choices).all(|(&value, choice)| choice.allows(value))
    }
}

impl Kernel {
    /// The variant with these types and constants, each in the order of the kernel's generics.
    ///
    /// # Errors
    /// If it was not declared; the error lists what was.
    pub fn variant(&'static self, types: &[DType], consts: &[i128]) -> Result<&'static Variant> {
        let wanted = |variant: &&Variant| variant.types == types && variant.consts == consts;
        let choices = || consts.iter().map(|&value| Choice::Exact(value)).collect::<Vec<_>>();
        self.variants.iter().find(wanted).ok_or_else(|| self.no_variant(types, &choices()))
    }

    /// The smallest declared variant that will do: its types are these, and each constant is as its choice says. Where
    /// several are possible, the first constant is made as small as can be, then the second, and so on.
    ///
    /// # Errors
    /// If none will do; the error lists what was declared.
    pub fn smallest(&'static self, types: &[DType], choices: &[Choice]) -> Result<&'static Variant> {
        let fitting = self.fitting(types, choices).map(|(_, variant)| variant);
        fitting.min_by_key(|variant| variant.consts).ok_or_else(|| self.no_variant(types, choices))
    }

    /// The first declared variant that will do: its types are these, each constant is as its choice says, and `allows` says yes to its
    /// position.
    ///
    /// # Errors
    /// If none will do; the error lists what was declared.
    pub fn first(
        &'static self,
        types: &[DType],
        choices: &[Choice],
        allows: impl Fn(usize) -> bool,
    ) -> Result<&'static Variant> {
        if choices.iter().any(|choice| matches!(choice, Choice::AtLeast(_))) {
            return Ok(self.candidates(types, choices, allows)?[0]);
        }
        // What the conditions allow is compared with numbers that are known at build: few variants are left to look at.
        let mut variants = self.variants.iter().enumerate();
        let first = variants.find(|(position, variant)| allows(*position) && variant.fits(types, choices));
        first.map(|(_, variant)| variant).ok_or_else(|| self.no_variant(types, choices))
    }

    /// The variants whose types are these and whose constants are as their choices say, with their positions.
    fn fitting<'c>(
        &'static self,
        types: &'c [DType],
        choices: &'c [Choice],
    ) -> impl Iterator<Item = (usize, &'static Variant)> + 'c {
        self.variants.iter().enumerate().filter(move |(_, variant)| variant.fits(types, choices))
    }

    /// The variants among which a measurement decides, in the order declared: their types are these, each constant is as
    /// its choice says, `allows` says yes to their position; and of those, where a constant is to be
    /// [`AtLeast`](Choice::AtLeast), the ones that have it smallest.
    ///
    /// # Errors
    /// If there are none; the error lists what was declared.
    pub fn candidates(
        &'static self,
        types: &[DType],
        choices: &[Choice],
        allows: impl Fn(usize) -> bool,
    ) -> Result<Vec<&'static Variant>> {
        let allowed = self.fitting(types, choices).filter(|(position, _)| allows(*position));
        let mut found: Vec<_> = allowed.map(|(_, variant)| variant).collect();
        let fixed_values = |variant: &&'static Variant| {
            let is_open = |choice: &Choice| *choice == Choice::Open;
            let values = variant.consts.iter().zip(choices);
            values.filter(|(_, choice)| !is_open(choice)).map(|(&value, _)| value).collect::<Vec<i128>>()
        };
        if choices.iter().any(|choice| matches!(choice, Choice::AtLeast(_)))
            && let Some(smallest) = found.iter().map(fixed_values).min()
        {
            found.retain(|variant| fixed_values(variant) == smallest);
        }
        if found.is_empty() { Err(self.no_variant(types, choices)) } else { Ok(found) }
    }

    fn no_variant(&self, types: &[DType], choices: &[Choice]) -> Error {
        let mut wanted = Vec::new();
        if !types.is_empty() {
            wanted.push(format!(
                "types {}",
                types.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", ")
            ));
        }
        if choices.iter().all(|choice| *choice == Choice::Open) && !choices.is_empty() {
            wanted.push("a condition that holds".to_string());
        } else if !choices.is_empty() {
            let text = |choice: &Choice| match choice {
                Choice::Exact(value) => value.to_string(),
                Choice::AtLeast(value) => format!("at least {value}"),
                Choice::Open => "any".to_string(),
            };
            wanted.push(format!("constants {}", choices.iter().map(text).collect::<Vec<_>>().join(", ")));
        }
        let wanted = if wanted.is_empty() { "no generics".to_string() } else { wanted.join(" and ") };
        let declared = self.variants.iter().map(|variant| variant.label).collect();
        Error::NoVariant { kernel: self.name, wanted, declared }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    const fn variant(label: &'static str, types: &'static [DType], consts: &'static [i128]) -> Variant {
        Variant { label, types, consts, dtypes: &[], source: 0, modules: &[], hosts: &[], sites: &[] }
    }

    static NORM: Kernel = Kernel {
        name: "norm",
        consts: &["BLOCK", "CAUSAL"],
        variants: &[
            variant("T = f32, BLOCK = 4096, CAUSAL = false", &[DType::F32], &[4096, 0]),
            variant("T = f32, BLOCK = 1024, CAUSAL = true", &[DType::F32], &[1024, 1]),
            variant("T = f32, BLOCK = 1024, CAUSAL = false", &[DType::F32], &[1024, 0]),
            variant("T = f16, BLOCK = 1024, CAUSAL = false", &[DType::F16], &[1024, 0]),
        ],
        ..Kernel::TEST
    };

    #[test]
    fn exact_choice() {
        let label =
            |types: &[DType], consts: &[i128]| NORM.variant(types, consts).map(|variant| variant.label);
        assert_eq!(label(&[DType::F32], &[1024, 1]), Ok("T = f32, BLOCK = 1024, CAUSAL = true"));
        expect![[
            "kernel `norm` has no variant with types bf16 and constants 1024, 0; declared are [T = f32, BLOCK = 4096, CAUSAL = false], [T = f32, BLOCK = 1024, CAUSAL = true], [T = f32, BLOCK = 1024, CAUSAL = false], [T = f16, BLOCK = 1024, CAUSAL = false]"
        ]]
        .assert_eq(&label(&[DType::BF16], &[1024, 0]).unwrap_err().to_string());
        assert!(label(&[DType::F32], &[1024]).is_err());
    }

    #[test]
    fn candidates_are_all_that_the_call_leaves_open() {
        use Choice::{AtLeast, Exact, Open};
        let consts = |choices: &[Choice], allows: fn(usize) -> bool| {
            let found = NORM.candidates(&[DType::F32], choices, allows);
            found.map(|found| found.into_iter().map(|variant| variant.consts).collect::<Vec<_>>())
        };
        let all = |_| true;
        assert_eq!(consts(&[Open, Exact(0)], all), Ok(vec![[4096, 0].as_slice(), &[1024, 0]]));
        assert_eq!(consts(&[AtLeast(1000), Open], all), Ok(vec![[1024, 1].as_slice(), &[1024, 0]]));
        assert_eq!(consts(&[Open, Open], |position| position == 1), Ok(vec![[1024, 1].as_slice()]));
        let error = consts(&[Open, Open], |_| false).unwrap_err().to_string();
        let text = "kernel `norm` has no variant with types f32 and a condition that holds; declared are [";
        assert!(error.starts_with(text), "{error}");
        let error = consts(&[Open, Exact(0)], |_| false).unwrap_err().to_string();
        assert!(
            error.starts_with("kernel `norm` has no variant with types f32 and constants any, 0; declared"),
            "{error}"
        );
    }

    #[test]
    fn constants_go_by_name() {
        let chosen = Chosen { kernel: &NORM, variant: &NORM.variants[1], parallelism: 132 };
        assert_eq!((chosen.constant("BLOCK"), chosen.constant("CAUSAL")), (1024, 1));
        assert_eq!(chosen.parallelism(), 132);
        let missing = std::panic::catch_unwind(|| chosen.constant("ROWS")).unwrap_err();
        let said = missing.downcast::<String>().unwrap();
        assert_eq!(*said, "kernel `norm` has no constant `ROWS`: it has BLOCK, CAUSAL");
    }

    #[test]
    fn smallest_choice() {
        use Choice::{AtLeast, Exact};
        let consts = |choices: &[Choice]| NORM.smallest(&[DType::F32], choices).map(|variant| variant.consts);
        assert_eq!(consts(&[AtLeast(1), Exact(0)]), Ok([1024, 0].as_slice()));
        assert_eq!(consts(&[AtLeast(1024), AtLeast(0)]), Ok([1024, 0].as_slice()));
        assert_eq!(consts(&[AtLeast(1025), AtLeast(0)]), Ok([4096, 0].as_slice()));
        assert_eq!(consts(&[AtLeast(1), Exact(1)]), Ok([1024, 1].as_slice()));
        let Err(Error::NoVariant { wanted, .. }) = consts(&[AtLeast(5000), Exact(0)]) else {
            panic!("no block is that large");
        };
        assert_eq!(wanted, "types f32 and constants at least 5000, 0");
    }
}

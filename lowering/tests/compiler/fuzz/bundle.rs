//! Writes random kernels for a machine with a GPU: PTX, and JSON with launches and what they must leave in memory.
//!
//! For kernel `k7` there are `k7.<specialization>.ptx`, `k7.json` in the format of exported kernels with the launches
//! beside it, and `k7.bin` with bytes that the JSON refers to by offset. `bench/fuzz.py` reads them.

use std::fmt::Write;
use std::path::Path;

use tile_ir::ir::guard::{Guard, Symbol, SymbolProduct, SymbolicSum};
use tile_ir::support::dtype::DType;

use super::data::Data;
use super::differential::{Checked, front};
use super::element::Element;
use super::evaluate::{Contents, Launch, evaluate};
use super::generate::{data_seed, generate, launch};
use super::program::{Memory, Program};
use lowering::backend::nvptx;
use lowering::backend::nvptx::Arch;
use lowering::driver::specialize::specializations;
use lowering::gpu::layout::warpgroup::SWIZZLE_ROW_BYTES;
use lowering::gpu::schedule::TensorMap;
use lowering::gpu::specialization::Specialization;
use lowering::mlir::Session;

/// The version of the format of exported kernels.
const FORMAT: u32 = 9;

/// Launches of each kernel, and how many of them are written where data does not follow from a seed: it packs badly.
const LAUNCHES: u64 = 3;
const UNPLANNED_LAUNCHES: u64 = 1;

fn array(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(", "))
}

/// A kernel's parameters as guards name them: after a view its extents and strides.
fn names(program: &Program) -> Vec<String> {
    let memory = program.memory.iter().enumerate().flat_map(|(i, memory)| {
        let name = memory.name(i);
        let axes = |what: &'static str| {
            let name = name.clone();
            (0..memory.view.unwrap_or(0)).map(move |axis| format!("{name}.{what}({axis})"))
        };
        [name.clone()].into_iter().chain(axes("shape")).chain(axes("stride")).collect::<Vec<String>>()
    });
    memory.chain((0..program.scalars.len()).map(|i| format!("s{i}"))).collect()
}

/// The bytes of a kernel's file.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn add(&mut self, bytes: &[u8]) -> usize {
        let offset = self.0.len();
        self.0.extend(bytes);
        offset
    }
}

/// Writes the kernel of a number, and gives how many specializations it has; none if the language defines no launch of
/// it, or if its blocks do not fit.
pub fn write(number: u64, folder: &Path) -> Result<usize, String> {
    let program = generate(number);
    let Checked { func, requests, .. } = front(&program.source(), program.variant())?;
    let Ok(specializations) = specializations(&func, requests) else { return Ok(0) };
    let name = format!("k{number}");
    let mut bytes = Bytes::default();
    let count = if program.plans.is_empty() { UNPLANNED_LAUNCHES } else { LAUNCHES };
    let launches: Vec<String> = (0..count)
        .filter_map(|index| {
            let seed = number.wrapping_mul(LAUNCHES).wrapping_add(index);
            let mut launch = launch(&program, seed);
            // Random statements store to the same elements of a view in every program, and a GPU has no order of them.
            if program.plans.is_empty() && program.memory.iter().any(|memory| memory.view.is_some()) {
                launch.grid = [1, 1, 1];
            }
            launch_record(&program, &launch, seed, &mut bytes)
        })
        .collect();
    if launches.is_empty() {
        return Ok(0);
    }
    let mut bodies = vec![];
    let save = |name: String, content: &[u8]| {
        std::fs::write(folder.join(&name), content).map_err(|error| format!("{name}: {error}"))
    };
    for one in specializations.iter().filter(|one| one.gpus.include(Arch::SM_90A.capability)) {
        let (entry, file) = (format!("{name}_{}", one.name), format!("{name}.{}.ptx", one.label()));
        let texts = nvptx::emit(&Session::new(), &[(entry.clone(), one)], &[Arch::SM_90A], None)?;
        save(file.clone(), texts[0].1.as_bytes())?;
        bodies.push(body(&program, one, &entry, &file));
    }
    let specializations = bodies.len();
    let text = format!(
        "{{\"format\": {FORMAT}, \"kernel\": \"{name}\", \"types\": [], \"consts\": [], \"number\": {number},\n\
        \"arch\": {{\"name\": \"sm_90a\", \"capability\": 90, \"exact\": true}},\n\"source\": {:?},\n\
        \"params\": {},\n\"arguments\": {},\n\"bodies\": {},\n\"launches\": {}}}\n",
        program.source(),
        params(&program),
        arguments(&program),
        array(bodies),
        array(launches),
    );
    save(format!("{name}.bin"), &bytes.0)?;
    save(format!("{name}.json"), text.as_bytes())?;
    Ok(specializations)
}

// ---- what an entry takes

fn params(program: &Program) -> String {
    let memory = program.memory.iter().enumerate().map(|(i, memory)| (memory.name(i), memory.dtype));
    let scalars = program.scalars.iter().enumerate().map(|(i, (_, dtype))| (format!("s{i}"), *dtype));
    array(
        memory
            .chain(scalars)
            .map(|(name, dtype)| format!("{{\"name\": \"{name}\", \"dtype\": \"{dtype}\"}}")),
    )
}

fn arguments(program: &Program) -> String {
    let argument = |name: &str, kind: &str, dtype: &str| {
        format!("{{\"name\": \"{name}\", \"kind\": \"{kind}\", \"type\": \"{dtype}\"}}")
    };
    let is_memory =
        |name: &String| program.memory.iter().enumerate().any(|(i, memory)| memory.name(i) == *name);
    let mut all = vec![];
    for name in names(program) {
        if is_memory(&name) {
            all.push(argument(&name, "address", "u64"));
            all.push(argument(&format!("len({name})"), "length", "i64"));
            continue;
        }
        let scalar = name.strip_prefix('s').and_then(|index| index.parse::<usize>().ok());
        let dtype = scalar.map_or(DType::I64, |index| program.scalars[index].1);
        all.push(argument(&name, "value", dtype.name()));
    }
    all.extend(["x", "y", "z"].map(|axis| argument(&format!("grid.{axis}"), "grid", "u32")));
    array(all)
}

// ---- specializations

fn body(program: &Program, specialization: &Specialization, entry: &str, file: &str) -> String {
    let (plan, names) = (&specialization.plan, names(program));
    let guards = specialization.guards.iter().map(|one| guard(one, &names));
    let maps = plan.tensor_maps().iter().map(|map| tensor_map(map, &names));
    format!(
        "{{\"entry\": \"{entry}\", \"ptx\": \"{file}\", \"cubins\": [], \"threads\": {}, \"programs_per_block\": {}, \
        \"blocks_per_program\": {}, \"persistent\": {}, \"counted\": {}, \"follows\": {}, \"shared_bytes\": {}, \
        \"facts\": {}, \"maps\": {}}}",
        plan.threads(),
        plan.programs,
        plan.blocks(),
        plan.persistent(),
        plan.is_dynamic_persistent(),
        Arch::SM_90A.has_pdl() && plan.uses_pdl(),
        plan.shared_bytes(),
        array(guards),
        array(maps),
    )
}

fn tensor_map(map: &TensorMap, names: &[String]) -> String {
    let sums = |sums: &[SymbolicSum]| array(sums.iter().map(|one| sum(one, names)));
    let mut text = format!(
        "{{\"param\": \"{}\", \"extents\": {}, \"strides\": {}, \"block\": {:?}, \"swizzle\": {SWIZZLE_ROW_BYTES}, \"tf32\": {}",
        names[map.memory.0 as usize],
        sums(&map.shape.extents),
        sums(&map.shape.strides),
        map.block,
        map.tf32
    );
    if let Some(shared) = map.multicast {
        let (axis, step, bytes) = (shared.axis, shared.step, shared.bytes);
        let _ = write!(text, ", \"multicast\": {{\"axis\": {axis}, \"step\": {step}, \"bytes\": {bytes}}}");
    }
    text + "}"
}

fn guard(guard: &Guard, names: &[String]) -> String {
    let name = |param: &u32| &names[*param as usize];
    match guard {
        Guard::Aligned { param, bytes } => {
            format!("{{\"kind\": \"aligned\", \"param\": \"{}\", \"bytes\": {bytes}}}", name(param))
        }
        Guard::Divisible { value, by } => {
            let value = SymbolicSum { terms: vec![(1, vec![*value])] };
            format!("{{\"kind\": \"divisible\", \"value\": {}, \"by\": {by}}}", sum(&value, names))
        }
        Guard::Equal { scalar, value } => {
            format!("{{\"kind\": \"equal\", \"param\": \"{}\", \"value\": {value}}}", name(scalar))
        }
        Guard::Magnitude { scalar, least, most } => {
            let [least, most] = [least, most].map(|&power| f32::from(power).exp2());
            format!(
                "{{\"kind\": \"magnitude\", \"param\": \"{}\", \"least\": {least:e}, \"most\": {most:e}}}",
                name(scalar)
            )
        }
        Guard::AtMost { low, high } => {
            format!("{{\"kind\": \"at_most\", \"low\": {}, \"high\": {}}}", sum(low, names), sum(high, names))
        }
    }
}

fn sum(sum: &SymbolicSum, names: &[String]) -> String {
    array(sum.terms.iter().map(|(coefficient, factors)| term(*coefficient, factors, names)))
}

fn term(coefficient: i64, factors: &[Symbol], names: &[String]) -> String {
    let product =
        |product: SymbolProduct| term(product.constant.into(), &product.symbols().collect::<Vec<_>>(), names);
    let factor = |factor: &Symbol| match *factor {
        Symbol::Scalar(param) => format!("{{\"scalar\": \"{}\"}}", names[param as usize]),
        Symbol::Length(param) => format!("{{\"length\": \"{}\"}}", names[param as usize]),
        Symbol::Grid(axis) => format!("{{\"grid\": {axis}}}"),
        Symbol::CeilDiv { of, by } => {
            format!("{{\"ceil_div\": {{\"of\": {}, \"by\": {}}}}}", product(of), product(by))
        }
        Symbol::Div { of, by } => {
            format!("{{\"div\": {{\"of\": {}, \"by\": {}}}}}", product(of), product(by))
        }
    };
    format!("{{\"coefficient\": {coefficient}, \"factors\": {}}}", array(factors.iter().map(factor)))
}

// ---- launches

/// A launch with the memory before and after it; nothing if the language does not define it.
fn launch_record(program: &Program, launch: &Launch, seed: u64, bytes: &mut Bytes) -> Option<String> {
    let wanted = evaluate(program, launch);
    if !wanted.well_defined {
        return None;
    }
    let planned =
        (!program.plans.is_empty()).then(|| &program.plans[(seed % program.plans.len() as u64) as usize]);
    let memory = program.memory.iter().enumerate().map(|(i, memory)| {
        let data = planned.map(|plan| (plan.memory[i].data, data_seed(seed, i)));
        memory_record(memory, &launch.memory[i], &wanted.memory[i], (data, bytes))
    });
    let memory = array(memory.collect::<Vec<_>>());
    let scalars = launch.scalars.iter().enumerate().map(|(i, scalar)| match scalar {
        Element::Integer { value, .. } => format!("\"s{i}\": {value}"),
        float => format!("\"s{i}\": {:?}", float.float()),
    });
    let scalars = scalars.collect::<Vec<_>>().join(", ");
    Some(format!("\n{{\"grid\": {:?}, \"scalars\": {{{scalars}}}, \"memory\": {memory}}}", launch.grid))
}

/// What is in a parameter's memory before a launch, by a seed or as bytes, and after it.
fn memory_record(
    memory: &Memory,
    before: &Contents,
    after: &Contents,
    (data, bytes): (Option<(Data, u64)>, &mut Bytes),
) -> String {
    let dtype = memory.dtype;
    let all = |contents: &Contents| {
        contents.data.iter().flat_map(|element| element.bytes(dtype)).collect::<Vec<u8>>()
    };
    let old = all(before);
    let checksum: u64 = old.iter().map(|&byte| u64::from(byte)).sum();
    let mut text = format!(
        "{{\"len\": {}, \"shape\": {:?}, \"strides\": {:?}, \"checksum\": {checksum}",
        before.data.len(),
        before.shape,
        before.strides
    );
    let _ = match data {
        Some((Data::Whole { limit }, seed)) => write!(text, ", \"data\": [\"whole\", {seed}, {limit}]"),
        Some((Data::Fraction, seed)) => write!(text, ", \"data\": [\"fraction\", {seed}]"),
        Some((Data::Scaled, seed)) => write!(text, ", \"data\": [\"scaled\", {seed}]"),
        Some((Data::Mask { value, row }, seed)) => {
            let value = if value.is_finite() { format!("{value:?}") } else { "-Infinity".into() };
            write!(text, ", \"data\": [\"mask\", {seed}, {value}, {row}]")
        }
        None => write!(text, ", \"bytes\": {}", bytes.add(&old)),
    };
    if memory.written {
        // Most of it did not change: zeros pack well.
        let changed: Vec<u8> = old.iter().zip(all(after)).map(|(old, new)| old ^ new).collect();
        let _ = write!(text, ", \"changed\": {}", bytes.add(&changed));
        if after.data.iter().any(|element| matches!(element, Element::Approximate { .. })) {
            let powers: Vec<u8> = after.data.iter().map(|element| tolerance(*element, dtype)).collect();
            let _ = write!(text, ", \"tolerance\": {}", bytes.add(&powers));
        }
    }
    text + "}"
}

/// The tolerance of an element is two to the power of this `i8`: 127 for anything at all, -128 for none.
fn tolerance(element: Element, dtype: DType) -> u8 {
    let Element::Approximate { value, error } = element else { return i8::MIN as u8 };
    let stored = Element::of_bytes(&element.bytes(dtype), dtype).float();
    let error = if value.is_finite() { error + (stored - value).abs() } else { error };
    if error == 0.0 {
        return i8::MIN as u8;
    }
    (error.log2().ceil().clamp(-127.0, 127.0) as i8) as u8
}

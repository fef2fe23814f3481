//! Rewrites of formulas keep results: of scores with finite masks, of exact quotients, of packed words, and of all kernels on special
//! values.
//!
//! Specializations run in the simulator, which rounds every operation as its type says. So what differs here differs by a rewrite.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use tile_ir::frontend::syntax::Kernel;
use tile_ir::frontend::typeck;
use tile_ir::ir::{self, Func, ParamId, ParamKind};
use tile_ir::support::diagnostic::Errors;
use tile_ir::support::dtype::DType;
use tile_ir::testing::sources::{kernels, rust_files};
use tile_ir::testing::{first_variant, holds};

use lowering::devtools::schedule_simulator::number::Number;
use lowering::devtools::schedule_simulator::{Launch, Memory, reference};
use lowering::driver::pipeline::DisabledPasses;
use lowering::driver::pipeline::shared;
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::gpu::specialization::Specialization;

/// Rewrites that may change the rounding of a result or drop what masks hide.
const REWRITES: [&str; 10] = [
    "counted_loops",
    "split_full_tiles",
    "load_runs_once",
    "chain_divisions",
    "defer_scale",
    "contract_floats",
    "batch_reductions",
    "remat_narrow",
    "elide_selects",
    "thread_local_reductions",
];

/// Numbers that stand for minus infinity in masks, of which the last ones have no product with log2 e.
const MASKS: [f32; 8] = [-1e6, -1e9, -1e10, -1e12, -1e30, -1e38, -2.4e38, f32::MIN];

fn planned(func: &Func, requests: KernelRequests, disabled: &str) -> Vec<Specialization> {
    let disabled_passes = DisabledPasses::parse(disabled).expect("names of passes");
    let requests = KernelRequests { disabled_passes, ..requests };
    let mut func = func.clone();
    shared(&mut func, requests).expect("a valid function");
    specializations(&func, requests).expect("specializations that fit")
}

/// The memory behind a launch of each specialization whose guards hold.
fn results(found: &[Specialization], launch: &dyn Fn(&Func) -> Launch) -> Vec<(String, Memory)> {
    let run = |specialization: &Specialization| {
        let func = &specialization.plan.laid_out;
        let launch = launch(func);
        let (known, programs) = (launch.known(func), launch.grid.map(i64::from));
        let runs = specialization.guards.iter().all(|guard| holds(guard, &known, programs));
        runs.then(|| {
            let memory = reference(func, &launch);
            (
                specialization.name.clone(),
                memory.unwrap_or_else(|fault| panic!("{}: {fault}", specialization.name)),
            )
        })
    };
    found.iter().filter_map(run).collect()
}

fn floats(func: &Func, memory: &Memory, name: &str) -> Vec<f64> {
    let position = func.params.iter().position(|param| param.name == name).expect("a parameter");
    memory[&ParamId(position as u32)].elements.numbers().map(Number::float).collect()
}

/// Runs every specialization of a kernel, and hands what it leaves in `out` to a check.
fn check(source: &str, launch: &dyn Fn(&Func) -> Launch, check: &dyn Fn(&str, &[f64])) {
    let (func, kernel, variant) = first_variant(source);
    let found = planned(&func, KernelRequests::of(&kernel, &variant), "");
    let all = results(&found, launch);
    assert!(!all.is_empty(), "no specialization takes the launch");
    for (name, memory) in all {
        check(&name, &floats(&found[0].plan.laid_out, &memory, "out"));
    }
}

/// A softmax of scores that are the same in all places, beside a mask, is uniform however large they are.
#[test]
fn a_softmax_of_masked_scores_is_uniform() {
    for (function, wanted) in [("softmax", 1.0 / 64.0), ("log_softmax", -(64f64.ln()))] {
        let source = format!(
            "#[fuse_kernel]
            fn k(x: &[f32], mask: &[f32], out: &mut [f32], scale: f32) {{
                let at = tl::arange(0, 64);
                tl::store(out + at, tl::{function}(tl::load(x + at) * scale + tl::load(mask + at), 0));
            }}"
        );
        for mask in MASKS {
            let launch = |func: &Func| {
                let launch = Launch::new([1, 1, 1], 4).scalar(func, "scale", Number::Float(0.125));
                let launch = launch.slice(func, "x", vec![1.5; 64]).slice(func, "out", vec![f64::NAN; 64]);
                launch.slice(func, "mask", vec![mask.into(); 64])
            };
            check(&source, &launch, &|name, out| {
                let right = out.iter().all(|value| (value - wanted).abs() <= 1e-6 * wanted.abs());
                assert!(right, "{function} with {mask:e}, {name}: {out:?}");
            });
        }
    }
}

/// Sums of exponentials of scores in two blocks, the first of which is masked throughout for all rows but the first; the last row is
/// masked in both.
#[test]
fn an_online_softmax_is_right_where_its_first_block_is_masked() {
    for (operand, product) in
        [("f16", "tl::dot(tl::load(a + at), tl::load(b + at))"), ("f32", "tl::load(a + at)")]
    {
        for mask in MASKS {
            let source = format!(
                "#[fuse_kernel]
                fn k(a: &[{operand}], b: &[{operand}], keep: &[i32], out: &mut [f32], n: i32, scale: f32) {{
                    let (i, j) = (tl::arange(0, 16), tl::arange(0, 16));
                    let at = i.col() * 16 + j.row();
                    let mut l = tl::zeros::<f32>([16]);
                    let mut m = tl::full([16], f32::NEG_INFINITY);
                    for start in (0..n).step_by(16) {{
                        let kept = (start + j).row() >= tl::load(keep + i).col();
                        let s = tl::select(kept, {product} * scale, {mask:e});
                        let new = tl::maximum(m, tl::max(s, 1));
                        l = l * tl::exp(m - new) + tl::sum(tl::exp(s - new.col()), 1);
                        m = new;
                    }}
                    tl::store(out + i, l);
                }}"
            );
            let first_kept = |row: usize| match row {
                0 => 0,
                15 => 32,
                _ => 16,
            };
            let launch = |func: &Func| {
                let launch = Launch::new([1, 1, 1], 4).scalar(func, "scale", Number::Float(0.25));
                let launch = launch.scalar(func, "n", Number::Int(32)).slice(func, "a", vec![0.5; 256]);
                let launch = launch.slice(func, "b", vec![0.5; 256]).slice(func, "out", vec![f64::NAN; 16]);
                launch.slice(func, "keep", (0..16).map(|row| first_kept(row) as f64))
            };
            check(&source, &launch, &|name, out| {
                for (row, &sum) in out.iter().enumerate() {
                    let wanted = if row == 15 { 32 } else { 32 - first_kept(row) };
                    assert_eq!(sum, wanted as f64, "row {row} with {mask:e}, {name}\n{source}");
                }
            });
        }
    }
}

/// A difference to a maximum is 0 there, though what it is of was rounded: no other power of e is 1.
#[test]
fn the_power_of_a_difference_is_one_at_the_maximum() {
    let source = "#[fuse_kernel]
        fn k(x: &[f32], out: &mut [f32], s: f32) {
            let at = tl::program_id(0) * 16 + tl::arange(0, 16);
            let y = tl::load(x + at) * s;
            let m = tl::max(y, 0);
            let shifted = tl::select(y == m, y - m, 0.0);
            tl::store(out + at, tl::exp(y - m) + tl::exp2(y * 1.0 - m) + shifted, y == m);
        }";
    for magnitude in [1e-30, 0.7, 1.0, 77.0, 1e4, 1.7e7, 1e10, 3e20, 1e30, 2e38] {
        let launch = |func: &Func| {
            let x = (0..16).map(|i| magnitude * (1.0 - f64::from(i * 7 % 16) / 64.0) / 1.375);
            let launch = Launch::new([1, 1, 1], 4).scalar(func, "s", Number::Float(1.375f32.into()));
            launch.slice(func, "x", x).slice(func, "out", vec![2.0; 16])
        };
        check(source, &launch, &|name, out| {
            assert!(out.iter().all(|&value| value == 2.0), "{magnitude:e}, {name}: {out:?}");
        });
    }
}

/// Quotients by a constant, an argument and a value per row: exact ones are exact, and so is what rounds down to an integer.
#[test]
fn exact_quotients_are_exact() {
    let source = "#[fuse_kernel]
        fn k(x: &[f32], rows: &[f32], out: &mut [f32], d: f32) {
            let (i, j) = (tl::arange(0, 4), tl::arange(0, 256));
            let at = i.col() * 256 + j.row();
            let x = tl::load(x + at);
            tl::store(out + at, x / d);
            tl::store(out + 1024 + at, x / tl::load(rows + i).col());
            tl::store(out + 2048 + at, x / DIVISOR);
        }";
    let special = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f32::MAX.into(), -1e30];
    for divisor in [1.0f32, 3.0, 7.0, 41.0, 0.1, 1e-20, 1.7e20, 3.0e38, 5.0e37, 1.2e-38, f32::MAX, -6.0] {
        let source = source.replace("DIVISOR", &format!("({divisor:e})"));
        let divisor = f64::from(divisor);
        let dividend = |i: usize| match special.get(i % 128) {
            Some(&special) => special,
            None => f64::from(((i % 997) as f64 * divisor) as f32),
        };
        let launch = |func: &Func| {
            let launch = Launch::new([1, 1, 1], 4).scalar(func, "d", Number::Float(divisor));
            let launch = launch.slice(func, "x", (0..1024).map(dividend));
            launch.slice(func, "rows", vec![divisor; 4]).slice(func, "out", vec![7.0; 3072])
        };
        check(&source, &launch, &|name, out| {
            for (i, &value) in out.iter().enumerate() {
                let wanted = f64::from((dividend(i % 1024) / divisor) as f32);
                let same = value.to_bits() == wanted.to_bits() || value.is_nan() && wanted.is_nan();
                let exact = f64::from((wanted * divisor) as f32) == wanted * divisor;
                let close =
                    same || !exact && (value - wanted).abs() <= wanted.abs() * f64::from(f32::EPSILON);
                assert!(
                    close,
                    "{:e} / {divisor:e} is {value:e}, form {}, {name}",
                    dividend(i % 1024),
                    i / 1024
                );
            }
        });
    }
}

/// Words of which four neighbors read one each, along an axis whose length is a multiple of 4 or is not.
#[test]
fn words_that_neighbors_share_are_the_same() {
    let places = ["j.row() * (k / 4) + (inner / 4).col()", "j.row() + (inner >> 2).col() * 32"];
    for (elem, place) in ["u8", "i16", "i32", "i64"].into_iter().zip(places.into_iter().cycle()) {
        let source = format!(
            "#[fuse_kernel(num_warps = 1)]
            fn k(x: &[{elem}], out: &mut [i32], k: i32, rows: i32) {{
                let (i, j) = (tl::arange(0, 64), tl::arange(0, 32));
                for start in (0..k).step_by(64) {{
                    let inner = start + i;
                    let mask = (inner < k).col() & (j < rows).row();
                    let word = tl::load(x + ({place}), mask, 0).to::<i32>();
                    tl::store(out + j.row() * k + inner.col(), word + inner.col() % 4, mask);
                }}
            }}"
        );
        let both = with_and_without("load_runs_once", &source);
        for k in [128, 112, 100, 61] {
            let launch = |func: &Func| {
                let launch = Launch::new([1, 1, 1], 1).scalar(func, "k", Number::Int(k));
                let launch = launch.scalar(func, "rows", Number::Int(16));
                let word = |i: usize| (i * 29 % 251 % 127) as f64;
                launch.slice(func, "x", (0..1024).map(word)).slice(func, "out", vec![-1.0; 4096])
            };
            let first = check_as_without(&both, ParamId(1), &launch);
            assert_eq!(first.starts_with("aligned"), k % 4 == 0, "{first}, k = {k}\n{source}");
        }
    }
}

/// Coordinates of a flat index, by extents of which some are 0 or negative, or have a product that wraps.
#[test]
fn coordinates_of_a_flat_index_are_the_same() {
    let source = "#[fuse_kernel(num_warps = 1)]
        fn k(out: &mut [i32], total: i32, n: i32, m: i32, l: i32) {
            let i = tl::program_id(0) * 256 + tl::arange(0, 256);
            let (row, plane, image) = (i / n, i / (n * m), i / (n * m * l));
            tl::store(out + i, i % n + row % m * 10 + plane % l * 100 + image * 1000, i < total);
        }";
    let both = with_and_without("chain_divisions", source);
    let extents = [[3, 5, 7], [1, 1, 1], [4, 1, 300], [0, 5, 7], [3, 0, 7], [-3, 5, 7], [3, -5, -7]];
    let extents = extents.into_iter().chain([[1 << 15, 1 << 15, 4], [1 << 16, 1 << 16, 1], [i32::MAX, 1, 1]]);
    for extents in extents {
        let launch = |func: &Func| {
            let launch = Launch::new([4, 1, 1], 1).scalar(func, "total", Number::Int(1000));
            let named = ["n", "m", "l"].into_iter().zip(extents);
            let launch = named
                .fold(launch, |launch, (name, extent)| launch.scalar(func, name, Number::Int(extent.into())));
            launch.slice(func, "out", vec![-1.0; 1024])
        };
        let first = check_as_without(&both, ParamId(0), &launch);
        let product = extents.iter().try_fold(1i32, |all, &extent| all.checked_mul(extent));
        let is_positive = extents.iter().all(|&extent| extent > 0) && product.is_some();
        assert_eq!(first.starts_with("aligned"), is_positive, "{first}, {extents:?}");
    }
}

/// Iterations of a `while` whose counter, bound and step are arguments: at the ends of their type, none, and steps that do not count up.
#[test]
fn counters_take_the_same_iterations() {
    const MAX: i64 = i32::MAX as i64;
    for condition in ["at < n", "at <= n", "n > at", "n >= at"] {
        let source = format!(
            "#[fuse_kernel(num_warps = 1)]
            fn k(x: &[i32], out: &mut [i32], first: i32, n: i32, step: i32) {{
                let i = tl::arange(0, 32);
                let (mut at, mut turns, mut total) = (first, 0, tl::zeros::<i32>([32]));
                while {condition} {{
                    total += tl::load(x + (at - first + i)) * (turns + 1);
                    turns += 1;
                    at += step;
                }}
                tl::store(out + i, total);
                tl::store(out + 32, at);
                tl::store(out + 33, turns);
            }}"
        );
        let both = with_and_without("counted_loops", &source);
        let up = [(0, 0), (0, 1), (0, 95), (0, 96), (0, 97), (5, -7), (-70, 20), (MAX - 99, MAX - 90)];
        let up = up.into_iter().flat_map(|(first, n)| [1, 3, 32].map(|step| (first, n, step)));
        let ends = [
            (i32::MIN.into(), i64::from(i32::MIN) + 64, 32),
            (MAX - 64, MAX - 32, 32),
            (0, -1, 0),
            (9, 3, -2),
        ];
        for (first, n, step) in up.chain(ends) {
            let launch = |func: &Func| {
                let launch = Launch::new([1, 1, 1], 1).slice(func, "x", (0..64).map(|i| f64::from(i * i)));
                let named = [("first", first), ("n", n), ("step", step)];
                let launch = named.into_iter().fold(launch, |launch, (name, value)| {
                    launch.scalar(func, name, Number::Int(value.into()))
                });
                launch.slice(func, "out", vec![-1.0; 64])
            };
            let taken = check_as_without(&both, ParamId(1), &launch);
            let counts = step > 0 && n + step <= MAX;
            assert!(counts || taken == "general", "{taken}: {condition} of {first}, {n}, {step}");
        }
    }
}

/// Accesses that half of a width bounds, of widths that are odd, 0 and negative, in slices that are as long as they need to be or shorter.
#[test]
fn accesses_that_a_half_bounds_are_the_same() {
    let source = "#[fuse_kernel(num_warps = 1)]
        fn k(x: &[i32], out: &mut [i32], total: i32, width: i32) {
            let half = width / 2;
            let i = tl::program_id(0) * 256 + tl::arange(0, 256);
            let at = i / half * width + i % half * 2;
            let mask = i < total;
            tl::store(out + i, tl::load(x + at, mask) * 3 + tl::load(x + at + 1, mask), mask);
        }";
    let (func, kernel, variant) = first_variant(source);
    let found = || planned(&func, KernelRequests::of(&kernel, &variant), "");
    let both = [found(), found()];
    for width in [16, 8, 7, 2, 1, 0, -4] {
        for rows in [8, 5] {
            let launch = |func: &Func| {
                let launch =
                    Launch::new([1, 1, 1], 1).scalar(func, "total", Number::Int(8 * (width / 2).max(1)));
                let launch = launch.scalar(func, "width", Number::Int(width));
                let x = (0..rows * width.max(2)).map(|i| (i % 101) as f64);
                launch.slice(func, "x", x).slice(func, "out", vec![-1.0; 256])
            };
            let taken = check_as_without(&both, ParamId(1), &launch);
            assert_eq!(taken != "general", width > 1 && rows == 8, "{taken}: {rows} rows of {width}");
        }
    }
}

/// The specializations of a kernel with and without a pass that changes the first one.
fn with_and_without(pass: &str, source: &str) -> [Vec<Specialization>; 2] {
    let (func, kernel, variant) = first_variant(source);
    let requests = KernelRequests::of(&kernel, &variant);
    let both = [String::new(), format!("-{pass}")].map(|disabled| planned(&func, requests, &disabled));
    let [own, without] = both.each_ref().map(|found| ir::print(&found[0].plan.laid_out, &|_| None));
    assert_ne!(own, without, "{pass} leaves this as it was:\n{source}");
    both
}

/// Checks that every specialization that takes a launch gives what the general one without the pass gives; the name of the first.
fn check_as_without(
    both: &[Vec<Specialization>; 2],
    out: ParamId,
    launch: &dyn Fn(&Func) -> Launch,
) -> String {
    let [own, without] = both.each_ref().map(|found| results(found, launch));
    let (_, expected) = without.last().expect("the general specialization");
    for (name, memory) in &own {
        assert_eq!(memory[&out].difference(&expected[&out], 0.0), None, "{name}");
    }
    own.first().expect("a specialization that takes the launch").0.clone()
}

// ---- all kernels

/// Values of memory, one after the other: rows of ties, masks, magnitudes, the ends of the type, and what is not a number.
const VALUES: [(&str, &[f64]); 6] = [
    ("ordinary", &[0.5, -1.25, 2.0, 0.0, 0.75, -0.5, 1.5, -3.0, 0.25, 1.0, -2.25]),
    ("constant", &[1.75]),
    ("zeros and subnormals", &[0.0, -0.0, 1e-40, -1e-42, 1e-30, 0.0, 3.0]),
    ("large", &[1e10, -1e10, 1e10, 3e9, 1.0, 0.0, -1e30, 1e10]),
    ("masked throughout", &[-1e30]),
    (
        "not finite",
        &[1.0, f64::NEG_INFINITY, 0.5, f64::NEG_INFINITY, 2.0, f64::INFINITY, 0.25, 1.0, f64::NAN, 0.0, 0.5],
    ),
];

/// The extent of each axis of a view, by its rank.
const EXTENTS: [usize; 6] = [0, 512, 64, 32, 16, 8];
const SLICE_ELEMENTS: usize = 4096;
const INTEGER: i128 = 64;

/// A launch of two programs for any kernel. Indices in memory are small.
fn launch(func: &Func, values: &[f64]) -> Launch {
    let mut launch = Launch::new([2, 1, 1], 4);
    for param in &func.params {
        if let ParamKind::Scalar { value, .. } = param.kind {
            let is_float = func.ty(value).dtype.is_float();
            let number = if is_float { Number::Float(0.5) } else { Number::Int(INTEGER) };
            launch = launch.scalar(func, &param.name, number);
        }
    }
    for (position, param) in func.params.iter().enumerate() {
        let ParamKind::Slice { .. } = param.kind else { continue };
        let id = ParamId(position as u32);
        let is_float = func.slice(id).0.is_float();
        let element = |i: usize| if is_float { values[(i + i / 64) % values.len()] } else { (i % 13) as f64 };
        launch = match func.view(id) {
            Some(view) => {
                let shape = vec![EXTENTS[view.shape.len()]; view.shape.len()];
                launch.view(func, &param.name, &shape, element)
            }
            None => launch.slice(func, &param.name, (0..SLICE_ELEMENTS).map(element)),
        };
    }
    launch
}

/// How far results may be apart, in parts of themselves: some units of the elements' type.
fn tolerance(func: &Func, param: ParamId) -> f64 {
    let digits = match func.slice(param).0 {
        DType::F8E4M3 | DType::F8E5M2 => 3,
        DType::BF16 => 8,
        DType::F16 => 11,
        _ => 24,
    };
    64.0 * f64::exp2(-f64::from(digits))
}

/// The kernels that users see, and those that tests have.
fn all_kernels() -> Vec<Kernel> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut sources = vec![root.join("lowering/tests/compiler/corpus.txt")];
    for folder in ["bench/ports/src", "examples/src", "book/code/src"] {
        sources.extend(rust_files(&root.join(folder)));
    }
    sources.sort();
    sources.iter().flat_map(|path| kernels(&fs::read_to_string(path).expect("a source file"))).collect()
}

/// Compares a kernel's specializations with and without each rewrite, and counts the launches that were compared.
fn compare(func: &Func, requests: KernelRequests, name: &str, compared: &mut BTreeMap<&str, usize>) {
    let whole = planned(func, requests, "");
    let text = |specialization: &Specialization| ir::print(&specialization.plan.laid_out, &|_| None);
    for rewrite in REWRITES {
        let without = planned(func, requests, &format!("-{rewrite}"));
        for other in &without {
            let own = whole.iter().find(|own| own.name == other.name && own.gpus == other.gpus);
            let Some(own) = own.filter(|own| text(own) != text(other)) else { continue };
            for (what, values) in VALUES {
                let pair = [own, other]
                    .map(|one| results(std::slice::from_ref(one), &|func| launch(func, values)).pop());
                let [Some((_, found)), Some((_, expected))] = pair else { continue };
                *compared.entry(rewrite).or_default() += 1;
                for (param, expected) in &expected {
                    let tolerance = tolerance(&own.plan.laid_out, *param);
                    if let Some(difference) = found[param].difference(expected, tolerance) {
                        let param = &func.params[param.index()].name;
                        panic!("{name}, {}, with {rewrite}, {what}: {param}{difference}", own.name);
                    }
                }
            }
        }
    }
}

/// Kernels whose cases together take longer than this in a test run are compared on another day.
const LIMIT: Duration = Duration::from_secs(10);

/// All kernels, begun at another one every day; `FUSE_REWRITES_SECONDS` gives them more time.
#[test]
#[expect(clippy::print_stdout, reason = "the counts are what a longer run is for")]
fn kernels_give_the_same_with_and_without_each_rewrite() {
    let seconds = std::env::var("FUSE_REWRITES_SECONDS").ok().and_then(|text| text.parse().ok());
    let limit = seconds.map_or(LIMIT, Duration::from_secs);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a date after 1970");
    let mut all = all_kernels();
    let first = (since.as_secs() / 86_400) as usize * 37 % all.len();
    all.rotate_left(first);
    let (start, mut compared) = (Instant::now(), BTreeMap::new());
    for kernel in &all {
        let variants = typeck::variants(kernel, &mut Errors::new());
        let Some(variant) = variants.first() else { continue };
        let func = typeck::check(kernel, variant).expect("a kernel without mistakes").func;
        compare(&func, KernelRequests::of(kernel, variant), &kernel.name.to_string(), &mut compared);
        if start.elapsed() > limit {
            break;
        }
    }
    println!("launches compared: {compared:?}");
    assert!(!compared.is_empty(), "nothing was compared");
}

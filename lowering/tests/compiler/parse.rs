//! What prints parses back, of the library's kernels, of random ones and of what passes make of them.

use std::fs;
use std::path::Path;

use tile_ir::frontend::typeck;
use tile_ir::ir::Func;
use tile_ir::support::diagnostic::Errors;
use tile_ir::testing::func;
use tile_ir::testing::round_trip::check_round_trip;
use tile_ir::testing::sources::{kernels, rust_files};
use tile_ir::transform::check_overflow::check_overflow;
use tile_ir::transform::legalize_index::{BoundsPolicy, legalize_index};
use tile_ir::transform::transpose_operands::transpose_operands;
use tile_ir::transform::view_strides::assume_contiguous;

use super::fuzz::generate;
use lowering::driver::specialize::{KernelRequests, specializations};

/// The function, and what passes make of it on the way to each target.
fn check_stages(func: &Func, requests: KernelRequests) {
    check_round_trip(func);
    let mut reported = func.clone();
    reported.reports = true;
    check_overflow(&mut reported);
    check_round_trip(&reported);
    for bounds in [BoundsPolicy::Masked, BoundsPolicy::Guarded] {
        for mut legal in std::iter::once(func.clone()).chain(transpose_operands(func)) {
            assume_contiguous(&mut legal);
            check_round_trip(&legal);
            legalize_index(&mut legal, bounds);
            check_round_trip(&legal);
        }
    }
    // A kernel whose blocks would take too much shared memory has none.
    for specialization in specializations(func, requests).unwrap_or_default() {
        check_round_trip(&specialization.plan.laid_out);
        check_round_trip(&specialization.plan.schedule.distributed.func);
    }
}

/// The sources of the library and of the corpus, and the kernels in each.
fn sources() -> Vec<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = rust_files(&crates.join("../examples/src"));
    paths.push(crates.join("tests/compiler/corpus.txt"));
    paths.iter().map(|path| fs::read_to_string(path).expect("a source file")).collect()
}

#[test]
fn every_kernel_of_the_library_comes_back() {
    let mut count = 0;
    for kernel in sources().iter().flat_map(|source| kernels(source)) {
        let variants = typeck::variants(&kernel, &mut Errors::new());
        for (index, variant) in variants.iter().enumerate() {
            let Ok(checked) = typeck::check(&kernel, variant) else {
                panic!("{} ({variant}) does not check", kernel.name)
            };
            count += 1;
            check_round_trip(&checked.func);
            if index == 0 {
                check_stages(&checked.func, KernelRequests::of(&kernel, variant));
            }
        }
    }
    assert!(count > 300, "{count} variants");
}

#[test]
fn random_kernels_come_back() {
    for seed in 0..40 {
        let source = generate::generate(seed).source();
        check_stages(&func(&source), KernelRequests::default());
    }
}

//! File tests of passes that need no layout.

use std::path::Path;

use tile_ir::analysis::axis_info::LaunchAssumptions;
use tile_ir::analysis::non_negative::Signs;
use tile_ir::analysis::reread::unpipeline_rereads;
use tile_ir::ir;
use tile_ir::testing::file_test::{
    PassTest, changed, check_files, guarded, rewritten, rewritten_under_guards, text,
};
use tile_ir::transform::chain_divisions::chain_divisions;
use tile_ir::transform::check_overflow::check_overflow;
use tile_ir::transform::contract_floats::contract_floats;
use tile_ir::transform::contract_products::contract_products;
use tile_ir::transform::counted_loops::counted_loops;
use tile_ir::transform::defer_scale::defer_scale;
use tile_ir::transform::legalize_index::legalize_index;
use tile_ir::transform::load_runs_once::load_runs_once;
use tile_ir::transform::read_unrotated::read_unrotated;
use tile_ir::transform::rotate_rows::rotate_rows;
use tile_ir::transform::single_iteration::single_iteration;
use tile_ir::transform::split_full_tiles::split_full_tiles;
use tile_ir::transform::strength_reduce::strength_reduce;
use tile_ir::transform::transpose_operands::transpose_operands;
use tile_ir::transform::unit_stride::{assume_unit_strides, unit_strides};
use tile_ir::transform::view_strides::assume_contiguous;

const PASSES: &[PassTest] = &[
    ("parse", |func, _| text(func)),
    ("cse_and_dce", |func, _| rewritten(func, ir::cse_and_dce)),
    ("strip_debug", |func, _| rewritten(func, ir::strip_debug)),
    ("unpipeline_rereads", |func, _| rewritten(func, unpipeline_rereads)),
    ("chain_divisions", |func, _| {
        let mut assumed = LaunchAssumptions::of(func).with_signs(&Signs::analyze(func).of_divisors());
        rewritten(func, |func| chain_divisions(func, &mut assumed))
    }),
    ("check_overflow", |func, _| rewritten(func, check_overflow)),
    ("contract_floats", |func, _| rewritten(func, contract_floats)),
    ("contract_products", |func, _| rewritten(func, contract_products)),
    ("counted_loops", |func, _| rewritten_under_guards(func, counted_loops)),
    ("defer_scale", |func, _| rewritten_under_guards(func, defer_scale)),
    ("legalize_index", |func, request| {
        rewritten_under_guards(func, |func| legalize_index(func, request.bounds()))
    }),
    ("load_runs_once", |func, request| {
        let threads = 32 * request.warps();
        rewritten(func, |func| load_runs_once(func, &LaunchAssumptions::of(func), threads))
    }),
    ("read_unrotated", |func, _| rewritten(func, |func| read_unrotated(func, &LaunchAssumptions::of(func)))),
    ("rotate_rows", |func, _| rewritten(func, |func| rotate_rows(func, &LaunchAssumptions::of(func)))),
    ("single_iteration", |func, _| match single_iteration(func) {
        Some((after, guards)) => guarded(func, &after, &guards),
        None => changed(func, func),
    }),
    ("split_full_tiles", |func, _| rewritten(func, split_full_tiles)),
    ("strength_reduce", |func, _| rewritten(func, strength_reduce)),
    ("transpose_operands", |func, _| {
        let others = transpose_operands(func);
        if others.is_empty() { changed(func, func) } else { others.iter().map(text).collect() }
    }),
    ("unit_stride", |func, request| {
        let sets = unit_strides(func, request.bounds());
        let with_one =
            |set: &Vec<ir::Value>| rewritten_under_guards(func, |func| assume_unit_strides(func, set));
        if sets.is_empty() { changed(func, func) } else { sets.iter().map(with_one).collect() }
    }),
    ("view_strides", |func, _| rewritten_under_guards(func, assume_contiguous)),
];

#[test]
fn passes_do_what_their_files_say() {
    check_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests"), PASSES);
}

//! Gathers at indices that are known while compiling: each thread takes the element that the index names.

use expect_test::{Expect, expect};
use tile_ir::ops::Kind;
use tile_ir::testing::func;

use super::ptx;
use lowering::backend::nvptx::Arch;
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::gpu::layout::gather::{GatherSource, warp_gather};

/// A kernel that shifts the columns of 4 rows of `n` elements, with `index` of the columns `cols`.
fn kernel(n: u32, index: &str) -> String {
    format!(
        "#[fuse_kernel(num_warps = 4)] fn k(x: &[i32], out: &mut [i32], by: i32) {{
            let cols = tl::arange(0, {n}).row();
            let offsets = tl::arange(0, 4).col() * {n} + cols;
            let index = tl::broadcast_to({index}, [4, {n}]);
            tl::store(out + offsets, tl::gather(tl::load(x + offsets), index, 1));
        }}"
    )
}

/// Checks the source of each element of every specialization that stays within warps; returns how many there are.
fn check_sources(n: u32, index: &str, column: fn(i64) -> i64) -> usize {
    let mut checked = 0;
    for specialization in
        specializations(&func(&kernel(n, index)), KernelRequests::default()).expect("specializations")
    {
        let distributed = &specialization.plan.schedule.distributed;
        distributed.func.body.walk(&mut |op| {
            let Kind::Gather(gather) = &op.kind else { return };
            let Some(registers) = warp_gather(distributed, gather, op.results[0]) else { return };
            let (from, to) = (&distributed.layouts[&gather.value], &distributed.layouts[&op.results[0]]);
            for (register, sources) in registers.iter().enumerate() {
                for (lane, warp) in (0..32).flat_map(|lane| (0..4).map(move |warp| (lane, warp))) {
                    let coord = to.coord(register, lane, warp);
                    let wanted = u32::try_from(column(coord.get(1).into())).ok();
                    let wanted = wanted.filter(|&column| column < n).map(|column| coord.set(1, column));
                    let taken: Vec<_> =
                        sources.iter().filter(|(_, lanes)| **lanes >> lane & 1 == 1).collect();
                    let held = match taken[..] {
                        [(GatherSource::Zero, _)] => None,
                        [(&GatherSource::Own { register }, _)] => Some(from.coord(register, lane, warp)),
                        [(&GatherSource::Lane { register, distance }, _)] => {
                            Some(from.coord(register, (lane + distance) % 32, warp))
                        }
                        _ => panic!("a lane of {n} columns at {index} takes {taken:?}"),
                    };
                    assert_eq!(
                        held, wanted,
                        "{n} columns at {index}: {register} of lane {lane} of warp {warp}"
                    );
                }
            }
            checked += 1;
        });
    }
    checked
}

#[test]
fn threads_take_what_the_index_names() {
    for n in [8, 32, 128, 256] {
        assert!(check_sources(n, "cols", |column| column) > 0);
        assert!(check_sources(n, "cols - 1", |column| column - 1) > 0);
        assert!(check_sources(n, "cols + 1", |column| column + 1) > 0);
        assert!(check_sources(n, "tl::maximum(cols - 1, 0)", |column| (column - 1).max(0)) > 0);
        assert!(check_sources(n, "cols / 2 * 2", |column| column / 2 * 2) > 0);
    }
}

/// Shuffles, and accesses of shared memory.
fn check_exchanges(n: u32, index: &str, expected: Expect) {
    let text = ptx(&kernel(n, index), Arch::SM_90A);
    let counts = ["shfl.sync", "st.shared", "ld.shared"].map(|word| text.matches(word).count());
    expected.assert_eq(&format!("{counts:?}"));
}

/// A warp has a row: the neighbor of a thread's first element alone is in another lane.
#[test]
fn a_shift_within_a_warp_takes_one_shuffle() {
    check_exchanges(128, "tl::maximum(cols - 1, 0)", expect!["[1, 0, 0]"]);
    check_exchanges(128, "(cols + 1) % 128", expect!["[1, 0, 0]"]);
}

#[test]
fn other_gathers_go_through_shared_memory() {
    // The index is an argument.
    check_exchanges(128, "cols + by", expect!["[0, 1, 4]"]);
    // Lanes in reverse.
    check_exchanges(128, "127 - cols", expect!["[0, 1, 4]"]);
}

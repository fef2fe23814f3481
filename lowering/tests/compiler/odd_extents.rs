//! Tiles whose extents are not powers of two through analysis and layout, shape operations included.

use tile_ir::ir;
use tile_ir::testing::func;

use lowering::driver::specialize::{KernelRequests, specializations};

const SOURCE: &str = "
#[fuse_kernel(T = [ELEM])]
fn k<T: Element>(x: &[T], out: &mut [T]) {
    let flat = tl::arange(0, M * N);
    let tile = tl::reshape(tl::load(x + flat), [M, N]);
    tl::store(out + flat, tl::reshape(tl::trans(tile), [M * N]));
    let again = tl::trans(tl::reshape(tile, [N, M]));
    let by_row = tl::arange(0, M).col() * N + tl::arange(0, N).row();
    tl::store(out + M * N + by_row, again);
}";

#[test]
fn every_shape_has_a_layout() {
    for (m, n) in [(1, 1), (3, 5), (12, 20), (5, 64), (1, 36), (9, 4), (2, 11)] {
        for elem in ["u8", "u64"] {
            let source =
                SOURCE.replace('M', &m.to_string()).replace('N', &n.to_string()).replace("ELEM", elem);
            let source = source.replace(&format!("ELE{m}"), elem);
            let func = func(&source);
            for (num_warps, num_ctas) in [(1, 1), (4, 1), (32, 1), (1, 8), (4, 2)] {
                let requests = KernelRequests {
                    num_warps: Some(num_warps),
                    num_ctas: Some(num_ctas),
                    ..KernelRequests::default()
                };
                for specialization in specializations(&func, requests).expect("little shared memory") {
                    ir::verify(&specialization.plan.laid_out).expect("valid tile IR");
                }
            }
        }
    }
}

#[test]
fn a_permuted_tile_can_be_reshaped() {
    let order = |order: &str, i: u32| {
        format!("tl::store(out + {i} * 192 + flat, tl::reshape(tl::permute(tile, [{order}]), [192]));\n")
    };
    let orders = ["0, 1, 2", "0, 2, 1", "1, 0, 2", "1, 2, 0", "2, 0, 1", "2, 1, 0"];
    let stores: String = orders.iter().zip(0..).map(|(text, i)| order(text, i)).collect();
    let func = func(&format!(
        "#[fuse_kernel(T = [u8])]
fn k<T: Element>(x: &[T], out: &mut [T]) {{
    let flat = tl::arange(0, 192);
    let tile = tl::reshape(tl::load(x + flat), [4, 6, 8]);
    {stores}
}}"
    ));
    for specialization in
        specializations(&func, KernelRequests { num_warps: Some(4), ..KernelRequests::default() })
            .expect("little shared memory")
    {
        ir::verify(&specialization.plan.laid_out).expect("valid tile IR");
    }
}

//! Random programs through every stage that does no I/O, at every number of warps.

use tile_ir::ir;
use tile_ir::testing::func;

use lowering::devtools::fuzzgen::generate;
use lowering::driver::specialize::{KernelRequests, specializations};

#[test]
fn random_programs_have_layouts() {
    for seed in 0..200 {
        let generated = generate(seed);
        let (elem, body) = (generated.elem, &generated.body);
        let func =
            func(&format!("#[fuse_kernel()]\nfn k(x: &[{elem}], out: &mut [{elem}], n: i32) {{\n{body}}}"));
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

//! Products by groups of four warps, of blocks that the GPU copies by itself.

use super::ptx;
use crate::target::nvptx::Arch;

const MATMUL: &str = r#"
    #[fuse_kernel(num_warps = 8)]
    fn k(a: &View<bf16, 2>, b: &View<bf16, 2>, out: &mut View<bf16, 2>) {
        let row = tl::program_id(0) * 128;
        let col = tl::program_id(1) * 256;
        let mut sum = tl::zeros::<f32>([128, 256]);
        for start in (0..a.shape(1)).step_by(64) {
            sum = tl::dot(a.load::<128, 64>(row, start), b.load::<64, 256>(start, col), sum);
        }
        out.store(sum.to::<bf16>(), row, col);
    }
"#;

const ATTENTION: &str = r#"
    #[fuse_kernel(num_warps = 8)]
    fn k(
        q: &View<bf16, 3>,
        k: &View<bf16, 3>,
        v: &View<bf16, 3>,
        out: &mut View<bf16, 3>,
        lse: &mut View<f32, 2>,
        scale: f32,
    ) {
        let (queries, keys) = (q.shape(1).to::<i32>(), k.shape(1).to::<i32>());
        let head = tl::program_id(1);
        let row = tl::program_id(0) * 128;
        let rows = row + tl::arange(0, 128);
        let q = tl::reshape(q.load::<1, 128, DD>(head, row, 0), [128, DD]);
        let mut sum = tl::zeros::<f32>([128, DD]);
        let mut largest = tl::full([128], f32::NEG_INFINITY);
        let mut total = tl::zeros::<f32>([128]);
        let end = if CAUSAL { tl::minimum(keys, row + 128 + keys - queries) } else { keys };
        for start in (0..end).step_by(128) {
            let at = start + tl::arange(0, 128);
            let is_key = at < keys;
            let seen = if CAUSAL { is_key.row() & (at.row() <= rows.col() + (keys - queries)) } else { is_key.row() };
            let k = tl::reshape(k.load::<1, 128, DD>(head, start, 0), [128, DD]);
            let scores = tl::select(seen, tl::dot(q, tl::trans(k)) * scale, f32::NEG_INFINITY);
            let next = tl::maximum(largest, tl::max(scores, 1));
            let origin = tl::select(next == f32::NEG_INFINITY, 0.0, next);
            let weights = tl::exp2(scores - origin.col());
            let before = tl::exp2(largest - origin);
            total = total * before + tl::sum(weights, 1);
            largest = next;
            let v = tl::reshape(v.load::<1, 128, DD>(head, start, 0), [128, DD]);
            sum = tl::dot(weights.to::<bf16>(), v, sum * before.col());
        }
        let some = tl::select(total == 0.0, 1.0, total);
        out.store(tl::reshape((sum / some.col()).to::<bf16>(), [1, 128, DD]), head, row, 0);
        let logarithm = tl::select(total == 0.0, f32::NEG_INFINITY, largest + tl::log2(some));
        lse.store(tl::reshape(logarithm * 0.6931472, [1, 128]), head, row);
    }
"#;

#[test]
fn scratch() {
    let save = |name: &str, text: &str| {
        let (func, requests) = super::first(text);
        let bodies = crate::body::bodies(&func, requests).unwrap();
        let plan = &bodies[0].plan;
        assert_eq!(bodies[0].name, "tensor");
        let head = format!(
            "// {} {} {} {:?}\n",
            plan.threads(),
            plan.shared_bytes(),
            u32::from(plan.persistent()),
            plan.maps().iter().map(|m| (m.memory.0, m.block.clone())).collect::<Vec<_>>()
        );
        std::fs::write(format!("/tmp/group_{name}.ptx"), head + &ptx(text, Arch::SM_90A)).unwrap();
    };
    save("mm", MATMUL);
    let trans = MATMUL.replace("b.load::<64, 256>(start, col)", "tl::trans(b.load::<256, 64>(col, start))");
    save("mmt", &trans);
    let both = MATMUL
        .replace("b.load::<64, 256>(start, col)", "tl::trans(b.load::<256, 64>(col, start))")
        .replace("a.load::<128, 64>(row, start)", "tl::trans(a.load::<64, 128>(start, row))")
        .replace("a.shape(1)", "a.shape(0)");
    save("mmtt", &both);
    let small = MATMUL.replace("num_warps = 8", "num_warps = 4").replace("256", "64").replace("bf16", "f16");
    save("mms", &small);
    let few = MATMUL.replace("num_warps = 8", "num_warps = 8").replace("128", "64").replace("bf16", "f16");
    save("mmf", &few);
    for d in ["64", "128"] {
        for causal in ["true", "false"] {
            let text = ATTENTION.replace("DD", d).replace("CAUSAL", causal);
            save(&format!("fa{d}{}", &causal[..1]), &text);
            let text = text
                .replace("tl::select(seen, tl::dot(q, tl::trans(k)) * scale, f32::NEG_INFINITY)", "tl::dot(q, tl::trans(k));
            let scores = if start + 128 > keys || (CAUSAL && start + 128 > row + 1 + keys - queries) { tl::select(seen, scores, f32::NEG_INFINITY) } else { scores }".replace("CAUSAL", causal).as_str())
                .replace("tl::exp2(scores - origin.col())", "tl::exp2(tl::fma(scores, scale, -(origin * scale).col()))")
                .replace("tl::exp2(largest - origin)", "tl::exp2((largest - origin) * scale)")
                .replace("largest + tl::log2", "largest * scale + tl::log2");
            save(&format!("fb{d}{}", &causal[..1]), &text);
        }
    }
}

//! Flags of a kernel that are constants: what one switches off leaves nothing behind.

use super::ptx_of;
use lowering::backend::nvptx::Arch;

/// A sum with a bias and ReLU, each behind a flag: the parts of `fused_kernels::fusion_flags`.
fn flagged(fuse_bias: bool, fuse_relu: bool) -> String {
    format!(
        "#[fuse_kernel(FUSE_BIAS = [{fuse_bias}], FUSE_RELU = [{fuse_relu}], num_warps = 4)]
        fn flagged<const FUSE_BIAS: bool, const FUSE_RELU: bool>(x: &[bf16], bias: &[bf16], out: &mut [bf16], n: i32) {{
            let offsets = tl::program_id(0) * 1024 + tl::arange(0, 1024);
            let mask = offsets < n;
            let mut y = tl::load(x + offsets, mask).to::<f32>();
            if FUSE_BIAS {{
                y += tl::load(bias + offsets, mask).to::<f32>();
            }}
            if FUSE_RELU {{
                y = tl::maximum(y, 0.0);
            }}
            tl::store(out + offsets, y.to::<bf16>(), mask);
        }}"
    )
}

/// The same kernel without flags, of the wanted operations alone.
fn written(bias: bool, relu: bool) -> String {
    let bias = if bias { "y += tl::load(bias + offsets, mask).to::<f32>();" } else { "" };
    let relu = if relu { "y = tl::maximum(y, 0.0);" } else { "" };
    format!(
        "#[fuse_kernel(num_warps = 4)]
        fn written(x: &[bf16], bias: &[bf16], out: &mut [bf16], n: i32) {{
            let offsets = tl::program_id(0) * 1024 + tl::arange(0, 1024);
            let mask = offsets < n;
            let mut y = tl::load(x + offsets, mask).to::<f32>();
            {bias}
            {relu}
            tl::store(out + offsets, y.to::<bf16>(), mask);
        }}"
    )
}

#[test]
fn what_a_flag_switches_off_leaves_nothing_behind() {
    let all = [(false, false), (true, false), (false, true), (true, true)];
    for (arch, body) in [(Arch::SM_80, "aligned"), (Arch::SM_90A, "aligned"), (Arch::SM_90A, "general")] {
        // Both entries have one name here.
        let of = |source: &str| ptx_of(source, arch, |found| found.name == body);
        let texts = all.map(|(bias, relu)| of(&flagged(bias, relu)));
        for ((bias, relu), text) in all.into_iter().zip(&texts) {
            assert_eq!(text, &of(&written(bias, relu)), "{body} for {arch:?}, bias {bias}, ReLU {relu}");
        }
        for (i, text) in texts.iter().enumerate() {
            assert!(
                !texts[..i].contains(text),
                "{body} for {arch:?}: a flag of {:?} changes nothing",
                all[i]
            );
        }
    }
}

//! Each error as its reader sees it.

use expect_test::{Expect, expect};

use super::*;

fn check(error: Error, expected: Expect) {
    expected.assert_eq(&error.to_string());
}

#[test]
fn devices_that_are_not_there() {
    check(
        Error::NoDriver,
        expect![
            "the NVIDIA driver library libcuda was not found on this machine; `Device::cpu()` works without it"
        ],
    );
    check(
        Error::NoDevice { ordinal: 0, count: 0 },
        expect!["there is no cuda:0: the driver reports no device"],
    );
    check(
        Error::NoDevice { ordinal: 1, count: 1 },
        expect!["there is no cuda:1: the driver reports one device, cuda:0"],
    );
    check(
        Error::NoDevice { ordinal: 7, count: 4 },
        expect!["there is no cuda:7: the driver reports 4 devices, cuda:0 to cuda:3"],
    );
}

#[test]
fn code_that_is_not_there() {
    let code = |variant, built: &[&str]| Error::NoCode {
        kernel: "attention",
        variant,
        device: "cuda:0".to_string(),
        capability: 75,
        built: built.iter().map(ToString::to_string).collect(),
    };
    check(
        code("T = bf16, D = 64", &["sm_80", "sm_90a"]),
        expect![
            "kernel `attention` [T = bf16, D = 64] has no code for cuda:0, whose compute capability is 7.5: built for sm_80, sm_90a"
        ],
    );
    check(
        code("", &[]),
        expect![
            "kernel `attention` has no code for cuda:0, whose compute capability is 7.5: none was built; a build with FUSE_ARCH=none makes code for the CPU alone"
        ],
    );
    check(
        Error::NoHostCode {
            kernel: "attention",
            variant: "",
            cpu: "x86-64".to_string(),
            built: vec!["x86-64-v3".to_string()],
        },
        expect!["kernel `attention` has no code for this CPU (x86-64): built for x86-64-v3"],
    );
    check(
        Error::NoVariant { kernel: "norm", wanted: "types f64".to_string(), declared: vec!["T = f32", ""] },
        expect!["kernel `norm` has no variant with types f64; declared are [T = f32], one without generics"],
    );
    check(
        Error::NoSpecialization {
            kernel: "norm",
            variant: "T = f32",
            device: "cuda:0".to_string(),
            reasons: vec![
                "norm_0: it needs 160.0 KiB of shared memory, a block of this device has 99.0 KiB"
                    .to_string(),
            ],
        },
        expect![
            "kernel `norm` [T = f32] cannot run with these arguments on cuda:0: norm_0: it needs 160.0 KiB of shared memory, a block of this device has 99.0 KiB"
        ],
    );
}

#[test]
fn arguments_that_do_not_fit() {
    check(
        Error::NoGrid { kernel: "add" },
        expect!["kernel `add` was launched without a grid: say how many programs run with `.grid(..)`"],
    );
    let place = |found: &str, wanted: &str| Error::WrongDevice {
        kernel: "add",
        param: "x",
        found: found.to_string(),
        wanted: wanted.to_string(),
    };
    check(
        place("host memory", "cuda:0"),
        expect!["kernel `add`: `x` is in host memory, and the launch is on cuda:0"],
    );
    check(place("cuda:1", "cuda:0"), expect!["kernel `add`: `x` is in cuda:1, and the launch is on cuda:0"]);
    check(
        place("cuda:0", "cuda:0"),
        expect![
            "kernel `add`: `x` is in cuda:0, and the launch is on cuda:0, another CUDA context of it; `Device::from_context` makes a device of that one"
        ],
    );
    check(
        Error::Argument {
            kernel: "add",
            param: "out",
            wanted: param_type(ParamKind::SliceMut, DType::F32),
            found: param_type(ParamKind::Slice, DType::BF16),
        },
        expect!["kernel `add`: `out` takes &mut [f32], found &[bf16]"],
    );
    check(
        Error::ArgumentCount { kernel: "add", wanted: 3, found: 2 },
        expect!["kernel `add` takes 3 arguments, found 2"],
    );
}

#[test]
fn the_driver_s_errors_name_the_call_and_the_kernel() {
    let cuda = |kernel, since| Error::Cuda {
        call: "cuLaunchKernel",
        kernel,
        name: "CUDA_ERROR_ILLEGAL_ADDRESS".to_string(),
        text: "an illegal memory access was encountered".to_string(),
        since,
    };
    check(
        cuda(Some("add"), Vec::new()),
        expect![
            "kernel `add`: cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS, an illegal memory access was encountered"
        ],
    );
    check(
        cuda(None, Vec::new()),
        expect!["cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS, an illegal memory access was encountered"],
    );
    check(
        cuda(None, vec!["mul", "add"]),
        expect![[r#"
        cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS, an illegal memory access was encountered
        kernels launched before it, latest first: `mul`, `add`; with FUSE_LAUNCH_BLOCKING=1 the error names the one that failed"#]],
    );
    check(
        Error::Load {
            kernel: "add",
            variant: "T = f32",
            image: "PTX for sm_90a".to_string(),
            reason: "CUDA_ERROR_INVALID_PTX, a PTX JIT compilation failed".to_string(),
            log: "ptxas application ptx input, line 3; fatal: parse error\n".to_string(),
        },
        expect![[r#"
            kernel `add` [T = f32]: the driver did not load its PTX for sm_90a: CUDA_ERROR_INVALID_PTX, a PTX JIT compilation failed
            ptxas application ptx input, line 3; fatal: parse error"#]],
    );
}

#[test]
fn sizes_are_said_in_the_unit_that_reads_best() {
    let full = |bytes, free| Error::OutOfMemory { device: "cuda:0".to_string(), bytes, free };
    check(
        full(3 << 30, Some((512 << 20, 80 << 30))),
        expect!["out of memory on cuda:0: 3.0 GiB wanted, 512.0 MiB of 80.0 GiB free"],
    );
    check(full(1000, None), expect!["out of memory on cuda:0: 1000 B wanted"]);
    assert_eq!(format_bytes(1023), "1023 B");
    assert_eq!(format_bytes(1536), "1.5 KiB");
}

#[test]
fn an_error_is_small_enough_to_return_by_value() {
    assert!(size_of::<Error>() <= 128, "{}", size_of::<Error>());
}

//! The files of a kernel that no compiler made.

use expect_test::{Expect, expect};

use super::*;
use crate::dtype::DType;
use crate::kernel::{
    Arch, Guard, Packed, Param, ParamKind, Resources, Specialization, Symbol, TensorMap, Term,
};

static SCALE: Kernel = Kernel {
    name: "scale",
    module: "demo::kernels",
    params: &[
        Param { name: "x", kind: ParamKind::Slice },
        Param { name: "out", kind: ParamKind::SliceMut },
        Param { name: "n", kind: ParamKind::Scalar },
        Param { name: "keep", kind: ParamKind::Scalar },
    ],
    variants: &[Variant {
        label: "T = bf16, BLOCK = 1024",
        types: &[DType::BF16],
        consts: &[1024],
        dtypes: &[DType::BF16, DType::F32, DType::I32, DType::Bool],
        source: 0,
        modules: &[module(&[(90, Packed::Plain(b"image"))], ALIGNED), module(&[], GENERAL)],
        hosts: &[],
        sites: &[],
    }],
    ..Kernel::TEST
};

const fn module(cubins: &'static [(u32, Packed)], specialization: Specialization) -> Module {
    Module {
        arch: Arch { capability: 90, exact: true },
        ptx: Packed::Plain(b".version 8.0"),
        cubins,
        specialization,
        reports: false,
    }
}

const ALIGNED: Specialization = Specialization {
    entry: "scale_aligned",
    threads: 128,
    programs_per_block: 2,
    blocks_per_program: 1,
    persistent: false,
    uses_work_counter: false,
    uses_pdl: false,
    shared_bytes: 0,
    guards: &[
        Guard::Aligned { param: 0, bytes: 16 },
        Guard::Divisible { value: &[Term { coefficient: 1, factors: &[Symbol::Scalar(2)] }], by: 8 },
        Guard::AtMost {
            low: &[Term { coefficient: 1024, factors: &[Symbol::Grid(0)] }],
            high: &[Term { coefficient: 1, factors: &[Symbol::Length(1)] }],
        },
    ],
    maps: &[],
    accesses: &[],
    refused_dots: &[],
    resources: Some(Resources {
        capability: 90,
        registers: 32,
        spill_store_bytes: 0,
        spill_load_bytes: 0,
        stack_bytes: 0,
        static_shared_bytes: 64,
    }),
};

const GENERAL: Specialization = Specialization {
    entry: "scale_general",
    threads: 128,
    programs_per_block: 1,
    blocks_per_program: 1,
    persistent: false,
    uses_work_counter: false,
    uses_pdl: false,
    shared_bytes: 4096,
    guards: &[],
    maps: &[],
    accesses: &[],
    refused_dots: &[],
    resources: None,
};

fn check_json(kernel: &Kernel, variant: &'static Variant, expected: Expect) {
    let files = |module: &'static Module| {
        let cubins = module.cubins.iter().map(|(capability, _)| (*capability, "scale.90.cubin".to_string()));
        (module, ImageFiles { ptx: format!("{}.ptx", module.specialization.entry), cubins: cubins.collect() })
    };
    let specializations = variant.modules.iter().map(files).collect();
    let record = KernelRecord::new(kernel, variant, variant.modules[0].arch, specializations);
    expected.assert_eq(&serde_json::to_string_pretty(&record).unwrap());
}

#[test]
fn files_are_named_after_kernel_variant_and_architecture() {
    let directory = std::env::temp_dir().join(format!("fuse-artifact-{}", std::process::id()));
    let paths = SCALE.write(directory.join("made")).unwrap();
    let names: Vec<_> = paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "scale_aligned.sm_90a.ptx",
            "scale_aligned.sm_90a.90.cubin",
            "scale_general.sm_90a.ptx",
            "scale.T-bf16_BLOCK-1024.sm_90a.json",
        ]
    );
    assert_eq!(fs::read_to_string(&paths[0]).unwrap(), ".version 8.0");
    assert_eq!(fs::read(&paths[1]).unwrap(), b"image");
    let json: serde_json::Value = serde_json::from_slice(&fs::read(&paths[3]).unwrap()).unwrap();
    assert_eq!(
        (&json["bodies"][0]["ptx"], &json["bodies"][0]["cubins"][0]["file"]),
        (&names[0].into(), &names[1].into())
    );
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_directory_that_cannot_be_made_is_an_error_with_its_path() {
    let file = std::env::temp_dir().join(format!("fuse-artifact-file-{}", std::process::id()));
    fs::write(&file, "").unwrap();
    let Err(Error::File { path, .. }) = SCALE.write(file.join("below")) else {
        panic!("a file has no entries");
    };
    assert_eq!(path, file.join("below"));
    fs::remove_file(file).unwrap();
}

#[test]
fn the_json_says_how_to_call_each_entry() {
    check_json(
        &SCALE,
        &SCALE.variants[0],
        expect![[r#"
            {
              "format": 9,
              "kernel": "scale",
              "module": "demo::kernels",
              "label": "T = bf16, BLOCK = 1024",
              "types": [
                "bf16"
              ],
              "consts": [
                1024
              ],
              "arch": {
                "name": "sm_90a",
                "capability": 90,
                "exact": true
              },
              "params": [
                {
                  "name": "x",
                  "kind": "slice",
                  "dtype": "bf16"
                },
                {
                  "name": "out",
                  "kind": "slice_mut",
                  "dtype": "f32"
                },
                {
                  "name": "n",
                  "kind": "scalar",
                  "dtype": "i32"
                },
                {
                  "name": "keep",
                  "kind": "scalar",
                  "dtype": "bool"
                }
              ],
              "arguments": [
                {
                  "name": "x",
                  "kind": "address",
                  "type": "u64"
                },
                {
                  "name": "len(x)",
                  "kind": "length",
                  "type": "i64"
                },
                {
                  "name": "out",
                  "kind": "address",
                  "type": "u64"
                },
                {
                  "name": "len(out)",
                  "kind": "length",
                  "type": "i64"
                },
                {
                  "name": "n",
                  "kind": "value",
                  "type": "i32"
                },
                {
                  "name": "keep",
                  "kind": "value",
                  "type": "u8"
                },
                {
                  "name": "grid.x",
                  "kind": "grid",
                  "type": "u32"
                },
                {
                  "name": "grid.y",
                  "kind": "grid",
                  "type": "u32"
                },
                {
                  "name": "grid.z",
                  "kind": "grid",
                  "type": "u32"
                }
              ],
              "bodies": [
                {
                  "entry": "scale_aligned",
                  "ptx": "scale_aligned.ptx",
                  "cubins": [
                    {
                      "capability": 90,
                      "file": "scale.90.cubin"
                    }
                  ],
                  "threads": 128,
                  "programs_per_block": 2,
                  "blocks_per_program": 1,
                  "persistent": false,
                  "counted": false,
                  "follows": false,
                  "shared_bytes": 0,
                  "facts": [
                    {
                      "text": "x is 16-byte aligned",
                      "kind": "aligned",
                      "param": "x",
                      "bytes": 16
                    },
                    {
                      "text": "8 divides n",
                      "kind": "divisible",
                      "value": [
                        {
                          "coefficient": 1,
                          "factors": [
                            {
                              "scalar": "n"
                            }
                          ]
                        }
                      ],
                      "by": 8
                    },
                    {
                      "text": "1024 * grid.x <= len(out)",
                      "kind": "at_most",
                      "low": [
                        {
                          "coefficient": 1024,
                          "factors": [
                            {
                              "grid": 0
                            }
                          ]
                        }
                      ],
                      "high": [
                        {
                          "coefficient": 1,
                          "factors": [
                            {
                              "length": "out"
                            }
                          ]
                        }
                      ]
                    }
                  ],
                  "resources": {
                    "capability": 90,
                    "registers": 32,
                    "spill_store_bytes": 0,
                    "spill_load_bytes": 0,
                    "stack_bytes": 0,
                    "static_shared_bytes": 64
                  }
                },
                {
                  "entry": "scale_general",
                  "ptx": "scale_general.ptx",
                  "cubins": [],
                  "threads": 128,
                  "programs_per_block": 1,
                  "blocks_per_program": 1,
                  "persistent": false,
                  "counted": false,
                  "follows": false,
                  "shared_bytes": 4096,
                  "facts": [],
                  "resources": null
                }
              ]
            }"#]],
    );
}

const MAPPED: Specialization = Specialization {
    guards: &[Guard::Equal { param: 2, value: 1 }],
    maps: &[
        TensorMap {
            param: 0,
            extents: &[&[Term::of(&[Symbol::Scalar(1)])]],
            strides: &[&[Term::of(&[Symbol::Scalar(2)])]],
            block: &[64],
            swizzle: 128,
            tf32: false,
            multicast: None,
        },
        TensorMap {
            param: 3,
            extents: &[&[Term::of(&[Symbol::Scalar(4)])]],
            strides: &[&[Term::of(&[Symbol::Scalar(5)])]],
            block: &[32],
            swizzle: 64,
            tf32: false,
            multicast: None,
        },
    ],
    ..GENERAL
};

static COPY: Kernel = Kernel {
    name: "copy",
    params: &[
        Param { name: "x", kind: ParamKind::View(1) },
        Param { name: "x.shape(0)", kind: ParamKind::Scalar },
        Param { name: "x.stride(0)", kind: ParamKind::Scalar },
        Param { name: "out", kind: ParamKind::ViewMut(1) },
        Param { name: "out.shape(0)", kind: ParamKind::Scalar },
        Param { name: "out.stride(0)", kind: ParamKind::Scalar },
    ],
    variants: &[Variant {
        label: "",
        types: &[],
        consts: &[],
        dtypes: &[DType::F16, DType::I64, DType::I64, DType::F16, DType::I64, DType::I64],
        source: 0,
        modules: &[module(&[], MAPPED)],
        hosts: &[],
        sites: &[],
    }],
    ..Kernel::TEST
};

/// A view is its memory and a scalar for each extent and stride; an entry may take maps of it.
#[test]
fn the_json_says_what_a_view_is() {
    let module = &COPY.variants[0].modules[0];
    let specializations = vec![(module, ImageFiles { ptx: "copy.ptx".to_string(), cubins: vec![] })];
    let record = KernelRecord::new(&COPY, &COPY.variants[0], module.arch, specializations);
    let json = serde_json::to_value(record).unwrap();
    let specialization = &json["bodies"][0];
    let lists = [&json["params"], &json["arguments"], &specialization["facts"], &specialization["maps"]];
    let lines = lists.into_iter().flat_map(|list| list.as_array().unwrap());
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    expect![[r#"
        {"dtype":"f16","kind":"view","name":"x","rank":1}
        {"dtype":"i64","kind":"scalar","name":"x.shape(0)"}
        {"dtype":"i64","kind":"scalar","name":"x.stride(0)"}
        {"dtype":"f16","kind":"view_mut","name":"out","rank":1}
        {"dtype":"i64","kind":"scalar","name":"out.shape(0)"}
        {"dtype":"i64","kind":"scalar","name":"out.stride(0)"}
        {"kind":"address","name":"x","type":"u64"}
        {"kind":"length","name":"len(x)","type":"i64"}
        {"kind":"value","name":"x.shape(0)","type":"i64"}
        {"kind":"value","name":"x.stride(0)","type":"i64"}
        {"kind":"address","name":"out","type":"u64"}
        {"kind":"length","name":"len(out)","type":"i64"}
        {"kind":"value","name":"out.shape(0)","type":"i64"}
        {"kind":"value","name":"out.stride(0)","type":"i64"}
        {"kind":"grid","name":"grid.x","type":"u32"}
        {"kind":"grid","name":"grid.y","type":"u32"}
        {"kind":"grid","name":"grid.z","type":"u32"}
        {"kind":"equal","param":"x.stride(0)","text":"x.stride(0) is 1","value":1}
        {"block":[64],"extents":[[{"coefficient":1,"factors":[{"scalar":"x.shape(0)"}]}]],"param":"x","strides":[[{"coefficient":1,"factors":[{"scalar":"x.stride(0)"}]}]],"swizzle":128}
        {"block":[32],"extents":[[{"coefficient":1,"factors":[{"scalar":"out.shape(0)"}]}]],"param":"out","strides":[[{"coefficient":1,"factors":[{"scalar":"out.stride(0)"}]}]],"swizzle":64}
    "#]]
    .assert_eq(&text);
}

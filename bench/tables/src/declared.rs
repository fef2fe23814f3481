//! The tables of results that a script of `bench` writes. Whoever measures anew changes the file alone.

use crate::table::Filter::{Is, IsNot};
use crate::table::Measure::{GeometricMean, Median, TenthPercentile, Worst};
use crate::table::{Column, Filter, Line, Source, Summary, Table};

const ALL: &[Filter] = &[];

const fn column(head: &'static str, cell: &'static str) -> Column {
    Column { head, cell }
}

const fn source(file: &'static str, filter: &'static [Filter]) -> Source {
    Source { prefix: "", file, filter }
}

const fn part(prefix: &'static str, file: &'static str, filter: &'static [Filter]) -> Source {
    Source { prefix, file, filter }
}

const KERNEL: Column = column("kernel", "{kernel}");
const SHAPE: Column = column("shape", "{shape}");
const OURS: Column = column("ours", "{ours.us:.1}");
const RATE: Column = column("ours", "{ours.us:.1} us, {ours.gb_per_s:.0} GB/s");
const TRITON: Column = column("Triton", "{Triton.us:.1}");
const COMPILED: Column = column("torch.compile", "{torch.compile.us:.1}");
const PYTORCH: Column = column("PyTorch", "{PyTorch.us:.1}");
const COPY: Column = column("copy", "{copy.us:.1}");
const OF_BEST: Column = column("ours, of the best peer", "{ours.of_best_peer:.3}");
const OF_COPY: Column = column("of copy", "{ours.of_copy:.3}");

const MATMULS: &[&str] = &["matmul", "matmul_bias_gelu"];
const LAYERS: &[Column] = &[
    column("model", "{model}"),
    column("tokens", "{tokens:.0}"),
    column("part", "{part}"),
    column("launches, one by one", "{launches:.0}, {one_by_one_launches:.0}"),
    column("`DecoderLayer`, `GatedFeedForward`", "{us:.1}"),
    column("one by one", "{one_by_one_us:.1}"),
    column("torch.compile", "{torch.compile:.1}"),
    column("PyTorch", "{PyTorch:.1}"),
    column("of torch.compile", "{torch.compile/us:.2}"),
];
const PAIRS: &[Column] = &[
    column("pair", "{pair}"),
    SHAPE,
    column("unfused form", "{unfused}"),
    column("launches", "{forms.fused.launches:.0}, {forms.unfused.launches:.0}"),
    column("MB by formula", "{forms.fused.bytes/1e6:.0}, {forms.unfused.bytes/1e6:.0}"),
    column("fused", "{forms.fused.us:.1}"),
    column("unfused", "{forms.unfused.us:.1}"),
    column("PyTorch", "{forms.PyTorch.us:.1}"),
    column("torch.compile", "{forms.torch.compile.us:.1}"),
    column("Triton", "{forms.Triton.us:.1}"),
    column("fused, of unfused", "{over_unfused:.2}"),
    column("documents expect", "{expected}"),
];

/// Tables with a line for each case.
pub const TABLES: &[Table] = &[
    Table {
        name: "headline",
        sources: &[source("h200/headline", &[IsNot("kernel", MATMULS)])],
        key: &[],
        columns: &[KERNEL, SHAPE, RATE, TRITON, COMPILED, PYTORCH, COPY, OF_BEST],
    },
    Table {
        name: "headline-matmul",
        sources: &[source("h200/headline", &[Is("kernel", MATMULS)])],
        key: &[],
        columns: &[
            KERNEL,
            column("shape, m x k x n", "{shape}"),
            column("ours", "{ours.us:.1} us, {ours.tflops:.0} TFLOP/s"),
            column("PyTorch (cuBLAS)", "{PyTorch.us:.1}"),
            column("ours, of it", "{ours.of_best_peer:.3}"),
        ],
    },
    Table {
        name: "library",
        sources: &[source("h200/library", ALL)],
        key: &[],
        columns: &[KERNEL, SHAPE, RATE, TRITON, COMPILED, PYTORCH, COPY, OF_BEST, OF_COPY],
    },
    Table {
        name: "library-f32",
        sources: &[source("h200/library-f32", ALL)],
        key: &[],
        columns: &[
            KERNEL,
            SHAPE,
            OURS,
            TRITON,
            COPY,
            column("ours, of Triton", "{ours.of_best_peer:.3}"),
            OF_COPY,
        ],
    },
    Table {
        name: "graphs",
        sources: &[source("h200/graphs", ALL)],
        key: &[],
        columns: &[
            KERNEL,
            SHAPE,
            column("ours", "{ours.us:.2}"),
            column("Triton", "{Triton.us:.2}"),
            column("torch.compile", "{torch.compile.us:.2}"),
            column("PyTorch", "{PyTorch.us:.2}"),
            column("copy", "{copy.us:.2}"),
            column("empty kernel", "{empty.us:.2}"),
        ],
    },
    Table {
        name: "matmul",
        sources: &[source("h200/products", &[Is("kernel", MATMULS)])],
        key: &[],
        columns: PRODUCTS,
    },
    Table {
        name: "attention",
        sources: &[source("h200/products", &[Is("kernel", &["attention", "attention_causal"])])],
        key: &[],
        columns: PRODUCTS,
    },
    Table {
        name: "matmul-bias-gelu",
        sources: &[
            part("first.", "h200/products", &[Is("kernel", &["matmul_bias_gelu"])]),
            part("second.", "h200/matmul_bias_gelu", ALL),
        ],
        key: &["kernel", "shape"],
        columns: &[
            column("shape, m x k x n", "{shape}"),
            column("ours", "{first.ours.us:.1}"),
            column("cuBLASLt", "{first.cuBLASLt.us:.1}"),
            column("ours, of cuBLASLt", "{first.ours.of_cublaslt|first.cuBLASLt.us/first.ours.us:.3}"),
            column("second run: ours", "{second.ours.us:.1}"),
            column("cuBLASLt", "{second.cuBLASLt.us:.1}"),
            column("torch.compile", "{second.torch.compile.us:.1}"),
            column("ours, of cuBLASLt", "{second.ours.of_cublaslt|second.cuBLASLt.us/second.ours.us:.3}"),
            column(
                "of torch.compile",
                "{second.ours.of_torch_compile|second.torch.compile.us/second.ours.us:.3}",
            ),
        ],
    },
    Table {
        name: "quantized",
        sources: &[source("h200/quantized", ALL)],
        key: &[],
        columns: &[
            KERNEL,
            column("shape, m x k x n", "{shape}"),
            OURS,
            TRITON,
            PYTORCH,
            column("Triton, of ours", "{Triton.us/ours.us:.2}"),
            OF_BEST,
        ],
    },
    Table {
        name: "few-rows",
        sources: &[
            part("bf16.", "h200/few-rows", &[Is("dtype", &["bf16"])]),
            part("i8.", "h200/few-rows", &[Is("dtype", &["i8"])]),
            part("f8.", "h200/few-rows", &[Is("dtype", &["f8e4m3"])]),
        ],
        key: &["extents"],
        columns: &[
            column("m x k x n", "{extents}"),
            column("`bf16`", "{bf16.ours.us:.1}"),
            column("PyTorch", "{bf16.PyTorch.us:.1}"),
            column("copy", "{bf16.copy.us:.1}"),
            column("`i8`", "{i8.ours.us:.1}"),
            column("Triton", "{i8.Triton.us:.1}"),
            column("PyTorch", "{i8.PyTorch.us:.1}"),
            column("copy", "{i8.copy.us:.1}"),
            column("`f8e4m3`", "{f8.ours.us:.1}"),
            column("Triton", "{f8.Triton.us:.1}"),
            column("PyTorch", "{f8.PyTorch.us:.1}"),
        ],
    },
    Table {
        name: "decode",
        sources: &[source("h200/products", &[Is("kernel", &["attention_decode"])])],
        key: &[],
        columns: &[
            column("heads / key heads x keys x D", "{shape}"),
            column("ours", "{ours.us:.1}"),
            column("GB/s", "{ours.gb_per_s:.0}"),
            PYTORCH,
            COPY,
            column("read", "{read.us:.1}"),
            column("ours, of PyTorch", "{ours.of_pytorch|PyTorch.us/ours.us:.2}"),
            OF_COPY,
        ],
    },
    Table {
        name: "ports",
        sources: &[part("h100.", "h100/ports", ALL), part("h200.", "h200/ports", ALL)],
        key: &["kernel", "shape"],
        columns: &[
            KERNEL,
            SHAPE,
            column("H100, ours", "{h100.ours.us:.1}"),
            column("Triton", "{h100.Triton.us:.1}"),
            column("ours, of Triton", "{h100.of_triton:.2}"),
            column("H200, ours", "{h200.ours.us:.1}"),
            column("Triton", "{h200.Triton.us:.1}"),
            column("ours, of Triton", "{h200.of_triton:.2}"),
        ],
    },
    Table { name: "pairs-h200", sources: &[source("h200/pairs", ALL)], key: &[], columns: PAIRS },
    Table { name: "pairs-h100", sources: &[source("h100/pairs", ALL)], key: &[], columns: PAIRS },
    Table {
        name: "pairs-dram",
        sources: &[source("h200/pairs-dram", ALL)],
        key: &[],
        columns: &[
            column("pair", "{pair}"),
            SHAPE,
            column("MB by formula, fused", "{forms.fused.bytes/1e6:.1}"),
            column("unfused", "{forms.unfused.bytes/1e6:.1}"),
            column("MB read from DRAM, fused", "{forms.fused.dram_read/1e6:.1}"),
            column("unfused", "{forms.unfused.dram_read/1e6:.1}"),
            column("MB written to DRAM, fused", "{forms.fused.dram_written/1e6:.1}"),
            column("unfused", "{forms.unfused.dram_written/1e6:.1}"),
        ],
    },
    Table {
        name: "norm-linear",
        sources: &[
            source("h200/linear", &[Is("kernel", &["rms_norm_linear"])]),
            part("apart.", "h200/linear", &[Is("kernel", &["rms_norm_linear_separate"])]),
        ],
        key: &["extents"],
        columns: &[
            column("RMSNorm and linear, m x k x n", "{extents}"),
            column("one kernel up to 16 tokens", "{ours.us:.1}"),
            column("norm, then matmul", "{apart.ours.us:.1}"),
            COMPILED,
            PYTORCH,
        ],
    },
    Table {
        name: "linear-rope",
        sources: &[
            source("h200/linear", &[Is("kernel", &["linear_rope"])]),
            part("apart.", "h200/linear", &[Is("kernel", &["linear_rope_separate"])]),
        ],
        key: &["extents"],
        columns: &[
            column("linear and rotation, tokens x k x heads x D", "{extents}"),
            column("as chosen", "{ours.us:.1}"),
            column("matmul, then rotation", "{apart.ours.us:.1}"),
            column("PyTorch", "{PyTorch.us:.1}"),
        ],
    },
    Table { name: "layers-h200", sources: &[source("h200/layers", ALL)], key: &[], columns: LAYERS },
    Table { name: "layers-h100", sources: &[source("h100/layers", ALL)], key: &[], columns: LAYERS },
    Table {
        name: "layers-max-autotune",
        sources: &[source("h200/layers-max-autotune-no-cudagraphs", ALL)],
        key: &[],
        columns: LAYERS,
    },
    Table {
        name: "packed-qkv",
        sources: &[
            source("h200/packed-qkv", &[Is("kernel", &["packed_qkv"])]),
            part("apart.", "h200/packed-qkv", &[Is("kernel", &["packed_qkv_separate"])]),
            part("neighbors.", "h200/packed-qkv", &[Is("kernel", &["packed_qkv_interleaved"])]),
            part("cached.", "h200/packed-qkv", &[Is("kernel", &["packed_qkv_cached"])]),
            part("cached_apart.", "h200/packed-qkv", &[Is("kernel", &["packed_qkv_cached_separate"])]),
        ],
        key: &["shape"],
        columns: &[
            column("tokens x heads x D", "{shape}"),
            column("norm and rotation", "{ours.us:.1}"),
            column("apart", "{apart.ours.us:.1}"),
            COPY,
            column("pairs of neighbors", "{neighbors.ours.us:.1}"),
            column("copy", "{neighbors.copy.us:.1}"),
            column("with a cache write", "{cached.ours.us:.1}"),
            column("apart", "{cached_apart.ours.us:.1}"),
            column("copy", "{cached.copy.us:.1}"),
        ],
    },
    Table {
        name: "rotary-attention",
        sources: &[
            source("h200/packed-qkv", &[Is("kernel", &["rotary_attention"])]),
            part("apart.", "h200/packed-qkv", &[Is("kernel", &["rotary_attention_separate"])]),
        ],
        key: &["shape"],
        columns: &[
            column("heads / key heads x queries of keys x D", "{shape}"),
            column("fused", "{ours.us:.1}"),
            column("rotation, then attention", "{apart.ours.us:.1}"),
            PYTORCH,
        ],
    },
    Table {
        name: "attention-projection",
        sources: &[
            part("fused.", "h100/projection", &[Is("kernel", &["attention_projection_fused"])]),
            part("apart.", "h100/projection", &[Is("kernel", &["attention_projection_separate"])]),
        ],
        key: &["extents"],
        columns: &[
            column("sequences x length, heads / key heads x D, columns", "{extents}"),
            column("one kernel", "{fused.ours.us:.1}"),
            column("attention, then matmul", "{apart.ours.us:.1}"),
            column("PyTorch", "{apart.PyTorch.us:.1}"),
        ],
    },
    Table {
        name: "linear-norm",
        sources: &[
            part("fused.", "h100/projection", &[Is("kernel", &["linear_norm_gelu_fused"])]),
            part("apart.", "h100/projection", &[Is("kernel", &["linear_norm_gelu_separate"])]),
        ],
        key: &["extents"],
        columns: &[
            column("linear, LayerNorm and GELU, m x k x n", "{extents}"),
            column("one kernel", "{fused.ours.us:.1}"),
            column("matmul, then norm", "{apart.ours.us:.1}"),
            column("PyTorch", "{apart.PyTorch.us:.1}"),
        ],
    },
    Table {
        name: "moe",
        sources: &[source("h200/moe", ALL)],
        key: &[],
        columns: &[
            column("tokens x hidden x intermediate, experts", "{shape}"),
            OURS,
            COMPILED,
            PYTORCH,
            COPY,
        ],
    },
];

const PRODUCTS: &[Column] = &[
    KERNEL,
    SHAPE,
    OURS,
    column("TFLOP/s", "{ours.tflops:.0}"),
    PYTORCH,
    column("TFLOP/s", "{PyTorch.tflops:.0}"),
    column("ours, of PyTorch", "{ours.of_pytorch|PyTorch.us/ours.us:.2}"),
];

const SPREAD: &[crate::table::Measure] = &[Median, TenthPercentile, Worst];

const fn line(label: &'static str, h200: &'static [&'static str], h100: &'static [&'static str]) -> Line {
    Line { label, h200, h100, filter: ALL }
}

const fn layout(label: &'static str, filter: &'static [Filter]) -> Line {
    Line { label, h200: &["h200/sweep-20261125"], h100: &["h100/sweep-20261125"], filter }
}

/// Tables that sum up many cases.
pub const SUMMARIES: &[Summary] = &[
    Summary {
        name: "random-shapes",
        ratio: "of_peer",
        measures: SPREAD,
        lines: &[
            line(
                "`bf16` matmul, of cuBLAS",
                &["h200/sweep-matmul-20261126"],
                &["h100/sweep-matmul-20261126"],
            ),
            line("TF32 matmul, of cuBLAS", &["h200/sweep-tf32-20261126"], &["h100/sweep-tf32-20261126"]),
            line("IEEE `f32` matmul, of cuBLAS", &["h200/sweep-f32-20261126"], &["h100/sweep-f32-20261126"]),
            line("8-bit matmul, of cuBLASLt", &[], &["h100/sweep-quantized-20261129"]),
            line("rows, of a copy", &["h200/sweep-rows-20261126"], &["h100/sweep-rows-20261126"]),
            line(
                "fused kernels, of a copy",
                &["h200/sweep-fused-29", "h200/sweep-fused-31", "h200/sweep-fused-37"],
                &["h100/sweep-fused-41"],
            ),
            line(
                "attention, of cuDNN",
                &["h200/sweep-attention-20261126"],
                &["h100/sweep-attention-20261126"],
            ),
        ],
    },
    Summary {
        name: "random-shapes-20261125",
        ratio: "of_peer",
        measures: SPREAD,
        lines: &[
            layout("attention, of cuDNN", &[Is("group", &["attention"])]),
            layout("`bf16` matmul, of cuBLAS", &[Is("group", &["matmul"])]),
            layout("of these NN", &[Is("kernel", &["matmul NN"])]),
            layout("NT", &[Is("kernel", &["matmul NT"])]),
            layout("TN", &[Is("kernel", &["matmul TN"])]),
            layout("TT", &[Is("kernel", &["matmul TT"])]),
            layout("rows, of a copy", &[Is("group", &["rows"])]),
        ],
    },
    Summary {
        name: "ports-means",
        ratio: "of_triton",
        measures: &[GeometricMean, TenthPercentile, Worst],
        lines: &[
            line("all", &["h200/ports"], &["h100/ports"]),
            Line {
                label: "without matmuls",
                h200: &["h200/ports"],
                h100: &["h100/ports"],
                filter: &[IsNot("kernel", PORTS_BY_POINTERS), IsNot("kernel", PORTS_BY_VIEWS)],
            },
            Line {
                label: "matmuls and attention by pointers",
                h200: &["h200/ports"],
                h100: &["h100/ports"],
                filter: &[Is("kernel", PORTS_BY_POINTERS)],
            },
        ],
    },
];

const PORTS_BY_POINTERS: &[&str] = &[
    "matmul",
    "expert_matmul",
    "lora",
    "weight_gradient",
    "split_k_matmul",
    "persistent_matmul",
    "grouped_matmul",
    "block_sparse_matmul",
    "expert_gate_up",
    "expert_down",
    "stream_k_matmul",
    "nearest_centroid",
    "linear_cross_entropy",
    "conv3x3",
    "int4_matmul",
    "fp8_matmul",
    "int8_matmul",
    "w8a16_matmul",
    "ternary_matmul",
    "flash_attention",
    "attention_dkdv",
    "attention_dq",
    "varlen_attention",
    "fp8_attention",
    "sink_attention",
    "mla_decode",
    "int8_decode",
    "chunk_state",
    "chunk_scan",
    "gated_linear_attention",
    "gram",
    "rbf_matvec",
    "batched_matmul_bias_gelu",
    "conv1d",
    "newton_schulz",
    "window_attention",
];
const PORTS_BY_VIEWS: &[&str] =
    &["persistent_matmul_by_views", "attention_by_views", "attention_dkdv_by_views", "attention_dq_by_views"];

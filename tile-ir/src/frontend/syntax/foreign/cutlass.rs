//! Names of CUTLASS and CuTe, of tensor cores in CUDA, and of its asynchronous copies.

use super::row::{Foreign, function, type_name};

const VIEW: &str = "take the parameter as a view, `x: &View<f32, 2>`, and load its tiles: `x.load::<64, 64>(row, col)`; the compiler lays them out";
const DOT: &str = "`tl::dot(a, b, acc)` of whole tiles uses the tensor cores";
const ASYNC_COPY: &str = "load a tile, `tl::load(x + offsets, mask)`: the compiler copies it asynchronously, as many iterations ahead as `num_stages` says";

pub(super) const TABLE: &[Foreign] = &[
    function(
        &[
            "make_tensor",
            "make_gmem_ptr",
            "make_smem_ptr",
            "make_layout",
            "make_shape",
            "make_stride",
            "make_coord",
            "make_identity_tensor",
            "local_tile",
            "local_partition",
            "flat_divide",
            "tiled_divide",
            "zipped_divide",
            "logical_divide",
            "composition",
            "make_fragment_like",
            "make_tensor_like",
            "partition_A",
            "partition_B",
            "partition_C",
            "partition_S",
            "partition_D",
            "partition_fragment_A",
            "partition_fragment_B",
            "partition_fragment_C",
            "make_tiled_copy",
            "get_slice",
            "get_thread_slice",
            "make_swizzle",
        ],
        VIEW,
    ),
    type_name(&["Layout", "Swizzle", "TensorView", "TensorRef"], VIEW),
    function(
        &[
            "make_tiled_mma",
            "mma",
            "mma_sync",
            "wgmma",
            "wmma",
            "load_matrix_sync",
            "store_matrix_sync",
            "fill_fragment",
            "ldmatrix",
            "mfma",
        ],
        DOT,
    ),
    type_name(&["fragment", "Fragment"], DOT),
    function(
        &[
            "cp_async",
            "cp_async_ca",
            "cp_async_cg",
            "cp_async_bulk",
            "__pipeline_memcpy_async",
            "memcpy_async",
            "tma_load",
            "tma_store",
            "copy_async",
            "async_copy",
            "prefetch",
        ],
        ASYNC_COPY,
    ),
];

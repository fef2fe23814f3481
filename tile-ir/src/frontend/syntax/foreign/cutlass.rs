//! Names of CUTLASS and CuTe, ThunderKittens and TileLang, of tensor cores in CUDA, and of its asynchronous copies.

use super::row::{Foreign, function, module, type_name, value};

const VIEW: &str = "take the parameter as a view, `x: &View<f32, 2>`, and load its tiles: `x.load::<64, 64>(row, col)`; the compiler lays them out";
const DOT: &str = "`tl::dot(a, b, acc)` of whole tiles uses the tensor cores";
const ASYNC_COPY: &str = "load a tile, `tl::load(x + offsets, mask)`: the compiler copies it asynchronously, as many iterations ahead as `num_stages` says";
const TILE: &str =
    "a tile has no type of its own for registers or shared memory: `tl::zeros::<f32>([64, 64])` makes one";

pub(super) const TABLE: &[Foreign] = &[
    module(
        &["cute", "cutlass", "kittens", "warpgroup", "tilelang"],
        "tiles are loaded from views, `x.load::<64, 64>(row, col)`, multiplied by `tl::dot(a, b, acc)`, and stored, `out.store(tile, row, col)`",
    ),
    function(
        &[
            "make_tensor*",
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
            "make_fragment*",
            "partition_*",
            "make_tiled_copy*",
            "make_tma_*",
            "make_copy_atom",
            "tensor_map*",
            "tma_desc*",
            "retile*",
            "get_slice",
            "get_thread_slice",
            "make_swizzle",
            "swizzle",
            "convert_layout",
        ],
        VIEW,
    ),
    type_name(
        &[
            "Layout",
            "Swizzle",
            "TensorView",
            "TensorRef",
            "LayoutTensor",
            "BlockedLayout",
            "SwizzledSharedLayout",
        ],
        VIEW,
    ),
    function(
        &[
            "make_tiled_mma*",
            "mma*",
            "wgmma*",
            "warpgroup_mma*",
            "load_matrix_sync",
            "store_matrix_sync",
            "fill_fragment",
            "ldmatrix*",
            "mfma*",
            "tcgen05*",
        ],
        DOT,
    ),
    module(&["wmma", "nvcuda"], DOT),
    type_name(&["fragment"], DOT),
    function(
        &[
            "cp_async*",
            "__pipeline_memcpy_async",
            "memcpy_async",
            "tma_load*",
            "load_async*",
            "copy_async",
            "async_copy*",
            "make_async_copy",
            "prefetch*",
        ],
        ASYNC_COPY,
    ),
    function(&["tma_store*", "store_async*"], "store the tile: `out.store(tile, row, col)` of a view"),
    value(&["tma"], ASYNC_COPY),
    type_name(
        &["st_bf", "st_fl", "st_hf", "rt_bf", "rt_fl", "rt_hf", "rv_fl", "sv_fl", "col_vec", "row_vec"],
        TILE,
    ),
    function(
        &["allocate_shared_memory", "alloc_fragment", "alloc_local", "stack_allocation", "shared_tile"],
        TILE,
    ),
    function(
        &["row_sum", "row_max", "row_min", "row_reduce*"],
        "along each row: `tl::sum(x, 1)`, `tl::max(x, 1)`",
    ),
    function(
        &["col_sum", "col_max", "col_min", "col_reduce*"],
        "along each column: `tl::sum(x, 0)`, `tl::max(x, 0)`",
    ),
    function(
        &["add_row", "sub_row", "mul_row", "div_row"],
        "a value for each row is a column: `x - rows.col()`",
    ),
    function(
        &["add_col", "sub_col", "mul_col", "div_col"],
        "a value for each column is a row: `x - columns.row()`",
    ),
    function(&["Pipelined"], "`for k in tl::range(0, n, step).num_stages(3)` pipelines its loads"),
];

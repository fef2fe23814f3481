//! Words of CUDA, HIP and OpenCL.

use super::row::{Foreign, conversion, function, module, option, own, path, type_name, value};
use crate::support::dtype::DType;

const NO_BARRIER: &str = "leave it out: a tile is a value, and no threads need to wait for each other";
const NO_GRID_BARRIER: &str = "programs do not wait for each other: what needs the results of all of them is a kernel of its own, launched after this one";
const NO_THREADS: &str =
    "a program has no threads: `tl::arange(0, N)` numbers the elements of its tile, with a constant `N`";
const OFFSETS: &str = "offsets of this program's elements: `tl::program_id(0) * N + tl::arange(0, N)`";
const REDUCE: &str = "a reduction is of the whole tile: `tl::sum(x, axis)`, `tl::max(x, axis)` or `tl::reduce(x, axis, |a, b| ..)`";
const SHUFFLE: &str = "a program has no lanes to exchange between: `tl::sum(x, axis)` reduces a tile, `tl::gather(x, index, axis)` picks elements";
const SHARED: &str =
    "leave it out: a tile is a value, and the compiler keeps it in registers or shared memory";
const VECTOR: &str = "a tile is the vector: loads and stores of a tile are as wide as its addresses allow";
const CLOCK: &str =
    "`tl::globaltimer()` counts nanoseconds; `dsl_runtime::bench::do_bench` measures a launch";
const NO_BITS: &str =
    "`tl::` has no function for it: shifts and `&` compute it, or `tl::inline_ptx` writes the instruction";

pub(super) const TABLE: &[Foreign] = &[
    // ---- the grid
    value(
        &[
            "thread_idx",
            "thread_id",
            "tid",
            "lane_id",
            "get_local_id",
            "thread_index",
            "thread0",
            "elect_one*",
            "UNIT_POS*",
            "local_invocation_*",
        ],
        NO_THREADS,
    ),
    value(
        &["warp_id", "warp_size", "num_threads", "thread_rank", "PLANE_DIM", "subgroup_size"],
        "a program has no threads and no warps: it works on whole tiles; `num_warps = 4` is an option of the attribute",
    ),
    value(
        &["block_idx", "block_id", "block_index", "get_group_id", "workgroup_id", "pid", "bid", "CUBE_POS*"],
        "this program's index along the grid's first axis is `tl::program_id(0)`",
    ),
    value(
        &["block_dim", "get_local_size", "block_size", "CUBE_DIM*"],
        "a program has no threads: the extent of its tile is a constant, such as the `N` of `tl::arange(0, N)`",
    ),
    value(
        &["grid_dim", "get_num_groups", "num_workgroups", "CUBE_COUNT*"],
        "the number of programs is `tl::num_programs(0)`",
    ),
    value(
        &[
            "get_global_id",
            "global_id",
            "global_idx",
            "thread_position_in_grid",
            "ABSOLUTE_POS*",
            "global_invocation_*",
        ],
        OFFSETS,
    ),
    path(&["cuda::grid", "thread::index*"], OFFSETS),
    path(&["cuda::gridsize"], "as many elements have all programs: `tl::num_programs(0) * N`"),
    path(&["atomic::add", "atomic::sub"], "`tl::atomic_add(out + offsets, value)`"),
    path(&["atomic::max", "atomic::min"], "`tl::atomic_max(out + offsets, value)`, `tl::atomic_min(..)`"),
    path(
        &["atomic::exch", "atomic::compare_and_swap", "atomic::cas"],
        "`tl::atomic_xchg(out + i, value)`, `tl::atomic_cas(out + i, compare, value)`",
    ),
    path(
        &["shared::array", "local::array"],
        "leave it out: a tile, such as `tl::zeros::<f32>([N])`, is a value, and the compiler keeps it in registers or shared memory",
    ),
    module(
        &["cuda", "cub", "cooperative_groups", "cg", "cuda_std", "thrust", "cubecl", "numba"],
        "a kernel works on whole tiles, by the functions of `tl::`: `tl::load(x + offsets, mask)`, `tl::sum(x, axis)`",
    ),
    type_name(&["dim3"], "the grid is given to the launch: `.grid(64)`, `.grid((8, 8))`"),
    // ---- threads that wait for each other or exchange values
    function(
        &[
            "sync_threads",
            "sync_warp",
            "sync_cube",
            "sync_units",
            "workgroup_barrier",
            "mbarrier*",
            "warpgroup_arrive",
            "warpgroup_wait*",
            "warpgroup_commit*",
            "warpgroup_fence*",
            "warpgroup_sync",
            "arrive*",
            "wait*",
            "commit*",
            "expect_bytes",
            "expect_tx",
            "barrier*",
            "sync",
            "bar_sync",
            "this_thread_block",
            "cluster_sync",
            "__pipeline_commit",
            "__pipeline_wait_prior",
            "cp_async_wait*",
            "cp_async_commit*",
        ],
        NO_BARRIER,
    ),
    function(&["this_grid", "grid_sync", "sync_grid", "grid_barrier"], NO_GRID_BARRIER),
    function(
        &["thread_fence*", "memory_fence", "fence"],
        "an atomic orders memory between programs: `tl::atomic_add(pointer, value).sem(\"acq_rel\")`",
    ),
    function(&["shfl*", "shuffle*", "plane_shuffle*"], SHUFFLE),
    function(
        &[
            "warp_reduce*",
            "warp_sum",
            "warp_max",
            "block_reduce*",
            "block_sum",
            "plane_sum",
            "plane_max",
            "__reduce_add_sync",
            "reduce_sum",
            "reduce_max",
            "reduce_add",
        ],
        REDUCE,
    ),
    own(&["__any_sync", "__syncthreads_or"], "any"),
    function(
        &["ballot*", "__syncthreads_count"],
        "a mask is a tile of bools: `tl::sum(mask.to::<i32>(), 0)` counts those that are true",
    ),
    own(&["__all_sync", "__syncthreads_and"], "all"),
    value(&["shared", "shared_memory", "smem", "alloc_shared", "extern_shared*", "dynamic_shared*"], SHARED),
    function(&["active_mask", "match_any_sync"], "a program has no lanes: a mask is a tile of bools"),
    // ---- memory
    function(
        &["__ldg", "__ldca", "__ldcv", "__ldlu", "ld_global"],
        "read memory with `tl::load(x + offsets, mask)`",
    ),
    function(&["__ldcg"], "`tl::load(x + offsets, mask).cache_global()`"),
    function(&["__ldcs"], "`tl::load(x + offsets, mask).streaming()`"),
    function(
        &["__stcs", "__stwt", "__stcg", "st_global"],
        "write memory with `tl::store(out + offsets, value, mask)`",
    ),
    function(
        &["malloc", "cuda_malloc*", "cuda_free", "free", "alloc"],
        "a kernel allocates nothing: pass memory as a parameter, `scratch: &mut [f32]`",
    ),
    function(
        &["memcpy", "memset", "cuda_memcpy*"],
        "load and store tiles: `tl::store(out + i, tl::load(x + i, mask), mask)`",
    ),
    own(&["atomic_fetch_add", "atomic_add_block", "atomic_add_system", "fetch_add"], "atomic_add"),
    function(&["atomic_sub"], "add the negative: `tl::atomic_add(out + offsets, -value)`"),
    function(&["atomicInc", "atomicDec"], "a counter is `tl::atomic_add(counter, 1)`, and its remainder `%`"),
    own(&["atomic_exch", "atomic_exchange", "atomic_swap"], "atomic_xchg"),
    own(&["atomic_compare_exchange"], "atomic_cas"),
    // ---- vectors
    function(
        &[
            "make_float*",
            "make_int*",
            "make_uint*",
            "make_half*",
            "make_double*",
            "__halves2half2",
            "__half2half2",
            "reinterpret_cast",
        ],
        VECTOR,
    ),
    type_name(
        &[
            "float2",
            "float3",
            "float4",
            "int2",
            "int3",
            "int4",
            "uint2",
            "uint4",
            "half2",
            "double2",
            "__nv_bfloat162",
            "Vec4",
            "Vec3",
            "Vec2",
            "SIMD",
        ],
        VECTOR,
    ),
    // ---- arithmetic
    own(&["expf", "hexp"], "exp"),
    own(&["exp2f"], "exp2"),
    own(&["logf", "hlog"], "log"),
    own(&["log2f"], "log2"),
    own(&["sqrtf", "__fsqrt_rn", "__dsqrt_rn", "hsqrt"], "sqrt"),
    own(&["rsqrtf", "__frsqrt_rn", "hrsqrt", "inverse_sqrt"], "rsqrt"),
    own(&["sinf"], "sin"),
    own(&["cosf"], "cos"),
    own(&["tanhf", "tanh_approx"], "tanh"),
    own(&["erff"], "erf"),
    own(&["fabs", "fabsf", "__habs", "absf", "iabs"], "abs"),
    own(&["floorf", "ffloor"], "floor"),
    own(&["ceilf"], "ceil"),
    own(&["roundf"], "round"),
    own(&["rint", "rintf", "nearbyint", "nearbyintf", "lrintf"], "round_ties_even"),
    own(&["truncf"], "trunc"),
    own(&["fmaf", "__fmaf_rn", "__hfma", "__hfma2", "__fma_rn", "mad"], "fma"),
    own(&["fmax", "fmaxf", "__hmax"], "max_num"),
    own(&["fmin", "fminf", "__hmin"], "min_num"),
    own(&["isnanf"], "is_nan"),
    own(&["isinf", "isinff"], "is_infinite"),
    own(&["finitef"], "is_finite"),
    own(&["mulhi_u32", "__umul64hi"], "umulhi"),
    own(&["__mul64hi"], "mulhi"),
    function(&["__fdividef", "__hdiv"], "use the operator `/`"),
    own(&["__fdiv_rn", "__ddiv_rn"], "div_rn"),
    function(
        &[
            "__fmul_rn",
            "__fadd_rn",
            "__fsub_rn",
            "__hadd",
            "__hmul",
            "__hsub",
            "__hadd2",
            "__hmul2",
            "__hsub2",
            "__mul24",
        ],
        "use the operators `+`, `-` and `*`",
    ),
    function(&["saturate", "__saturatef"], "`tl::clamp(x, 0.0, 1.0)`"),
    function(&["fmod", "fmodf", "mod_"], "use the operator `%`"),
    function(&["remainder", "remainderf"], "`x - y * tl::round_ties_even(x / y)`; `%` has the sign of `x`"),
    function(&["log10f"], "`tl::log2(x) * f32::consts::LOG10_2`"),
    function(&["exp10f"], "`tl::exp2(x * f32::consts::LOG2_10)`"),
    own(&["tanf"], "tan"),
    own(&["asinf"], "asin"),
    own(&["acosf"], "acos"),
    own(&["atanf"], "atan"),
    own(&["atan2f"], "atan2"),
    own(&["sinhf"], "sinh"),
    own(&["coshf"], "cosh"),
    own(&["asinhf"], "asinh"),
    own(&["acoshf"], "acosh"),
    own(&["atanhf"], "atanh"),
    own(&["expm1f"], "expm1"),
    own(&["log1pf"], "log1p"),
    own(&["erfcf"], "erfc"),
    own(&["erfinvf"], "erfinv"),
    own(&["lgammaf", "lgamma_r", "ln_gamma", "loggamma", "gammaln"], "lgamma"),
    own(&["nextafterf"], "nextafter"),
    own(&["hypotf"], "hypot"),
    own(&["cbrtf"], "cbrt"),
    own(&["__popcll", "popcount"], "popc"),
    own(&["__clzll"], "clz"),
    own(&["__ffsll"], "ffs"),
    own(&["__brevll"], "brev"),
    function(&["__byte_perm", "__dp4a"], NO_BITS),
    // ---- conversions
    conversion(
        &["__half2float", "__bfloat162float", "__int2float_rn", "__uint2float_rn", "__ll2float_rn"],
        DType::F32,
    ),
    conversion(&["__float2half", "__float2half_rn"], DType::F16),
    conversion(&["__float2bfloat16", "__float2bfloat16_rn"], DType::BF16),
    conversion(&["__float2int_rn", "__float2int_rz", "__float2int_rd"], DType::I32),
    conversion(&["static_cast"], DType::F32),
    function(&["__float_as_int"], "the same bits as another type: `.bitcast::<i32>()`"),
    function(&["__float_as_uint"], "the same bits as another type: `.bitcast::<u32>()`"),
    function(&["__int_as_float", "__uint_as_float"], "the same bits as another type: `.bitcast::<f32>()`"),
    // ---- what a kernel says
    own(&["__assert_fail", "__trap", "CUDA_KERNEL_ASSERT"], "device_assert"),
    function(
        &["printf", "cuPrintf", "fprintf"],
        "`tl::device_print(\"label\", value)` prints in debug builds",
    ),
    own(&["read_globaltimer"], "globaltimer"),
    function(&["clock", "clock64", "__nanosleep", "wall_clock64"], CLOCK),
    own(&["get_smid"], "smid"),
    // ---- options
    option(
        &[
            "threads",
            "threads_per_block",
            "block_dim",
            "block_size",
            "block",
            "workgroup_size",
            "num_threads",
            "launch_bounds",
        ],
        "`num_warps = 4` asks for 4 warps of 32 threads; a tile's extent is a const parameter of the kernel",
    ),
    option(
        &["maxrregcount", "max_registers", "maxregs", "registers"],
        "`maxnreg = 64` limits a thread's registers",
    ),
    option(
        &["shared", "smem", "shared_mem", "shared_memory", "dynamic_smem", "shared_mem_bytes"],
        "leave it out: the compiler lays out shared memory",
    ),
    option(&["cluster", "cluster_dims", "cluster_size"], "`num_ctas = 2` makes clusters of two blocks"),
    option(
        &["arch", "sm", "target", "targets", "compute_capability"],
        "`FUSE_ARCH=sm_90a` in the environment of the build says for which GPUs",
    ),
];

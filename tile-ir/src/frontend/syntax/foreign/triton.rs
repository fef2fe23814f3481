//! Triton's own names, and those of its decorators.

use super::row::{Foreign, argument, function, module, option, own, type_name, value};

const VIEW: &str = "take the parameter as a view, `x: &View<f32, 2>`: `x.load::<64, 64>(row, col)`";
const TUNE: &str = "`configs = [{ N: 64, num_warps: 4 }, { N: 128, num_warps: 8 }], tune(key = [n])`";
const CACHE: &str = "write a method behind the call: `.cache_global()`, `.streaming()` or `.write_through()`";
const EVICTION: &str = "write a method behind the call: `.evict_first()` or `.evict_last()`";
const TENSOR: &str = "scalars and tiles go together as they are; `tl::full([N], x)` makes a tile";

pub(super) const TABLE: &[Foreign] = &[
    own(&["where"], "select"),
    own(&["iota", "make_range"], "arange"),
    own(&["broadcast", "expand"], "broadcast_to"),
    own(&["inline_asm_elementwise", "asm", "inline_asm"], "inline_ptx"),
    own(&["ceil_div", "div_ceil", "round_up"], "cdiv"),
    own(&["atomic_cmpxchg"], "atomic_cas"),
    own(&["bitonic_merge"], "sort"),
    own(&["logical_any"], "any"),
    own(&["logical_all"], "all"),
    own(&["rand_uniform"], "rand"),
    function(&["fdiv", "floordiv", "truediv"], "use the operator `/`"),
    function(
        &["make_block_ptr", "make_tensor_descriptor", "advance", "tensor_descriptor", "block_ptr"],
        VIEW,
    ),
    function(
        &["load_tensor_descriptor", "store_tensor_descriptor"],
        "views have methods: `x.load::<64, 64>(row, col)`, `x.store(tile, row, col)`",
    ),
    function(&["dot_scaled"], "convert the factors and multiply by their scales: `tl::dot(a, b)`"),
    function(
        &["map_elementwise", "extern_elementwise"],
        "operators and functions work on every element: write them on the tiles",
    ),
    function(&["debug_barrier"], "a tile is a value: no threads need to wait for each other"),
    type_name(
        &["constexpr"],
        "constants are const parameters of the kernel, `fn k<const N: usize>(..)`, with values in the attribute, `N = [64, 128]`",
    ),
    function(&["tensor", "to_tensor", "as_tensor", "array", "asarray", "scalar"], TENSOR),
    value(
        &["pointer_type", "block_type", "void"],
        "types are parameters of the kernel, `T: Float`, or names such as `f32`",
    ),
    value(
        &["dtype"],
        "the element type is a type parameter of the kernel, `T: Float`, or the name that its signature has",
    ),
    function(&["tuple"], "a tuple is written `(a, b)`"),
    function(&["static_loop", "unroll"], "`tl::static_range` repeats its body"),
    function(&["condition"], "`while` takes a condition"),
    value(
        &["num_ctas", "num_warps", "num_stages"],
        "it is an option of the attribute: `#[fuse_kernel(num_warps = 4)]`",
    ),
    function(&["device_function", "jit"], "mark the function `#[fuse_fn]`, in a `#[fuse_module]`"),
    function(&["randn4x"], "`tl::randn` of four offsets"),
    function(&["load_scalar"], "a pointer without offsets reads a scalar: `tl::load(x)`"),
    function(&["cumcount", "cumulative_sum"], "`tl::cumsum(x, axis)`"),
    function(
        &["gather_load", "scatter_store"],
        "offsets may come from memory: `tl::load(x + tl::load(index + i))`",
    ),
    module(&["libdevice", "extra", "standard"], "functions are those of `tl::`: `tl::exp(x)`"),
    module(
        &["triton", "gluon", "ttgl", "language"],
        "functions are those of `tl::`: `tl::exp(x)`, `tl::cdiv(n, 64)`",
    ),
    function(&["cache_modifier", "cache"], CACHE),
    function(&["eviction_policy", "evict"], EVICTION),
    // ---- options of its decorators
    option(
        &["grid", "launch", "programs", "num_programs"],
        "the grid is given where the kernel is launched: `k(..).grid(64).launch(&device)`",
    ),
    option(&["autotune"], TUNE),
    option(
        &["key", "keys"],
        "what the choice depends on stands in `tune(key = [n])`, beside `configs = [{ .. }]`",
    ),
    option(
        &["heuristics", "heuristic"],
        "a constant may follow from an argument: `N = n in [64, 128]`; a setting may be an expression over constants",
    ),
    option(
        &["constexpr", "constants"],
        "constants are const parameters, `const N: usize`, with values `N = [64]`",
    ),
    option(
        &["dtype", "dtypes", "types", "type"],
        "element types are those of a type parameter: `T = [f32, bf16]` for `fn k<T: Float>(..)`",
    ),
    option(
        &["prune_configs_by", "early_config_prune"],
        "`tune(key = [n], when = N <= n)` leaves configs out",
    ),
    option(
        &["warmup", "rep", "reset_to_zero", "restore_value"],
        "leave it out: `tune(key = [..])` measures by itself",
    ),
    option(
        &["do_not_specialize", "do_not_specialize_on_alignment"],
        "leave it out: a build makes the specializations, and each launch takes the fastest that fits",
    ),
    option(&["debug", "noinline", "inline", "fast_math", "jit"], "leave it out: there is no such choice"),
    option(&["bounds_check", "unsafe", "no_bounds_check"], "`unchecked` leaves out the checks of offsets"),
    // ---- named arguments
    argument(
        &["return_indices"],
        "`tl::max_index(x, axis)` gives the largest element and its position, `tl::min_index` the smallest",
    ),
    argument(&["cache_modifier"], CACHE),
    argument(&["eviction_policy"], EVICTION),
    argument(&["volatile"], "write a method behind the call: `.volatile()`"),
    argument(&["num_stages"], "write a method behind the range: `tl::range(0, n, 1).num_stages(3)`"),
    argument(&["loop_unroll_factor"], "write a method behind the range: `tl::range(0, n, 1).unroll(4)`"),
    argument(&["sem"], "write a method behind the call: `.sem(\"relaxed\")`"),
    argument(&["scope"], "write a method behind the call: `.scope(\"cta\")`"),
    argument(
        &["boundary_check", "padding_option"],
        "leave it out: elements outside of a view or slice are 0 and never read",
    ),
    argument(
        &["input_precision", "allow_tf32"],
        "the default is `\"ieee\"`; `.input_precision(\"tf32\")` behind the call allows it",
    ),
    argument(&["max_num_imprecise_acc"], "write a method behind the call: `.max_num_imprecise_acc(32)`"),
    argument(
        &["out_dtype", "preferred_element_type"],
        "leave it out: a product is `f32`, that of `f64` tiles `f64` and that of integers `i32`; `.to::<f16>()` converts it",
    ),
    argument(
        &["dtype"],
        "the element type stands between angle brackets: `.to::<f32>()`, `tl::zeros::<f32>([N])`",
    ),
    argument(&["bitcast"], "the same bits as another type: `x.bitcast::<u32>()`"),
    argument(&["fp_downcast_rounding", "rounding"], "`tl::cast::<bf16>(x, \"rtz\")`"),
    argument(&["propagate_nan"], "`tl::maximum` propagates NaN, `tl::max_num` ignores it"),
    argument(&["tie_break_left"], "leave it out: of equal elements the first is taken"),
    argument(&["reverse"], "flip the tile before and after: `tl::flip(x, axis)`"),
    argument(&["can_reorder", "approximate", "precision"], "leave it out"),
    argument(
        &["flatten", "disallow_acc_multi_buffer", "warp_specialize"],
        "leave it out: the compiler decides",
    ),
    argument(&["n_rounds"], "leave it out: there are 10"),
];

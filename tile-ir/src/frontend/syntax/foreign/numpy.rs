//! Names of Python, NumPy, PyTorch and JAX, and of the languages for kernels that are written in Python or alike.

use super::row::{Foreign, argument, conversion, function, module, own, type_name, value};
use crate::support::dtype::DType;

const SHAPE: &str =
    "a tile's shape is made of constants that the kernel knows; a view has `.shape(axis)`, a slice `.len()`";
const IDENTITY: &str = "leave it out: tiles are values";
const FIXED: &str = "leave it out: a tile has as many elements as its type says; a mask leaves some out";

pub(super) const TABLE: &[Foreign] = &[
    // ---- modules and constants
    module(
        &["torch", "np", "numpy", "jnp", "jax", "lax", "math", "functional", "cupy", "nn"],
        "functions are those of `tl::`: `tl::exp(x)`, `tl::sum(x, axis)`",
    ),
    module(
        &["pl", "pallas", "pltpu", "plgpu", "ti", "taichi", "wp", "warp", "nl", "nki", "hl", "helion", "ct"],
        "functions are those of `tl::`: `tl::load(x + offsets, mask)`, `tl::store(out + offsets, x, mask)`, `tl::program_id(0)`",
    ),
    value(&["True"], "write `true`"),
    value(&["False"], "write `false`"),
    value(
        &["None"],
        "an argument that is `None` is left out; a kernel has no `Option`: a mask, a tile of bools, says which elements are there",
    ),
    value(&["inf", "infinity", "HUGE_VAL"], "write `f32::INFINITY`"),
    value(&["NaN"], "write `f32::NAN`"),
    value(&["M_PI", "pi"], "write `f32::consts::PI`"),
    value(&["FLT_MAX"], "write `f32::MAX`"),
    value(&["FLT_MIN"], "write `f32::MIN_POSITIVE`"),
    value(&["FLT_EPSILON"], "write `f32::EPSILON`"),
    value(&["INT_MAX"], "write `i32::MAX`"),
    value(&["INT_MIN"], "write `i32::MIN`"),
    value(&["newaxis"], "`x.row()` and `x.col()` add an axis"),
    // ---- Python
    function(&["at"], "offsets are added to a slice: `tl::load(x + offsets)`"),
    value(&["pass"], "a block without statements is `{}`"),
    function(&["xrange"], "a loop is written `for i in 0..n`, or `tl::range(0, n, step)`"),
    function(&["len"], "the number of elements of a slice is `x.len()`; a tile's shape is made of constants"),
    function(&["divmod"], "`(a / b, a % b)`"),
    function(
        &["isinstance", "hasattr", "getattr"],
        "types are known when the kernel is built: a type parameter `T: Float` stands for several",
    ),
    function(
        &["print"],
        "`tl::device_print(\"label\", value)` prints in debug builds, `tl::static_print(value)` at build",
    ),
    function(&["list", "dict", "set"], "a kernel has scalars, tiles and tuples of them: `(a, b)`"),
    // ---- shapes
    function(&["shape", "size", "numel", "ndim", "dim", "nelement", "rank"], SHAPE),
    own(&["transpose", "t", "mT", "swapaxes", "swapdims", "matrix_transpose"], "trans"),
    own(&["permute_dims", "moveaxis", "movedim"], "permute"),
    function(
        &["view", "resize", "view_as"],
        "another shape: `tl::reshape(x, [M, N])`; the same bits as another type: `.bitcast::<u32>()`",
    ),
    function(&["flatten"], "it is `tl::ravel` here"),
    own(&["unsqueeze"], "expand_dims"),
    own(&["expand_as", "tile", "repeat"], "broadcast_to"),
    function(
        &["repeat_interleave", "kron"],
        "`tl::reshape(tl::broadcast_to(x.col(), [N, 4]), [N * 4])` repeats each element",
    ),
    own(&["concat", "concatenate", "hstack"], "cat"),
    own(&["stack", "dstack", "column_stack"], "join"),
    own(&["flipud", "fliplr", "reverse"], "flip"),
    function(&["meshgrid"], "`x.col()` and `x.row()` broadcast against each other"),
    function(
        &["chunk", "unbind", "hsplit", "tensor_split"],
        "`tl::split(x)` halves the last axis of extent 2; `tl::slice(x, axis, start, end)` takes a part",
    ),
    function(
        &["roll", "circshift"],
        "rotate the offsets, `let j = (i + N - shift) % N;`, of the load, `tl::load(x + j)`, or of a tile, `tl::gather(x, j, 0)`",
    ),
    function(&["pad", "constant_pad"], "load with a mask: `tl::load(x + i, i < n, 0.0)` is 0 beyond `n`"),
    function(&["narrow"], "`tl::slice(x, axis, start, end)`, or load a part"),
    // ---- making tiles
    function(&["ones", "ones_like", "full_like", "fill"], "`tl::full([N], 1.0)`"),
    function(&["empty", "empty_like", "new_zeros", "zero", "clear"], "`tl::zeros::<f32>([N])`"),
    function(
        &["rand_like", "random", "uniform"],
        "`tl::rand(seed, offsets)`, with the offsets of the elements",
    ),
    function(
        &["PRNGKey", "manual_seed"],
        "a seed is an argument of the kernel, `seed: u64`: `tl::rand(seed, offsets)`",
    ),
    function(&["randn_like", "normal"], "`tl::randn(seed, offsets)`, with the offsets of the elements"),
    function(&["linspace"], "with `let i = tl::arange(0, N).to::<f32>();` it is `start + i * step`"),
    function(
        &["logspace", "geomspace"],
        "with `let i = tl::arange(0, N).to::<f32>();` it is `tl::exp2(start + i * step)`",
    ),
    function(&["eye", "identity", "diag"], "compare the axes: `tl::select(i.col() == i.row(), 1.0, 0.0)`"),
    function(&["tril", "triu"], "compare the axes: `tl::select(i.col() >= i.row(), x, 0.0)`"),
    // ---- products
    own(&["matmul", "mm", "bmm"], "dot"),
    function(&["addmm", "baddbmm", "gemm"], "`tl::dot(a, b, acc)` adds to `acc`"),
    function(&["outer", "ger"], "`x.col() * y.row()`"),
    function(&["vdot", "inner"], "`tl::sum(x * y, 0)`"),
    function(
        &["einsum", "tensordot"],
        "a product of matrices is `tl::dot(a, b)`; any other is `tl::sum(a * b, axis)` of tiles that broadcast",
    ),
    function(&["mv", "matvec"], "`tl::sum(a * x.row(), 1)`"),
    function(&["cross"], "write its parts: `a1 * b2 - a2 * b1`"),
    // ---- reductions
    function(&["mean", "average", "nanmean"], "divide the sum: `tl::sum(x, axis) / n as f32`"),
    function(&["var", "variance"], "with `let d = x - mean;` it is `tl::sum(d * d, axis) / n as f32`"),
    function(
        &["std", "stddev"],
        "with `let d = x - mean;` it is `tl::sqrt(tl::sum(d * d, axis) / n as f32)`",
    ),
    function(&["prod", "product"], "`tl::reduce(x, axis, |a, b| a * b)`"),
    own(&["amax", "nanmax", "max_reduce"], "max"),
    own(&["amin", "nanmin", "min_reduce"], "min"),
    own(&["nansum"], "sum"),
    function(&["norm", "vector_norm"], "`tl::sqrt(tl::sum(x * x, axis))`"),
    function(&["logsumexp"], "with `let m = tl::max(x, 0);` it is `m + tl::log(tl::sum(tl::exp(x - m), 0))`"),
    function(&["count_nonzero"], "`tl::sum((x != 0.0).to::<i32>(), axis)`"),
    function(&["allclose", "isclose", "array_equal", "equal"], "compare: `tl::all(tl::abs(a - b) <= 1e-5)`"),
    function(
        &["median", "quantile", "kthvalue", "percentile"],
        "sort, and pick one: `tl::index(tl::sort(x, 0), 0, N / 2)`",
    ),
    own(&["bincount"], "histogram"),
    function(&["unique", "nonzero", "argwhere", "masked_select", "compress"], FIXED),
    // ---- elementwise
    own(&["ln"], "log"),
    own(&["logistic", "expit"], "sigmoid"),
    own(&["swish"], "silu"),
    own(&["clip", "hardtanh"], "clamp"),
    function(&["clamp_min", "clip_min"], "`tl::maximum(x, low)`"),
    function(&["clamp_max", "clip_max"], "`tl::minimum(x, high)`"),
    function(&["relu6"], "`tl::clamp(x, 0.0, 6.0)`"),
    function(&["leaky_relu"], "`tl::select(x > 0.0, x, 0.01 * x)`"),
    function(&["elu", "celu"], "`tl::select(x > 0.0, x, tl::expm1(x))`"),
    function(&["mish"], "`x * tl::tanh(tl::softplus(x))`"),
    function(&["logsigmoid"], "`-tl::softplus(-x)`"),
    function(&["dropout"], "`tl::select(tl::rand(seed, i) < p, 0.0, x / (1.0 - p))`"),
    function(&["nan_to_num"], "`tl::select(tl::is_finite(x), x, 0.0)`"),
    function(&["masked_fill"], "`tl::select(mask, value, x)`"),
    own(&["power", "powf", "fast_powf", "powi", "float_power"], "pow"),
    function(&["square"], "multiply: `x * x`"),
    function(&["reciprocal"], "divide: `1.0 / x`"),
    function(&["exp10"], "`tl::exp2(x * f32::consts::LOG2_10)`"),
    function(&["log10"], "`tl::log2(x) * f32::consts::LOG10_2`"),
    own(&["arcsin"], "asin"),
    own(&["arccos"], "acos"),
    own(&["arctan"], "atan"),
    own(&["arctan2"], "atan2"),
    own(&["arcsinh"], "asinh"),
    own(&["arccosh"], "acosh"),
    own(&["arctanh"], "atanh"),
    function(&["sign", "sgn"], "choose: `tl::select(x > 0.0, 1.0, tl::select(x < 0.0, -1.0, 0.0))`"),
    function(&["axpy", "axpby"], "write the operators: `a * x + b * y`"),
    function(&["lerp"], "`x + (y - x) * w`"),
    function(
        &["subtract", "multiply", "divide", "true_divide", "floor_divide"],
        "use the operators `-`, `*` and `/`",
    ),
    function(&["negative"], "use the operator `-`"),
    function(&["logical_and", "bitwise_and"], "use the operator `&`"),
    function(&["logical_or", "bitwise_or"], "use the operator `|`"),
    function(&["logical_xor", "bitwise_xor"], "use the operator `^`"),
    function(&["logical_not", "bitwise_not", "invert"], "use the operator `!`"),
    function(&["less", "greater", "less_equal", "greater_equal", "not_equal"], "compare: `x < y`"),
    // ---- picking elements
    function(
        &["take", "index_select", "take_along_dim", "take_along_axis"],
        "it is `tl::gather` here, or a load with offsets from memory",
    ),
    function(
        &["scatter", "index_put", "index_copy"],
        "store with offsets from memory: `tl::store(out + index, x)`",
    ),
    function(&["scatter_add", "index_add"], "`tl::atomic_add(out + index, x)`"),
    function(&["searchsorted", "bucketize"], "count: `tl::sum((edges.row() < x.col()).to::<i32>(), 1)`"),
    function(
        &["item", "tolist"],
        "`tl::load(x + i)` reads one number; of a tile of one element it is `tl::sum(x)`",
    ),
    // ---- JAX and Pallas
    function(
        &["fori_loop"],
        "a loop is written `for i in 0..n { x = ..; }`, and carries variables declared before it with `let mut`",
    ),
    function(&["while_loop"], "a loop is written `while condition { .. }`"),
    function(
        &["cond", "switch", "when"],
        "`if condition { a } else { b }` of a scalar; `tl::select(mask, a, b)` of a tile",
    ),
    function(
        &["ds", "dslice", "dynamic_slice", "dynamic_index_in_dim"],
        "offsets begin at `start`: `tl::load(x + start + tl::arange(0, N), mask)`",
    ),
    function(
        &["dynamic_update_slice"],
        "offsets begin at `start`: `tl::store(out + start + tl::arange(0, N), x, mask)`",
    ),
    function(
        &["dot_general"],
        "a product of matrices is `tl::dot(a, b)`; `tl::trans(b)` swaps the axes of one",
    ),
    function(&["broadcasted_iota"], "`tl::arange(0, N).col()` or `tl::arange(0, N).row()`"),
    type_name(
        &["VMEM"],
        "leave it out: a tile is a value, and an accumulator is one that a loop carries, `let mut acc = tl::zeros::<f32>([64, 64]);`",
    ),
    // ---- Taichi, Warp, Mojo, cuTile
    function(
        &["ndrange", "grouped"],
        "a program finds its place by the grid: `let (i, j) = (tl::program_id(0), tl::program_id(1));`",
    ),
    function(
        &["tile_load", "tile_store"],
        "of a view: `x.load::<64, 64>(row, col)`, `out.store(tile, row, col)`",
    ),
    own(&["tile_matmul"], "dot"),
    function(
        &["tile_sum", "tile_max", "tile_min", "tile_reduce"],
        "`tl::sum(x, axis)`, `tl::max(x, axis)`, `tl::min(x, axis)`",
    ),
    function(
        &["simd_width_of", "simd_width"],
        "a tile has as many elements as the kernel says, `tl::arange(0, N)`; the compiler makes vectors of them",
    ),
    function(
        &["BlockSpec", "index_map"],
        "a program finds its own offsets: `tl::program_id(0) * N + tl::arange(0, N)`",
    ),
    // ---- types and places
    conversion(&["astype", "type", "convert"], DType::F32),
    conversion(&["type_as"], DType::F32),
    function(&["cpu", "detach", "contiguous", "requires_grad_", "to_device"], IDENTITY),
    // ---- named arguments
    argument(&["dim", "axes"], "write the axis in its place, counted from 0: `tl::sum(x, 0)`"),
    argument(&["keepdim", "keepdims"], "write `true` in its place: `tl::sum(x, axis, true)`"),
    argument(&["unbiased", "correction", "ddof"], "leave it out, and divide by the number that you want"),
    argument(&["inplace", "out"], "leave it out: a result is a value"),
];

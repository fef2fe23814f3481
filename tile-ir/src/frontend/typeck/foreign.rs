//! Names from other languages and what to write instead: Triton, NumPy and PyTorch, C, and Rust itself.

/// The function here for one of another language.
pub(super) fn function(name: &str) -> Option<String> {
    let own = match name {
        "where" | "where_" => "select",
        "transpose" => "trans",
        "ln" => "log",
        "fabs" => "abs",
        "fmax" => "max_num",
        "fmin" => "min_num",
        "iota" => "arange",
        "permute_dims" => "permute",
        "broadcast" | "expand" => "broadcast_to",
        "ones" | "ones_like" | "full_like" => "full",
        "assert" | "trap" => "device_assert",
        "print" | "printf" => "device_print",
        "concat" | "concatenate" | "hstack" => "cat",
        "stack" => "join",
        "unsqueeze" => "expand_dims",
        "view" | "resize" => "reshape",
        "flatten" => "ravel",
        "clip" | "clamp_min" | "clamp_max" => "clamp",
        "ceil_div" | "div_ceil" | "ceildiv" => "cdiv",
        "prod" | "cumulative_sum" => "associative_scan",
        "mulhi_u32" => "umulhi",
        "matmul" | "mm" | "bmm" => "dot",
        "inline_asm_elementwise" | "asm" => "inline_ptx",
        "isnan" => "is_nan",
        "isinf" => "is_infinite",
        "isfinite" | "finitef" => "is_finite",
        "logistic" => "sigmoid",
        "swish" => "silu",
        "rint" | "nearbyint" => "round_ties_even",
        "logical_any" => "any",
        "logical_all" => "all",
        "atomic_cmpxchg" => "atomic_cas",
        "bitonic_merge" => "sort",
        _ => return phrase(name).map(str::to_string),
    };
    Some(format!("it is `tl::{own}` here"))
}

/// What to write for a function of another language that has no counterpart here.
fn phrase(name: &str) -> Option<&'static str> {
    Some(match name {
        "cast" => "convert with `.to::<f32>()` or `as f32`",
        "mean" => "divide the sum: `tl::sum(x, axis) / n as f32`",
        "pow" | "power" | "powf" | "fast_powf" => "for positive `x`: `tl::exp2(y * tl::log2(x))`",
        "square" => "multiply: `x * x`",
        "exp10" => "`tl::exp2(x * f32::consts::LOG2_10)`",
        "log10" => "`tl::log2(x) * f32::consts::LOG10_2`",
        "tan" => "divide: `tl::sin(x) / tl::cos(x)`",
        "erfc" => "subtract: `1.0 - tl::erf(x)`",
        "expm1" => "subtract: `tl::exp(x) - 1.0`",
        "log1p" => "add: `tl::log(1.0 + x)`",
        "sign" => "choose: `tl::select(x > 0.0, 1.0, tl::select(x < 0.0, -1.0, 0.0))`",
        "logsumexp" => "with `let m = tl::max(x, 0);` it is `m + tl::log(tl::sum(tl::exp(x - m), 0))`",
        "logical_and" => "use the operator `&`",
        "logical_or" => "use the operator `|`",
        "logical_not" => "use the operator `!`",
        "div_rn" | "fdiv" | "floordiv" => "use the operator `/`",
        "make_block_ptr" | "make_tensor_descriptor" | "advance" | "tensor_descriptor" => {
            "take the parameter as a view, `x: &View<f32, 2>`: `x.load::<64, 64>(row, col)`"
        }
        "load_tensor_descriptor" | "store_tensor_descriptor" => {
            "views have methods: `x.load::<64, 64>(row, col)`, `x.store(tile, row, col)`"
        }
        "dot_scaled" => "convert the factors and multiply by their scales: `tl::dot(a, b)`",
        "map_elementwise" => "operators and functions work on every element: write them on the tiles",
        "debug_barrier" => "a tile is a value: no threads need to wait for each other",
        "constexpr" | "const" => "constants are const parameters of the kernel: `const N: usize`",
        "tensor" | "to_tensor" => {
            "scalars and tiles go together as they are; `tl::full([N], x)` makes a tile"
        }
        "dtype" | "pointer_type" | "block_type" | "void" => {
            "types are parameters of the kernel, `T: Float`, or names such as `f32`"
        }
        "tuple" => "a tuple is written `(a, b)`",
        "static_loop" | "unroll" => "`tl::static_range` repeats its body",
        "condition" => "`while` takes a condition",
        "num_ctas" | "num_warps" | "num_stages" => {
            "it is an option of the attribute: `#[fuse_kernel(num_warps = 4)]`"
        }
        "device_function" | "jit" => "mark the function `#[fuse_fn]`, in a `#[fuse_module]`",
        _ => return None,
    })
}

/// What to write for a method of Rust, PyTorch or NumPy.
pub(super) fn method(name: &str) -> Option<&'static str> {
    Some(match name {
        "iter" | "into_iter" | "iter_mut" | "enumerate" | "chunks" | "chunks_exact" | "windows" | "zip" => {
            "a loop runs over integers, `for i in 0..n`, and reads with `tl::load(x + i)`"
        }
        "rev" => super::loops::COUNT_DOWN,
        "into" | "try_into" | "cast" | "astype" | "type" => "convert it: `.to::<f32>()`",
        "float" => "convert it: `.to::<f32>()`",
        "half" => "convert it: `.to::<f16>()`",
        "int" => "convert it: `.to::<i32>()`",
        "to_bits" | "to_le_bytes" => "the same bits as another type: `.bitcast::<u32>()`",
        "view" => {
            "another shape: `tl::reshape(x, [M, N])`; the same bits as another type: `.bitcast::<u32>()`"
        }
        "unwrap" | "expect" | "unwrap_or" | "ok" => "nothing in a kernel fails: leave it out",
        "clone" | "copy" | "contiguous" | "to_owned" | "borrow" => "tiles are values: leave it out",
        "div_ceil" => "`tl::cdiv(n, 4)`",
        "ln" => "`tl::log(x)`",
        "powi" | "pow" | "powf" | "square" => {
            "multiply: `x * x`; with any power of a positive float: `tl::exp2(y * tl::log2(x))`"
        }
        "mul_add" => "`tl::fma(x, y, z)`",
        "recip" => "divide: `1.0 / x`",
        "exp_m1" => "subtract: `tl::exp(x) - 1.0`",
        "ln_1p" => "add: `tl::log(1.0 + x)`",
        "sin_cos" => "`tl::sin(x)` and `tl::cos(x)`",
        "signum" => "choose: `tl::select(x > 0.0, 1.0, -1.0)`",
        "rem_euclid" => "`(x % n + n) % n`",
        "is_positive" | "is_sign_positive" => "compare: `x > 0`",
        "is_negative" | "is_sign_negative" => "compare: `x < 0`",
        "wrapping_add" | "saturating_add" | "checked_add" => "integers wrap: `a + b`",
        "wrapping_sub" | "saturating_sub" | "checked_sub" => "integers wrap: `a - b`",
        "wrapping_mul" | "saturating_mul" | "checked_mul" => "integers wrap: `a * b`",
        "t" | "transpose" => "`tl::trans(x)`",
        "mean" => "divide the sum: `tl::sum(x, axis) / n as f32`",
        "map" | "for_each" => "operators and functions work on every element: write them on the tile",
        "fold" => "`tl::reduce(x, axis, |a, b| a + b)`",
        "product" | "prod" => "`tl::reduce(x, axis, |a, b| a * b)`",
        "matmul" | "mm" => "`tl::dot(a, b)`",
        "unsqueeze" => "`tl::expand_dims(x, axis)`",
        "get" | "get_unchecked" => "read memory with `tl::load(x + i)`",
        _ => return None,
    })
}

/// What to write for a name of another language.
pub(super) fn name(name: &str) -> Option<&'static str> {
    Some(match name {
        "True" => "write `true`",
        "False" => "write `false`",
        "None" => "leave the argument out",
        "float" => "convert with `as f32`",
        "int" => "convert with `as i32`",
        _ => return None,
    })
}

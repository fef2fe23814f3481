//! Names of Rust that mean nothing in a kernel.

use super::row::{Foreign, conversion, function, module, own, type_name, value};
use crate::support::dtype::DType;

const LOOP: &str = "a tile is worked on as a whole, `x * 2.0`, `tl::sum(x, axis)`; a loop runs over integers, `for i in 0..n`, and reads with `tl::load(x + i)`";
const ON_TILES: &str = "operators and functions work on every element: write them on the tile";
const NO_OPTION: &str = "an option is a parameter of a kernel, `bias: Option<&[f32]>`; a mask, a tile of bools, says which elements are there";
const NO_HEAP: &str = "a kernel has scalars, tiles and tuples of them: `tl::zeros::<f32>([N])` makes a tile";
const NO_TEXT: &str =
    "a kernel has no text: `tl::device_print(\"label\", value)` prints values in debug builds";
const DEBUG_ASSERT: &str = "`tl::static_assert(condition, \"message\")` checks constants at build, `tl::device_assert` what a debug build computes";
const WRAP: &str = "integers wrap: `a + b`, `a - b` and `a * b`; `tl::wrapping_add` and its like are not reported in debug builds";
const BITS: &str =
    "`tl::` has no function for it: shifts and `&` compute it, or `tl::inline_ptx` writes the instruction";

pub(super) const TABLE: &[Foreign] = &[
    // ---- iterators
    function(
        &[
            "iter",
            "into_iter",
            "iter_mut",
            "enumerate",
            "chunks",
            "chunks_exact",
            "chunks_mut",
            "windows",
            "zip",
            "par_iter",
            "step",
            "skip",
            "next",
            "collect",
        ],
        LOOP,
    ),
    function(&["rev"], super::row::COUNT_DOWN),
    function(&["map", "for_each", "filter", "flat_map", "vectorize", "vmap"], ON_TILES),
    function(&["fold", "reduce_with"], "`tl::reduce(x, axis, |a, b| a + b)`"),
    function(&["scan"], "`tl::associative_scan(x, axis, |a, b| a + b)`"),
    function(
        &["find", "position"],
        "compare, and take the first place: `tl::min(tl::select(x == y, i, N), 0)`",
    ),
    // ---- conversions
    function(&["into", "try_into"], "convert to a type by its name: `.to::<f32>()`, `.to::<i64>()`"),
    function(
        &["then", "then_some"],
        "`if condition { a } else { b }` of a scalar, `tl::select(mask, a, b)` of a tile",
    ),
    conversion(&["to_f32", "as_f32"], DType::F32),
    conversion(&["to_i32", "as_i32", "as_usize", "as_"], DType::I32),
    function(
        &["to_bits", "to_le_bytes", "to_ne_bytes", "from_bits", "transmute"],
        "the same bits as another type: `.bitcast::<u32>()`",
    ),
    function(&["to_string", "format", "parse", "write", "concat_str", "stringify"], NO_TEXT),
    // ---- options and results
    function(
        &["unwrap", "expect", "unwrap_or", "ok", "unwrap_or_default"],
        "nothing in a kernel fails: leave it out",
    ),
    function(&["is_some", "is_none", "is_ok"], NO_OPTION),
    type_name(&["Option", "Some", "Result", "Ok", "Err"], NO_OPTION),
    // ---- memory and ownership
    function(
        &[
            "clone",
            "copy",
            "to_owned",
            "borrow",
            "borrow_mut",
            "as_ref",
            "as_mut",
            "as_slice",
            "as_mut_slice",
            "to_vec",
            "del",
            "drop",
            "black_box",
        ],
        "tiles are values: leave it out",
    ),
    function(&["swap", "replace"], "assign both at once: `(a, b) = (b, a)`"),
    function(
        &["get", "get_unchecked", "get_mut", "first", "last", "as_ptr", "read"],
        "an element of memory is `tl::load(x + i)`, of a tile `tl::index(x, axis, i)`",
    ),
    function(&["as_mut_ptr", "copy_from_slice", "push"], "write memory with `tl::store(out + i, value)`"),
    function(&["offset"], "offsets are added to a slice: `x + offsets`"),
    function(
        &["size_of", "size_of_val", "align_of", "mem_size"],
        "write the number of bytes; in the attribute, settings know `size_of::<T>()`",
    ),
    function(&["default"], "write the value: `0.0`, or `tl::zeros::<f32>([N])` for a tile"),
    function(&["is_empty"], "compare: `x.len() == 0`"),
    type_name(
        &[
            "Vec", "Box", "Rc", "Arc", "Cell", "RefCell", "HashMap", "HashSet", "BTreeMap", "VecDeque",
            "SmallVec", "ArrayVec", "Iterator", "Mutex",
        ],
        NO_HEAP,
    ),
    function(&["vec", "array_from_fn"], "`tl::full([N], value)` makes a constant tile"),
    type_name(&["String", "str", "CString"], NO_TEXT),
    type_name(&["char"], "a kernel has no text; a byte is a `u8`, C's `char` an `i8`"),
    type_name(&["PhantomData"], "leave it out"),
    type_name(&["f8", "fp8", "float8"], "8-bit floats are `f8e4m3` and `f8e5m2`"),
    type_name(
        &["f128", "f4", "i4", "u4", "tf32"],
        "the shortest types have 8 bits, `f8e4m3` and `i8`, the longest 64",
    ),
    type_name(&["i128", "u128"], "integers have up to 64 bits: `i64` or `u64`"),
    type_name(&["usize", "isize"], "memory and scalars have a fixed width: use `i64` or `i32`"),
    type_name(&["Ordering"], "an atomic's order is a word behind the call: `.sem(\"relaxed\")`"),
    type_name(
        &["AtomicU32", "AtomicI32", "AtomicF32", "AtomicUsize", "AtomicBool"],
        "memory is a slice, and atomics are functions: `tl::atomic_add(out + i, 1)`",
    ),
    // ---- what the host has
    type_name(
        &["Buffer", "CudaSlice", "DevicePtr", "CudaViewMut", "DeviceBuffer"],
        "in a kernel a buffer is a slice: `&[f32]`, or `&mut [f32]` where it is written",
    ),
    type_name(&["Slice", "CudaView"], "in a kernel it is written `&[f32]`"),
    type_name(&["SliceMut"], "in a kernel it is written `&mut [f32]`"),
    type_name(&["ViewMut"], "in a kernel it is written `&mut View<f32, 2>`"),
    type_name(
        &["Tensor", "ArrayView", "ArrayView2", "Array2", "ndarray", "Matrix"],
        "memory is a slice, `&[f32]`, or a view with a shape, `&View<f32, 2>`",
    ),
    type_name(
        &["Device", "Stream", "Graph"],
        "devices and streams are for the host: a kernel has its arguments alone",
    ),
    type_name(&["Wrapping", "Saturating", "NonZeroU*"], "integers wrap in a kernel: use the plain type"),
    // ---- numbers
    function(&["recip"], "divide: `1.0 / x`"),
    function(&["mul_add"], "`tl::fma(x, y, z)`"),
    own(&["ln_1p"], "log1p"),
    function(&["sin_cos"], "`tl::sin(x)` and `tl::cos(x)`"),
    function(&["to_radians"], "multiply: `x * (f32::consts::PI / 180.0)`"),
    function(&["signum"], "choose: `tl::select(x > 0.0, 1.0, -1.0)`"),
    function(&["rem_euclid"], "`(x % n + n) % n`"),
    function(&["div_euclid"], "of positive numbers it is the operator `/`"),
    function(&["abs_diff"], "`tl::abs(a - b)`"),
    function(&["fract"], "`x - tl::trunc(x)`"),
    function(&["is_power_of_two"], "`n & (n - 1) == 0`"),
    own(&["next_power_of_two"], "next_power_of_2"),
    function(&["is_positive", "is_sign_positive"], "compare: `x > 0`"),
    function(&["is_negative", "is_sign_negative"], "compare: `x < 0`"),
    function(&["cmp", "partial_cmp", "total_cmp"], "compare: `x < y`"),
    function(
        &[
            "saturating_add",
            "checked_add",
            "overflowing_add",
            "saturating_sub",
            "checked_sub",
            "overflowing_sub",
            "saturating_mul",
            "checked_mul",
            "overflowing_mul",
            "unchecked_add",
        ],
        WRAP,
    ),
    own(&["count_ones"], "popc"),
    own(&["leading_zeros"], "clz"),
    own(&["reverse_bits"], "brev"),
    function(&["trailing_zeros"], "`tl::ffs(x) - 1`, which is -1 for 0"),
    function(&["rotate_left", "rotate_right", "swap_bytes", "ilog2", "isqrt"], BITS),
    // ---- macros
    function(
        &["println", "eprintln", "eprint", "dbg"],
        "`tl::device_print(\"label\", value)` prints in debug builds, `tl::static_print(value)` at build",
    ),
    function(
        &["assert", "debug_assert", "assert_eq", "assert_ne", "debug_assert_eq", "debug_assert_ne"],
        DEBUG_ASSERT,
    ),
    function(
        &["panic", "todo", "unreachable", "unimplemented", "abort"],
        "`tl::device_assert(condition, \"message\")` stops a debug build",
    ),
    function(&["cfg"], "put `#[cfg(..)]` before a statement or an arm of a `match`"),
    function(&["matches"], "compare, and join with `||` or, for tiles, `|`"),
    function(
        &["include_str", "env", "line", "file"],
        "a kernel knows the constants of its module and its const parameters",
    ),
    function(
        &["thread_spawn", "spawn", "join_handle", "parallel*"],
        "programs run side by side: their number is the launch's grid",
    ),
    value(&["self"], "a kernel is a free function: it has its arguments alone"),
    module(
        &["core"],
        "functions are those of `tl::`, constants those of types: `f32::INFINITY`, `f32::consts::PI`",
    ),
];

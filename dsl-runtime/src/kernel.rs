//! What a build leaves in the binary for each kernel: plain static data that `#[fuse_kernel]` writes and the launcher
//! reads. Nothing here compiles anything.

use crate::dtype::DType;
pub use crate::packed::Packed;

/// A kernel and all its declared variants.
#[derive(Debug)]
pub struct Kernel {
    /// The function's name.
    pub name: &'static str,
    /// The module it was declared in, as `module_path!()` gives it.
    pub module: &'static str,
    /// The file it was declared in, as `file!()` gives it, and the line of its name.
    pub file: &'static str,
    pub line: u32,
    pub params: &'static [Param],
    /// The names of the const parameters, in the order declared.
    pub consts: &'static [&'static str],
    /// The choices that ship with the crate, as [`crate::tune::export`] writes them; empty for none.
    pub tuned: &'static str,
    /// In the order declared.
    pub variants: &'static [Variant],
}

#[cfg(test)]
impl Kernel {
    /// What a test's kernel has unless it says otherwise.
    pub(crate) const TEST: Kernel = Kernel {
        name: "",
        module: "tests",
        file: file!(),
        line: line!(),
        params: &[],
        consts: &[],
        tuned: "",
        variants: &[],
    };
}

/// A parameter as the user wrote it; the variant has its element type. After a view come its extents and then
/// its strides, each a scalar of type `i64` with a name such as `x.stride(1)`.
#[derive(Debug)]
pub struct Param {
    pub name: &'static str,
    pub kind: ParamKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ParamKind {
    /// `&[T]`
    Slice,
    /// `&mut [T]`
    SliceMut,
    /// `&View<T, R>`, the memory of it.
    View(u8),
    /// `&mut View<T, R>`, the memory of it.
    ViewMut(u8),
    /// A scalar or bool passed by value.
    Scalar,
}

/// One choice of the kernel's generics.
#[derive(Debug)]
pub struct Variant {
    /// `T = bf16, BLOCK = 1024`, empty for a kernel without generics.
    pub label: &'static str,
    /// The element type of each type parameter, in the order declared.
    pub types: &'static [DType],
    /// The value of each const parameter, in the order declared; `false` is 0 and `true` is 1.
    pub consts: &'static [i128],
    /// The element type of each parameter.
    pub dtypes: &'static [DType],
    /// Changes with every edit of the kernel or of the compiler.
    pub source: u64,
    /// GPU code, lowest architecture first, for each from the specialization with the most guards to the one
    /// without; empty when none was built.
    pub modules: &'static [Module],
    /// Host code, least demanding level first; empty when none was built for this target.
    pub hosts: &'static [Host],
    /// The messages of a debug build's checks and prints; the code refers to them by position.
    pub sites: &'static [Site],
}

/// A call in the kernel that only a debug build makes, and what it says besides what the kernel knows when it runs. A
/// tile's extents are its `shape`, none a scalar's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Site {
    /// `tl::device_assert`, with its condition as written and its message, or nothing.
    Assert { condition: &'static str, message: &'static str, shape: &'static [u32] },
    /// `tl::assume`, with its condition as written.
    Assume { condition: &'static str },
    /// An integer operation whose result may not fit its type: what it attempts, such as `multiply`.
    Overflow { verb: &'static str, dtype: DType, shape: &'static [u32] },
    /// `tl::device_print`, with the type of each value.
    Print { label: &'static str, shape: &'static [u32], dtypes: &'static [DType] },
}

/// GPU code of one specialization for one architecture; the driver loads it at the first launch.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    pub arch: Arch,
    pub ptx: Packed,
    /// The same module assembled at build, where a `ptxas` was found: compute capability (90 for 9.0) and image. An
    /// image runs on devices of the same major version and at least that minor one.
    pub cubins: &'static [(u32, Packed)],
    pub specialization: Specialization,
    /// Whether the entry may report an access outside its slice or an assertion that fails, in the module's global
    /// `fuse_report`. A caller that does not read the global loses nothing else.
    pub reports: bool,
}

/// The `.target` of a PTX module: `sm_80` runs on that capability and every later one, `sm_90a` on 9.0 alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arch {
    /// 80 for `sm_80`.
    pub capability: u32,
    /// The `a` of `sm_90a`.
    pub exact: bool,
}

/// One entry point.
///
/// Its arguments are, for each parameter in order, the device address (`u64`) and length in elements (`i64`) of a slice or
/// of a view's memory, or a scalar's value (a `bool` as `u8`); then the grid's three extents (`u32`); then, if it
/// [`uses_work_counter`](Specialization::uses_work_counter), the device address of its work counter (`u64`) or 0; then
/// its tensor maps (a `CUtensorMap` of 128 bytes, 64-byte aligned).
///
/// Every index inside a view's shape must be an element of its memory, and its extents and strides are between 0 and
/// 2^40 - 1: no guard checks that.
#[derive(Clone, Copy, Debug)]
pub struct Specialization {
    pub entry: &'static str,
    /// Threads of a block.
    pub threads: u32,
    /// Programs that a block runs: the first extent of the CUDA grid is that of the kernel's grid divided by this,
    /// rounded up.
    pub programs_per_block: u32,
    /// Blocks of a cluster that run one program together, where it is more than one: the first extent of the CUDA grid
    /// is that of the kernel's grid times this.
    pub blocks_per_program: u32,
    /// Whether a block runs programs one after the other, `x` fastest: block `b` of a CUDA grid of `n` blocks along one
    /// axis runs the programs `b`, `b + n`, .. of the grid's linear order. Any `n` will do; best are as many as the
    /// device runs at once, or as few as give no block more programs. The grid may have at most `i32::MAX` programs.
    pub persistent: bool,
    /// Whether the blocks of a persistent specialization take the next program from a work counter (a dynamic persistent
    /// tile scheduler): a `u32` in device memory that is 0 when the kernel starts, is used by no other kernel
    /// while it runs, and is 0 again when it has ended. Without a counter, that is at address 0, the CUDA grid has a
    /// block for each program.
    pub uses_work_counter: bool,
    /// Whether the entry may be launched while the kernel before it in its stream still runs, with
    /// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION` (PDL): it waits for that kernel before it accesses memory.
    /// The code is right without the attribute too. With it, the kernel before must not be one that was launched so and
    /// does not wait itself.
    pub uses_pdl: bool,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// All are evaluated at launch.
    pub guards: &'static [Guard],
    /// At most [`MAX_MAPS`]. If the driver refuses to encode one, the next specialization is taken.
    pub maps: &'static [TensorMap],
    /// The accesses of tiles, by line and parameter.
    pub accesses: &'static [Access],
    /// The dots that could not use `wgmma`, on GPUs that have it; empty where another specialization uses it.
    pub refused_dots: &'static [RefusedDot],
    /// What `ptxas` reported, where one was found at build.
    pub resources: Option<Resources>,
}

/// A dot that does not use the instructions of warpgroups, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RefusedDot {
    /// The line in its file.
    pub line: u32,
    pub reason: &'static str,
}

/// How a specialization accesses a slice or a view on a line of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The line in its file.
    pub line: u32,
    /// By position.
    pub param: u8,
    /// Bytes that one instruction of a thread moves, at most 16; 0 for TMA. Of several accesses on a
    /// line those of the narrowest.
    pub bytes: u8,
}

/// The most tensor maps of a specialization.
pub const MAX_MAPS: usize = 8;

/// Describes a view of a slice and a block for TMA copies to and from shared memory. Elements
/// outside the view's shape read as 0 and are not written. The stride of a block's last axis must be 1: a guard
/// checks it. Along this axis blocks begin at multiples of 16 bytes; the compiled code guarantees that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TensorMap {
    /// The slice, or the memory of a view, by position.
    pub param: u8,
    /// The number of elements along each axis.
    pub extents: &'static [Polynomial],
    /// The distance of neighbors along each axis, in elements.
    pub strides: &'static [Polynomial],
    /// The extents of a block along each axis: each at most 256, the last at most `swizzle` bytes.
    pub block: &'static [u32],
    /// Whether elements of `f32` are rounded to TF32, 11 significant bits, as they are copied to shared memory; ties to even.
    pub tf32: bool,
    /// For launches in clusters of two blocks along `x`, each of which multicasts half of a block's rows: the
    /// map is then one of blocks with half as many rows. See [`Specialization::persistent`]; such a launch has an even number of blocks.
    pub multicast: Option<Multicast>,
    /// The bytes of a row of shared memory, within which the 16-byte chunks of a block are swizzled: 32, 64 or 128.
    pub swizzle: u32,
}

/// What each program loads through a map, in a loop with the same trip count in all programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Multicast {
    /// The axis along which iterations advance.
    pub axis: u8,
    /// Elements from one iteration to the next.
    pub step: u32,
    /// Bytes of an iteration.
    pub bytes: u32,
}

/// What `ptxas` reports of a specialization.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resources {
    /// The capability it was assembled for.
    pub capability: u32,
    /// Registers of a thread.
    pub registers: u32,
    pub spill_store_bytes: u32,
    pub spill_load_bytes: u32,
    pub stack_bytes: u32,
    pub static_shared_bytes: u32,
}

/// A condition on a launch's arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Guard {
    /// The address of a slice parameter is a multiple of this.
    Aligned { param: u8, bytes: u32 },
    /// The polynomial is a multiple of this.
    Divisible { value: Polynomial, by: u32 },
    /// An integer scalar parameter has this value.
    Equal { param: u8, value: i64 },
    /// A float scalar parameter is between these powers of two.
    Magnitude { param: u8, least: i8, most: i8 },
    /// `low <= high`
    AtMost { low: Polynomial, high: Polynomial },
}

/// A sum of terms over what is known at launch.
pub type Polynomial = &'static [Term];

/// `coefficient * factors[0] * factors[1] * ..`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Term {
    pub coefficient: i64,
    pub factors: &'static [Symbol],
}

#[cfg(test)]
impl Term {
    /// The product of symbols.
    pub(crate) const fn of(factors: &'static [Symbol]) -> Term {
        Term { coefficient: 1, factors }
    }
}

/// Something known at launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Symbol {
    /// An integer scalar parameter, by position.
    Scalar(u8),
    /// The number of elements of a slice parameter, by position.
    Length(u8),
    /// The number of programs along a grid axis.
    Grid(u8),
    /// `ceil(of / by)` for a positive `by`: how many blocks of `by` cover `of`.
    CeilDiv { of: Term, by: Term },
    /// `of / by`, rounded down, for an `of` that is not negative and a positive `by`.
    Div { of: Term, by: Term },
}

/// Host code for one CPU level.
#[derive(Debug)]
pub struct Host {
    pub level: Level,
    pub entry: HostEntry,
    /// Scratch memory that one call of `entry` may use, 64-byte aligned.
    pub scratch_bytes: usize,
    /// Whether `entry` takes a record: it may report an access outside its slice or an assertion that fails, print, note accesses, or
    /// read the clock.
    pub reports: bool,
    /// The accesses that `entry` notes, so that races between programs are found; empty in a release build.
    pub noted: &'static [NotedAccess],
}

/// An access in the kernel's source that a debug build notes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotedAccess {
    /// By position.
    pub param: u8,
    /// Relative to the kernel's own line.
    pub line: i32,
    /// Counted from one.
    pub column: u32,
}

/// Runs the programs `(x, y, z)` for `x` in `first..last`.
///
/// `args` holds eight bytes for each of the arguments of [`Specialization`] before the grid's extents: an address, a length, or a
/// scalar's bits in its low bytes; then, if [`Host::reports`], the address of a zeroed record of 48 bytes for the first
/// failure, followed by the address of the function that prints lines and, at 56, by the address of a table with the shadow
/// memory of each parameter, or 0, of the function that is told of accesses that meet, and of the function that
/// writes the time in nanoseconds to an address. `grid` is the three extents. `scratch` is
/// [`Host::scratch_bytes`] long and private to the call.
pub type HostEntry = unsafe extern "C" fn(
    args: *const u64,
    first: u32,
    last: u32,
    y: u32,
    z: u32,
    grid: *const u32,
    scratch: *mut u8,
);

/// What host code requires of the CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Level {
    /// Any CPU of the target: x86-64 with SSE2, or AArch64 with NEON.
    Baseline,
    /// x86-64-v3: AVX2, FMA, F16C, BMI.
    V3,
    /// x86-64-v4: AVX-512 F, BW, CD, DQ, VL.
    V4,
}

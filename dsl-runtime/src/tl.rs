//! The language of kernels: every operation that the body of a `#[fuse_kernel]` function can use.
//!
//! A kernel computes on tiles. One *program* of its grid runs the whole body; which one it is, [`program_id`] says.
//! [`arange`] makes offsets, a slice parameter plus offsets is a tile of pointers, [`load`] and [`store`] move elements,
//! and everything between is arithmetic on whole tiles, written with Rust's operators ([`Tile`]) and the functions here:
//!
//! ```
//! use dsl_runtime::prelude::*;
//!
//! #[fuse_kernel(T = [f32, bf16], BLOCK = [1024])]
//! fn relu<T: Float, const BLOCK: usize>(x: &[T], out: &mut [T], n: i32) {
//!     let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
//!     let mask = offsets < n;
//!     let y = tl::load(x + offsets, mask);
//!     tl::store(out + offsets, tl::maximum(y, 0.0), mask);
//! }
//! ```
//!
//! # Laws
//! - **Types** do not mix: both sides of an operator have one element type, and `.to::<f32>()` or `as f32` converts. A
//!   literal takes the type it meets; alone it is `i32`, `f32` or `bool`. It has to fit that type, also in `300 as i8`. A
//!   division of integer constants that leaves a remainder becomes no float: write `1.0 / 2.0`, not `1 / 2`.
//! - **Integers** are Rust's: `+`, `-`, `*` and [`sum`] of what does not fit its type wrap in a release build. In a debug build
//!   that is an [`Error::Overflow`](crate::Error::Overflow) of the launch, once the element is stored, reduced, carried by a
//!   loop or decides a branch. [`wrapping_add`], [`wrapping_sub`] and [`wrapping_mul`] are for numbers that are meant to wrap.
//! - **Indices** do not overflow: in an offset and on both sides of a comparison, `+`, `-`, `*` and `<<` by a constant of `i32`
//!   are computed in 64 bits, wherever their numbers come from, through `let`, `as i64`, `row`, `col`, reshapes and broadcasts. So an offset
//!   reaches past 2^31 without a cast, and a mask agrees with the offset that it guards. Anything else, such as a quotient,
//!   a minimum, what is loaded or what a loop carries, is a number of its type there too.
//! - **8-bit floats** (`f8e4m3`, `f8e5m2`) are loaded, stored, selected, moved and converted, not computed with.
//! - **Shapes** broadcast from the last axis: an extent of 1 repeats, and so does a missing axis. Extents are constants,
//!   a power of two or one times 3, 5, 7, 9, 11, 13 or 15.
//! - **Memory** outside a slice is never touched: such elements are masked off by the compiler. Outside a view's shape is
//!   nothing to read but zeros, and nothing to write: that is what a [`View`] means, and no mistake that is reported.
//! - **Control flow** decides on scalars: `for` over ranges, `while`, `if`; on an element, [`select`] decides. A variable
//!   that a loop or branch changes keeps its type and shape. An `if` on a constant leaves the other branch out.
//! - **NaN** propagates unless an operation's documentation says otherwise; comparisons with it are false, but for `!=`.
//! - **Checks** of what a kernel computes and lines of output, [`device_assert`] and [`device_print`], are for debug builds;
//!   what is true of every launch's arguments, [`assume`] says, and the launcher checks it. [`static_assert`] is for the build.
//! - **Constants** of element types are as in Rust: `f32::INFINITY`, `T::MAX`, `f32::consts::PI`.
//! - **Attributes** in a kernel are `#[cfg(..)]` and `#[cfg_attr(..)]`, which rustc evaluates as everywhere, on statements, arms,
//!   parameters, functions and constants; and levels of lints, `#[allow(unused_variables)]`, on statements, arms and parameters.
//!   Any other one is an error.
//!
//! # Views
//! Memory with a shape and strides of one to five axes is a parameter `&View<T, R>` or `&mut View<T, R>`. Its methods ([`View`])
//! read and write blocks, a tile's worth at an offset along each axis; nothing is said of edges, which may be anywhere. A
//! call takes a [`crate::View`] or [`crate::ViewMut`], which a buffer makes: `buffer.view([rows, columns])?`.
//!
//! ```
//! use dsl_runtime::prelude::*;
//!
//! #[fuse_kernel(T = [f32], ROWS = [16], COLS = [64])]
//! fn transpose<T: Float, const ROWS: usize, const COLS: usize>(x: &View<T, 2>, out: &mut View<T, 2>) {
//!     let (row, col) = (tl::program_id(0) * ROWS, tl::program_id(1) * COLS);
//!     out.store(tl::trans(x.load::<ROWS, COLS>(row, col)), col, row);
//! }
//!
//! let device = Device::cpu();
//! let (rows, columns) = (30usize, 100usize);
//! let x = device.upload(&(0..3000).map(|i| i as f32).collect::<Vec<_>>())?;
//! let mut out = device.zeros::<f32>(3000)?;
//! transpose::<f32, 16, 64>(x.view([rows, columns])?, out.view_mut([columns, rows])?)
//!     .grid((rows.div_ceil(16), columns.div_ceil(64)))
//!     .launch(&device)?;
//! assert_eq!(out.download()?[..3], [0.0, 100.0, 200.0]);
//! # Ok::<(), dsl_runtime::Error>(())
//! ```
//!
//! # Functions
//! A kernel calls the functions of its own module, when that is marked `#[fuse_module]` and they `#[fuse_fn]`, and those of other
//! modules and crates that it names in a `use`. Functions may also be nested in a kernel's body, and closures passed along:
//!
//! ```
//! use dsl_runtime::prelude::*;
//!
//! #[fuse_module]
//! mod bias {
//!     use dsl_runtime::prelude::*;
//!
//!     #[derive(Clone, Copy)]
//!     pub enum Activation {
//!         Relu,
//!         Gelu,
//!     }
//!
//!     #[fuse_fn]
//!     fn activate<T: Float>(x: Tile<T>, activation: Activation) -> Tile<T> {
//!         match activation {
//!             Activation::Relu => tl::relu(x),
//!             Activation::Gelu => tl::gelu(x),
//!         }
//!     }
//!
//!     #[fuse_kernel(T = [f32])]
//!     pub fn add<T: Float>(x: &[T], bias: &[T], out: &mut [T], activation: Activation, n: i32) {
//!         let row = tl::program_id(0);
//!         let columns = tl::arange(0, 64);
//!         if row >= n {
//!             return;
//!         }
//!         let sum = tl::load(x + row * 64 + columns) + tl::load(bias + columns);
//!         tl::store(out + row * 64 + columns, activate(sum, activation));
//!     }
//! }
//!
//! # let device = Device::cpu();
//! # let (x, bias) = (device.upload(&[1.0f32; 64])?, device.upload(&[0.0f32; 64])?);
//! # let mut out = device.zeros::<f32>(64)?;
//! bias::add(&x, &bias, &mut out, bias::Activation::Gelu, 1).grid(1).launch(&device)?;
//! # assert!((out.download()?[0] - 0.8413447).abs() < 1e-6);
//! # Ok::<(), dsl_runtime::Error>(())
//! ```
//!
//! - **Items of other modules**, functions, structs, constants and enums, come by `use path::to::item;` or by `use path::to::module;` and
//!   `module::item`, in the kernel's `#[fuse_module]` or in its body. A glob brings none. What such a function mentions is looked up where it is
//!   declared. A mistake in it stands on the call, with a note that names its file and line.
//! - **Each call is a copy** of the body, checked with the types and shapes of its arguments: there is no recursion. A
//!   mistake stands in the function, with a note that names the call.
//! - **Parameters** are `Tile<T>`, a tile of any shape or a scalar; `Tile`, the same of any element type; `f32` or `T`, a scalar;
//!   `usize`, an integer known at build; `&[T]` and `&mut [T]`, a slice or pointers into one; `&View<T, 2>` and `&mut View<T, 2>`; `impl Fn(..) -> ..`, a function or
//!   closure; and tuples of these. Arguments that are constants stay constants.
//! - **Enums** without fields may be the type of a parameter, of a kernel too. Its value is known at build: a kernel has a variant for each, or for
//!   those that its attribute lists, `activation = [Activation::Relu]`, and the argument of a call chooses one. A `match` with an arm for each
//!   value needs no `_`.
//! - **Generics** follow from the arguments or stand in the call, all of them or none: `f::<_, 64>(x)`.
//! - **Structs** of tiles, scalars and such structs are marked `#[fuse_struct]` in a `#[fuse_module]`, with methods in an `impl`: `self` and `&self` read
//!   one, `&mut self` changes the variable. They have no generics; a field of type `Tile` takes any element type.
//! - **Closures** have copies of the variables around them, which they cannot assign.
//! - **Constants** of the module are known to its kernels, and so are the variants of its enums without fields, as
//!   integers. `match` compares integers and bools; on a constant only the arm that is taken is checked.
//! - **`return`**, `break` and `continue` stand as statements, in branches as deep as you like; a function that gives a value
//!   cannot return it from within a loop. A `for` that was left runs its remaining iterations without doing anything: a `while`
//!   ends at once.
//!
//! # These items
//! are documentation, and what an editor resolves inside a kernel; a kernel's body is compiled without them, and calling
//! one anywhere else panics.

#![allow(unused_variables, reason = "nothing here has a body")]

dsl_macros::tl_reference!();

/// Anything a kernel can compute with: tiles, scalars, constants, slices and pointers.
pub trait Operand {}

impl<X> Operand for X {}

/// An argument that may be left out.
pub trait Optional {}

impl<X> Optional for X {}

/// What a `for` runs over. Rust's `0..n` and `(0..n).step_by(BLOCK)` do as well.
#[derive(Clone, Copy, Debug)]
pub struct Range(());

impl IntoIterator for Range {
    type Item = Tile;
    type IntoIter = std::iter::Empty<Tile>;

    fn into_iter(self) -> std::iter::Empty<Tile> {
        only_in_kernels("range")
    }
}

/// Every type, as that of a tile's elements: outside of kernels, where tiles have none, `Tile<T>` is one type whatever `T`
/// is, so that rustc finds nothing wrong with a function whose mistake is that no kernel can see it.
#[doc(hidden)]
pub trait OfTiles {
    type Tile;
}

impl<T: ?Sized> OfTiles for T {
    type Tile = Tile;
}

/// What stands for an argument that was left out.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Absent;

#[track_caller]
fn only_in_kernels(name: &str) -> ! {
    panic!("`{name}` has a meaning only in the body of a `#[fuse_kernel]` function")
}

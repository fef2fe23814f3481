//! Runs tile kernels that were compiled at build time: on an NVIDIA GPU where there is one, on this CPU everywhere.
//!
//! A kernel's call is an ordinary, borrow-checked Rust call. It gives a [`Launch`]; its grid says how many programs run,
//! and a [`Device`] or [`Stream`] where:
//!
//! ```no_run
//! use dsl_runtime::prelude::*;
//! # fn scale<'a, T: Float, const BLOCK: usize>(
//! #     x: impl Into<Slice<'a, T>>, out: impl Into<SliceMut<'a, T>>, n: i32,
//! # ) -> Launch<'a, 3> {
//! #     unimplemented!()
//! # }
//! # let host_x = vec![0.0f32; 1000];
//! # let n = host_x.len();
//!
//! let device = Device::best()?;                       // a CUDA GPU if there is one, else this CPU
//! let x = device.upload(&host_x)?;
//! let mut out = device.zeros::<f32>(n)?;
//! scale::<f32, 1024>(&x, &mut out, n as i32).grid(n.div_ceil(1024)).launch(&device)?;
//! let host_out = out.download()?;                     // waits for the kernel
//! # Ok::<(), dsl_runtime::Error>(())
//! ```
//!
//! # What the attribute says
//! | option | meaning |
//! | --- | --- |
//! | `T = [f32, bf16]`, `BLOCK = [512, 1024]` | the values of a generic; every combination is compiled |
//! | `BLOCK = n_cols in [512, 1024]` | the same, and a call takes the smallest value that is at least the expression |
//! | `configs = [{ BLOCK: 512, num_warps: 4 }, ..]` | combinations one by one, with settings of their own |
//! | `when = BLOCK == block`, `{ BLOCK: 512, when: n <= 512 }` | a condition in Rust over the arguments, the constants and `device`: a call leaves these constants out and takes the first variant that is allowed |
//! | `num_warps = 4` | warps of a program on a GPU, or of a block; chosen by what it reads where nothing is said |
//! | `num_ctas = 4` | blocks of a cluster that share a program: for tiles that take most of an SM. One block does it all where there are no clusters ([`LaunchOn::has_clusters`]) |
//! | `num_stages = 3` | iterations whose loads are in flight, for loops that do not say ([`tl::Range::num_stages`]) |
//! | `maxnreg = 64` | the most registers of a thread; 255 is no limit. The specialization without alignment guards keeps the registers it needs where there is another one |
//! | `tune(key = [..])`, `tuned = "file"` | configs, or the values of `BLOCK = _ in [..]`, by measured time: [`mod@tune`] |
//! | `unchecked`, `unreported` | see *Safety* below |
//! | `deny(spills)` | a variant whose registers do not suffice is an error of the build, where there is a `ptxas` |
//!
//! A type parameter is bound by [`Float`], [`Integer`], [`Number`] or [`Element`], or by a trait of your own. Code that is generic over your trait
//! calls the kernel without another bound, and does not build for a type that has the trait but no variant.
//!
//! Memory may be optional, `bias: Option<&[T]>` or `sums: Option<&mut View<f32, 1>>`: `if let Some(bias) = bias { .. }` and `match` say what is done
//! with it, and a call passes `Some(slice)` or `None`. Each case is a variant of its own, without the code of the other. The constant
//! `bias_is_some = [true]` in the attribute, or in a config, leaves the other one out.
//!
//! A parameter of an enum without fields, `mask: Mask`, is known when the kernel is compiled: each of its values is a variant, and a call passes one. A
//! parameter marked `#[host]`, `#[host] block: Block`, has any Rust type and is for conditions alone.
//!
//! Outside of `configs` the four settings may be expressions over the kernel's integer constants and the sizes of its types, by
//! `+`, `-`, `*`, `/`, `%`, `min`, `max`, `next_power_of_two` and `if`: `num_warps = (BLOCK * size_of::<T>() / 2048).min(8)`,
//! `maxnreg = if BLOCK < 8192 { 255 } else { 80 }`.
//!
//! # Memory
//! A [`Buffer`] owns memory of a device. Kernels borrow it, whole or in part, as [`Slice`] and [`SliceMut`], which host
//! memory and memory of the `cudarc` crate turn into as well. Nothing locks you in: [`Buffer::as_cuda`],
//! [`Buffer::from_cuda`], [`Device::context`] and [`Stream::raw`] lead to `cudarc`, re-exported as [`cudarc`].
//!
//! ```
//! use dsl_runtime::prelude::*;
//!
//! let device = Device::cpu();
//! let mut buffer = device.upload(&[1i32, 2, 3, 4])?;
//! let (mut head, tail) = buffer.split_at_mut(1);
//! head.copy_from_host(&[10])?;
//! assert_eq!(tail.slice(1..).download()?, [3, 4]);
//! assert_eq!(buffer.download()?, [10, 2, 3, 4]);
//! # Ok::<(), dsl_runtime::Error>(())
//! ```
//!
//! With a shape and strides it is a [`View`] or [`ViewMut`], from which kernels read blocks and to which they write them:
//! `buffer.view([rows, columns])?`. That every index lies in the memory is checked when it is made.
//!
//! # What a launch checks
//! That each argument is of the declared type and on the launch's device, and that the grid is one a device can run.
//! Then it takes the first of the kernel's specializations whose guards hold, such as "16 divides `n`"; [`Launch::trace`] and
//! `FUSE_TRACE=1` say which, and why not a faster one. On a GPU launches return at once, and whatever uses the same
//! memory later waits for them by itself, also across streams.
//!
//! # Safety
//! A safe launch cannot touch memory outside its arguments: the compiled code compares what it cannot prove with the
//! length of the slice, and masks off the elements outside. Such a read gives 0, or the `other` of its load; such a write
//! does nothing. In a debug build, one whose crate sets `cfg(debug_assertions)`, it is a mistake as an index beyond a
//! Rust slice is one: the first of a launch becomes an [`Error::OutOfBounds`] that names the kernel, the program, the
//! element and the source line. Elements that the kernel's own mask leaves out are never reported, nor those outside the
//! shape of a view, which read as 0 and drop what is written.
//!
//! On the CPU the launch returns the error, on a GPU whatever waits for the kernel: [`Stream::synchronize`],
//! [`Device::synchronize`], a copy to or from the host, the launch itself with `FUSE_LAUNCH_BLOCKING=1`. The kernel has
//! run to its end, and its outputs are those of a release build.
//!
//! `#[fuse_kernel(.., unreported)]` declares that a kernel relies on the mask, and on integers that wrap. `FUSE_BOUNDS_REPORT=0` builds all kernels
//! without reports, and `FUSE_BOUNDS_REPORT=1` a release build with them. `#[fuse_kernel(.., unchecked)]` neither compares
//! nor reports, and makes the launcher `unsafe`.
//!
//! In the same builds, and in kernels of any kind, [`tl::device_assert`] checks what the kernel computes, [`tl::assume`] what
//! it assumes, and [`tl::device_print`] prints: a failed check is an [`Error::Assertion`], reported like an access
//! outside a slice. An integer that does not fit its type and is used is an [`Error::Overflow`] there, as in Rust, but in
//! kernels that are `unreported` (see [`mod@tl`], *Integers*).
//!
//! On the CPU such a build also finds races: two programs of a launch touch one element of a `&mut` slice or view, one of them
//! writes it, and nothing orders the two. The launch is then an [`Error::Race`] with both programs and both lines. Atomics
//! beside atomics are no race. What a program does after it acquired something, by an atomic with an order of `acquire` or
//! `acq_rel` whose old value it uses, or by a volatile load, may be ordered and is not judged; nor are launches
//! of more than four million programs, and kernels that are `unreported` or `unchecked`. What is found depends on the arguments, never on timing.
//!
//! # Beyond launching
//! [`Stream::capture`] records launches that run again in one go, [`mod@bench`] measures kernels, [`mod@tune`] chooses among configs by measured time, [`kernel::Kernel::write`] writes them to files that any CUDA program can load, and
//! [`kernel::Kernel::smallest`] chooses among declared variants at run time.
//!
//! # The environment
//! | variable | effect |
//! | --- | --- |
//! | `FUSE_DEVICE` | `cpu`, `cuda` or `cuda:1`: what [`Device::best`] gives |
//! | `FUSE_TRACE=1` | each launch prints a line: the code it took, and why not a faster one |
//! | `FUSE_LAUNCH_BLOCKING=1` | each launch waits for its kernel, so that an error names the kernel that failed |
//! | `FUSE_RACE=0` | a debug build looks for no races between programs on the CPU |
//! | `FUSE_CPU_LEVEL` | `baseline`, `v3` or `v4`: the most that the CPU's kernels may require |
//! | `FUSE_TUNE` | `off` never measures configs, `force` measures whatever is known |
//! | `FUSE_TUNE_DIR` | the folder of choices; empty for none |
//! | `RAYON_NUM_THREADS` | the number of threads that run the CPU's kernels |

#![warn(missing_docs)]

// Generated code says `::dsl_runtime::..`, here as everywhere.
extern crate self as dsl_runtime;

pub mod bench;
#[allow(missing_docs, reason = "plain data that only the compiler writes; what is not obvious is documented")]
pub mod kernel;
#[doc(hidden)]
pub mod lint;
pub mod tl;
pub mod tune;

mod artifact;
mod buffer;
#[cfg(test)]
#[path = "../build.rs"]
#[expect(dead_code, clippy::print_stdout, reason = "cargo runs `main` and reads what it prints")]
mod build_script;
mod cpu_level;
mod cuda;
mod device;
mod device_print;
mod device_properties;
mod dtype;
mod error;
mod f8;
mod graph;
mod grid;
mod guard;
mod host;
mod launch;
mod libcuda;
mod module;
mod packed;
mod race;
mod report;
mod select_variant;
mod slice;
mod stream;
mod stream_order;
mod temporary;
mod threads;
mod view;
mod work_counter;

pub use buffer::Buffer;
pub use cudarc;
pub use device::Device;
#[doc(hidden)]
pub use dsl_macros::{Configured, configured, imported};
pub use dsl_macros::{fuse_fn, fuse_kernel, fuse_module, fuse_struct};
pub use dtype::{DType, Element, Float, Integer, Number, bf16, f8e4m3, f8e5m2, f16};
pub use error::{Error, ProgramAccess, Result};
pub use graph::{Graph, GraphBuffers};
pub use grid::{Extent, IntoGrid};
pub use launch::{
    Arg, IntoSlice, IntoSliceMut, IntoView, IntoViewMut, Launch, NarrowAccess, SpecializationTrace, Trace,
    ViewArgs, trace_choice,
};
pub use select_variant::{Choice, Chosen};
pub use slice::{Slice, SliceMut};
#[doc(hidden)]
pub use stream::Target;
pub use stream::{LaunchOn, Stream};
pub use temporary::Temporary;
pub use view::{RowLayout, Rows, RowsMut, View, ViewMut};

/// What a program that launches kernels needs.
pub mod prelude {
    /// A [`crate::tl::Tile`], as functions that kernels call name it by its element type: `Tile<f32>`, `Tile<T>`.
    pub type Tile<T = ()> = <T as tl::OfTiles>::Tile;

    pub use crate::{
        Buffer, DType, Device, Element, Float, Integer, Launch, LaunchOn, Number, Rows, RowsMut, Slice,
        SliceMut, Stream, View, ViewMut, bf16, f8e4m3, f8e5m2, f16, fuse_fn, fuse_kernel, fuse_module,
        fuse_struct, tl,
    };
}

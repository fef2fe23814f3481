//! The only folder that names melior: a typed [`Builder`], and the two emitters that turn laid-out tiles into machine
//! operations for a GPU thread and for a host thread.

mod builder;
pub mod lanes;
pub mod math;
mod session;
mod types;

pub use builder::{Access, Asm, Builder, FloatPredicate, IntPredicate, Machine, Val};
pub use session::{Argument, ArgumentKind, BuiltModule, Entry, ModuleBuilder, Session, memory_pointer};
pub use types::{Elem, Space, Ty};

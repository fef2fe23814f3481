//! The only folder that names melior: a typed [`Builder`], and what the emitters for a GPU thread and for a CPU thread
//! share: conversions, lanewise operations, elementary functions.

pub mod builder;
pub mod cast;
pub mod division;
pub mod elementwise;
pub mod f8;
pub mod half;
pub mod lanes;
pub mod machine;
pub mod math;
pub mod philox;
pub mod report;
pub mod rounding;
pub mod session;
pub mod shared;
pub mod types;
pub mod wide_product;

use tile_ir::ops::ConstantValue;
use tile_ir::support::dtype;
use tile_ir::support::dtype::DType;

pub use builder::{AccessFlags, Asm, BranchArm, Builder, FloatPredicate, IntPredicate, LoopPart, Val};
pub use machine::{Machine, Vectors};
pub use session::{
    Argument, ArgumentKind, BuiltModule, EntryKind, Limit, ModuleBuilder, Session, memory_pointer,
};
pub use types::{Elem, Space, Ty};

/// A constant of the language as a machine value of type `ty`, which holds elements of type `elem`.
pub fn constant(b: &mut Builder, value: ConstantValue, elem: DType, ty: Ty) -> Val {
    match value {
        ConstantValue::Int(value) => b.int(ty, value as i64),
        ConstantValue::Float(value) if ty.elem.is_float() => b.float(ty, value),
        // A 16-bit float, or one of 8 bits, represented by its bits.
        ConstantValue::Float(value) => {
            let bits = match elem {
                DType::BF16 => dtype::to_bf16(value).to_bits(),
                DType::F8E4M3 | DType::F8E5M2 => dtype::Float8Format::of(elem).bits(value).into(),
                _ => dtype::to_f16(value).to_bits(),
            };
            b.int(ty, i64::from(bits))
        }
    }
}

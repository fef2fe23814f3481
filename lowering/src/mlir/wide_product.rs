//! Products of integers in twice their width.

use super::builder::{Builder, Val};
use super::machine::Machine;
use super::types::Elem;

/// The upper half of the product: an instruction of the GPU, or half of the product in twice the width.
pub fn high_half(b: &mut Builder, args: &[Val], signed: bool) -> Val {
    let ty = args[0].ty;
    let bits = ty.elem.bits();
    if b.machine == Machine::Nvptx && bits >= 32 {
        let name = match (bits, signed) {
            (32, true) => "llvm.nvvm.mulhi.i",
            (32, false) => "llvm.nvvm.mulhi.ui",
            (_, true) => "llvm.nvvm.mulhi.ll",
            (_, false) => "llvm.nvvm.mulhi.ull",
        };
        return b.call(name, args, ty);
    }
    if bits == 64 {
        return high_half_of_words(b, args, signed);
    }
    let wide = if bits == 32 { Elem::I64 } else { Elem::I32 };
    let [x, y] = [0, 1].map(|i| if signed { b.sext(args[i], wide) } else { b.zext(args[i], wide) });
    let product = b.mul(x, y);
    let amount = b.int(product.ty, i64::from(bits));
    let high = b.lshr(product, amount);
    b.trunc(high, ty.elem)
}

/// The upper half of a product of 64-bit integers from the products of their halves.
fn high_half_of_words(b: &mut Builder, args: &[Val], signed: bool) -> Val {
    let ty = args[0].ty;
    let (half, low) = (b.int(ty, 32), b.int(ty, 0xffff_ffff));
    let [(x_low, x_high), (y_low, y_high)] = [0, 1].map(|i| (b.and(args[i], low), b.lshr(args[i], half)));
    let lowest = b.mul(x_low, y_low);
    let carried = b.lshr(lowest, half);
    let cross = b.mul(x_high, y_low);
    // Each sum stays within 64 bits: (2^32 - 1)^2 and twice 2^32 - 1.
    let first = b.add(cross, carried);
    let (first_low, first_high) = (b.and(first, low), b.lshr(first, half));
    let cross = b.mul(x_low, y_high);
    let second = b.add(cross, first_low);
    let second_high = b.lshr(second, half);
    let top = b.mul(x_high, y_high);
    let top = b.add(top, first_high);
    let mut result = b.add(top, second_high);
    if signed {
        // A negative number read as unsigned is 2^64 too large.
        let all = b.int(ty, 63);
        for (value, other) in [(args[0], args[1]), (args[1], args[0])] {
            let sign = b.ashr(value, all);
            let surplus = b.and(sign, other);
            result = b.sub(result, surplus);
        }
    }
    result
}

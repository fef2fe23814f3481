//! The transpose of a square of elements, as many vectors as they have lanes: a function that all versions of a kernel call, while they pack
//! operands of dots that are contiguous along the other axis.

use tile_ir::support::dtype::DType;

use crate::cpu::emit::nest::LANES;
use crate::cpu::emit::{AccessFlags, Builder, Elem, SharedFunction, Ty, Val};
use crate::mlir::machine;
use crate::mlir::session::{Argument, ArgumentKind};
use crate::mlir::types::Space;

/// The name of the function for elements of a type.
pub(super) fn name(dtype: DType) -> String {
    format!("transpose_{LANES}x{LANES}_{dtype}")
}

/// A function of the square, of where its first row goes, and of the bytes from there to the next.
pub(super) fn function(dtype: DType) -> SharedFunction {
    let pointer = Ty::scalar(Elem::Ptr(Space::Generic));
    let argument = |ty, kind| Argument { ty, kind };
    let arguments = vec![
        argument(pointer, ArgumentKind::ReadOnly),
        argument(pointer, ArgumentKind::Exclusive),
        argument(Ty::I64, ArgumentKind::Plain),
    ];
    let body = move |b: &mut Builder, args: &[Val]| {
        let bytes = dtype.bytes();
        let vector = Ty { lanes: LANES as u16, ..Ty::scalar(machine::elem(dtype, b.machine)) };
        let columns: Vec<Val> = (0..LANES)
            .map(|i| {
                let pointer = b.offset_bytes(args[0], (i * LANES * bytes) as i32);
                b.load(pointer, vector, AccessFlags::aligned(bytes))
            })
            .collect();
        let mut row = args[1];
        for elements in transposed(b, columns) {
            b.store(elements, row, AccessFlags::aligned(bytes));
            row = b.offset(row, args[2], 1);
        }
    };
    SharedFunction { name: name(dtype), arguments, body: Box::new(body) }
}

/// The transpose of as many vectors as they have lanes: bit by bit of their indices.
fn transposed(b: &mut Builder, mut vectors: Vec<Val>) -> Vec<Val> {
    let count = vectors.len();
    let mut bit = 1;
    while bit < count {
        for low in (0..count).filter(|index| index & bit == 0) {
            let (first, second) = (vectors[low], vectors[low | bit]);
            let of = |stays: usize| -> Vec<i32> {
                let lane = |lane: usize| if lane & bit == stays { lane } else { lane ^ bit };
                let lanes = (0..count).map(|i| lane(i) + if i & bit == 0 { 0 } else { count });
                lanes.map(|lane| lane as i32).collect()
            };
            // Lanes without the bit come from the first vector, those with it from the second one.
            vectors[low] = b.shuffle(first, second, &of(0));
            vectors[low | bit] = b.shuffle(first, second, &of(bit));
        }
        bit *= 2;
    }
    vectors
}

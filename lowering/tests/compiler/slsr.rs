//! Straight-line strength reduction (SLSR) of addresses in GPU code.

use melior::ir::Module;

use lowering::backend::llvm::{LlvmModule, StrengthReduction};
use lowering::backend::nvptx::Arch;
use lowering::mlir::Session;

/// The multiplications in the PTX of `rows` stores to rows with a scalar stride.
fn multiplications(rows: u32, strength_reduction: StrengthReduction) -> usize {
    let session = Session::new();
    let stores = (2..2 + rows).map(|i| {
        format!(
            "%row{i} = llvm.mlir.constant({i} : i64) : i64
            %start{i} = llvm.mul %stride, %row{i} : i64
            %place{i} = llvm.getelementptr %out[%start{i}] : (!llvm.ptr, i64) -> !llvm.ptr, i32
            llvm.store %value, %place{i} : i32, !llvm.ptr\n"
        )
    });
    let text = format!(
        "llvm.func @rows(%out: !llvm.ptr, %stride: i64, %value: i32) {{ {} llvm.return }}",
        stores.collect::<String>()
    );
    let module = Module::parse(session.context(), &text).expect("valid MLIR");
    let processor = Arch::SM_80.target_cpu();
    let llvm = LlvmModule::translate(&module, strength_reduction).expect("LLVM IR");
    llvm.optimize(processor).expect("optimized LLVM IR");
    let ptx = llvm.assemble(processor).expect("PTX");
    ptx.matches("mul.lo").count() + ptx.matches("mad.lo").count()
}

/// Each address is that of the row before plus the stride, if the module is small enough for the differences of all
/// pairs.
#[test]
fn addresses_are_strength_reduced_but_in_large_general_specializations() {
    assert!(multiplications(40, StrengthReduction::Always) < 10);
    assert!(multiplications(40, StrengthReduction::IfSmall) < 10);
    assert!(multiplications(400, StrengthReduction::Always) < 10);
    assert!(multiplications(400, StrengthReduction::IfSmall) > 300);
}

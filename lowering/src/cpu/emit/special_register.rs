//! What a CPU has in place of special registers: one multiprocessor, and the runtime's clock.

use tile_ir::ir::{Func, Op};
use tile_ir::ops::{Kind, ReadRegister, SpecialRegister};

use crate::cpu::emit::{AccessFlags, Builder, CpuEmit, Host, Ty};

/// Byte offset in the host's record: the address of the runtime's function that writes the time to an address.
const CLOCK: i32 = 72;

/// Whether a kernel reads the clock, whose address is in the record.
pub(super) fn reads_clock(func: &Func) -> bool {
    let mut found = false;
    func.body.walk(&mut |op| {
        found |=
            matches!(&op.kind, Kind::ReadRegister(read) if read.register == SpecialRegister::GlobalTimer);
    });
    found
}

impl CpuEmit for ReadRegister {
    fn run(&self, host: &mut Host, b: &mut Builder, op: &Op) {
        let value = match self.register {
            SpecialRegister::SmId => b.int(Ty::I32, 0),
            SpecialRegister::GlobalTimer => {
                let record = host.record.expect("code that reads the clock has a record");
                let time = b.stack(1);
                let pointer = b.offset_bytes(record, CLOCK);
                let function = b.load(pointer, record.ty, AccessFlags::aligned(8));
                b.call_address(function, &[time]);
                b.load(time, Ty::I64, AccessFlags::aligned(8))
            }
        };
        host.define(op.results[0], value);
    }
}

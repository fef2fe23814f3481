//! What an access that bounds mask off leaves behind, in a build that reports them.
//!
//! A launch has one record, [`BYTES`] long and zeroed: host code gets its address, GPU code finds it in the module's
//! global [`GLOBAL`]. The first element outside its slice is written there; all later ones find it taken. The record's
//! fields are those of `dsl_runtime::report::Record`, at the same places.
//!
//! Code says where an access stands by its line relative to the kernel's name, so that moving a kernel in its file
//! changes nothing in its code.

use super::builder::{Access, Builder, Val};
use super::types::{Elem, Ty};
use crate::ops::Effect;
use crate::tile::{Func, Op};

/// The name of a GPU module's record.
pub const GLOBAL: &str = "fuse_report";

/// The size of a record.
pub const BYTES: u32 = 48;

/// Byte offsets of a record's fields. The state is 0, then 1 for the thread that writes the rest, and 2 once it has.
const STATE: i32 = 0;
const WRITES: i32 = 4;
const LINE: i32 = 8;
const COLUMN: i32 = 12;
const PARAM: i32 = 16;
const PROGRAM: i32 = 20;
const INDEX: i32 = 32;
const LENGTH: i32 = 40;

/// Whether the code of a function can report anything.
pub fn reports(func: &Func) -> bool {
    let mut found = false;
    func.body.walk(&mut |op| found |= op.kind.operation().place().is_some_and(|place| place.bounded));
    func.reports && found
}

/// Where the accesses of a function stand: what its code depends on besides the function's text.
pub fn sites(func: &Func) -> String {
    let mut text = String::new();
    func.body.walk(&mut |op| {
        if op.kind.operation().place().is_some() {
            let (line, column) = site(func, op);
            text += &format!("{line}:{column} ");
        }
    });
    text
}

/// The line of an operation, relative to that of the kernel's name, and its column, counted from one.
fn site(func: &Func, op: &Op) -> (i64, i64) {
    let start = op.loc.start.start();
    (start.line as i64 - func.loc.line() as i64, start.column as i64 + 1)
}

/// An element outside its slice, and who touched it.
pub struct Outside {
    /// An `i64`.
    pub index: Val,
    /// The slice's length, an `i64`.
    pub length: Val,
    /// The program's number along each axis, an `i32` each.
    pub program: [Val; 3],
}

/// Writes the record of an access of `op`, unless there is one.
pub fn write(b: &mut Builder, record: Val, (func, op): (&Func, &Op), outside: &Outside) {
    let operation = op.kind.operation();
    let Some(place) = operation.place() else { return };
    let (line, column) = site(func, op);
    let writes = i64::from(operation.effect() == Effect::Write);
    let state = b.offset_bytes(record, STATE);
    let first = b.claim(state);
    b.if_then(first, |b| {
        let constants = [(WRITES, writes), (LINE, line), (COLUMN, column), (PARAM, i64::from(place.param.0))];
        let mut fields: Vec<(i32, Val)> =
            constants.iter().map(|&(at, value)| (at, b.int(Ty::I32, value))).collect();
        fields.extend((PROGRAM..).step_by(4).zip(outside.program));
        fields.extend([(INDEX, outside.index), (LENGTH, outside.length)]);
        for (at, value) in fields {
            let pointer = b.offset_bytes(record, at);
            let align = if value.ty.elem == Elem::I64 { 8 } else { 4 };
            b.store(value, pointer, Access::aligned(align));
        }
        let written = b.int(Ty::I32, 2);
        b.publish(written, state);
    });
}

//! Reports of accesses out of bounds, in a build that has them, and of assertions that fail.
//!
//! A launch has one record, [`BYTES`] long and zeroed: host code gets its address, GPU code finds it in the module's
//! global [`GLOBAL`]. The first of all failures is written there; all later ones find it taken. The record's fields are
//! those of `dsl_runtime::report::FailureRecord`, at the same offsets. Behind the record that host code gets is, at
//! [`PRINT`], the address of the function that prints a [`LINE_WORDS`] and the values that follow.
//!
//! Code gives the source location of an operation by its line relative to the kernel's name, so that moving a kernel in its file
//! changes nothing in its code.

use tile_ir::ir::{Func, Op};
use tile_ir::ops::Effect;

use super::builder::{AccessFlags, Builder, Val};
use super::types::{Elem, Ty};

/// The name of a GPU module's record.
pub const GLOBAL: &str = "fuse_report";

/// The size of a record.
pub const BYTES: u32 = 48;

/// The offset of the address of the host's print function.
pub const PRINT: i32 = 48;

/// The header of a line, in words: its site and the program, then the element.
pub const LINE_WORDS: u32 = 3;
pub const LINE_SITE: i32 = 0;
pub const LINE_PROGRAM: i32 = 4;
pub const LINE_INDEX: i32 = 16;
pub const LINE_VALUES: i32 = 24;

/// Byte offsets of a record's fields. The state is 0, then 1 for the thread that writes the rest, and 2 once it has.
const STATE: i32 = 0;
const KIND: i32 = 4;
const LINE: i32 = 8;
const COLUMN: i32 = 12;
const SUBJECT: i32 = 16;
const PROGRAM: i32 = 20;
const INDEX: i32 = 32;
const LENGTH: i32 = 40;

/// What is reported.
const READ: i64 = 0;
const WRITE: i64 = 1;
const FAILURE: i64 = 2;

/// Whether the code of a function takes a record.
pub fn reports(func: &Func) -> bool {
    let mut found = false;
    func.body.walk(&mut |op| {
        let operation = op.kind.operation();
        let outside = func.reports && operation.access().is_some_and(|access| access.bounded);
        found |= outside || operation.site().is_some();
    });
    found
}

/// The source locations that a function reports: its code depends on them besides the function's text.
pub fn sites(func: &Func) -> String {
    let mut text = String::new();
    func.body.walk(&mut |op| {
        let operation = op.kind.operation();
        if func.reports && operation.access().is_some() || operation.site().is_some() {
            let (line, column) = site(func, op);
            text += &format!("{line}:{column} ");
        }
    });
    text
}

/// The line of an operation, relative to that of the kernel's name, and its column, counted from one.
pub fn site(func: &Func, op: &Op) -> (i64, i64) {
    let start = op.loc.start.start();
    (start.line as i64 - func.loc.line() as i64, start.column as i64 + 1)
}

/// An element and its program.
pub struct ReportedElement {
    /// An `i64`: of its slice, or in row-major order of a tile that fails an assertion.
    pub index: Val,
    /// The slice's length, or how many elements the tile has; an `i64`.
    pub length: Val,
    /// The program's index along each axis, an `i32` each.
    pub program: [Val; 3],
}

impl ReportedElement {
    /// Writes the record of an access of `op` outside its slice, or of an assertion that fails, unless there is one.
    pub fn write(&self, b: &mut Builder, record: Val, func: &Func, op: &Op) {
        let operation = op.kind.operation();
        let (kind, subject) = match (operation.access(), operation.site()) {
            (Some(access), _) if operation.effect() == Effect::Write => (WRITE, access.param.0),
            (Some(access), _) => (READ, access.param.0),
            (None, Some(site)) => (FAILURE, site),
            (None, None) => return,
        };
        let (line, column) = site(func, op);
        let state = b.offset_bytes(record, STATE);
        let first = b.claim(state);
        b.if_then(first, |b| {
            let constants = [(KIND, kind), (LINE, line), (COLUMN, column), (SUBJECT, i64::from(subject))];
            let mut fields: Vec<(i32, Val)> =
                constants.iter().map(|&(at, value)| (at, b.int(Ty::I32, value))).collect();
            fields.extend((PROGRAM..).step_by(4).zip(self.program));
            fields.extend([(INDEX, self.index), (LENGTH, self.length)]);
            for (at, value) in fields {
                let pointer = b.offset_bytes(record, at);
                let align = if value.ty.elem == Elem::I64 { 8 } else { 4 };
                b.store(value, pointer, AccessFlags::aligned(align));
            }
            let written = b.int(Ty::I32, 2);
            b.publish(written, state);
        });
    }
}

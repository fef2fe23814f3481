//! Notes of which program touched an element of a slice, in code of a debug build: the runtime finds races by them.
//!
//! A launch that is judged has a shadow word for each element of a slice. A word is 0 until an access is noted there, and
//! has room for two accesses of 32 bits each: what was done, its place in the table of [`NotedAccesses`] and the program.
//! The code itself notes the first access of an element and skips one that is noted already. Whatever else it finds there it
//! leaves to the runtime. `dsl_runtime::race` has the same layout.

use std::rc::Rc;

use tile_ir::analysis::unordered_access::{Touch, racing};
use tile_ir::ir::{Func, Op, ParamId};

use crate::cpu::emit::{
    AccessFlags, Argument, ArgumentKind, Builder, Elem, Host, SharedFunction, Ty, Val, report,
};
use crate::mlir::IntPredicate;
use crate::mlir::types::Space;

/// The name of the function that notes accesses.
pub(super) const NOTE: &str = "note";

/// Bits of an access: what was done, then its place in the table; the program has the rest.
const TOUCH_BITS: u32 = 2;
const PLACE_BITS: u32 = 8;

/// Byte offsets in the host's record: the address of a table of shadow memory, one address for each parameter, or 0 where
/// the launch is not judged; and the address of the runtime's function.
const SHADOWS: i32 = 56;
const MEET: i32 = 64;

/// An access of a kernel's source that is noted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotedAccess {
    pub param: ParamId,
    /// Relative to the kernel's own line.
    pub line: i64,
    /// Counted from one.
    pub column: i64,
}

/// The accesses of a kernel that are noted, in the order of the source; of more than an access has bits for the first.
#[derive(Clone, Default, Debug)]
pub struct NotedAccesses(Rc<[NotedAccess]>);

impl NotedAccesses {
    pub fn of(func: &Func) -> NotedAccesses {
        let mut list: Vec<NotedAccess> = vec![];
        for access in if func.reports { racing(func) } else { vec![] } {
            let noted = NotedAccess::of(func, access.op, access.param);
            if !list.contains(&noted) && list.len() < 1 << PLACE_BITS {
                list.push(noted);
            }
        }
        NotedAccesses(list.into())
    }

    pub fn iter(&self) -> impl Iterator<Item = &NotedAccess> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is noted of an operation, but for the program.
    fn tag(&self, func: &Func, op: &Op) -> Option<i64> {
        let access = op.kind.operation().access()?;
        let own = NotedAccess::of(func, op, access.param);
        let place = self.0.iter().position(|noted| *noted == own)?;
        let touch = match Touch::of(op)? {
            Touch::Read => 1,
            Touch::Write => 2,
            Touch::Atomic => 3,
        };
        Some((place as i64) << TOUCH_BITS | touch)
    }
}

impl NotedAccess {
    fn of(func: &Func, op: &Op, param: ParamId) -> NotedAccess {
        let (line, column) = report::site(func, op);
        NotedAccess { param, line, column }
    }
}

impl Host<'_> {
    /// Notes that this program touches `lanes` elements from `first` on, if a debug build judges that.
    pub(super) fn note(&self, b: &mut Builder, op: &Op, first: Val, lanes: u16) {
        let (Some(record), Some(access)) = (self.record, op.kind.operation().access()) else { return };
        let Some(tag) = self.plan.noted.tag(self.func, op) else { return };
        let constants = [access.param.index() as i64, tag, i64::from(lanes)];
        let [param, tag, lanes] = constants.map(|value| b.int(Ty::I64, value));
        let program = self.linear_program(b);
        self.call(b, NOTE, &[record, param, tag, program, first, lanes]);
    }

    /// The program's index in the grid's linear order, `x` fastest.
    fn linear_program(&self, b: &mut Builder) -> Val {
        let [x, y, z] = self.program.map(|id| b.zext(id, Elem::I64));
        let [width, height, _] = self.grid.map(|extent| b.zext(extent, Elem::I64));
        let plane = b.mul(z, height);
        let row = b.add(plane, y);
        let start = b.mul(row, width);
        b.add(start, x)
    }
}

/// The function that notes accesses of a program.
pub(super) fn function() -> SharedFunction {
    let pointer = Ty::scalar(Elem::Ptr(Space::Generic));
    let types = [pointer, Ty::I64, Ty::I64, Ty::I64, Ty::I64, Ty::I64];
    let arguments = types.map(|ty| Argument { ty, kind: ArgumentKind::Plain }).to_vec();
    SharedFunction { name: NOTE.to_string(), arguments, body: Box::new(body) }
}

fn body(b: &mut Builder, args: &[Val]) {
    let &[record, param, tag, program, first, lanes] = args else { unreachable!("the signature has six") };
    let field = |b: &mut Builder, at| {
        let field = b.offset_bytes(record, at);
        b.load(field, record.ty, AccessFlags::aligned(8))
    };
    let shadows = field(b, SHADOWS);
    let address = b.op("llvm.ptrtoint", &[shadows], Ty::I64);
    let zero = b.int(Ty::I64, 0);
    let judged = b.icmp(IntPredicate::Ne, address, zero);
    b.if_then(judged, |b| {
        let shadow = b.offset(shadows, param, 8);
        let shadow = b.load(shadow, record.ty, AccessFlags::aligned(8));
        let bits = b.int(Ty::I64, i64::from(TOUCH_BITS + PLACE_BITS));
        let program = b.shl(program, bits);
        let access = b.or(program, tag);
        let (end, one) = (b.add(first, lanes), b.int(Ty::I64, 1));
        b.for_range([first, end, one], &[], |b, index, _| {
            let word = b.offset(shadow, index, 8);
            let found = b.compare_exchange(word, zero, access);
            let (taken, other) =
                (b.icmp(IntPredicate::Ne, found, zero), b.icmp(IntPredicate::Ne, found, access));
            let met = b.and(taken, other);
            b.if_then(met, |b| {
                let meet = field(b, MEET);
                b.call_address(meet, &[record, param, index, access]);
            });
            vec![]
        });
    });
}

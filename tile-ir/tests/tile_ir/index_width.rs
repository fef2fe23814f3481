//! The law of exact offsets at the limits of 32 bits: where the guards hold, the offset of every element that is accessed is that of
//! integers, and nothing that is marked exact wraps.

use tile_ir::ir::{Func, ParamKind, Value};
use tile_ir::ops::{Cast, Constant, ConstantValue, Kind, MemAccess};
use tile_ir::support::dtype::DType;
use tile_ir::testing::{func, holds};
use tile_ir::transform::legalize_index::{BoundsPolicy, legalize_index};

const IMAGE: &str =
    "#[fuse_kernel] fn k(x: &[i8], out: &mut [i8], n: i32, b: i32, c: i32, h: i32, w: i32, pad: i32) {
        let at = tl::program_id(0) * 64 + tl::arange(0, 64);
        let col = at % c - pad;
        let row = tl::minimum(at / c % b * 2 + 1, h - 1);
        let mask = (at < n * b * c) & (col >= 0) & (col < w);
        tl::store(out + tl::arange(0, 64), tl::load(x + (at / (b * c) * h + row) * w + col, mask, 0));
    }";

/// The offset of an element of [`IMAGE`], if it is accessed.
fn exact(at: i128, [n, b, c, h, w, pad]: [i128; 6]) -> Option<i128> {
    let col = at % c - pad;
    let row = (at / c % b * 2 + 1).min(h - 1);
    let mask = at < n * b * c && col >= 0 && col < w;
    mask.then_some((at / (b * c) * h + row) * w + col)
}

/// An element of a launch.
struct Element<'f> {
    func: &'f Func,
    scalars: &'f [i128],
    program: i128,
    lane: i128,
}

impl Element<'_> {
    /// What a value is at the element, in its type; `accessed` elements allow nothing marked exact to wrap.
    fn value(&self, value: Value, accessed: bool) -> i128 {
        let ty = self.func.ty(value);
        let position = self.func.params.iter().position(
            |param| matches!(param.kind, ParamKind::Scalar { value: scalar, .. } if scalar == value),
        );
        if let Some(position) = position {
            return self.scalars[position];
        }
        let of = |value| self.value(value, accessed);
        let definitions = self.func.definitions();
        match &definitions[&value].kind {
            Kind::Constant(Constant { value: ConstantValue::Int(value) }) => *value,
            Kind::ProgramId(_) => self.program,
            Kind::Arange(range) => i128::from(range.start) + self.lane,
            Kind::Splat(splat) => of(splat.value),
            Kind::Cast(Cast { value: inner, .. }) => ty.dtype.wrap(of(*inner)),
            Kind::Scalar(scalar) => {
                let args: Vec<i128> = scalar.args.iter().map(|&arg| of(arg)).collect();
                let dtype = scalar.dtype(self.func);
                let result = scalar.op.int.expect("an integer operation").function;
                let result = result(&args, dtype);
                let wrapped = if ty.dtype == DType::Bool { result } else { dtype.wrap(result) };
                assert!(!(accessed && scalar.exact) || wrapped == result, "{scalar:?} of {args:?} wraps");
                wrapped
            }
            other => unreachable!("{}", other.operation().name()),
        }
    }

    /// The offset of an access, if it happens.
    fn offset(&self, access: &MemAccess) -> Option<i128> {
        let mask = access.mask.is_none_or(|mask| self.value(mask, false) != 0);
        let part = |value| self.value(value, true);
        mask.then(|| access.base.map_or(0, part) + part(access.offset))
    }
}

#[test]
fn accessed_offsets_are_exact_at_the_limits() {
    let mut func = func(IMAGE);
    let guards = legalize_index(&mut func, BoundsPolicy::Guarded);
    let mut load = None;
    func.body.walk(&mut |op| {
        if let Kind::Load(op) = &op.kind {
            load = Some(op.access);
        }
    });
    let load = load.expect("a load");
    assert!(func.ty(load.offset).dtype == DType::I32 && !load.bounded, "guards keep the offset in 32 bits");
    let sizes = [1i128, 2, 3, 7, 1000, 46340, 46341, 65535, 65536, 1 << 24, (1 << 30) + 1, (1 << 31) - 1];
    let mut state = 1u64;
    let mut pick = |all: &[i128]| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        all[(state >> 33) as usize % all.len()]
    };
    let (mut launches, mut largest) = (0, 0);
    for _ in 0..60_000 {
        let [n, b, c, h, w] = std::array::from_fn(|_| pick(&sizes));
        let pad = pick(&[0, 1, 5, -1, i32::MIN.into(), i32::MAX.into()]);
        let scalars = [1 << 40, 1 << 40, n, b, c, h, w, pad];
        let count = n * b * c;
        let grid = ((count + 63) / 64).min((1 << 31) - 1);
        let narrow: Vec<i64> = scalars.iter().map(|&scalar| scalar as i64).collect();
        if !guards.iter().all(|guard| holds(guard, &narrow, [grid as i64, 1, 1])) {
            continue;
        }
        launches += 1;
        for (program, lane) in
            [0, grid / 2, grid - 1].into_iter().flat_map(|program| [0, 1, 31, 63].map(|lane| (program, lane)))
        {
            let element = Element { func: &func, scalars: &scalars, program, lane };
            let wanted = exact(program * 64 + lane, [n, b, c, h, w, pad]);
            let found = element.offset(&load);
            assert_eq!(found, wanted, "element {lane} of program {program} of {grid}: {scalars:?}");
            largest = largest.max(found.unwrap_or(0));
        }
    }
    assert!(launches > 1000 && largest > 1 << 30, "{launches} launches, largest offset {largest}");
}

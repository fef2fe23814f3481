//! View tiles on the CPU: of many extents, with random arguments, as the host code and as each GPU specialization whose
//! guards hold runs them.

use tile_ir::ir::{Func, ParamKind};
use tile_ir::testing::{func, holds};
use tile_ir::transform::legalize_index::BoundsPolicy;

use super::run::{Arg, Loaded, load_bodies_of, load_plan};
use lowering::driver::pipeline::host_plan;

/// A random number generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: i64) -> i64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        ((self.0 >> 33) % limit as u64) as i64
    }
}

#[derive(Clone, Debug)]
struct Layout {
    shape: Vec<i64>,
    strides: Vec<i64>,
}

impl Layout {
    /// Extents about those of a tile or two, axes in any order, padded or not; every other one as rows that an aligned
    /// specialization takes.
    fn random(random: &mut Random, extents: &[u32], read_only: bool) -> Layout {
        let even = random.below(2) == 0;
        let axes = extents.len();
        let mut shape: Vec<i64> =
            extents.iter().map(|&extent| random.below(2 * i64::from(extent) + 2)).collect();
        let mut order: Vec<usize> = (0..axes).rev().collect();
        if even {
            shape[axes - 1] = (shape[axes - 1] + 3) / 4 * 4;
        } else {
            (1..axes).for_each(|axis| order.swap(axis, random.below(axis as i64 + 1) as usize));
        }
        let mut strides = vec![0; axes];
        let mut stride = if even { 1 } else { 1 + random.below(2) };
        for axis in order {
            strides[axis] = stride;
            stride *= shape[axis].max(1) + if even { 4 * random.below(2) } else { random.below(3) };
        }
        if read_only && !even && random.below(3) == 0 {
            strides[random.below(axes as i64) as usize] = 0;
        }
        Layout { shape, strides }
    }

    fn len(&self) -> usize {
        1 + self
            .shape
            .iter()
            .zip(&self.strides)
            .map(|(extent, stride)| (extent - 1).max(0) * stride)
            .sum::<i64>() as usize
    }

    fn at(&self, index: &[i64]) -> Option<usize> {
        let inside = index.iter().zip(&self.shape).all(|(index, extent)| (0..*extent).contains(index));
        inside.then(|| {
            index.iter().zip(&self.strides).map(|(index, stride)| index * stride).sum::<i64>() as usize
        })
    }

    fn numbers(&self) -> impl Iterator<Item = i64> {
        self.shape.iter().chain(&self.strides).copied()
    }
}

/// A call: views, and where tiles are read and written.
#[derive(Debug)]
struct Case {
    x: Layout,
    out: Layout,
    from: Vec<i64>,
    to: Vec<i64>,
}

impl Case {
    fn random(random: &mut Random, extents: &[u32]) -> Case {
        let (x, out) = (Layout::random(random, extents, true), Layout::random(random, extents, false));
        let inside = random.below(2) == 0;
        let mut offsets = || -> Vec<i64> {
            let offset = |&extent: &u32| match inside {
                true => 4 * random.below(i64::from(extent) / 4 + 1),
                false => random.below(4 * i64::from(extent)) - 2 * i64::from(extent),
            };
            extents.iter().map(offset).collect()
        };
        Case { from: offsets(), to: offsets(), x, out }
    }

    /// The values of the parameters, by position; of memory, its length.
    fn known(&self, func: &Func) -> Vec<i64> {
        let numbers = |layout: &Layout| {
            std::iter::once(layout.len() as i64).chain(layout.numbers()).collect::<Vec<_>>()
        };
        let all: Vec<i64> =
            [numbers(&self.x), numbers(&self.out), self.from.clone(), self.to.clone()].concat();
        assert_eq!(all.len(), func.params.len());
        all
    }

    fn wanted(&self, extents: &[u32], x: &[f32]) -> Vec<f32> {
        let mut out = vec![-1.0; self.out.len()];
        for number in 0..extents.iter().product() {
            let mut rest = number;
            let mut index: Vec<i64> = extents
                .iter()
                .rev()
                .map(|extent| {
                    let own = rest % extent;
                    rest /= extent;
                    i64::from(own)
                })
                .collect();
            index.reverse();
            let plus = |offsets: &[i64]| index.iter().zip(offsets).map(|(a, b)| a + b).collect::<Vec<i64>>();
            if let Some(place) = self.out.at(&plus(&self.to)) {
                out[place] = self.x.at(&plus(&self.from)).map_or(0.0, |place| x[place]);
            }
        }
        out
    }

    /// Runs code and compares.
    fn check(&self, func: &Func, code: &[Loaded], extents: &[u32]) {
        let mut x: Vec<f32> = (0..self.x.len()).map(|i| i as f32 + 1.0).collect();
        let wanted = self.wanted(extents, &x);
        for level in code {
            let mut out = vec![-1.0f32; self.out.len()];
            let mut memory = [Arg::F32(&mut x), Arg::F32(&mut out)].into_iter();
            let mut args: Vec<Arg> = func
                .params
                .iter()
                .zip(self.known(func))
                .map(|(param, known)| match param.kind {
                    ParamKind::Slice { .. } => memory.next().expect("two views"),
                    ParamKind::Scalar { .. } => Arg::Scalar(known as u64),
                })
                .collect();
            level.call([1, 1, 1], &mut args);
            drop((args, memory));
            assert_eq!(out, wanted, "{extents:?}, {:?}: {self:?}", level.level);
        }
    }
}

/// A copy of one tile; how many of `cases` random calls the aligned specialization took.
fn check_extents(extents: &[u32], cases: u32) -> u32 {
    let list = |of: &dyn Fn(usize) -> String| (0..extents.len()).map(of).collect::<Vec<_>>().join(", ");
    let rank = extents.len();
    let block = list(&|axis| extents[axis].to_string());
    let source = format!(
        "#[fuse_kernel] fn k(x: &View<f32, {rank}>, out: &mut View<f32, {rank}>, {}, {}) {{
            out.store(x.load::<{block}>({}), {});
        }}",
        list(&|axis| format!("from_{axis}: i32")),
        list(&|axis| format!("to_{axis}: i32")),
        list(&|axis| format!("from_{axis}")),
        list(&|axis| format!("to_{axis}")),
    );
    let func = func(&source);
    let host = load_plan(&host_plan(&func, BoundsPolicy::Masked));
    let bodies = load_bodies_of(&func);
    let mut random = Random(u64::from(extents.iter().sum::<u32>()));
    let mut aligned = 0;
    for _ in 0..cases {
        let case = Case::random(&mut random, extents);
        case.check(&func, &host, extents);
        for (guards, code) in &bodies {
            if guards.iter().all(|guard| holds(guard, &case.known(&func), [1, 1, 1])) {
                case.check(&func, code, extents);
                aligned += u32::from(!guards.is_empty());
            }
        }
    }
    aligned
}

#[test]
fn view_tiles_of_any_extents_are_copied() {
    let all: [&[u32]; 9] =
        [&[32], &[48], &[3, 40], &[1, 24], &[12, 1], &[7, 20], &[2, 1, 16], &[1, 1], &[3, 2, 1, 4, 6]];
    for extents in all {
        let aligned = check_extents(extents, 200);
        assert!(aligned > 3, "{extents:?}: {aligned} calls of the aligned body");
    }
}

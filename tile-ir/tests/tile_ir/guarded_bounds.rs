//! Guarded accesses: where the guards hold, no element that a mask selects is out of bounds.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use tile_ir::analysis::bounds::{BoundsDecision, BoundsDecisions};
use tile_ir::analysis::polynomial::Polynomials;
use tile_ir::ir::guard::{Guard, WithNames};
use tile_ir::ops::Kind;
use tile_ir::testing::{func, holds, try_func};

/// Terms of offsets and masks.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Var {
    Program,
    Element,
    /// A loaded value.
    Loaded,
    /// It, but at least 0.
    Floored,
    /// It, between 0 and `n - 1`.
    Clamped,
    /// Its low bits.
    Masked,
    /// The remainder of an element's index by `n`.
    Remainder,
    N,
    Stride,
}

/// The elements of a tile.
const ELEMENTS: i64 = 4;

/// The scalars of a launch, and of one element of one program.
#[derive(Clone, Copy, Debug)]
struct At {
    grid: i64,
    len: i64,
    n: i64,
    stride: i64,
    program: i64,
    element: i64,
    loaded: i64,
}

impl Var {
    fn text(self) -> &'static str {
        match self {
            Var::Program => "p",
            Var::Element => "i",
            Var::Loaded => "t",
            Var::Floored => "tl::maximum(0, t)",
            Var::Clamped => "tl::minimum(tl::maximum(t, 0), n - 1)",
            Var::Masked => "(t & 7)",
            Var::Remainder => "((p * 4 - 1 + i) % n)",
            Var::N => "n",
            Var::Stride => "s",
        }
    }

    fn value(self, at: &At) -> i64 {
        match self {
            Var::Program => at.program,
            Var::Element => at.element,
            Var::Loaded => at.loaded,
            Var::Floored => at.loaded.max(0),
            Var::Clamped => at.loaded.max(0).min(at.n - 1),
            Var::Masked => at.loaded & 7,
            Var::Remainder => (at.program * 4 - 1 + at.element).checked_rem(at.n).unwrap_or(0),
            Var::N => at.n,
            Var::Stride => at.stride,
        }
    }
}

/// A linear combination of terms.
#[derive(Clone, Debug)]
struct Terms(Vec<(i64, Vec<Var>)>);

impl Terms {
    fn text(&self) -> String {
        let term = |(number, vars): &(i64, Vec<Var>)| {
            vars.iter().fold(format!("({number}"), |text, var| format!("{text} * {}", var.text())) + ")"
        };
        self.0.iter().map(term).collect::<Vec<_>>().join(" + ")
    }

    fn value(&self, at: &At) -> i64 {
        let term =
            |(number, vars): &(i64, Vec<Var>)| vars.iter().fold(*number, |value, var| value * var.value(at));
        self.0.iter().map(term).sum()
    }
}

fn terms() -> impl Strategy<Value = Terms> {
    let factors = prop_oneof![ 2 => Just(vec![Var::Program]), 3 => Just(vec![Var::Element]), 2 => Just(vec![Var::Loaded]), 1 => Just(vec![Var::Floored]), 2 => Just(vec![Var::Clamped]), 1 => Just(vec![Var::Clamped, Var::Stride]), 1 => Just(vec![Var::Masked]), 2 => Just(vec![Var::Remainder]), 1 => Just(vec![Var::Remainder, Var::Stride]), 3 => Just(vec![Var::N]), 1 => Just(vec![Var::Stride]), 2 => Just(vec![Var::Program, Var::Stride]), 1 => Just(vec![Var::Loaded, Var::Stride]), 1 => Just(vec![Var::N, Var::Stride]), 2 => Just(vec![]), ];
    let number =
        prop_oneof![4 => Just(1i64), 4 => Just(-1), 1 => Just(4), 1 => Just(-4), 1 => Just(2), 1 => Just(-3)];
    prop::collection::vec((number, factors), 1..4).prop_map(Terms)
}

/// `left op right`
type Comparison = (Terms, &'static str, Terms);

fn comparison() -> impl Strategy<Value = Comparison> {
    let op = prop_oneof![Just("<"), Just("<="), Just(">"), Just(">="), Just("==")];
    (terms(), op, terms())
}

fn mask_holds((left, op, right): &Comparison, at: &At) -> bool {
    let (left, right) = (left.value(at), right.value(at));
    match *op {
        "<" => left < right,
        "<=" => left <= right,
        ">" => left > right,
        ">=" => left >= right,
        _ => left == right,
    }
}

/// A few values of each kind, in all combinations.
fn launches() -> impl Iterator<Item = At> {
    let numbers = |all: &'static [i64]| all.iter().copied();
    numbers(&[1, 3]).flat_map(move |grid| {
        numbers(&[0, 5, 12, 40]).flat_map(move |len| {
            numbers(&[-2, 0, 1, 3, 12]).flat_map(move |n| {
                let at = At { grid, len, n, stride: 0, program: 0, element: 0, loaded: 0 };
                numbers(&[-1, 0, 1, 4]).map(move |stride| At { stride, ..at })
            })
        })
    })
}

fn elements(launch: At) -> impl Iterator<Item = At> {
    (0..launch.grid).flat_map(move |program| {
        (0..ELEMENTS).flat_map(move |element| {
            [-5, -1, 0, 1, 2, 3, 11, 12, 50].into_iter().map(move |loaded| At {
                program,
                element,
                loaded,
                ..launch
            })
        })
    })
}

/// The guards of an access, if guards bound it.
fn guards(offset: &Terms, mask: &[Comparison]) -> Option<Vec<Guard>> {
    let mask: Vec<String> = mask
        .iter()
        .map(|(left, op, right)| format!("({} {op} {} + i * 0)", left.text(), right.text()))
        .collect();
    let source = format!(
        "#[fuse_kernel] fn k(x: &[f32], numbers: &[i32], out: &mut [f32], n: i32, s: i32) {{
            let (p, i) = (tl::program_id(0), tl::arange(0, {ELEMENTS}));
            let t = tl::load(numbers + p);
            tl::store(out + i, tl::load(x + ({} + i * 0), {}));
        }}",
        offset.text(),
        mask.join(" & "),
    );
    // Comparisons that always hold, and constants alone, may be refused.
    let func = try_func(&source)?;
    let polynomials = Polynomials::analyze(&func);
    let decisions = BoundsDecisions::analyze(&func, &polynomials);
    let mut found = None;
    func.body.walk(&mut |op| {
        if let Kind::Load(load) = &op.kind
            && load.access.param.0 == 0
            && let BoundsDecision::Guarded(bounds) = decisions.get(&load.access)
        {
            found = Some(bounds.guards);
        }
    });
    found
}

proptest! { #![proptest_config(ProptestConfig::with_cases(1500))]

#[test] fn guarded_accesses_are_in_bounds(offset in terms(), mask in prop::collection::vec(comparison(), 1..4)) { let Some(guards) = guards(&offset, &mask) else { return Ok(()) };
// Only the first slice is accessed.
let agrees = |guard: &Guard, at: &At| holds(guard, &[at.len, 1000, 1000, at.n, at.stride], [at.grid, 1, 1]); for launch in launches().filter(|launch| guards.iter().all(|guard| agrees(guard, launch))) { for at in elements(launch).filter(|at| mask.iter().all(|comparison| mask_holds(comparison, at))) { let place = offset.value(&at); prop_assert!((0..at.len).contains(&place), "{} at {at:?}, given {guards:?}", offset.text()); } } } }

/// Rows that are indexed by remainders, clamps and loaded values, and view tiles that begin before the first row.
fn decisions(source: &str, expected: Expect) {
    let func = func(source);
    let params: Vec<String> = func.params.iter().map(|param| param.name.clone()).collect();
    let polynomials = Polynomials::analyze(&func);
    let decisions = BoundsDecisions::analyze(&func, &polynomials);
    let mut text = String::new();
    func.body.walk(&mut |op| {
        let Some(place) = op.kind.operation().access() else { return };
        let name = &params[place.param.index()];
        match decisions.get(place) {
            BoundsDecision::Masked => text += &format!("{name}: compared in the kernel\n"),
            BoundsDecision::Guarded(bounds) => {
                let guards: Vec<String> =
                    bounds.guards.iter().map(|guard| WithNames(guard, &params).to_string()).collect();
                text += &format!("{name}: {}\n", guards.join(", "));
            }
        }
    });
    expected.assert_eq(&text);
}

#[test]
fn rows_are_found_by_remainders_and_clamps() {
    decisions(
        "#[fuse_kernel]
        fn k(x: &[f32], table: &[i32], out: &mut [f32], m: i32, d: i32) {
            let (rows, columns) = (tl::arange(0, 16), tl::arange(0, 32).row());
            let around = (tl::program_id(0) * 16 + rows) % m;
            let kept = tl::load(x + around.col() * d + columns, columns < d);
            let found = tl::load(table + tl::program_id(0) * 16 + rows);
            let clamped = tl::minimum(tl::maximum(found, 0), m - 1);
            let clamped = tl::load(x + clamped.col() * d + columns, columns < d);
            let free = tl::load(x + found.col() * d + columns, columns < d);
            let bits = tl::load(x + (found & 7).col() * d + columns, columns < d);
            tl::store(out + rows.col() * 32 + columns, kept + clamped + free + bits);
        }",
        expect![[r#"
            x: 0 <= d, 1 <= m, -1 + 16 * num_programs(0) <= 2147483647, m * d <= x.len()
            table: 16 * num_programs(0) <= table.len()
            x: 0 <= d, 1 <= m, m * d <= x.len()
            x: compared in the kernel
            x: 0 <= d, 8 * d <= x.len()
            out: 512 <= out.len()
        "#]],
    );
}

#[test]
fn a_mask_bounds_the_start_of_a_view_tile() {
    decisions(
        "#[fuse_kernel]
        fn k(x: &[f32], out: &mut [f32], n: i32, d: i32) {
            let (times, columns) = (tl::program_id(0) * 16 + tl::arange(0, 16), tl::arange(0, 32).row());
            let mut sum = tl::zeros::<f32>([16, 32]);
            for j in tl::static_range(0, 4) {
                let at = times - 3 + j;
                let inside = (at >= 0) & (at < n);
                sum += tl::load(x + at.col() * d + columns, inside.col() & (columns < d));
            }
            tl::store(out + times.col() * d + columns, sum, (times < n).col() & (columns < d));
        }",
        expect![[r#"
            x: 0 <= d, n * d <= x.len()
            x: 0 <= d, n * d <= x.len()
            x: 0 <= d, n * d <= x.len()
            x: 0 <= d, n * d <= x.len()
            out: 0 <= d, n * d <= out.len()
        "#]],
    );
}

/// The last rows of a program may be beyond the last row: that a scalar is below another one bounds every program's.
#[test]
fn rows_of_a_program_are_bounded_by_scalars() {
    decisions(
        "#[fuse_kernel]
        fn k(x: &[f32], out: &mut [f32], first: i32, n: i32, d: i32) {
            let columns = tl::arange(0, 32);
            for r in tl::static_range(0, 2) {
                let row = first + tl::program_id(0) * 2 + r;
                let twice = tl::load(x + row * 2 * d + columns, (columns < d) & (row < n));
                tl::store(out + row * d + columns, twice, (row < n) & (columns < d));
                tl::store(out + tl::program_id(0) * d + columns, twice, (row < n) & (columns < d));
            }
        }",
        expect![[r#"
            x: 0 <= first, 0 <= d, 2 * n * d - d <= x.len()
            out: 0 <= first, 0 <= d, n * d <= out.len()
            out: 0 <= d, d * num_programs(0) <= out.len()
            x: 0 <= first, 0 <= d, 2 * n * d - d <= x.len()
            out: 0 <= first, 0 <= d, n * d <= out.len()
            out: 0 <= d, d * num_programs(0) <= out.len()
        "#]],
    );
}

/// The nearer of two ends of a row counts, whichever is written first.
#[test]
fn neighbors_of_a_stencil_are_in_bounds() {
    decisions(
        "#[fuse_kernel]
        fn k(x: &[f32], out: &mut [f32], m: i32, n: i32) {
            let rows = (tl::program_id(0) * 16 + tl::arange(0, 16)).col();
            let columns = (tl::program_id(1) * 32 + tl::arange(0, 32)).row();
            let (mask, here) = ((rows < m) & (columns < n), rows * n + columns);
            let north = tl::load(x + here - n, mask & (rows >= 1), 0.0);
            let south = tl::load(x + here + n, mask & (rows + 1 < m), 0.0);
            let west = tl::load(x + here - 1, mask & (columns >= 1), 0.0);
            let east = tl::load(x + here + 1, (columns + 1 < n) & mask, 0.0);
            tl::store(out + here, north + south + west + east, mask);
        }",
        expect![[r#"
            x: 0 <= n, m * n - n <= x.len()
            x: 0 <= n, m * n <= x.len()
            x: 0 <= n, -1 + m * n <= x.len()
            x: 0 <= n, m * n <= x.len()
            out: 0 <= n, m * n <= out.len()
        "#]],
    );
}

/// Elements of a tensor of `n x b x c`, numbered, which are read from one with other strides.
const QUOTIENTS: &str =
    "#[fuse_kernel] fn k(x: &[f32], out: &mut [f32], n: i32, b: i32, c: i32, s: i32, t: i32) {
        let at = tl::program_id(0) * 4 + tl::arange(0, 4);
        let mask = at < n * b * c;
        let row = at / c % b;
        let from = at / (b * c) * s + row / 2 * t + at % c + 2 - row;
        tl::store(out + at, tl::load(x + from, mask & (row <= 2), 0.0), mask);
    }";

/// Where the guards of quotients hold, no element of any program is outside.
#[test]
fn guarded_quotients_are_in_bounds() {
    let func = func(QUOTIENTS);
    let decisions = BoundsDecisions::analyze(&func, &Polynomials::analyze(&func));
    let mut guards = None;
    func.body.walk(&mut |op| {
        if let Kind::Load(load) = &op.kind
            && let BoundsDecision::Guarded(bounds) = decisions.get(&load.access)
        {
            guards = Some(bounds.guards);
        }
    });
    let guards = guards.expect("guards of the load");
    let mut read = 0;
    let sizes = || -1..5i64;
    let shapes = sizes().flat_map(|n| sizes().flat_map(move |b| sizes().map(move |c| [n, b, c])));
    let launches = shapes.flat_map(|shape| [-1, 0, 3, 8].map(|s| (shape, s)));
    for ([n, b, c], s) in launches {
        for (t, len, grid) in sizes()
            .flat_map(|t| [0, 9, 40].into_iter().flat_map(move |len| [1, 5].map(|grid| (t, len, grid))))
        {
            let scalars = [len, 1000, n, b, c, s, t];
            if !guards.iter().all(|guard| holds(guard, &scalars, [grid, 1, 1])) {
                continue;
            }
            for at in (0..4 * grid).filter(|&at| at < n * b * c) {
                let row = at / c % b;
                let place = at / (b * c) * s + row / 2 * t + at % c + 2 - row;
                assert!(row > 2 || (0..len).contains(&place), "{scalars:?}: element {at} at {place}");
                read += 1;
            }
        }
    }
    assert!(read > 100, "the guards hold for real arguments, found {read}");
}

/// Pixels of blocks, as depth to space reads them: nothing relates the number of elements to the shape of an image.
const BLOCKS: &str = "#[fuse_kernel]
    fn k(x: &[f32], out: &mut [f32], total: i32, h: i32, w: i32, b: i32) {
        let at = tl::program_id(0) * 4 + tl::arange(0, 4);
        let mask = at < total;
        let (out_h, out_w) = (h * b, w * b);
        let (col, row, plane) = (at % out_w, at / out_w % out_h, at / (out_w * out_h));
        let channel = (plane * b + row % b) * b + col % b;
        tl::store(out + at, tl::load(x + (channel * h + row / b) * w + col / b, mask), mask);
    }";

/// A number of elements that is no multiple of an image gives the images that it begins.
#[test]
fn quotients_of_unrelated_sizes_are_in_bounds() {
    decisions(
        BLOCKS,
        expect![[r#"
        x: 0 <= h, 0 <= w, 0 <= b, -1 + 4 * num_programs(0) <= 2147483647, 1 <= h * w * b * b, h * w * b * b <= 2147483647, 1 <= b, 1 <= h * b, 1 <= w * b, w * b <= 2147483647, -1 + cdiv(4 * num_programs(0), w * b) <= 2147483647, -2147483648 <= h * b, -1 + h * b <= 2147483647, -2147483648 <= w * b, -1 + w * b <= 2147483647, h * w * b * b * cdiv(total, h * w * b * b) <= x.len()
        out: total <= out.len()
    "#]],
    );
    let func = func(BLOCKS);
    let decisions = BoundsDecisions::analyze(&func, &Polynomials::analyze(&func));
    let mut guards = None;
    func.body.walk(&mut |op| {
        if let Kind::Load(load) = &op.kind
            && let BoundsDecision::Guarded(bounds) = decisions.get(&load.access)
        {
            guards = Some(bounds.guards);
        }
    });
    let guards = guards.expect("guards of the load");
    let (mut read, mut tight) = (0, false);
    let shapes = (-1..4i64).flat_map(|h| (-1..4i64).flat_map(move |w| (-1..3i64).map(move |b| [h, w, b])));
    for ([h, w, b], total) in
        shapes.flat_map(|shape| [-1, 0, 1, 7, 8, 12, 36, 37].map(|total| (shape, total)))
    {
        for (len, grid) in [0, 8, 36, 72].into_iter().flat_map(|len| [1, 10].map(|grid| (len, grid))) {
            if !guards.iter().all(|guard| holds(guard, &[len, 1000, total, h, w, b], [grid, 1, 1])) {
                continue;
            }
            for at in (0..4 * grid).filter(|&at| at < total) {
                let (out_h, out_w) = (h * b, w * b);
                let (col, row, plane) = (at % out_w, at / out_w % out_h, at / (out_w * out_h));
                let channel = (plane * b + row % b) * b + col % b;
                let place = (channel * h + row / b) * w + col / b;
                assert!((0..len).contains(&place), "{h} x {w} by {b}, {total}: element {at} at {place}");
                read += 1;
            }
            tight |= total == len && total == 36;
        }
    }
    assert!(read > 100 && tight, "the guards hold for real arguments, found {read}");
}

/// A launch divides by the product of two arguments, and a kernel by what is left of it in 32 bits.
#[test]
fn a_computed_divisor_bounds_nothing() {
    decisions(
        "#[fuse_kernel] fn k(x: &[f32], y: &[f32], out: &mut [f32], n: i32, h: i32, w: i32) {
            let at = tl::arange(0, 64);
            let by_argument = tl::load(x + at, at < tl::cdiv(n, h));
            let by_product = tl::load(y + at, at < tl::cdiv(n, h * w));
            tl::store(out + at, by_argument + by_product);
        }",
        expect![[r#"
            x: cdiv(n, h) <= x.len()
            y: compared in the kernel
            out: 64 <= out.len()
        "#]],
    );
}

/// A mask of rows bounds quotients of rows, and says nothing of quotients of columns.
#[test]
fn a_quotient_is_bounded_by_masks_on_its_axis() {
    decisions(
        "#[fuse_kernel] fn k(x: &[f32], y: &[f32], out: &mut [f32], n: i32) {
            let at = tl::program_id(0) * 64 + tl::arange(0, 64);
            let mask = (at < 8 * n).col();
            let rows = tl::load(x + (at / 8).col() + at.row() * 0, mask, 0.0);
            let cols = tl::load(y + (at / 8).row() + at.col() * 0, mask, 0.0);
            tl::store(out + at, tl::sum(rows + cols, 0));
        }",
        expect![[r#"
            x: -1 + 64 * num_programs(0) <= 2147483647, n <= x.len()
            y: -1 + 64 * num_programs(0) <= 2147483647, 8 + n <= y.len()
            out: 64 * num_programs(0) <= out.len()
        "#]],
    );
}

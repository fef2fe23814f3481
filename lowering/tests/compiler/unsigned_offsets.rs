//! Offsets of `u64`, run on this CPU: exact in 128 bits, as those of `i32` are in 64, wherever their parts wrap.

use super::run::{Arg, Loaded, load};

const MAX: u64 = u64::MAX;

/// A kernel that stores 5 at `out + offset`, of 256 elements.
fn source(offset: &str) -> String {
    format!(
        "#[fuse_kernel]
        fn k(out: &mut [u8], at: &[u64], first: u64, second: u64, n: i32) {{
            let i = tl::arange(0, 4);
            let at = tl::load(at + i);
            tl::store(out + {offset}, 5u8, i == i);
        }}"
    )
}

/// The elements that the kernel writes.
fn written(levels: &[Loaded], at: [u64; 4], scalars: [u64; 3]) -> Vec<usize> {
    let mut found = None;
    for loaded in levels {
        let (mut out, mut at) = (vec![0u8; 256], at);
        let [first, second, n] = scalars.map(Arg::Scalar);
        loaded.call([1, 1, 1], &mut [Arg::of(&mut out), Arg::of(&mut at), first, second, n]);
        let own: Vec<usize> = (0..256).filter(|&i| out[i] == 5).collect();
        assert!(out.iter().all(|&element| element == 0 || element == 5));
        assert_eq!(*found.get_or_insert_with(|| own.clone()), own, "{:?}", loaded.level);
    }
    found.expect("a level of this CPU")
}

/// An offset as the kernel writes it, and what it is.
type Case = (&'static str, fn(i: i128, at: i128, first: i128, second: i128, n: i128) -> i128);

const CASES: &[Case] = &[
    ("at", |_, at, _, _, _| at),
    ("192 + at", |_, at, _, _, _| 192 + at),
    ("at + 192", |_, at, _, _, _| at + 192),
    ("(at + 192)", |_, at, _, _, _| at + 192),
    ("at + i", |i, at, _, _, _| at + i),
    ("i + n + at", |i, at, _, _, n| i + n + at),
    ("192 - at", |_, at, _, _, _| 192 - at),
    ("(192 - at) + i", |i, at, _, _, _| 192 - at + i),
    ("100 + (at - first) + i", |i, at, first, _, _| 100 + at - first + i),
    ("first + i", |i, _, first, _, _| first + i),
    ("64 + first + i", |i, _, first, _, _| 64 + first + i),
    ("(first + second) + i", |i, _, first, second, _| first + second + i),
    ("(first - second) + i", |i, _, first, second, _| first - second + i),
    ("first - second + i", |i, _, first, second, _| first - second + i),
    ("i + first + second", |i, _, first, second, _| i + first + second),
    ("first * second + i", |i, _, first, second, _| first.wrapping_mul(second).wrapping_add(i)),
    ("(at * second)", |_, at, _, second, _| at.wrapping_mul(second)),
    ("(at * second - first * second) + i", |i, at, first, second, _| {
        (at - first).wrapping_mul(second).wrapping_add(i)
    }),
    ("(at << 2)", |_, at, _, _, _| at << 2),
    ("(at << 2) + n", |_, at, _, _, n| (at << 2) + n),
    ("n + (i as u64 + first)", |i, _, first, _, n| n + i + first),
    ("(i as u64 * 3 + first)", |i, _, first, _, _| i * 3 + first),
];

#[test]
fn offsets_of_u64_are_exact() {
    let values = [0, 3, 8, 188, 1 << 31, 1 << 62, 1 << 63, MAX - 250, MAX - 3, MAX];
    for &(offset, exact) in CASES {
        let levels = load(&source(offset));
        for first in values {
            for second in [0, 1, 4, 1 << 62, MAX - 3] {
                for n in [0, -4, i32::MAX] {
                    let at = [first.wrapping_add(7), MAX - 3, 9, second];
                    let elements = (0..4).map(|i| {
                        let [at, first, second] = [at[i], first, second].map(i128::from);
                        exact(i as i128, at, first, second, n.into())
                    });
                    let elements = elements.filter_map(|element| usize::try_from(element).ok());
                    let mut wanted: Vec<usize> = elements.filter(|&element| element < 256).collect();
                    wanted.sort();
                    wanted.dedup();
                    let got = written(&levels, at, [first, second, n as u64]);
                    assert_eq!(got, wanted, "{offset}: at {at:?}, first {first}, second {second}, n {n}");
                }
            }
        }
    }
}

#[test]
fn what_a_user_converts_has_the_bits_of_its_type() {
    let [sum, bits] = ["192 + (at as i64)", "(192 + at) as i64"].map(source);
    for source in [sum, bits] {
        assert_eq!(written(&load(&source), [MAX - 3, MAX, 300, 4], [0; 3]), [188, 191, 196], "{source}");
    }
}

/// A comparison of exact numbers: an offset, another one, and a bound.
type Comparison = fn(i128, i128, i128) -> bool;

#[test]
fn comparisons_of_u64_are_exact() {
    let compared = |condition: &str| {
        format!(
            "#[fuse_kernel]
            fn k(out: &mut [u8], at: &[u64], first: u64, second: u64, n: i32) {{
                let i = tl::arange(0, 4);
                let at = tl::load(at + i);
                tl::store(out + i, 5u8, {condition});
            }}"
        )
    };
    let cases: [(&str, Comparison); 9] = [
        ("at < first", |at, first, _| at < first),
        ("at >= first", |at, first, _| at >= first),
        ("at + second < first", |at, first, second| at + second < first),
        ("at - second <= first", |at, first, second| at - second <= first),
        ("at * second > first", |at, first, second| at.wrapping_mul(second) > first),
        ("at + 17 >= first + second", |at, first, second| at + 17 >= first + second),
        ("at - first == second - 4", |at, first, second| at - first == second - 4),
        ("at - first != second - 4", |at, first, second| at - first != second - 4),
        ("(at == at) & (first + second > second)", |_, first, second| first + second > second),
    ];
    let values = [0, 4, 1 << 62, 1 << 63, MAX - 3, MAX];
    for (condition, exact) in cases {
        let levels = load(&compared(condition));
        for first in values {
            for second in values {
                let at = [first, MAX - 3, 9, second];
                let holds = |&i: &usize| {
                    let [at, first, second] = [at[i], first, second].map(i128::from);
                    exact(at, first, second)
                };
                let wanted: Vec<usize> = (0..4).filter(holds).collect();
                let got = written(&levels, at, [first, second, 0]);
                assert_eq!(got, wanted, "{condition}: at {at:?}, first {first}, second {second}");
            }
        }
    }
}

#[test]
fn loads_and_atomics_take_u64() {
    let source = "#[fuse_kernel]
        fn k(x: &[i32], out: &mut [i32], sums: &mut [i32], at: u64) {
            let i = tl::arange(0, 4);
            tl::store(out + i, tl::load(x + at + i + 17));
            tl::atomic_add(sums + 17 + at + i, 1);
        }";
    for loaded in load(source) {
        for at in [0, 3, 1 << 62, 1 << 63, MAX - 16, MAX - 3, MAX] {
            let mut x: Vec<i32> = (0..24).map(|i| i + 1).collect();
            let (mut out, mut sums) = (vec![7; 4], vec![0; 24]);
            let args = &mut [Arg::of(&mut x), Arg::of(&mut out), Arg::of(&mut sums), Arg::Scalar(at)];
            loaded.call([1, 1, 1], args);
            let places: Vec<usize> =
                (0..4).map(|i| usize::try_from(at).map_or(99, |at| at.saturating_add(17 + i))).collect();
            let read: Vec<i32> = places.iter().map(|&place| x.get(place).copied().unwrap_or(0)).collect();
            assert_eq!(out, read, "{at} {:?}", loaded.level);
            let counted: Vec<i32> = (0..24).map(|place| places.contains(&place).into()).collect();
            assert_eq!(sums, counted, "{at} {:?}", loaded.level);
        }
    }
}

#[test]
fn coordinates_of_views_take_u64() {
    let source = "#[fuse_kernel]
        fn k(x: &View<i32, 2>, out: &mut [i32], row: u64, column: u64) {
            let tile = x.load::<2, 2>(row + 3, column);
            tl::store(out + tl::arange(0, 4), tl::reshape(tile, [4]));
        }";
    for loaded in load(source) {
        for row in [0, 1, 5, 1 << 62, 1 << 63, MAX - 3, MAX - 2, MAX] {
            for column in [0, 3, 1 << 63, MAX - 1, MAX] {
                let mut x: Vec<i32> = (0..64).map(|i| i + 1).collect();
                let mut out = vec![7; 4];
                let shape = [8, 8, 8, 1].map(Arg::Scalar);
                let args = [Arg::of(&mut x)].into_iter().chain(shape);
                let mut args: Vec<Arg> =
                    args.chain([Arg::of(&mut out), Arg::Scalar(row), Arg::Scalar(column)]).collect();
                loaded.call([1, 1, 1], &mut args);
                let element = |i: u64| {
                    let (row, column) =
                        (i128::from(row) + 3 + i128::from(i / 2), i128::from(column) + i128::from(i % 2));
                    if row < 8 && column < 8 { (row * 8 + column) as i32 + 1 } else { 0 }
                };
                let wanted: Vec<i32> = (0..4).map(element).collect();
                assert_eq!(out, wanted, "{row} {column} {:?}", loaded.level);
            }
        }
    }
}

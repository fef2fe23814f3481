//! Pointers that loops carry and branches give, run on this CPU: their offsets are exact past 2^31, whatever moves them.

use super::run::{Arg, load};

/// How a kernel moves a pointer to four elements of `out`, and by how much in all.
struct Walk {
    text: &'static str,
    offset: fn(product: i128, n: i128) -> i128,
}

const WALKS: &[Walk] = &[
    Walk {
        text: "let mut at = out + first * second + i;
               let mut left = n;
               while left > 0 { at += first * second; left -= 1; }",
        offset: |product, n| product * (1 + n),
    },
    Walk {
        text: "let mut at = out + i;
               for _turn in 0..n { at += first * second; }",
        offset: |product, n| product * n,
    },
    Walk {
        text: "let mut at = out + i;
               for turn in 0..n { at += first * second * turn; }",
        offset: |product, n| product * (n * (n - 1) / 2),
    },
    Walk {
        text: "let mut row = out;
               let mut left = n;
               while left > 0 { row += first * second; left -= 1; }
               let at = row + i;",
        offset: |product, n| product * n,
    },
    Walk {
        text: "let mut at = out + i;
               let mut left = n;
               while left > 0 {
                   at += first * second;
                   if left > 1 { at -= first * second; } else { at += (first * second) as i64; }
                   left -= 1;
               }",
        offset: |product, n| if n > 0 { 2 * product } else { 0 },
    },
    Walk {
        text: "let at = if n > 1 { out + first * second + i } else { out + i - first * second };",
        offset: |product, n| if n > 1 { product } else { -product },
    },
    Walk {
        text: "let mut pair = (out + i, n);
               while pair.1 > 0 { pair = (pair.0 + (first as i64 * second as i64), pair.1 - 1); }
               let at = pair.0;",
        offset: |product, n| product * n,
    },
    Walk {
        text: "let mut at = out + i;
               let mut left = n;
               while left > 0 { at += first * second; left -= 1; }
               for _turn in 0..n { at -= first * second; }",
        offset: |_, _| 0,
    },
];

#[test]
fn offsets_of_carried_pointers_are_exact() {
    let values = [0, 1, 5, -3, 65536, -65536, i32::MAX, i32::MIN];
    for Walk { text, offset } in WALKS {
        let levels = load(&format!(
            "#[fuse_kernel]
            fn k(out: &mut [u8], first: i32, second: i32, n: i32) {{
                let i = tl::arange(0, 4);
                {text}
                tl::store(at, 5u8, i == i);
            }}"
        ));
        for (first, second) in values.iter().flat_map(|&first| values.map(|second| (first, second))) {
            // An `i64` has all offsets on the way.
            let product = i128::from(first) * i128::from(second);
            for n in (0..4).filter(|n| i64::try_from(product * (1 + n)).is_ok()) {
                let start = offset(product, n);
                let wanted: Vec<usize> = (start..start + 4)
                    .filter_map(|at| usize::try_from(at).ok())
                    .filter(|&at| at < 64)
                    .collect();
                for level in &levels {
                    let mut out = [0u8; 64];
                    let [first, second, n] =
                        [first.into(), second.into(), n as i64].map(|value: i64| Arg::Scalar(value as u64));
                    level.call([1, 1, 1], &mut [Arg::of(&mut out), first, second, n]);
                    let found: Vec<usize> = (0..64).filter(|&at| out[at] == 5).collect();
                    assert_eq!(found, wanted, "{text}: {:?}", level.level);
                }
            }
        }
    }
}

//! Random numbers against the published vectors, and against each other.

use super::run::{Arg, Loaded, load};

/// Runs a kernel `k(out: &mut [u32], a: .., b: ..)` as one program; returns the words it wrote.
fn words(source: &str, count: usize, scalars: &[u64]) -> Vec<u32> {
    words_of(&load(source), count, scalars)
}

fn words_of(kernel: &[Loaded], count: usize, scalars: &[u64]) -> Vec<u32> {
    let mut result = None;
    for loaded in kernel {
        let mut out = vec![f32::NAN; count];
        let mut args = vec![Arg::F32(&mut out)];
        args.extend(scalars.iter().map(|&scalar| Arg::Scalar(scalar)));
        loaded.call([1, 1, 1], &mut args);
        let words: Vec<u32> = out.iter().map(|word| word.to_bits()).collect();
        assert_eq!(result.get_or_insert_with(|| words.clone()), &words, "{:?}", loaded.level);
    }
    result.expect("every CPU has a level")
}

const BLOCK: &str = "#[fuse_kernel]
fn k(out: &mut [u32], seed: u64, c0: u32, c1: u32, c2: u32, c3: u32) {
    let (a, b, c, d) = tl::philox(seed, c0, c1, c2, c3);
    tl::store(out, a);
    tl::store(out + 1, b);
    tl::store(out + 2, c);
    tl::store(out + 3, d);
}";

/// `philox4x32 10` of the known answers that come with Random123.
#[test]
fn philox_gives_the_known_answers() {
    let of = |seed: u64, counter: [u64; 4]| words(BLOCK, 4, &[&[seed], counter.as_slice()].concat());
    assert_eq!(of(0, [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    let ones = 0xffff_ffff;
    assert_eq!(of(u64::MAX, [ones; 4]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    let digits = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
    assert_eq!(of(0x299f_31d0_a409_3822, digits), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
}

/// A kernel that writes the words of the 64 offsets from `first` on, computed by the expression `offsets`.
fn stream(offsets: &str, ty: &str) -> Vec<Loaded> {
    load(&format!(
        "#[fuse_kernel] fn k(out: &mut [u32], first: {ty}, seed: u64) {{
            let ramp = tl::arange(0, 64);
            tl::store(out + ramp, tl::randint(seed, {offsets}));
        }}"
    ))
}

/// The same words, each from a block of its own.
fn by_block(kernel: &[Loaded], first: u64, seed: u64) -> Vec<u32> {
    (0..64)
        .map(|i| {
            let offset = first.wrapping_add(i);
            let index = offset / 4;
            let block = words_of(kernel, 4, &[seed, index & 0xffff_ffff, index >> 32, 0, 0]);
            block[(offset % 4) as usize]
        })
        .collect()
}

#[test]
fn a_word_depends_on_seed_and_offset_alone() {
    let seed = 0x0123_4567_89ab_cdef;
    let block = load(BLOCK);
    let [unsigned, signed, narrow, aligned] = [
        ("first + ramp as u64", "u64"),
        ("first + ramp as i64", "i64"),
        ("first + ramp", "i32"),
        ("(first / 4) * 4 + ramp as i64", "i64"),
    ]
    .map(|(offsets, ty)| stream(offsets, ty));
    for first in [0u64, 1, 6, 1 << 31, u64::from(u32::MAX) - 30, (1 << 34) - 5, u64::MAX - 63] {
        let wanted = by_block(&block, first, seed);
        let of = |kernel: &[Loaded]| words_of(kernel, 64, &[first, seed]);
        assert_eq!(of(&unsigned), wanted, "from {first}");
        assert_eq!(of(&signed), wanted, "signed, from {first}");
        if first < 1 << 30 {
            assert_eq!(of(&narrow), wanted, "32 bits, from {first}");
        }
        if first.is_multiple_of(4) && first < 1 << 40 {
            assert_eq!(of(&aligned), wanted, "aligned, from {first}");
        }
    }
}

//! Values worth trying, for every element type, as bits.
//!
//! Special values in every combination, then random ones with a fixed seed: uniform bits, which also makes the magnitudes
//! of floats log-uniform, and magnitudes near 1 or near zero, where results are more than infinity and zero. One-byte
//! types are tried exhaustively, and two-byte ones where there is a single operand.

use dsl_runtime::DType;

use crate::float;

/// A generator of bits (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit as u64) as usize
    }
}

/// The bits of an element type that count.
pub fn mask(dtype: DType) -> u64 {
    match dtype {
        DType::Bool => 1,
        _ => u64::MAX >> (64 - 8 * dtype.bytes()),
    }
}

/// The values that operations get wrong.
pub fn special(dtype: DType) -> Vec<u64> {
    let mut values = match dtype {
        DType::Bool => vec![0, 1],
        // Zero, the subnormal and normal ends, one, the largest numbers, infinity and NaN.
        _ if dtype.is_f8() => [0, 1, 3, 4, 7, 8, 0x38, 0x3c, 0x7b, 0x7c, 0x7d, 0x7e, 0x7f]
            .into_iter()
            .flat_map(|bits| [bits, bits | 0x80])
            .collect(),
        _ if dtype.is_float() => special_floats(dtype),
        _ => special_integers(dtype),
    };
    let mut seen = vec![];
    values.retain(|value| {
        !seen.contains(value) && {
            seen.push(*value);
            true
        }
    });
    values
}

fn special_floats(dtype: DType) -> Vec<u64> {
    let format = float::Format::of(dtype);
    let mut positive: Vec<u64> = vec![
        0,
        1,                            // the smallest subnormal
        format.smallest_normal() - 1, // the largest subnormal
        format.smallest_normal(),
        format.infinity() - 1, // the largest number
        format.infinity(),
        format.infinity() | (format.smallest_normal() >> 1), // a quiet NaN
    ];
    let one = format.round(1.0);
    positive.extend([one - 1, one, one + 1]);
    let numbers = [
        0.25,
        0.5,
        0.75,
        1.5,
        2.0,
        2.5,
        3.0,
        3.5,
        10.0,
        88.0,
        127.0,
        128.0,
        255.0,
        1024.0,
        32767.0,
        32768.0,
        65504.0,
        std::f64::consts::PI,
        std::f64::consts::FRAC_PI_2,
        std::f64::consts::LN_2,
        1e-3,
        1e-6,
        2147483648.0,
        1e18,
        1e30,
    ];
    positive.extend(numbers.map(|number| format.round(number)));
    positive.iter().flat_map(|&bits| [bits, bits | format.sign()]).collect()
}

fn special_integers(dtype: DType) -> Vec<u64> {
    let width = 8 * dtype.bytes();
    let top = 1u64 << (width - 1);
    let mut values = vec![0, 1, 2, 3, 5, 7, 10, 31, 33, 64, 100, top - 2, top - 1, top, top + 1];
    for power in [width / 2 - 1, width / 2, width - 2] {
        values.extend([(1 << power) - 1, 1 << power, (1 << power) + 1]);
    }
    let negative: Vec<u64> = values.iter().map(|value: &u64| value.wrapping_neg()).collect();
    values.extend(negative);
    values.into_iter().map(|value| value & mask(dtype)).collect()
}

/// A random value: uniform bits, or a magnitude where things happen.
pub fn random(dtype: DType, random: &mut Random) -> u64 {
    let bits = random.bits();
    let choice = random.below(3);
    if dtype.is_float() && !dtype.is_f8() && choice > 0 {
        // Exponents near that of 1, or spread over a quarter of the range.
        let format = float::Format::of(dtype);
        let reach = if choice == 1 { 4 } else { format.exponents() as usize / 4 };
        let exponent = format.exponents() / 2 + random.below(2 * reach) as u64 - reach as u64;
        return format.with_exponent(bits & mask(dtype), exponent);
    }
    if dtype.is_integer() && choice == 1 {
        let value = bits >> (64 - 8 * dtype.bytes() + random.below(8 * dtype.bytes()));
        return if random.below(2) == 0 { value } else { value.wrapping_neg() & mask(dtype) };
    }
    bits & mask(dtype)
}

/// Operands of these types: lists of one length, a multiple of `chunk`.
pub fn operands(dtypes: &[DType], chunk: usize) -> Vec<Vec<u64>> {
    let mut tuples = exhaustive(dtypes).unwrap_or_else(|| mixed(dtypes));
    while !tuples.len().is_multiple_of(chunk) {
        tuples.push(tuples[tuples.len() / 3].clone());
    }
    (0..dtypes.len()).map(|i| tuples.iter().map(|tuple| tuple[i]).collect()).collect()
}

/// Every combination, if there are at most 65536.
fn exhaustive(dtypes: &[DType]) -> Option<Vec<Vec<u64>>> {
    let bits: usize = dtypes.iter().map(|dtype| mask(*dtype).count_ones() as usize).sum();
    if bits > 16 {
        return None;
    }
    let all = dtypes.iter().map(|dtype| (0..=mask(*dtype)).collect()).collect::<Vec<_>>();
    Some(product(&all))
}

fn mixed(dtypes: &[DType]) -> Vec<Vec<u64>> {
    let mut pools: Vec<Vec<u64>> = dtypes.iter().map(|dtype| special(*dtype)).collect();
    if dtypes.len() > 2 {
        // The first ones are the most special.
        pools.iter_mut().for_each(|pool| pool.truncate(20));
    }
    let mut tuples = product(&pools);
    let mut generator = Random(0x5eed);
    for _ in 0..4096 {
        tuples.push(dtypes.iter().map(|dtype| random(*dtype, &mut generator)).collect());
    }
    tuples
}

fn product(pools: &[Vec<u64>]) -> Vec<Vec<u64>> {
    pools.iter().fold(vec![vec![]], |tuples, pool| {
        let extended = |tuple: &Vec<u64>| {
            let tuple = tuple.clone();
            pool.iter().map(move |value| [tuple.as_slice(), &[*value]].concat()).collect::<Vec<_>>()
        };
        tuples.iter().flat_map(extended).collect()
    })
}

/// Values where conversions round: the ties between adjacent 16-bit floats and of `f32`, their neighbors, and
/// the ends of every integer type.
pub fn ties(dtype: DType) -> Vec<u64> {
    if !dtype.is_float() {
        let ends = (0..64).flat_map(|power| [(1u64 << power).wrapping_sub(1), 1 << power, (1 << power) | 1]);
        let halfway = (0..40).map(|power| 0x0100_0001u64 << power);
        return ends
            .chain(halfway)
            .flat_map(|value| [value, value.wrapping_neg()])
            .map(|v| v & mask(dtype))
            .collect();
    }
    if dtype.is_f8() {
        return (0..=0xff).collect();
    }
    let format = float::Format::of(dtype);
    let mut numbers = vec![];
    for power in 0..65 {
        let limit = 2f64.powi(power);
        numbers.extend([
            limit,
            limit - 0.5,
            limit - 1.0,
            limit + 1.0,
            limit * (1.0 + f64::EPSILON),
            limit.next_down(),
        ]);
    }
    for narrow in [DType::F16, DType::BF16, DType::F32] {
        let narrow = float::Format::of(narrow);
        let mut generator = Random(7);
        let neighbors = (0..512).map(|_| generator.bits() % narrow.infinity());
        for bits in neighbors.chain(0..32).chain(narrow.smallest_normal() - 8..narrow.smallest_normal() + 8) {
            let tie = f64::midpoint(narrow.value(bits), narrow.value(bits + 1));
            numbers.extend([tie, tie.next_up(), tie.next_down()]);
        }
        let largest = narrow.value(narrow.infinity() - 1);
        let overflow = largest + (largest - narrow.value(narrow.infinity() - 2)) / 2.0;
        numbers.extend([largest, overflow.next_down(), overflow, overflow.next_up()]);
    }
    for narrow in [DType::F8E4M3, DType::F8E5M2].map(float::Format::of) {
        for bits in 0..narrow.infinity() - 1 {
            let tie = f64::midpoint(narrow.value(bits), narrow.value(bits + 1));
            numbers.extend([tie, tie.next_up(), tie.next_down(), f64::from((tie as f32).next_up())]);
        }
    }
    numbers.extend([448.0, 464.0, 480.0, 57344.0, 61440.0, 65536.0]);
    numbers.iter().flat_map(|&number| [format.round(number), format.round(-number)]).collect()
}

//! [`fuse_ports::scatter`].

use dsl_runtime::prelude::*;
use fuse_ports::scatter::{embedding, embedding_bag, embedding_gradient, histogram, index_add, segment_sum};

use crate::data::{Expected, Output, SINGLE, devices, integers, normal};

/// What rows of `before` are once rows of `src` were added to those that `index` names.
fn added(before: &[f32], index: &[i64], src: &[bf16], cols: usize) -> Vec<Expected> {
    let exact = |x: &f32| (f64::from(*x), f64::from(x.abs()), 0.0);
    let mut sums: Vec<(f64, f64, f64)> = before.iter().map(exact).collect();
    for (row, target) in src.chunks(cols).zip(index) {
        let found = sums[*target as usize * cols..][..cols].iter_mut();
        for (x, (value, size, count)) in row.iter().zip(found) {
            *value += x.to_f64();
            *size += x.to_f64().abs();
            *count += 1.0;
        }
    }
    sums.into_iter().map(|(value, size, count)| Expected { value, within: count * SINGLE * size }).collect()
}

#[test]
fn index_add_adds_rows_where_the_index_says() {
    for device in devices() {
        for (rows, cols, targets) in [(50, 1025, 7), (64, 1024, 64)] {
            let src = normal::<bf16>(rows * cols, 1);
            let index = integers::<i64>(rows, 0..targets as i64, 2);
            let before = normal::<f32>(targets * cols, 3);
            let mut out = Output::of(&device, &before);
            let (index_in, src_in) = (device.upload(&index).unwrap(), device.upload(&src).unwrap());
            index_add::<1024>(out.slot(), &index_in, &src_in, cols as i32)
                .grid((rows, cols.div_ceil(1024)))
                .launch(&device)
                .unwrap();
            out.check(&format!("{rows} x {cols} on {device}"), &added(&before, &index, &src, cols));
        }
    }
}

#[test]
fn embedding_gathers_rows_and_adds_their_gradients() {
    for device in devices() {
        for (n, dim, entries) in [(45, 131, 10), (64, 128, 100)] {
            let table = normal::<bf16>(entries * dim, 1);
            let ids = integers::<i64>(n, 0..entries as i64, 2);
            let (table_in, ids_in) = (device.upload(&table).unwrap(), device.upload(&ids).unwrap());
            let grid = (n.div_ceil(32), dim.div_ceil(128));
            let mut out = Output::<bf16>::poisoned(&device, n * dim);
            embedding::<32, 128>(&table_in, &ids_in, out.slot(), n as i32, dim as i32)
                .grid(grid)
                .launch(&device)
                .unwrap();
            let rows = ids.iter().flat_map(|id| &table[*id as usize * dim..][..dim]);
            let expected: Vec<Expected> = rows.map(|x| Expected::exact(*x)).collect();
            out.check(&format!("{n} rows of {dim} on {device}"), &expected);

            let dy = normal::<bf16>(n * dim, 3);
            let dy_in = device.upload(&dy).unwrap();
            let before = vec![0.0f32; entries * dim];
            let mut grad = Output::of(&device, &before);
            embedding_gradient::<32, 128>(&dy_in, &ids_in, grad.slot(), n as i32, dim as i32)
                .grid(grid)
                .launch(&device)
                .unwrap();
            let expected = added(&before, &ids, &dy, dim);
            grad.check(&format!("gradient of {n} rows of {dim} on {device}"), &expected);
        }
    }
}

#[test]
fn segments_are_summed() {
    for device in devices() {
        for (lengths, cols) in [(vec![0, 5, 33, 0, 1], 131), (vec![16, 32], 128)] {
            let starts: Vec<i32> = std::iter::once(0)
                .chain(lengths.iter().scan(0, |end, length| {
                    *end += length;
                    Some(*end)
                }))
                .collect();
            let rows = lengths.iter().sum::<i32>() as usize;
            let x = normal::<bf16>(rows * cols, 1);
            let mut out = Output::<bf16>::poisoned(&device, lengths.len() * cols);
            let (x_in, starts_in) = (device.upload(&x).unwrap(), device.upload(&starts).unwrap());
            segment_sum::<16, 128>(&x_in, &starts_in, out.slot(), cols as i32)
                .grid((lengths.len(), cols.div_ceil(128)))
                .launch(&device)
                .unwrap();
            let mut expected = vec![];
            for bounds in starts.windows(2) {
                for col in 0..cols {
                    let column = || (bounds[0]..bounds[1]).map(|row| x[row as usize * cols + col].to_f64());
                    let size: f64 = column().map(f64::abs).sum();
                    let count = f64::from(bounds[1] - bounds[0]);
                    expected.push(Expected::rounded::<bf16>(column().sum(), count * SINGLE * size));
                }
            }
            out.check(&format!("{lengths:?} x {cols} on {device}"), &expected);
        }
    }
}

#[test]
fn histogram_counts_what_occurs() {
    for device in devices() {
        for n in [1, 5001, 8192] {
            let x = integers::<i32>(n, 0..256, 1);
            let mut counts = Output::<i32>::of(&device, &[0; 256]);
            let x_in = device.upload(&x).unwrap();
            histogram::<4096>(&x_in, counts.slot(), n as i32).grid(n.div_ceil(4096)).launch(&device).unwrap();
            let count = |bin: i32| x.iter().filter(|x| **x == bin).count() as i32;
            let expected: Vec<Expected> = (0..256).map(|bin| Expected::exact(count(bin))).collect();
            counts.check(&format!("{n} numbers on {device}"), &expected);
        }
    }
}

#[test]
fn bags_sum_the_rows_they_name() {
    let entries = 40;
    for device in devices() {
        for (lengths, dim) in [(vec![3, 0, 33, 8, 1], 131), (vec![8, 16], 128)] {
            let starts: Vec<i32> = (0..=lengths.len()).map(|bag| lengths[..bag].iter().sum()).collect();
            let table = normal::<bf16>(entries * dim, 1);
            let ids = integers::<i32>(lengths.iter().sum::<i32>() as usize, 0..entries as i64, 2);
            let mut out = Output::<bf16>::poisoned(&device, lengths.len() * dim);
            let table_in = device.upload(&table).unwrap();
            let [ids_in, starts_in] = [&ids, &starts].map(|x| device.upload(x).unwrap());
            embedding_bag::<8, 128>(&table_in, &ids_in, &starts_in, out.slot(), dim as i32)
                .grid((lengths.len(), dim.div_ceil(128)))
                .launch(&device)
                .unwrap();
            let mut expected = vec![];
            for bag in starts.windows(2).map(|of| &ids[of[0] as usize..of[1] as usize]) {
                for col in 0..dim {
                    let column = || bag.iter().map(|id| table[*id as usize * dim + col].to_f64());
                    let size: f64 = column().map(f64::abs).sum();
                    expected
                        .push(Expected::rounded::<bf16>(column().sum(), bag.len() as f64 * SINGLE * size));
                }
            }
            out.check(&format!("{lengths:?} x {dim} on {device}"), &expected);
        }
    }
}

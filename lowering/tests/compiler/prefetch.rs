//! What a dot on the CPU loads ahead: nothing that its kernel would not load.

use std::ffi::c_void;
use std::ptr::{null_mut, without_provenance_mut};

use tile_ir::transform::legalize_index::{BoundsPolicy, legalize_index};

use super::first;
use super::run::{Arg, Loaded, load_plan};
use lowering::cpu::emit::CpuPlan;

/// An operand whose columns are at a place that each iteration loads.
const GATHERED: &str = "#[fuse_kernel(T = [f32])]
    fn gathered<T: Float>(dense: &[T], cols: &[i32], out: &mut [f32], count: i32) {
        let b = tl::arange(0, 64);
        let mut acc = tl::zeros::<f32>([64, 64]);
        for i in tl::range(0, count, 1) {
            let col = tl::load(cols + i);
            let v = tl::load(dense + (col * 64 + b).col() * 64 + b.row());
            acc = tl::dot(v, v, acc);
        }
        tl::store(out + b.col() * 64 + b.row(), acc);
    }";

fn gathered(reports: bool, policy: BoundsPolicy) -> Vec<Loaded> {
    let (mut func, _) = first(GATHERED);
    func.reports = reports;
    legalize_index(&mut func, policy);
    load_plan(&CpuPlan::new(func))
}

/// Runs the kernel on identity matrices: each iteration adds one.
fn check(loaded: &Loaded, cols: (*mut i32, usize), record: Option<&mut [i64; 9]>) {
    let (tiles, count) = (2, cols.1);
    let mut dense = vec![0f32; tiles * 64 * 64];
    (0..tiles * 64).for_each(|row| dense[row * 64 + row % 64] = 1.0);
    let mut out = vec![f32::NAN; 64 * 64];
    let mut args = vec![
        Arg::F32(&mut dense),
        Arg::Memory(cols.0.cast(), count),
        Arg::F32(&mut out),
        Arg::Scalar(count as u64),
    ];
    args.extend(record.map(|record| Arg::Scalar(record.as_mut_ptr().addr() as u64)));
    loaded.call([1, 1, 1], &mut args);
    let wanted = |i: usize| if i / 64 == i % 64 { count as f32 } else { 0.0 };
    assert!((0..64 * 64).all(|i| out[i] == wanted(i)), "{:?} {count}", loaded.level);
}

#[test]
fn a_right_kernel_reports_nothing() {
    for loaded in gathered(true, BoundsPolicy::Masked) {
        for mut cols in [vec![], vec![1], vec![1, 0, 1]] {
            let mut record = [0; 9];
            check(&loaded, (cols.as_mut_ptr(), cols.len()), Some(&mut record));
            assert_eq!(record, [0; 9], "{:?} {}", loaded.level, cols.len());
        }
    }
}

unsafe extern "C" {
    fn mmap(
        at: *mut c_void,
        bytes: usize,
        protection: i32,
        flags: i32,
        file: i32,
        offset: i64,
    ) -> *mut c_void;
    fn mprotect(at: *mut c_void, bytes: usize, protection: i32) -> i32;
}

/// A page that may be read and written, with none after it.
fn last_page() -> (*mut c_void, usize) {
    const BYTES: usize = 4096;
    let (read_write, private_anonymous) = (3, 0x22);
    // SAFETY: a new mapping of two pages, whose second one is closed; nothing else is in either.
    unsafe {
        let start = mmap(null_mut(), 2 * BYTES, read_write, private_anonymous, -1, 0);
        assert_ne!(start, without_provenance_mut(usize::MAX));
        assert_eq!(mprotect(start.byte_add(BYTES), BYTES, 0), 0);
        (start, BYTES)
    }
}

#[test]
fn an_unchecked_kernel_reads_only_its_slices() {
    let (start, bytes) = last_page();
    for loaded in gathered(false, BoundsPolicy::Unchecked) {
        for count in [0, 1, 3] {
            let cols = start.wrapping_byte_add(bytes - count * size_of::<i32>()).cast::<i32>();
            // SAFETY: the last `count` elements of the page.
            (0..count).for_each(|i| unsafe { cols.add(i).write((i as i32 + 1) % 2) });
            check(&loaded, (cols, count), None);
        }
    }
}

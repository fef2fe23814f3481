use dsl_runtime::prelude::*;

#[fuse_kernel(T = [f32, f32, i32], N = [], M = [64, -1, true])]
fn lists<T: Float, const N: usize, const M: usize>(x: &[T]) {}

#[fuse_kernel(T = [f32], configs = [{ N: 64, num_warps: 4 }, { N: 64 }, { K: 1, num_warps: 3 }])]
fn configs<T: Float, const N: usize>(x: &[T]) {}

#[fuse_kernel(warps = 4, num_warps = [4, 8], fast)]
fn options<T: Float>(x: &[T]) {}

fn main() {}

//! What mistakes get that come with the words of CUDA, Triton, NumPy, PyTorch and Rust: each a line of a kernel or a signature,
//! with its message and help. The names themselves are a table, with a test of its own (`foreign`).

use expect_test::{Expect, expect};

use tile_ir::support::diagnostic::Errors;
use tile_ir::testing::{mistakes, module};

/// The messages of each statement in a kernel of its own, which has memory, a view, scalars and tiles.
fn check(statements: &[&str], expected: Expect) {
    let kernel = |statement: &&str| {
        format!(
            "#[fuse_kernel(N = [64])]
            fn k<const N: usize>(
                x: &[f32], out: &mut [f32], cnt: &mut [i32], ids: &[i64], v: &View<f32, 2>, w: &mut View<f32, 2>, n: i32, a: f32,
            ) {{
                let lane = tl::arange(0, N);
                let m = lane < n;
                let y = tl::load(x + lane, m);
                let t = tl::reshape(tl::load(x + tl::arange(0, 256)), [16, 16]);
                {statement}
            }}"
        )
    };
    let texts: String = statements.iter().map(|one| described(one, &mistakes(&kernel(one)))).collect();
    expected.assert_eq(&texts);
}

/// The messages of whole kernels.
fn check_kernels(kernels: &[&str], expected: Expect) {
    let texts: String = kernels.iter().map(|one| described(one, &mistakes(one))).collect();
    expected.assert_eq(&texts);
}

/// The messages of modules.
fn check_modules(modules: &[&str], expected: Expect) {
    let texts: String = modules.iter().map(|one| described(one, &module(one).1)).collect();
    expected.assert_eq(&texts);
}

/// The input, and the text of each message.
fn described(input: &str, errors: &Errors) -> String {
    let texts: String =
        errors.iter().map(|error| format!("    {}\n", error.text().replace('\n', "\n        "))).collect();
    format!("{input}\n{texts}")
}

#[test]
fn words_of_cuda() {
    check(
        &[
            "let j = threadIdx.x + blockIdx.x * blockDim.x; tl::store(out + j, a);",
            "if threadIdx.x == 0 { tl::store(out, 1.0); }",
            "atomicAdd(&out[lane], y);",
            "let v4 = float4 { x: a, y: a, z: a, w: a };",
            "out[lane] = y;",
            "out[n] += a;",
            "let p = x + lane; let z = *p;",
            "for i in (threadIdx.x..n).step_by(256) { tl::store(out + i, a); }",
            "let g = cooperative_groups::this_grid(); g.sync();",
            "let z = __shfl_down_sync(0xffffffff, y, 16);",
            r#"printf("%f", y);"#,
            "let z = make_float4(a, a, a, a);",
            "let z = x + tl::program_id(0) * blockDim.x;",
            "__threadfence();",
            "let z = __ballot_sync(0xffffffff, m);",
            "let g = make_tensor(make_gmem_ptr(x), make_shape(64, 64), make_stride(64, 1));",
            "let z = expf(expf(y));",
            "cp_async_cg(x, 16);",
            "mma_sync(t, t, t);",
            "let p = x as *const float4;",
            r#"unsafe { core::arch::asm!("ex2.approx.f32 {}, {};", out(reg) z, in(reg) a) };"#,
            "let z = __hmul2(y, y);",
        ],
        expect![[r#"
            let j = threadIdx.x + blockIdx.x * blockDim.x; tl::store(out + j, a);
                `threadIdx` is not defined
                    help: a program has no threads: `tl::arange(0, N)` numbers the elements of its tile, with a constant `N`
                `blockIdx` is not defined
                    help: this program's index along the grid's first axis is `tl::program_id(0)`
                `blockDim` is not defined
                    help: a program has no threads: the extent of its tile is a constant, such as the `N` of `tl::arange(0, N)`
            if threadIdx.x == 0 { tl::store(out, 1.0); }
                `threadIdx` is not defined
                    help: a program has no threads: `tl::arange(0, N)` numbers the elements of its tile, with a constant `N`
            atomicAdd(&out[lane], y);
                `atomicAdd` cannot be called in a kernel
                    help: it is `tl::atomic_add(pointer, value)` here
            let v4 = float4 { x: a, y: a, z: a, w: a };
                a struct cannot be used in a kernel
                    help: a tile is the vector: loads and stores of a tile are as wide as its addresses allow
            out[lane] = y;
                a slice cannot be indexed
                    help: write memory with `tl::store(out + lane, value)`
            out[n] += a;
                a slice cannot be indexed
                    help: read and write memory: `tl::store(out + n, tl::load(out + n) + value)`
            let p = x + lane; let z = *p;
                dereferencing cannot be used in a kernel
                    help: read memory with `tl::load(pointer)`
            for i in (threadIdx.x..n).step_by(256) { tl::store(out + i, a); }
                `threadIdx` is not defined
                    help: a program has no threads: `tl::arange(0, N)` numbers the elements of its tile, with a constant `N`
            let g = cooperative_groups::this_grid(); g.sync();
                `cooperative_groups::this_grid` cannot be called in a kernel
                    help: programs do not wait for each other: what needs the results of all of them is a kernel of its own, launched after this one
            let z = __shfl_down_sync(0xffffffff, y, 16);
                `__shfl_down_sync` cannot be called in a kernel
                    help: a program has no lanes to exchange between: `tl::sum(x, axis)` reduces a tile, `tl::gather(x, index, axis)` picks elements
            printf("%f", y);
                `printf` cannot be called in a kernel
                    help: `tl::device_print("label", value)` prints in debug builds
            let z = make_float4(a, a, a, a);
                `make_float4` cannot be called in a kernel
                    help: a tile is the vector: loads and stores of a tile are as wide as its addresses allow
            let z = x + tl::program_id(0) * blockDim.x;
                `blockDim` is not defined
                    help: a program has no threads: the extent of its tile is a constant, such as the `N` of `tl::arange(0, N)`
            __threadfence();
                `__threadfence` cannot be called in a kernel
                    help: an atomic orders memory between programs: `tl::atomic_add(pointer, value).sem("acq_rel")`
            let z = __ballot_sync(0xffffffff, m);
                `__ballot_sync` cannot be called in a kernel
                    help: a mask is a tile of bools: `tl::sum(mask.to::<i32>(), 0)` counts those that are true
            let g = make_tensor(make_gmem_ptr(x), make_shape(64, 64), make_stride(64, 1));
                `make_tensor` cannot be called in a kernel
                    help: take the parameter as a view, `x: &View<f32, 2>`, and load its tiles: `x.load::<64, 64>(row, col)`; the compiler lays them out
            let z = expf(expf(y));
                `expf` cannot be called in a kernel
                    help: it is `tl::exp(x)` here
                `expf` cannot be called in a kernel
                    help: it is `tl::exp(x)` here
            cp_async_cg(x, 16);
                `cp_async_cg` cannot be called in a kernel
                    help: load a tile, `tl::load(x + offsets, mask)`: the compiler copies it asynchronously, as many iterations ahead as `num_stages` says
            mma_sync(t, t, t);
                `mma_sync` cannot be called in a kernel
                    help: `tl::dot(a, b, acc)` of whole tiles uses the tensor cores
            let p = x as *const float4;
                this type cannot be used in a kernel
                    help: leave the cast out: a slice plus offsets is a pointer, `x + offsets`, and a tile's accesses are as wide as its addresses allow
            unsafe { core::arch::asm!("ex2.approx.f32 {}, {};", out(reg) z, in(reg) a) };
                an `unsafe` block cannot be used in a kernel
                    help: leave it out: nothing in a kernel is unsafe
                the macro `asm!` cannot be used in a kernel
                    help: it is `tl::inline_ptx::<f32>(text, constraints, operands, cpu)` here
            let z = __hmul2(y, y);
                `__hmul2` cannot be called in a kernel
                    help: use the operators `+`, `-` and `*`
        "#]],
    );
}

#[test]
fn habits_of_triton() {
    check(
        &[
            "let z = tl::load(x, lane, m);",
            "tl::store(out, lane, y);",
            "let z = tl::load(x) + lane;",
            "let z = tl::full([N], f32);",
            r#"let z = tl::cast(y, "f16");"#,
            r#"let z = y.to("float16");"#,
            r#"let z = tl::load(x + lane, eviction_policy = "evict_last");"#,
            "let (v1, i1) = tl::max(y, 0, return_indices = true);",
            "let z = tl::dot(t, t, allow_tf32 = false);",
            "let acc = tl::zeros((16, 16), dtype = tl::float32);",
            "let acc = tl::zeros([16, 16], tl::float32);",
            r#"tl::atomic_add(out + lane, y, sem = "relaxed");"#,
            "for k in tl::range(0, n, 16, num_stages = 3) { tl::store(out + k, a); }",
            "let z = tl::sum(y, axis = None);",
            "let w2 = tl::trans(t, (1, 0));",
            "let i = tl::program_id(0) % tl::num_programs();",
            "let r = tl::randint(42, lane, 10);",
            r#"tl::static_print("N", N);"#,
            "let z = tl::cat(y, y, can_reorder = True);",
            "let z = tl::reshape(y, [-1, 4]);",
            "let (val, idx) = tl::argmax(y, 0); tl::store(out, val); tl::store(cnt, idx);",
            "let (val, idx) = tl::max(y, 0); tl::store(out, val); tl::store(cnt, idx);",
            "let z = tl::associative_scan(y, 0, |p, q| (p, q));",
            "for j in tl::range(n) { tl::store(out + j, 1.0); }",
            "for j in tl::static_range(4) { tl::store(out + j, 1.0); }",
            r#"tl::device_assert("y is positive", y > 0.0);"#,
            "tl::static_assert(n > 0);",
            "tl::store(out + lane, m, y);",
            "let z = tl::load(x + lane, y, m);",
            r#"let z = tl::load(x + lane, m, 0.0, ".cg");"#,
            r#"let z = tl::load(x + lane, m, 0.0, "evict_last");"#,
            r#"let z = tl::load(x + lane, m).eviction_policy("evict_last");"#,
            "let z = tl::dot(t, t, out_dtype = tl::float32);",
            r#"let z = tl::load(x + lane, m, float("-inf"));"#,
            r#"let z = y * float("0.5");"#,
            "let z = y.to(out.dtype.element_ty);",
            "let (v, i) = tl::max(y, 0, true);",
            "row = lane * 2; good = row < n; tl::store(out + row, y, good);",
            "total += a; tl::store(out, total);",
            "let z = tl::arange(0, n);",
            r#"let z = tl::load(x + lane, m, other = -float("inf"));"#,
            "let z = tl::exp(y, fast = true);",
            r#"let z = y.to::<f16>(rounding = "rtne");"#,
            r#"let z = tl::dot(t, t, t, "tf32");"#,
            r#"let z = tl::atomic_add(out, a, "relaxed");"#,
        ],
        expect![[r#"
            let z = tl::load(x, lane, m);
                `tl::load` takes no offsets as an argument of their own
                    help: offsets are added to the slice: `x + lane`
            tl::store(out, lane, y);
                `tl::store` takes no offsets as an argument of their own
                    help: offsets are added to the slice: `out + lane`
            let z = tl::load(x) + lane;
                `+` needs one element type, found f32 and i32
                    help: to read at offsets, add them to the slice: `tl::load(x + lane)`
            let z = tl::full([N], f32);
                `tl::full` takes its element type as a type argument
                    help: the element type stands between angle brackets: `tl::full::<f32>(..)`
            let z = tl::cast(y, "f16");
                `tl::cast` takes its element type as a type argument
                    help: the element type stands between angle brackets: `tl::cast::<f16>(..)`
            let z = y.to("float16");
                `.to` takes its element type as a type argument
                    help: the element type stands between angle brackets: `.to::<f16>()`
            let z = tl::load(x + lane, eviction_policy = "evict_last");
                arguments have no names here
                    help: write a method behind the call: `.evict_last()`
            let (v1, i1) = tl::max(y, 0, return_indices = true);
                arguments have no names here
                    help: `tl::max_index(x, axis)` gives the largest element and its position, `tl::min_index` the smallest
            let z = tl::dot(t, t, allow_tf32 = false);
                arguments have no names here
                    help: the default is `"ieee"`; `.input_precision("tf32")` behind the call allows it
            let acc = tl::zeros((16, 16), dtype = tl::float32);
                arguments have no names here
                    help: the element type stands between angle brackets: `.to::<f32>()`, `tl::zeros::<f32>([N])`
            let acc = tl::zeros([16, 16], tl::float32);
                `tl::zeros` takes its element type as a type argument
                    help: the element type stands between angle brackets: `tl::zeros::<f32>(..)`
            tl::atomic_add(out + lane, y, sem = "relaxed");
                arguments have no names here
                    help: write a method behind the call: `.sem("relaxed")`
            for k in tl::range(0, n, 16, num_stages = 3) { tl::store(out + k, a); }
                arguments have no names here
                    help: write a method behind the range: `tl::range(0, n, 1).num_stages(3)`
            let z = tl::sum(y, axis = None);
                arguments have no names here
                    help: leave the argument out
            let w2 = tl::trans(t, (1, 0));
                `tl::trans` takes 1 argument (x), found 2
                    help: another order of axes is `tl::permute(x, [1, 0])`
            let i = tl::program_id(0) % tl::num_programs();
                `tl::num_programs` takes 1 argument (axis), found 0
                    help: a grid's first axis is 0: `tl::num_programs(0)`
            let r = tl::randint(42, lane, 10);
                `tl::randint` takes 2 arguments (seed, offset), found 3
                    help: a range follows from the bits: `tl::randint(seed, offset) % n`
            tl::static_print("N", N);
                `tl::static_print` takes 1 argument (value), found 2
                    help: one value each: `tl::static_print(N)`
            let z = tl::cat(y, y, can_reorder = True);
                arguments have no names here
                    help: leave it out
            let z = tl::reshape(y, [-1, 4]);
                every extent of a shape is written, found -1
                    help: write `16`
            let (val, idx) = tl::argmax(y, 0); tl::store(out, val); tl::store(cnt, idx);
                a tuple pattern takes a tuple, found a scalar of type i32
                    help: `tl::max_index(x, axis)` gives the largest element and its position, `tl::min_index` the smallest
            let (val, idx) = tl::max(y, 0); tl::store(out, val); tl::store(cnt, idx);
                a tuple pattern takes a tuple, found a scalar of type f32
                    help: `tl::max_index(x, axis)` gives the largest element and its position, `tl::min_index` the smallest
            let z = tl::associative_scan(y, 0, |p, q| (p, q));
                this combination takes one tile: it gives one element of two, found a tuple of 2
                    help: several tiles are folded together as a tuple: `(x, y)`
            for j in tl::range(n) { tl::store(out + j, 1.0); }
                `tl::range` takes 2 to 3 arguments (start, end, step?), found 1
                    help: write `tl::range(0, n)`
            for j in tl::static_range(4) { tl::store(out + j, 1.0); }
                `tl::static_range` takes 2 to 3 arguments (start, end, step?), found 1
                    help: write `tl::static_range(0, 4)`
            tl::device_assert("y is positive", y > 0.0);
                `tl::device_assert` takes the condition before the message
                    help: write `tl::device_assert(condition, "y is positive")`
            tl::static_assert(n > 0);
                the condition of `tl::static_assert` is a constant bool, found a scalar of type bool
                    help: what is known at a launch is promised with `tl::assume(condition)`, or checked in a debug build with `tl::device_assert(condition)`
            tl::store(out + lane, m, y);
                `tl::store` takes the value before the mask
                    help: write `tl::store(pointer, y, m)`
            let z = tl::load(x + lane, y, m);
                `tl::load` takes the mask before `other`
                    help: write `tl::load(pointer, m, y)`
            let z = tl::load(x + lane, m, 0.0, ".cg");
                `tl::load` takes 1 to 3 arguments (pointer, mask?, other?), found 4
                    help: write a method behind the call: `.cache_global()`
            let z = tl::load(x + lane, m, 0.0, "evict_last");
                `tl::load` takes 1 to 3 arguments (pointer, mask?, other?), found 4
                    help: write a method behind the call: `.evict_last()`
            let z = tl::load(x + lane, m).eviction_policy("evict_last");
                `eviction_policy` is not a method of a tile of type f32[64]
                    help: write a method behind the call: `.evict_first()` or `.evict_last()`
            let z = tl::dot(t, t, out_dtype = tl::float32);
                arguments have no names here
                    help: leave it out: a product is `f32`, that of `f64` tiles `f64` and that of integers `i32`; `.to::<f16>()` converts it
            let z = tl::load(x + lane, m, float("-inf"));
                `float` cannot be called in a kernel
                    help: write `f32::NEG_INFINITY`
            let z = y * float("0.5");
                `float` cannot be called in a kernel
                    help: write `0.5`
            let z = y.to(out.dtype.element_ty);
                `dtype` is not a field of a slice
                    help: it is `f32`, as the signature says: `.to::<f32>()` converts to it
            let (v, i) = tl::max(y, 0, true);
                a tuple pattern takes a tuple, found a tile of type f32[1]
                    help: `tl::max_index(x, axis)` gives the largest element and its position, `tl::min_index` the smallest
            row = lane * 2; good = row < n; tl::store(out + row, y, good);
                `row` is not defined
                    help: declare it: `let mut row = ..;`
                `good` is not defined
                    help: declare it: `let mut good = ..;`
            total += a; tl::store(out, total);
                `total` is not defined
                    help: declare it: `let mut total = ..;`
            let z = tl::arange(0, n);
                the end of a range is a constant integer, found a scalar of type i32
                    help: a tile has a constant extent, such as a const parameter of the kernel, and a mask leaves elements out: `tl::arange(0, N) < n`
            let z = tl::load(x + lane, m, other = -float("inf"));
                arguments have no names here
                    help: write `f32::NEG_INFINITY`
            let z = tl::exp(y, fast = true);
                arguments have no names here
                    help: leave it out: the parameters are (x)
            let z = y.to::<f16>(rounding = "rtne");
                arguments have no names here
                    help: `tl::cast::<bf16>(x, "rtz")`
            let z = tl::dot(t, t, t, "tf32");
                `tl::dot` takes 2 to 3 arguments (a, b, acc?), found 4
                    help: write a method behind the call: `.input_precision("tf32")`
            let z = tl::atomic_add(out, a, "relaxed");
                expected a tile or scalar, found a string
                    help: write a method behind the call: `.sem("relaxed")`
        "#]],
    );
}

#[test]
fn habits_of_numpy_and_pytorch() {
    check(
        &[
            "let z = len(x);",
            "let z = int(a);",
            "let z = y.astype(f16);",
            r#"let z = tl::einsum("ij,jk->ik", t, t);"#,
            "let z = tl::roll(y, 1);",
            "let z = tl::zeros::<f32>(N);",
            "let z = tl::full(0.0, [N]);",
            "let z = tl::sum(t, (0, 1));",
            "let z = t.max(1);",
            "let z = y.shape(0);",
            "let z = tl::shape(y);",
            "let z = tl::broadcast_to(y, [N, 16]);",
            "let z = torch.exp(y);",
            "let z = y.sum(0);",
            "let z = y.reshape(8, 8);",
            "let z = t.matmul(t);",
            "let z = t.transpose(0, 1);",
            "let z = tl::softmax(t, dim = -1);",
            "let z = tl::concatenate([y, y]);",
            "let z = y.item();",
            "let z = tl::arange(0.0, 1.0, 0.1);",
            "let z = y.unsqueeze(0);",
            "let q = tl::arange(0, N).reshape([N, 1]);",
            "let z = tl::var(t, 1, keepdim = true);",
            "out[..] = x[..] * 2.0;",
            "let z = lax::fori_loop(0, n, |i, c| c + 1.0, y);",
            "let z = pl::load(x, (pl::ds(n, 64),));",
            "let z = square(y);",
            "let z = tl::square(y);",
            "let z = tl::rand_like(y);",
        ],
        expect![[r#"
            let z = len(x);
                `len` cannot be called in a kernel
                    help: the number of elements of a slice is `x.len()`; a tile's shape is made of constants
            let z = int(a);
                `int` cannot be called in a kernel
                    help: convert it: `.to::<i32>()` or `as i32`
            let z = y.astype(f16);
                `astype` is not a method of a tile of type f32[64]
                    help: convert it: `.to::<f16>()` or `as f16`
            let z = tl::einsum("ij,jk->ik", t, t);
                `tl::einsum` does not exist
                    help: a product of matrices is `tl::dot(a, b)`; any other is `tl::sum(a * b, axis)` of tiles that broadcast
            let z = tl::roll(y, 1);
                `tl::roll` does not exist
                    help: rotate the offsets, `let j = (i + N - shift) % N;`, of the load, `tl::load(x + j)`, or of a tile, `tl::gather(x, j, 0)`
            let z = tl::zeros::<f32>(N);
                a shape is a list such as `[M, N]`, found the integer 64
                    help: write `[N]`
            let z = tl::full(0.0, [N]);
                `tl::full` takes the shape before the value
                    help: write `tl::full([N], 0.0)`
            let z = tl::sum(t, (0, 1));
                an axis is a constant integer, found a tuple
                    help: a list stands between brackets: `[0, 1]`
            let z = t.max(1);
                `max` is not a method of a tile of type f32[16, 16]
                    help: along an axis it is `tl::max(t, 1)`
            let z = y.shape(0);
                `shape` is not a method of a tile of type f32[64]
                    help: a tile's shape is made of constants that the kernel knows; a view has `.shape(axis)`, a slice `.len()`
            let z = tl::shape(y);
                `tl::shape` does not exist
                    help: a tile's shape is made of constants that the kernel knows; a view has `.shape(axis)`, a slice `.len()`
            let z = tl::broadcast_to(y, [N, 16]);
                a tile of shape [64] does not broadcast to [64, 16]
                    help: shapes are aligned at the last axis: `x.col()` makes a column of a tile of one axis
            let z = torch.exp(y);
                `torch.exp` cannot be called in a kernel
                    help: did you mean `tl::exp(x)`?
            let z = y.sum(0);
                `sum` is not a method of a tile of type f32[64]
                    help: call the function: `tl::sum(y, 0)`
            let z = y.reshape(8, 8);
                `reshape` is not a method of a tile of type f32[64]
                    help: call the function: `tl::reshape(y, [8, 8])`
            let z = t.matmul(t);
                `matmul` is not a method of a tile of type f32[16, 16]
                    help: it is `tl::dot(t, t)` here
            let z = t.transpose(0, 1);
                `transpose` is not a method of a tile of type f32[16, 16]
                    help: it is `tl::trans(t)` here
            let z = tl::softmax(t, dim = -1);
                arguments have no names here
                    help: write the axis in its place, counted from 0: `tl::sum(x, 0)`
            let z = tl::concatenate([y, y]);
                `tl::concatenate` does not exist
                    help: it is `tl::cat(x, y, axis)` here
            let z = y.item();
                `item` is not a method of a tile of type f32[64]
                    help: `tl::load(x + i)` reads one number; of a tile of one element it is `tl::sum(x)`
            let z = tl::arange(0.0, 1.0, 0.1);
                `tl::arange` takes 2 arguments (start, end), found 3
                    help: multiply by a step: `tl::arange(0, N) * step`
            let z = y.unsqueeze(0);
                `unsqueeze` is not a method of a tile of type f32[64]
                    help: it is `tl::expand_dims(y, 0)` here
            let q = tl::arange(0, N).reshape([N, 1]);
                `reshape` is not a method of a tile of type i32[64]
                    help: call the function: `tl::reshape(x, [N, 1])`
            let z = tl::var(t, 1, keepdim = true);
                `tl::var` does not exist
                    help: with `let d = x - mean;` it is `tl::sum(d * d, axis) / n as f32`
            out[..] = x[..] * 2.0;
                a slice cannot be indexed
                    help: write a part with `tl::store(out + start + tl::arange(0, N), value, mask)`
                a slice cannot be indexed
                    help: read a part with `tl::load(x + start + tl::arange(0, N), mask)`
            let z = lax::fori_loop(0, n, |i, c| c + 1.0, y);
                `lax::fori_loop` cannot be called in a kernel
                    help: a loop is written `for i in 0..n { x = ..; }`, and carries variables declared before it with `let mut`
            let z = pl::load(x, (pl::ds(n, 64),));
                `pl::load` is not a function of the language
                    help: did you mean `tl::load(pointer)`?
                `pl::ds` cannot be called in a kernel
                    help: offsets begin at `start`: `tl::load(x + start + tl::arange(0, N), mask)`
            let z = square(y);
                `square` cannot be called in a kernel
                    help: multiply: `x * x`; a function of your own is a `#[fuse_fn]` in the kernel's `#[fuse_module]`
            let z = tl::square(y);
                `tl::square` does not exist
                    help: multiply: `x * x`
            let z = tl::rand_like(y);
                `tl::rand_like` does not exist
                    help: `tl::rand(seed, offsets)`, with the offsets of the elements
        "#]],
    );
}

#[test]
fn habits_of_rust() {
    check(
        &[
            "let z = tl::load(&x[lane]);",
            "let z = tl::load(x[..N] + lane);",
            "let (mut p, mut q) = (y, y); std::mem::swap(&mut p, &mut q); tl::store(out + lane, p + q);",
            "let z = Some(n);",
            "let z = n as char;",
            "let z = Default::default();",
            "let z = f32::default();",
            "let z = size_of::<f32>();",
            "let z = (y, n).1.0;",
            "let v = 'a: { break 'a 3; }; tl::store(cnt, v);",
            "let z = -1u32;",
            "let v: Vec<f32> = Vec::new();",
            "for (i, e) in x.iter().enumerate() { tl::store(out + i, e); }",
            "let z = (0..n).map(|i| i * 2);",
            "if let Some(z) = x.get(n) { tl::store(out, z); }",
            "let z: [f32; 4] = [0.0; 4];",
            "'outer: for i in 0..n { for j in 0..n { break 'outer; } }",
            r#"let z = "text".len();"#,
            "let z = x.as_ptr();",
            "let z = unsafe { *x.get_unchecked(n) };",
            "return y;",
            "let z = Ordering::Relaxed;",
            "let z = n ** 2;",
            "let mut z = y; let r = &mut z; *r += 1.0;",
            "for (o, v) in out.iter_mut().zip(x) { *o = v; }",
            "*x = 1.0;",
            "*out += 1.0;",
            "let z = *y;",
            "let z = if n > 0 { Some(y) } else { None };",
            "let Some(first) = x.first() else { return };",
            "let z = match y { v if v > 0.0 => v, v => -v };",
            "let z = y.iter().map(|v| v * 2.0).collect::<Vec<f32>>();",
        ],
        expect![[r#"
            let z = tl::load(&x[lane]);
                a reference cannot be used in a kernel
                    help: offsets are added to the slice: `x + lane`
            let z = tl::load(x[..N] + lane);
                a slice cannot be indexed
                    help: read a part with `tl::load(x + start + tl::arange(0, N), mask)`
            let (mut p, mut q) = (y, y); std::mem::swap(&mut p, &mut q); tl::store(out + lane, p + q);
                `std::mem::swap` cannot be called in a kernel
                    help: assign both at once: `(a, b) = (b, a)`
            let z = Some(n);
                `Some` cannot be called in a kernel
                    help: an option is a parameter of a kernel, `bias: Option<&[f32]>`; a mask, a tile of bools, says which elements are there
            let z = n as char;
                `char` is not an element type
                    help: a kernel has no text; a byte is a `u8`, C's `char` an `i8`
            let z = Default::default();
                `Default::default` cannot be called in a kernel
                    help: write the value: `0.0`, or `tl::zeros::<f32>([N])` for a tile
            let z = f32::default();
                `f32::default` cannot be called in a kernel
                    help: write `0.0`
            let z = size_of::<f32>();
                `size_of` cannot be called in a kernel
                    help: write the number of bytes; in the attribute, settings know `size_of::<T>()`
            let z = (y, n).1.0;
                `.0` is a part of a tuple, found a scalar of type i32
                    help: leave out `.0`
            let v = 'a: { break 'a 3; }; tl::store(cnt, v);
                a labeled block cannot be used in a kernel
                    help: `if` and `else` give values: `let v = if condition { a } else { b };`
            let z = -1u32;
                `-` takes signed numbers, found u32
                    help: all bits set is `u32::MAX`; a negative number is of a signed type: `-1`
            let v: Vec<f32> = Vec::new();
                `Vec::new` cannot be called in a kernel
                    help: a kernel has scalars, tiles and tuples of them: `tl::zeros::<f32>([N])` makes a tile
            for (i, e) in x.iter().enumerate() { tl::store(out + i, e); }
                `iter` is not a method of a slice
                    help: a tile is worked on as a whole, `x * 2.0`, `tl::sum(x, axis)`; a loop runs over integers, `for i in 0..n`, and reads with `tl::load(x + i)`
            let z = (0..n).map(|i| i * 2);
                `map` is not a method of a range
                    help: a range is for a loop, `for i in 0..n { .. }`; a tile of integers is `tl::arange(0, N)`
            if let Some(z) = x.get(n) { tl::store(out, z); }
                this pattern takes an optional parameter, by its name
                    help: an option is a parameter of a kernel, `bias: Option<&[f32]>`; a mask, a tile of bools, says which elements are there
            let z: [f32; 4] = [0.0; 4];
                `[value; count]` cannot be used in a kernel
                    help: `tl::full([4], 0.0)` makes a constant tile; a kernel has no memory but its parameters
            'outer: for i in 0..n { for j in 0..n { break 'outer; } }
                the label `'outer` cannot be used in a kernel
                    help: `break` and `continue` mean the innermost loop: let a flag end the outer one, `while go { .. go = false; .. }`
            let z = "text".len();
                `.len` is a method of slices
                    help: a string is for messages alone: its length is not known here
            let z = x.as_ptr();
                `as_ptr` is not a method of a slice
                    help: an element of memory is `tl::load(x + i)`, of a tile `tl::index(x, axis, i)`
            let z = unsafe { *x.get_unchecked(n) };
                an `unsafe` block cannot be used in a kernel
                    help: leave it out: nothing in a kernel is unsafe
            return y;
                this returns a value from a body that gives none
                    help: write results into a `&mut [T]` parameter with `tl::store`, and `return;`
            let z = Ordering::Relaxed;
                `Ordering::Relaxed` is not known in a kernel
                    help: an atomic's order is a word behind the call: `.sem("relaxed")`
            let z = n ** 2;
                `**` is no operator here
                    help: multiply: `n * n`
            let mut z = y; let r = &mut z; *r += 1.0;
                a reference cannot be used in a kernel
                    help: tiles are values: leave out the `&`
            for (o, v) in out.iter_mut().zip(x) { *o = v; }
                `iter_mut` is not a method of a slice
                    help: a tile is worked on as a whole, `x * 2.0`, `tl::sum(x, axis)`; a loop runs over integers, `for i in 0..n`, and reads with `tl::load(x + i)`
            *x = 1.0;
                assigning through a pointer cannot be used in a kernel
                    help: write memory with `tl::store(x, value)`
            *out += 1.0;
                assigning through a pointer cannot be used in a kernel
                    help: read and write memory: `tl::store(out, tl::load(out) + value)`
            let z = *y;
                dereferencing cannot be used in a kernel
                    help: values are no references: leave out the `*`
            let z = if n > 0 { Some(y) } else { None };
                `Some` cannot be called in a kernel
                    help: an option is a parameter of a kernel, `bias: Option<&[f32]>`; a mask, a tile of bools, says which elements are there
                `None` is not defined
                    help: an argument that is `None` is left out; a kernel has no `Option`: a mask, a tile of bools, says which elements are there
            let Some(first) = x.first() else { return };
                this pattern cannot be used in a kernel
                    help: an option is a parameter of a kernel, `bias: Option<&[f32]>`; a mask, a tile of bools, says which elements are there
                `first` is not a method of a slice
                    help: an element of memory is `tl::load(x + i)`, of a tile `tl::index(x, axis, i)`
            let z = match y { v if v > 0.0 => v, v => -v };
                a guard of an arm cannot be used in a kernel
                    help: put an `if` into the arm; elements of a tile are chosen by `tl::select(mask, a, b)`
            let z = y.iter().map(|v| v * 2.0).collect::<Vec<f32>>();
                `iter` is not a method of a tile of type f32[64]
                    help: a tile is worked on as a whole, `x * 2.0`, `tl::sum(x, axis)`; a loop runs over integers, `for i in 0..n`, and reads with `tl::load(x + i)`
        "#]],
    );
}

#[test]
fn words_of_tile_libraries() {
    check(
        &[
            "let g = thr_copy_a.partition_S(y);",
            "kittens::warp::mma_AB(t, t, t);",
            "let z = kittens::group::unheard_of(t);",
            "let z = st_bf::<64, 64>(y);",
            "let l = Swizzle::<3, 3, 3>::apply(lane);",
            "let z = shuffleXor(y, 16);",
            "let z = Warp_Reduce_Prod(y);",
            "atomicMAX(cnt, n);",
            "let z = y.isNaN();",
        ],
        expect![[r#"
            let g = thr_copy_a.partition_S(y);
                `thr_copy_a` is not defined
                `partition_S` is not a method of anything in a kernel
                    help: take the parameter as a view, `x: &View<f32, 2>`, and load its tiles: `x.load::<64, 64>(row, col)`; the compiler lays them out
            kittens::warp::mma_AB(t, t, t);
                `kittens::warp::mma_AB` cannot be called in a kernel
                    help: `tl::dot(a, b, acc)` of whole tiles uses the tensor cores
            let z = kittens::group::unheard_of(t);
                `kittens::group::unheard_of` cannot be called in a kernel
                    help: tiles are loaded from views, `x.load::<64, 64>(row, col)`, multiplied by `tl::dot(a, b, acc)`, and stored, `out.store(tile, row, col)`
            let z = st_bf::<64, 64>(y);
                `st_bf` cannot be called in a kernel
                    help: a tile has no type of its own for registers or shared memory: `tl::zeros::<f32>([64, 64])` makes one
            let l = Swizzle::<3, 3, 3>::apply(lane);
                `Swizzle::apply` cannot be called in a kernel
                    help: take the parameter as a view, `x: &View<f32, 2>`, and load its tiles: `x.load::<64, 64>(row, col)`; the compiler lays them out
            let z = shuffleXor(y, 16);
                `shuffleXor` cannot be called in a kernel
                    help: a program has no lanes to exchange between: `tl::sum(x, axis)` reduces a tile, `tl::gather(x, index, axis)` picks elements
            let z = Warp_Reduce_Prod(y);
                `Warp_Reduce_Prod` cannot be called in a kernel
                    help: a reduction is of the whole tile: `tl::sum(x, axis)`, `tl::max(x, axis)` or `tl::reduce(x, axis, |a, b| ..)`
            atomicMAX(cnt, n);
                `atomicMAX` cannot be called in a kernel
                    help: it is `tl::atomic_max(pointer, value)` here
            let z = y.isNaN();
                `isNaN` is not a method of a tile of type f32[64]
                    help: it is `tl::is_nan(y)` here
        "#]],
    );
}

#[test]
fn modules_of_other_languages() {
    check(
        &[
            "let z = jnp.maximum(y, 0.0);",
            "let z = jax.nn.unheard_of(y);",
            "let z = pl.load(x, (pl.ds(0, 64),), mask = m);",
            "let z = math.pi * y;",
            "let b = cuda.blockIdx.x * cuda.blockDim.x;",
            "let z = cuda::shared::array(64, f32);",
            "cuda.atomic.add(out, 0, a);",
            "let z = atomic.add(out, 0, a);",
            "let z = np::unheard_of(y);",
            "let z = mine::unheard_of(y);",
            "let pl = y; let z = pl.load(x);",
        ],
        expect![[r#"
            let z = jnp.maximum(y, 0.0);
                `jnp.maximum` cannot be called in a kernel
                    help: did you mean `tl::maximum(x, y)`?
            let z = jax.nn.unheard_of(y);
                `jax.nn.unheard_of` cannot be called in a kernel
                    help: functions are those of `tl::`: `tl::exp(x)`, `tl::sum(x, axis)`
            let z = pl.load(x, (pl.ds(0, 64),), mask = m);
                `pl.load` cannot be called in a kernel
                    help: did you mean `tl::load(pointer)`?
                `pl.ds` cannot be called in a kernel
                    help: offsets begin at `start`: `tl::load(x + start + tl::arange(0, N), mask)`
                arguments have no names here
                    help: write `m` in its place, of (pointer, mask, other)
            let z = math.pi * y;
                `math.pi` is not known in a kernel
                    help: write `f32::consts::PI`
            let b = cuda.blockIdx.x * cuda.blockDim.x;
                `cuda.blockIdx.x` is not known in a kernel
                    help: this program's index along the grid's first axis is `tl::program_id(0)`
                `cuda.blockDim.x` is not known in a kernel
                    help: a program has no threads: the extent of its tile is a constant, such as the `N` of `tl::arange(0, N)`
            let z = cuda::shared::array(64, f32);
                `cuda::shared::array` cannot be called in a kernel
                    help: leave it out: a tile, such as `tl::zeros::<f32>([N])`, is a value, and the compiler keeps it in registers or shared memory
            cuda.atomic.add(out, 0, a);
                `cuda.atomic.add` cannot be called in a kernel
                    help: `tl::atomic_add(out + offsets, value)`
            let z = atomic.add(out, 0, a);
                `atomic` is not defined
            let z = np::unheard_of(y);
                `np::unheard_of` cannot be called in a kernel
                    help: functions are those of `tl::`: `tl::exp(x)`, `tl::sum(x, axis)`
            let z = mine::unheard_of(y);
                `mine::unheard_of` cannot be called in a kernel
                    help: kernels call the functions of `tl::`, and those marked `#[fuse_fn]` in a `#[fuse_module]`: one of another module by a `use` with its name in the kernel's own module or body
            let pl = y; let z = pl.load(x);
                `load` is not a method of a tile of type f32[64]
                    help: call the function: `tl::load(pl, x)`
        "#]],
    );
}

#[test]
fn syntax_of_python_and_c() {
    check(
        &[
            "let z = y[:, None] * y[None, :];",
            "let z = y[None, :, None];",
            "out[:] = y;",
            "let z = x[0:64];",
            "let z = x[...];",
            "let z = x[n, 0];",
            "if n == 0: tl::store(out, a);",
            "for k in range(0, n, 64): tl::store(out + k, a);",
            "for k in tl.range(0, n, num_stages = 3): tl::store(out + k, a);",
            "if n == 0 { tl::store(out, a); } elif n == 1: tl::store(out, a);",
            "let z = y if n > 0 else 0.0;",
            "let f = lambda p: p * 2.0;",
            "if y is None { tl::store(out, a); }",
            "let z = jnp.where(m, y, 0.0);",
            "let z = t @ t;",
            "@pl.when(n > 0)",
            "float z = 1.0;",
            "const float z = 1.0;",
            "float acc[4];",
            "__shared__ float s[64];",
            "auto z = y;",
            "ThrMMA mma = y;",
            "using Element = f16;",
            "assert n > 0;",
            "while True: tl::store(out, a);",
            "let z = m and lane > 0;",
            "for (int i = 0; i < n; i++) { tl::store(out + i, a); }",
            // Mistakes of Rust beside what looks alike.
            "fn f<T>(p: [T; 2]) -> [T; 2] where T: Copy { p } let x = ;",
            "let p = [a, a]; let z = if n > 0 { y } else { y }; let w: f32 = ;",
            "let f = |p: f32| p; for i in 0..n { } match n { 0 => {}, _ => {} } let w = ;",
        ],
        expect![[r#"
            let z = y[:, None] * y[None, :];
                the index `[:, None]` means nothing here
                    help: a column is `y.col()`
                the index `[None, :]` means nothing here
                    help: a row is `y.row()`
            let z = y[None, :, None];
                the index `[None, :, None]` means nothing here
                    help: an axis of extent 1 is inserted by `tl::expand_dims(y, axis)`
            out[:] = y;
                the index `[:]` means nothing here
                    help: write memory with `tl::store(out + tl::arange(0, N), value, mask)`
            let z = x[0:64];
                the index `[0:64]` means nothing here
                    help: read memory with `tl::load(x + tl::arange(0, N), mask)`; a part of a tile is `tl::slice(x, axis, start, end)`
            let z = x[...];
                the index `[...]` means nothing here
                    help: read memory with `tl::load(x + tl::arange(0, N), mask)`; a part of a tile is `tl::slice(x, axis, start, end)`
            let z = x[n, 0];
                the index `[n, 0]` means nothing here
                    help: read memory with `tl::load(x + row * stride + col, mask)`; of a view `x.load::<64, 64>(row, col)`
            if n == 0: tl::store(out, a);
                a block stands between braces
                    help: write `if n == 0 { .. }`
            for k in range(0, n, 64): tl::store(out + k, a);
                a block stands between braces
                    help: write `for k in (0..n).step_by(64) { .. }`
            for k in tl.range(0, n, num_stages = 3): tl::store(out + k, a);
                a block stands between braces
                    help: write `for k in tl.range(0, n, num_stages = 3) { .. }`
            if n == 0 { tl::store(out, a); } elif n == 1: tl::store(out, a);
                a block stands between braces
                    help: write `else if n == 1 { .. }`
            let z = y if n > 0 else 0.0;
                the condition stands before its values
                    help: write `if n > 0 { y } else { 0.0 }`, of tiles `tl::select(n > 0, y, 0.0)`
            let f = lambda p: p * 2.0;
                `lambda` is no word of Rust
                    help: a closure is `|p| ..`
            if y is None { tl::store(out, a); }
                `is` is no operator here
                    help: a kernel has no `None`: a const parameter `HAS: bool` says whether an argument is given
            let z = jnp.where(m, y, 0.0);
                `where` is a keyword of Rust
                    help: it is `tl::select(condition, x, y)` here
            let z = t @ t;
                `@` is no operator here
                    help: a product of matrices is `tl::dot(a, b)`
            @pl.when(n > 0)
                a kernel has no decorators
                    help: `if condition { a } else { b }` of a scalar; `tl::select(mask, a, b)` of a tile
            float z = 1.0;
                a variable is declared by `let`
                    help: write `let z = ..;`
            const float z = 1.0;
                a variable is declared by `let`
                    help: write `let z = ..;`
            float acc[4];
                a variable is declared by `let`
                    help: write `let acc = tl::zeros::<f32>([N]);`
            __shared__ float s[64];
                a variable is declared by `let`
                    help: leave it out: a tile is a value, and the compiler keeps it in registers or shared memory
            auto z = y;
                a variable is declared by `let`
                    help: write `let z = ..;`
            ThrMMA mma = y;
                a variable is declared by `let`
                    help: write `let mma = ..;`
            using Element = f16;
                a type has no other name here
                    help: write the element type itself, such as `f16`
            assert n > 0;
                `assert` begins no statement of Rust
                    help: `tl::static_assert(condition, "message")` checks constants at build, `tl::device_assert` what a debug build computes
            while True: tl::store(out, a);
                a block stands between braces
                    help: write `while true { .. }`
            let z = m and lane > 0;
                `and` is no operator here
                    help: write `&&` of scalars, `&` of tiles
            for (int i = 0; i < n; i++) { tl::store(out + i, a); }
                a loop runs over a range
                    help: write `for i in 0..n { .. }`, or `(0..n).step_by(64)`
            fn f<T>(p: [T; 2]) -> [T; 2] where T: Copy { p } let x = ;
                expected an expression
            let p = [a, a]; let z = if n > 0 { y } else { y }; let w: f32 = ;
                expected an expression
            let f = |p: f32| p; for i in 0..n { } match n { 0 => {}, _ => {} } let w = ;
                expected an expression
        "#]],
    );
}

#[test]
fn numbers_and_hints() {
    check(
        &[
            "let z = y * 3.5f64;",
            "let z = lane * 2i64;",
            "let z = y * 2i32;",
            "let z = lane * 2.0f32;",
            "let z = lane * 3_000_000_000i64;",
            "let z = lane * 3000000000;",
            r#"let z = tl::load(x + lane, m, cache_modifier = ".ca", eviction_policy = "evict_first");"#,
            r#"tl::atomic_add(out + lane, y, scope = "sys");"#,
            "let z = tl::sum(t, axis = -1);",
            "for k in tl::range(0, n, 16).warp_specialize(true) { tl::store(out + k, a); }",
            "let z = tl::permute(t, 1, 0);",
            "tl::store(out, a, lane < n, 0.0, 1.0);",
            "let z = tl::load::<f32>(x);",
            "let z = tl::sort(y, true);",
            "let z = y.max(axis = 0);",
            "let z = y * m;",
            "let z = -m;",
            "let z = y.cast(tl::float16);",
            "let z = y.reshape((8, 8));",
            "tl::atomic_add(w, t);",
            "let [p, q] = [a, a];",
            "for e in y { tl::store(out, e); }",
            "for e in &x { tl::store(out, e); }",
            "let z = tl::store(out, a);",
        ],
        expect![[r#"
            let z = y * 3.5f64;
                `*` needs one element type, found f32 and f64
                    help: a number without a suffix has the type of what stands beside it: write `3.5`
            let z = lane * 2i64;
                `*` needs one element type, found i32 and i64
                    help: a number without a suffix has the type of what stands beside it: write `2`
            let z = y * 2i32;
                `*` needs one element type, found f32 and i32
                    help: a number without a suffix has the type of what stands beside it: write `2.0`
            let z = lane * 2.0f32;
                `*` needs one element type, found i32 and f32
                    help: convert one side: `lane.to::<f32>()`
            let z = lane * 3_000_000_000i64;
                `*` needs one element type, found i32 and i64
                    help: convert one side: `lane.to::<i64>()`
            let z = lane * 3000000000;
                3000000000 does not fit in i32, which holds -2147483648 to 2147483647
                    help: `i64` holds it: `.to::<i64>()` converts what stands beside it
            let z = tl::load(x + lane, m, cache_modifier = ".ca", eviction_policy = "evict_first");
                arguments have no names here
                    help: leave it out: this is the default
                arguments have no names here
                    help: write a method behind the call: `.evict_first()`
            tl::atomic_add(out + lane, y, scope = "sys");
                arguments have no names here
                    help: write a method behind the call: `.scope("cta")`
            let z = tl::sum(t, axis = -1);
                arguments have no names here
                    help: write the axis in its place, counted from 0: of two axes the last is 1
            for k in tl::range(0, n, 16).warp_specialize(true) { tl::store(out + k, a); }
                `warp_specialize` is not a method of a range
                    help: leave it out: the compiler decides
            let z = tl::permute(t, 1, 0);
                `tl::permute` takes 2 arguments (x, order), found 3
                    help: write `tl::permute(t, [1, 0])`
            tl::store(out, a, lane < n, 0.0, 1.0);
                `tl::store` takes 2 to 3 arguments (pointer, value, mask?), found 5
                    help: leave them out
            let z = tl::load::<f32>(x);
                `tl::load` takes no type arguments
                    help: leave them out: types follow from the arguments
            let z = tl::sort(y, true);
                an axis is a constant integer, found the bool true
                    help: the axis stands before it, counted from 0
            let z = y.max(axis = 0);
                `max` is not a method of a tile of type f32[64]
                    help: along an axis it is `tl::max(y, 0)`; of two tiles `tl::maximum(y, y)`
                arguments have no names here
                    help: write `0`
            let z = y * m;
                `*` takes numbers, found bool
                    help: where the bool is false a product is 0: `tl::select(mask, x, 0.0)`
            let z = -m;
                `-` takes signed numbers, found bool
                    help: the opposite of a bool is `!m`
            let z = y.cast(tl::float16);
                `cast` is not a method of a tile of type f32[64]
                    help: convert it: `.to::<f16>()`
            let z = y.reshape((8, 8));
                `reshape` is not a method of a tile of type f32[64]
                    help: call the function: `tl::reshape(y, [8, 8])`
            tl::atomic_add(w, t);
                `tl::atomic_add` takes a pointer, found a view
                    help: a view is written in blocks: `w.atomic_add(tile, 0, 0)`
            let [p, q] = [a, a];
                this pattern cannot be used in a kernel
                    help: values go together as a tuple: `let (p, q) = (..);`
            for e in y { tl::store(out, e); }
                `for` runs over a range, found a tile of type f32[64]
                    help: a tile is worked on as a whole, `x * 2.0`, `tl::sum(x, axis)`; a loop runs over integers, `for i in 0..n`, and reads with `tl::load(x + i)`
            for e in &x { tl::store(out, e); }
                a reference cannot be used in a kernel
                    help: a kernel's slices and views are references: leave out the `&`
            let z = tl::store(out, a);
                this gives no value to bind
                    help: let it be a statement of its own
        "#]],
    );
}

#[test]
fn methods_of_views() {
    check(
        &[
            "let z = v.load::<16, 16>(0..16, 0);",
            "w.atomic_max(t, 0, 0);",
            "let z = v.t();",
            "let z = v.permute([1, 0]);",
            "let z = v.slice(0, 0..16);",
            "w[(0, 0)] = 1.0;",
            "let b0 = v.load::<16, 16>(lane, 0);",
            "let b0 = v.load::<16>(0);",
            "let r = v.rows();",
            "let b0 = v.load::<16, 16>([0, 0]);",
            "let b0 = v.load::<16, 16>(0, 0, m);",
            "w.store(t, 0, 0, m);",
        ],
        expect![[r#"
            let z = v.load::<16, 16>(0..16, 0);
                a block begins at one offset along each axis, found a range
                    help: write where it begins: `0`; its extent stands between angle brackets
            w.atomic_max(t, 0, 0);
                `atomic_max` is not a method of a view
                    help: views have `atomic_add` alone: take the memory as a slice, `&mut [T]`, for `tl::atomic_max(out + offsets, tile)`
            let z = v.t();
                `t` is not a method of a view
                    help: transpose a block: `tl::trans(v.load::<64, 64>(0, 0))`; or launch with `v.permute([1, 0])`
            let z = v.permute([1, 0]);
                `permute` is not a method of a view
                    help: launch with `v.permute(order)`; here `tl::permute(v.load::<64, 64>(0, 0), order)` reorders a block
            let z = v.slice(0, 0..16);
                `slice` is not a method of a view
                    help: offsets and extents choose a block: `v.load::<64, 64>(0, 0)`
            w[(0, 0)] = 1.0;
                a view cannot be indexed
                    help: a view is written in blocks: `w.store(tile, 0, 0)`
            let b0 = v.load::<16, 16>(lane, 0);
                a block begins at one offset along each axis, found a tile of type i32[64]
                    help: write where the block begins, a scalar: its extent stands between angle brackets
            let b0 = v.load::<16>(0);
                `.load` of a view of 2 axes takes 2 arguments (2 offsets), found 1
                    help: a view is read and written in blocks: `v.load::<64, 64>(0, 0)`
            let r = v.rows();
                `rows` is not a method of a view
                    help: its extent along an axis is `v.shape(0)`
            let b0 = v.load::<16, 16>([0, 0]);
                `.load` of a view of 2 axes takes 2 arguments (2 offsets), found 1
                    help: a view is read and written in blocks: `v.load::<64, 64>(0, 0)`
            let b0 = v.load::<16, 16>(0, 0, m);
                `.load` of a view of 2 axes takes 2 arguments (2 offsets), found 3
                    help: leave the mask out: elements outside of a view's shape are not read, and not written
            w.store(t, 0, 0, m);
                `.store` of a view of 2 axes takes 3 arguments (tile, 2 offsets), found 4
                    help: leave the mask out: elements outside of a view's shape are not read, and not written
        "#]],
    );
}

#[test]
fn types_and_shapes() {
    check(
        &[
            "let z = y + lane;",
            "let z = y & 1;",
            "let z = y << 2;",
            "let z = a as f8;",
            "let z = tl::load(ids + lane); let q = tl::load(z);",
            "let z = tl::reshape(y, [8, 9]);",
            "let z = tl::broadcast_to(t, [16]);",
            "tl::store(out + lane, t);",
            "for i in 0..y { tl::store(out + i, a); }",
            "let z = if n > 0 { a };",
            "for i in 0..n { if tl::load(x + i) > a { break i; } }",
            "let z = tl::reshape(t, [16, 8]);",
            "let z = tl::reshape(t, [8, 16]);",
            "let z = tl::dot(t, t, t.to::<f16>());",
            "let z = tl::load(x + a * N + lane);",
            "let z = tl::cat(t, tl::reshape(y, [16, 4]), 1);",
            "let z = tl::cat(t, tl::reshape(tl::load(x + tl::arange(0, 16)), [16, 1]), 1);",
        ],
        expect![[r#"
            let z = y + lane;
                `+` needs one element type, found f32 and i32
                    help: convert one side: `lane.to::<f32>()`
            let z = y & 1;
                `&` takes integers or bools, found f32
                    help: convert it, `.to::<i32>()`, or take its bits, `.bitcast::<i32>()`
            let z = y << 2;
                `<<` takes integers, found f32
                    help: multiply or divide by a power of two: `x * 4.0`
            let z = a as f8;
                `f8` is not an element type
                    help: 8-bit floats are `f8e4m3` and `f8e5m2`
            let z = tl::load(ids + lane); let q = tl::load(z);
                `tl::load` takes a pointer, found a tile of type i64[64]
                    help: an address from memory is no pointer: pass one slice and offsets into it, `x + offsets`
            let z = tl::reshape(y, [8, 9]);
                `tl::reshape` keeps the number of elements: [64] has 64, [8, 9] has 72
                    help: `[8, 8]` has as many
            let z = tl::broadcast_to(t, [16]);
                a tile of shape [16, 16] does not broadcast to [16]
                    help: a broadcast keeps every axis: `tl::sum(x, axis)` folds one, `tl::reshape` joins them
            tl::store(out + lane, t);
                the value has shape [16, 16], which does not fit the pointer's shape [64]
                    help: the offsets have the tile's shape: `rows.col() * stride + columns.row()`
            for i in 0..y { tl::store(out + i, a); }
                the end of a range is a scalar, found a tile of type f32[64]
                    help: a loop runs for the program as a whole: reduce the tile, `tl::max(x, 0)`
            let z = if n > 0 { a };
                this gives a scalar of type f32, but the `if` has no `else` that gives one as well
                    help: end it with `else { .. }`, or with a semicolon behind the value
            for i in 0..n { if tl::load(x + i) > a { break i; } }
                a value after `break` cannot be used in a kernel
                    help: assign it to a variable around the loop first: `found = value; break;`
            let z = tl::reshape(t, [16, 8]);
                `tl::reshape` keeps the number of elements: [16, 16] has 256, [16, 8] has 128
                    help: `[32, 8]` has as many
            let z = tl::reshape(t, [8, 16]);
                `tl::reshape` keeps the number of elements: [16, 16] has 256, [8, 16] has 128
                    help: `[8, 32]` has as many
            let z = tl::dot(t, t, t.to::<f16>());
                the accumulator of this product is f32, found f16
                    help: begin with `tl::zeros::<f32>([16, 16])`, or convert it: `.to::<f32>()`
            let z = tl::load(x + a * N + lane);
                expected f32, found the integer 64
                    help: convert it, `as f32`, or the number beside it, `as i32`
            let z = tl::cat(t, tl::reshape(y, [16, 4]), 1);
                `tl::cat` takes two tiles of one shape, found [16, 16] and [16, 4]
            let z = tl::cat(t, tl::reshape(tl::load(x + tl::arange(0, 16)), [16, 1]), 1);
                `tl::cat` takes two tiles of one shape, found [16, 16] and [16, 1]
                    help: `tl::broadcast_to(x, [16, 16])` repeats elements
        "#]],
    );
}

#[test]
fn signatures_and_attributes() {
    check_kernels(
        &[
            "#[fuse_kernel] pub fn k(x: &f32, out: &mut [f32]) { tl::store(out, 1.0); }",
            "#[fuse_kernel] pub fn k(x: Slice<f32>, out: SliceMut<f32>) { tl::store(out, 1.0); }",
            "#[fuse_kernel] pub fn k(x: Tile<f32>, out: &mut [f32]) { tl::store(out, 1.0); }",
            "#[fuse_kernel] pub fn k(x: &Buffer<f32>, out: &mut Buffer<f32>) { tl::store(out, 1.0); }",
            "#[fuse_kernel] pub fn k(out: &mut [f32], mut n: i32) { n += 1; tl::store(out + n, 1.0); }",
            "#[fuse_kernel] pub fn k(x: &mut ViewMut<f32, 2>) { x.store(tl::zeros::<f32>([16,16]), 0, 0); }",
            "#[fuse_kernel] pub fn k(out: &mut [f32], n: i32) { tl::store(out, TABLE[n]); }",
            "#[fuse_kernel] pub fn k(out: &mut [f32], p: P) { tl::store(out, p.a); }",
            "#[fuse_kernel] pub fn k(out: &mut [f32], e: E) { match e { E::A => tl::store(out, 1.0), E::B => tl::store(out, 2.0) } }",
            "#[fuse_kernel] pub fn k(x: *const f32, out: *mut f32, n: i32) { tl::store(out, 1.0); }",
            "#[fuse_kernel] pub fn k(out: &mut [T]) { tl::store(out, 1.0); }",
            "#[fuse_kernel] pub fn k(x: &Tensor, out: &mut Tensor) { tl::store(out, 1.0); }",
            "#[fuse_kernel] pub fn k(x: &[f32], name: &str, out: &mut [f32]) { tl::store(out, 1.0); }",
            "#[fuse_kernel(N = [64])] pub fn k(out: &mut [f32]) { tl::store(out, 1.0); }",
            "#[fuse_kernel(T = f32 | f16)] pub fn k<T: Float>(out: &mut [T]) { tl::store(out, 1.0); }",
            "#[fuse_kernel] pub fn k(x: &Array<f32>, rows: &[[f32; 64]], out: &mut Grid<float>) { tl::store(out, 1.0); }",
            "#[fuse_kernel] pub fn k(x: Option<f32>, out: &mut [f32]) { tl::store(out, 1.0); }",
            "#[fuse_kernel] pub fn k(f: impl Fn(f32) -> f32, out: &mut [f32]) { tl::store(out, f(1.0)); }",
            "#[fuse_kernel] pub fn k(shape: (i32, i32), out: &mut [f32]) { tl::store(out, 1.0); }",
            "#[fuse_kernel(N = {64, 128})] pub fn k<const N: usize>(out: &mut [f32]) { tl::store(out + tl::arange(0, N), 1.0); }",
            "#[fuse_kernel(N = (64, 128))] pub fn k<const N: usize>(out: &mut [f32]) { tl::store(out + tl::arange(0, N), 1.0); }",
            r#"#[fuse_kernel("N" = [64])] pub fn k<const N: usize>(out: &mut [f32]) { tl::store(out + tl::arange(0, N), 1.0); }"#,
            "#[fuse_kernel(N in [64])] pub fn k<const N: usize>(out: &mut [f32]) { tl::store(out + tl::arange(0, N), 1.0); }",
            r#"#[fuse_kernel(num_warps = "4")] pub fn k(out: &mut [f32]) { tl::store(out, 1.0); }"#,
            "#[fuse_kernel(num_warps = 4.0)] pub fn k(out: &mut [f32]) { tl::store(out, 1.0); }",
            "#[fuse_kernel(num_warps = n)] pub fn k(out: &mut [f32], n: i32) { tl::store(out + n, 1.0); }",
            "#[fuse_kernel(grid = (64,))] pub fn k(out: &mut [f32]) { tl::store(out, 1.0); }",
            "#[fuse_kernel(autotune(configs = []))] pub fn k(out: &mut [f32]) { tl::store(out, 1.0); }",
            "#[fuse_kernel(key = [n])] pub fn k(out: &mut [f32], n: i32) { tl::store(out + n, 1.0); }",
            "#[fuse_kernel(N = n)] pub fn k<const N: usize>(out: &mut [f32], n: i32) { tl::store(out + tl::arange(0, N) + n, 1.0); }",
            "#[fuse_kernel(BLOCK_SIZE = 1024)] pub fn k<const BLOCK: usize>(out: &mut [f32]) { tl::store(out + tl::arange(0, BLOCK), 1.0); }",
            "#[fuse_kernel(threads = 128)] pub fn k(out: &mut [f32]) { tl::store(out, 1.0); }",
            "#[fuse_kernel(configs = { N: 64 })] pub fn k<const N: usize>(out: &mut [f32]) { tl::store(out + tl::arange(0, N), 1.0); }",
            "#[fuse_kernel(tune(n), configs = [{ N: 64 }])] pub fn k<const N: usize>(out: &mut [f32], n: i32) { tl::store(out + tl::arange(0, N) + n, 1.0); }",
            r#"#[fuse_kernel(T = ["f32", "f16"])] pub fn k<T: Float>(out: &mut [T]) { tl::store(out, 1.0); }"#,
            "#[fuse_kernel(N = 64, 128)] pub fn k<const N: usize>(out: &mut [f32]) { tl::store(out + tl::arange(0, N), 1.0); }",
            "#[fuse_kernel] pub fn k(out: &mut [f32], BLOCK: tl::constexpr) { tl::store(out + tl::arange(0, BLOCK), 1.0); }",
            "#[fuse_kernel] #[launch_bounds(256)] pub fn k(out: &mut [f32]) { tl::store(out, 1.0); }",
            "#[fuse_kernel] #[num_warps(4)] #[inline] pub fn k(out: &mut [f32]) { tl::store(out, 1.0); }",
            r#"#[fuse_kernel] pub unsafe extern "C" fn k(out: &mut [f32]) { tl::store(out, 1.0); }"#,
            "#[fuse_kernel] pub async fn k<'a>(x: &'a [f32], out: &'a mut [f32]) { tl::store(out, tl::load(x)); }",
            "#[fuse_kernel] pub fn k(x: &'static [f32], out: &'static mut [f32]) { tl::store(out, tl::load(x)); }",
            "#[fuse_kernel] pub fn k<const N: usize = 64>(out: &mut [f32]) { tl::store(out + tl::arange(0, N), 1.0); }",
            "#[fuse_kernel(N = [64], N = [128])] pub fn k<const N: usize>(out: &mut [f32]) { tl::store(out + tl::arange(0, N), 1.0); }",
            "#[fuse_kernel(num_warps = 4, num_warps = 8, shared_mem = 1024)] pub fn k(out: &mut [f32]) { tl::store(out, 1.0); }",
        ],
        expect![[r##"
            #[fuse_kernel] pub fn k(x: &f32, out: &mut [f32]) { tl::store(out, 1.0); }
                a reference parameter is a slice or a view
                    help: one number is passed by value, `f32`; memory is a slice, `&[f32]`
            #[fuse_kernel] pub fn k(x: Slice<f32>, out: SliceMut<f32>) { tl::store(out, 1.0); }
                this type cannot be a kernel parameter
                    help: memory is a slice, `&[f32]`: calls pass a buffer for it
                this type cannot be a kernel parameter
                    help: memory is a slice: `&mut [f32]`
            #[fuse_kernel] pub fn k(x: Tile<f32>, out: &mut [f32]) { tl::store(out, 1.0); }
                this type cannot be a kernel parameter
                    help: a kernel loads tiles itself: take memory, `&[f32]`, or one number, `f32`
            #[fuse_kernel] pub fn k(x: &Buffer<f32>, out: &mut Buffer<f32>) { tl::store(out, 1.0); }
                a reference parameter is a slice or a view
                    help: memory is a slice, `&[f32]`: calls pass a buffer for it
                a reference parameter is a slice or a view
                    help: memory is a slice, `&mut [f32]`: calls pass a buffer for it
            #[fuse_kernel] pub fn k(out: &mut [f32], mut n: i32) { n += 1; tl::store(out + n, 1.0); }
                a parameter cannot be reassigned
                    help: bind it first: `let mut n = n;`
            #[fuse_kernel] pub fn k(x: &mut ViewMut<f32, 2>) { x.store(tl::zeros::<f32>([16,16]), 0, 0); }
                a reference parameter is a slice or a view
                    help: write `&mut View<f32, 2>`
            #[fuse_kernel] pub fn k(out: &mut [f32], n: i32) { tl::store(out, TABLE[n]); }
                a kernel has no tables: `TABLE`
                    help: memory is a parameter: pass it, `table: &[f32]`, and read `tl::load(table + i)`
            #[fuse_kernel] pub fn k(out: &mut [f32], p: P) { tl::store(out, p.a); }
                `P` is no type of a kernel's parameter
                    help: a type parameter is declared: `fn k<P: Float>(..)`; a struct's fields are parameters of their own; an enum without fields is one of the same `#[fuse_module]`, or imported there
            #[fuse_kernel] pub fn k(out: &mut [f32], e: E) { match e { E::A => tl::store(out, 1.0), E::B => tl::store(out, 2.0) } }
                `E` is no type of a kernel's parameter
                    help: a type parameter is declared: `fn k<E: Float>(..)`; a struct's fields are parameters of their own; an enum without fields is one of the same `#[fuse_module]`, or imported there
                `E::A` is not known in a kernel
                    help: constants and enums beside a kernel are seen only in a `#[fuse_module]`
                `E::B` is not known in a kernel
                    help: constants and enums beside a kernel are seen only in a `#[fuse_module]`
            #[fuse_kernel] pub fn k(x: *const f32, out: *mut f32, n: i32) { tl::store(out, 1.0); }
                this type cannot be a kernel parameter
                    help: memory is a slice: `&[f32]`
                this type cannot be a kernel parameter
                    help: memory is a slice: `&mut [f32]`
            #[fuse_kernel] pub fn k(out: &mut [T]) { tl::store(out, 1.0); }
                `T` is not an element type
                    help: a type parameter is declared: `fn k<T: Float>(..)`
            #[fuse_kernel] pub fn k(x: &Tensor, out: &mut Tensor) { tl::store(out, 1.0); }
                a reference parameter is a slice or a view
                    help: memory is a slice, `&[f32]`, or a view with a shape, `&View<f32, 2>`
                a reference parameter is a slice or a view
                    help: memory is a slice, `&[f32]`, or a view with a shape, `&View<f32, 2>`
            #[fuse_kernel] pub fn k(x: &[f32], name: &str, out: &mut [f32]) { tl::store(out, 1.0); }
                a reference parameter is a slice or a view
                    help: a kernel has no text: `tl::device_print("label", value)` prints values in debug builds
            #[fuse_kernel(N = [64])] pub fn k(out: &mut [f32]) { tl::store(out, 1.0); }
                `N` is not a generic of `k`
                    help: declare it: `fn k<const N: usize>(..)`
            #[fuse_kernel(T = f32 | f16)] pub fn k<T: Float>(out: &mut [T]) { tl::store(out, 1.0); }
                a declared value is an element type, an integer or a bool
                    help: several values stand between brackets: `[f32, f16]`
            #[fuse_kernel] pub fn k(x: &Array<f32>, rows: &[[f32; 64]], out: &mut Grid<float>) { tl::store(out, 1.0); }
                a reference parameter is a slice or a view
                    help: memory is a slice, `&[f32]`, or a view with a shape, `&View<f32, 2>`
                a reference parameter is a slice or a view
                    help: memory is a slice, `&[f32]`, or a view with a shape, `&View<f32, 2>`
                a reference parameter is a slice or a view
                    help: memory is a slice, `&mut [f32]`, or a view with a shape, `&mut View<f32, 2>`
            #[fuse_kernel] pub fn k(x: Option<f32>, out: &mut [f32]) { tl::store(out, 1.0); }
                an optional parameter is memory
                    help: pass the scalar with a number that stands for none
            #[fuse_kernel] pub fn k(f: impl Fn(f32) -> f32, out: &mut [f32]) { tl::store(out, f(1.0)); }
                this type cannot be a kernel parameter
                    help: a kernel takes no function: a function is a `#[fuse_fn]` in the same `#[fuse_module]`, chosen by a const parameter
            #[fuse_kernel] pub fn k(shape: (i32, i32), out: &mut [f32]) { tl::store(out, 1.0); }
                this type cannot be a kernel parameter
                    help: take one parameter for each part; parameters are `&[T]`, `&mut [T]`, `&View<T, 2>`, `&mut View<T, 2>` and scalars such as `i32` or `f32`
            #[fuse_kernel(N = {64, 128})] pub fn k<const N: usize>(out: &mut [f32]) { tl::store(out + tl::arange(0, N), 1.0); }
                values stand between brackets
                    help: write `N = [64, 128]`
            #[fuse_kernel(N = (64, 128))] pub fn k<const N: usize>(out: &mut [f32]) { tl::store(out + tl::arange(0, N), 1.0); }
                values stand between brackets
                    help: write `N = [64, 128]`
            #[fuse_kernel("N" = [64])] pub fn k<const N: usize>(out: &mut [f32]) { tl::store(out + tl::arange(0, N), 1.0); }
                a name stands without quotes
                    help: write `N`
            #[fuse_kernel(N in [64])] pub fn k<const N: usize>(out: &mut [f32]) { tl::store(out + tl::arange(0, N), 1.0); }
                the values of `N` stand behind `=`
                    help: write `N = [64]`, or `N = n in [64]` where an argument chooses among the values
            #[fuse_kernel(num_warps = "4")] pub fn k(out: &mut [f32]) { tl::store(out, 1.0); }
                expected an integer, or what `+`, `-`, `*`, `/`, `%`, `min`, `max`, `next_power_of_two` and `if` make of such
                    help: write `4`
            #[fuse_kernel(num_warps = 4.0)] pub fn k(out: &mut [f32]) { tl::store(out, 1.0); }
                expected an integer, or what `+`, `-`, `*`, `/`, `%`, `min`, `max`, `next_power_of_two` and `if` make of such
                    help: write `4`
            #[fuse_kernel(num_warps = n)] pub fn k(out: &mut [f32], n: i32) { tl::store(out + n, 1.0); }
                expected an integer, or what `+`, `-`, `*`, `/`, `%`, `min`, `max`, `next_power_of_two` and `if` make of such
                    help: `n` is known at the launch alone: write a number, or several for `tune` to choose from, `configs = [{ num_warps: 4 }, { num_warps: 8 }], tune(key = [n])`
            #[fuse_kernel(grid = (64,))] pub fn k(out: &mut [f32]) { tl::store(out, 1.0); }
                `grid` is not an option of `fuse_kernel`
                    help: the grid is given where the kernel is launched: `k(..).grid(64).launch(&device)`
            #[fuse_kernel(autotune(configs = []))] pub fn k(out: &mut [f32]) { tl::store(out, 1.0); }
                `autotune` is not an option of `fuse_kernel`
                    help: `configs = [{ N: 64, num_warps: 4 }, { N: 128, num_warps: 8 }], tune(key = [n])`
            #[fuse_kernel(key = [n])] pub fn k(out: &mut [f32], n: i32) { tl::store(out + n, 1.0); }
                `key` is not an option of `fuse_kernel`
                    help: what the choice depends on stands in `tune(key = [n])`, beside `configs = [{ .. }]`
            #[fuse_kernel(N = n)] pub fn k<const N: usize>(out: &mut [f32], n: i32) { tl::store(out + tl::arange(0, N) + n, 1.0); }
                `N` is a `usize`, found `n`
                    help: an argument chooses among declared values: `N = n in [64, 128]`
            #[fuse_kernel(BLOCK_SIZE = 1024)] pub fn k<const BLOCK: usize>(out: &mut [f32]) { tl::store(out + tl::arange(0, BLOCK), 1.0); }
                `BLOCK_SIZE` is not a generic of `k`
                    help: did you mean `BLOCK`?
            #[fuse_kernel(threads = 128)] pub fn k(out: &mut [f32]) { tl::store(out, 1.0); }
                `threads` is not an option of `fuse_kernel`
                    help: `num_warps = 4` asks for 4 warps of 32 threads; a tile's extent is a const parameter of the kernel
            #[fuse_kernel(configs = { N: 64 })] pub fn k<const N: usize>(out: &mut [f32]) { tl::store(out + tl::arange(0, N), 1.0); }
                `configs` is a list
                    help: write `configs = [{ N: 64 }]`
            #[fuse_kernel(tune(n), configs = [{ N: 64 }])] pub fn k<const N: usize>(out: &mut [f32], n: i32) { tl::store(out + tl::arange(0, N) + n, 1.0); }
                what the fastest choice depends on stands behind `key =`
                    help: write `tune(key = [n])`
            #[fuse_kernel(T = ["f32", "f16"])] pub fn k<T: Float>(out: &mut [T]) { tl::store(out, 1.0); }
                `"f32"` is not an element type
                    help: did you mean `f32`?
                `"f16"` is not an element type
                    help: did you mean `f16`?
            #[fuse_kernel(N = 64, 128)] pub fn k<const N: usize>(out: &mut [f32]) { tl::store(out + tl::arange(0, N), 1.0); }
                a name stands here, found a value
                    help: several values stand between brackets: `NAME = [64, 128]`
            #[fuse_kernel] pub fn k(out: &mut [f32], BLOCK: tl::constexpr) { tl::store(out + tl::arange(0, BLOCK), 1.0); }
                `constexpr` is not an element type
                    help: constants are const parameters of the kernel, `fn k<const N: usize>(..)`, with values in the attribute, `N = [64, 128]`
            #[fuse_kernel] #[launch_bounds(256)] pub fn k(out: &mut [f32]) { tl::store(out, 1.0); }
                `#[launch_bounds]` means nothing here
                    help: `num_warps = 4` asks for 4 warps of 32 threads; a tile's extent is a const parameter of the kernel
            #[fuse_kernel] #[num_warps(4)] #[inline] pub fn k(out: &mut [f32]) { tl::store(out, 1.0); }
                `#[num_warps]` means nothing here
                    help: it is an option of the kernel: `#[fuse_kernel(num_warps = 4)]`
            #[fuse_kernel] pub unsafe extern "C" fn k(out: &mut [f32]) { tl::store(out, 1.0); }
                a kernel is a plain `fn`
                    help: leave out `unsafe extern "C"`
            #[fuse_kernel] pub async fn k<'a>(x: &'a [f32], out: &'a mut [f32]) { tl::store(out, tl::load(x)); }
                a kernel is a plain `fn`
                    help: leave out `async`
                a kernel has no lifetime parameters
                    help: leave it out, also in the types: `x: &[T]`
            #[fuse_kernel] pub fn k(x: &'static [f32], out: &'static mut [f32]) { tl::store(out, tl::load(x)); }
                a kernel has no lifetime parameters
                    help: leave it out, also in the types: `x: &[T]`
            #[fuse_kernel] pub fn k<const N: usize = 64>(out: &mut [f32]) { tl::store(out + tl::arange(0, N), 1.0); }
                a kernel's const parameter has no default: its values are declared in the attribute
                    help: `#[fuse_kernel(N = [64])]`
            #[fuse_kernel(N = [64], N = [128])] pub fn k<const N: usize>(out: &mut [f32]) { tl::store(out + tl::arange(0, N), 1.0); }
                `N` is declared twice
                    help: write one list: `N = [64, 128]`
            #[fuse_kernel(num_warps = 4, num_warps = 8, shared_mem = 1024)] pub fn k(out: &mut [f32]) { tl::store(out, 1.0); }
                `num_warps` is declared twice
                    help: keep one of the two
                `shared_mem` is not an option of `fuse_kernel`
                    help: leave it out: the compiler lays out shared memory
        "##]],
    );
}

#[test]
fn functions_of_modules() {
    check_modules(
        &[
            "pub mod q { #[fuse_fn] fn f(x: Tile<f32>) { tl::store(x, 1.0); } #[fuse_kernel] pub fn k(out: &mut [f32]) { f(out); } }",
            "pub mod q { #[fuse_fn] fn f(x: f32) -> Tile<f32> { x } #[fuse_kernel] pub fn k(out: &mut [f32]) { tl::store(out, f(tl::load(out + tl::arange(0, 64)))); } }",
            "pub mod q { #[fuse_fn] fn f(x: Tile<f32>) -> Tile<f32> { x + 1.0; } #[fuse_kernel] pub fn k(out: &mut [f32]) { tl::store(out, f(tl::load(out))); } }",
            "pub mod q { #[fuse_fn] fn f(x: &f32) -> f32 { x } #[fuse_kernel] pub fn k(out: &mut [f32]) { tl::store(out, f(1.0)); } }",
            "pub mod q { fn scale(x: Tile<f32>) -> Tile<f32> { x * 2.0 } #[fuse_kernel] pub fn k(out: &mut [f32]) { tl::store(out, scale(tl::load(out))); } }",
            "pub mod q { const W: [f32; 3] = [1.0, 2.0, 1.0]; #[fuse_kernel] pub fn k(out: &mut [f32]) { tl::store(out, W[0]); } }",
        ],
        expect![[r#"
            pub mod q { #[fuse_fn] fn f(x: Tile<f32>) { tl::store(x, 1.0); } #[fuse_kernel] pub fn k(out: &mut [f32]) { f(out); } }
                argument 1 of `f` is a tile or scalar, found a slice
                    help: read it, `tl::load(out + offsets)`, or declare the parameter `&mut [f32]`
            pub mod q { #[fuse_fn] fn f(x: f32) -> Tile<f32> { x } #[fuse_kernel] pub fn k(out: &mut [f32]) { tl::store(out, f(tl::load(out + tl::arange(0, 64)))); } }
                argument 1 of `f` is a scalar, found a tile of type f32[64]
                    help: declare the parameter `Tile<f32>`, which scalars fit too
            pub mod q { #[fuse_fn] fn f(x: Tile<f32>) -> Tile<f32> { x + 1.0; } #[fuse_kernel] pub fn k(out: &mut [f32]) { tl::store(out, f(tl::load(out))); } }
                `f` gives a value, but its body ends without one
                    help: the value is the last expression, without a semicolon behind it
                    note: in the call of `f` on line 1
            pub mod q { #[fuse_fn] fn f(x: &f32) -> f32 { x } #[fuse_kernel] pub fn k(out: &mut [f32]) { tl::store(out, f(1.0)); } }
                this type has no meaning in a kernel
                    help: one number is passed by value, `f32`; memory is a slice, `&[f32]`
            pub mod q { fn scale(x: Tile<f32>) -> Tile<f32> { x * 2.0 } #[fuse_kernel] pub fn k(out: &mut [f32]) { tl::store(out, scale(tl::load(out))); } }
                `scale` cannot be called in a kernel
                    help: mark `fn scale` with `#[fuse_fn]`
            pub mod q { const W: [f32; 3] = [1.0, 2.0, 1.0]; #[fuse_kernel] pub fn k(out: &mut [f32]) { tl::store(out, W[0]); } }
                a kernel has no tables: `W`
                    help: memory is a parameter: pass it, `w: &[f32]`, and read `tl::load(w + i)`
        "#]],
    );
}

//! Mistakes of inline PTX, and of hints about offsets.

use expect_test::expect;

use tile_ir::testing::{mistakes, render};

#[test]
fn mistakes_of_inline_ptx() {
    let source = "#[fuse_kernel()]
        fn k(x: &[f32], b: &[i8], out: &mut [f32], n: i32) {
            let i = tl::arange(0, 64);
            let x = tl::load(x + i);
            let y = tl::inline_ptx::<f32>(\"sin.approx.f32 $0, $2;\", \"=f,f\", (x,), |x| x);
            let y = tl::inline_ptx::<f32>(\"sin.approx.f32 $1, $1;\", \"=f,f\", (x,), |x| x);
            let y = tl::inline_ptx::<f32>(\"@p st.global.f32 [$1], $0;\", \"=f,f\", (x,), |x| x);
            let y = tl::inline_ptx::<f32>(\"again: add.f32 $0, $1, $1; bra again;\", \"=f,f\", (x,), |x| x);
            let y = tl::inline_ptx::<f32>(\"neg.f32 $0, $1;\", \"=r,f\", (x,), |x| x);
            let y = tl::inline_ptx::<f32>(\"neg.f32 $0, $1;\", \"=f,f\", (tl::load(b + i),), |x| x);
            let y = tl::inline_ptx::<f32>(\"neg.f32 $0, $1;\", \"=f,f\", (x,), |x, y| x);
            let y = tl::inline_ptx::<i32>(\"neg.f32 $0, $1;\", \"=r,f\", (x,), |x| x);
            let y = tl::inline_ptx::<f32>(\"neg.f32 $0, $1;\", \"=f,f\", (x,), |x| tl::load(out + n));
            let y = tl::inline_ptx::<f32>(\"neg.f32 $0, $1;\", \"=f,f\", (x,), 3);
            let y = tl::inline_ptx::<f32>(n, \"=f,f\", (x,), |x| x);
            let y = tl::inline_ptx::<f32>(\"neg.f32 $0, $1;\", \"=f\", (), |x| x);
            let y = tl::inline_ptx::<(f32, i32)>(\"neg.f32 $0, $2;\", \"=f,=r,f\", (x,), |x| (x, 1));
            let y = tl::inline_ptx::<(f32, i32)>(\"neg.f32 $0, $2; mov.b32 $1, $3;\", \"=f,=r,f\", (x,), |x| (x, 1));
            let y = tl::inline_ptx::<(f32, i32)>(\"neg.f32 $0, $2; mov.b32 $1, $2;\", \"=f,r,f\", (x,), |x| (x, 1));
            let y = tl::inline_ptx::<(f32, i32)>(\"neg.f32 $0, $2; mov.b32 $1, $2;\", \"=f,=r,f\", (x,), |x| x);
            let y = tl::inline_ptx::<(f32, i32)>(\"neg.f32 $0, $2; mov.b32 $1, $2;\", \"=f,=r,f\", (x,), |x| (x, x));
            let y = tl::inline_ptx::<(f32, &i32)>(\"neg.f32 $0, $2;\", \"=f,=r,f\", (x,), |x| (x, 1));
            let y = tl::inline_ptx::<f32, i32>(\"neg.f32 $0, $2;\", \"=f,=r,f\", (x,), |x| (x, 1));
            let y = tl::zeros::<(f32, i32)>([64]);
        }";
    expect![[r#"
        5: `"sin.approx.f32 $0, $2;"`: `$2` stands for nothing: there are 2 results and operands
        6: `"sin.approx.f32 $1, $1;"`: `sin.approx.f32` writes `$1`, an operand: write a result or a register of `.reg`
        7: `"@p st.global.f32 [$1], $0;"`: `st.global.f32` does more than compute with registers
            help: inline PTX computes from registers to registers, in an `unchecked` kernel too: arithmetic, logic, shifts, conversions, comparisons, selections, `mov`, bit and video instructions, predicates, and `.reg` in braces
        8: `"again: add.f32 $0, $1, $1; bra again;"`: `again:` is a label, and nothing jumps in inline PTX
            help: inline PTX computes from registers to registers, in an `unchecked` kernel too: arithmetic, logic, shifts, conversions, comparisons, selections, `mov`, bit and video instructions, predicates, and `.reg` in braces
        9: `"=r,f"`: these constraints do not fit a result and operands of f32 and f32
            help: write `"=f,f"`
        10: `"=f,f"`: inline PTX has no register for i8
            help: convert it: `.to::<i32>()`
        11: `|x, y| x`: this function takes 2 arguments, found 1
        12: `x`: what this function gives is i32, found f32
            help: convert it: `.to::<i32>()`
        13: `out`: a combination cannot use a slice from outside of it
            help: it works on its own arguments and constants; what else it needs can be one more tile that is folded along
        13: `n`: a combination cannot use a scalar of type i32 from outside of it
            help: it works on its own arguments and constants; what else it needs can be one more tile that is folded along
        14: `3`: this is a function, found the integer 3
            help: such as `|x| x + 1.0`
        15: `n`: the PTX is a string, found a scalar of type i32
        16: `()`: expected a tile or scalar, found nothing
        17: `"neg.f32 $0, $2;"`: nothing is written to `$1`, a result
        18: `"neg.f32 $0, $2; mov.b32 $1, $3;"`: `$3` stands for nothing: there are 3 results and operands
        19: `"=f,r,f"`: these constraints do not fit results and operands of f32, i32 and f32
            help: write `"=f,=r,f"`
        20: `x`: this function gives a tuple of 2, found a scalar of type f32
        21: `x`: what this function gives is i32, found f32
            help: convert it: `.to::<i32>()`
        22: `(f32, &i32)`: this type cannot be used in a kernel
            help: name element types such as `f32`
        23: `inline_ptx`: `tl::inline_ptx` takes one element type, or a tuple of them
            help: several results are a tuple: `::<(f32, i32)>`
        24: `zeros`: `tl::zeros` takes one element type
    "#]].assert_eq(&render(&mistakes(source), source));
}

/// The mistakes of a kernel with this text on two operands, a line each.
fn mistakes_of(text: &str) -> String {
    let source = format!(
        "#[fuse_kernel(unchecked)]
        fn k(x: &[u64], out: &mut [u64]) {{
            let x = tl::load(x + tl::arange(0, 64));
            tl::store(out + tl::arange(0, 64), tl::inline_ptx::<u64>({text:?}, \"=l,l,l\", (x, x), |x, y| x + y));
        }}"
    );
    mistakes(&source).iter().map(|mistake| format!("{}\n", mistake.message)).collect()
}

#[test]
fn inline_ptx_computes_from_registers_to_registers() {
    let taken = [
        "add.u64 $0, $1, $2;",
        "  add.u64\t$0 ,$1,-1 ;; ",
        "add.u64 $0, $1, $2; // the sum",
        "/* a * b / c **/ mul.lo.u64 $0, $1, 0x1F;",
        "{ .reg .pred p; setp.ne.u64 p, $1, 0; @p add.u64 $0, $1, 1; @!p mov.u64 $0, $2; }",
        "{ .reg .pred p, q; setp.lt.u64 p|q, $1, $2; selp.u64 $0, $1, $2, !q; }",
        "{ .reg .pred p; setp.eq.u64 p|_, $1, $2; @ ! p mov.b64 $0, $1; @ p mov.b64 $0, $2; }",
        "{ .reg .b32 lo, hi; .reg .f32 t; mov.b64 {lo, hi}, $1; mov.b32 t, lo; ex2.approx.f32 t, t; mov.b64 $0, {lo, hi}; }",
        "{ .reg .b32 a; mov.u32 a, %laneid; add.u32 a, a, %tid.x; cvt.u64.u32 $0, a; { .reg .b32 b; mov.b32 b, a; } }",
        "{ .reg .b32 lo, hi, r; mov.b64 {lo, _}, $1; mov.b64 {_, hi}, $2; vadd4.u32.u32.u32 r, lo, hi, 0; mov.b64 $0, {r, r}; }",
        "mov.f64 $0, 0d3FF0000000000000;",
    ];
    for text in taken {
        assert_eq!(mistakes_of(text), "", "{text}");
    }
    let refused = [
        // What was taken for a predicate or a comment.
        "{ .reg .pred p; setp.ne.u64 p, $1, 0; @ p st.global.u64 [$1], $1; mov.u64 $0, $1; }",
        "{ .reg .pred p; setp.ne.u64 p, $1, 0; @p/**/st.global.u64 [$1], $1; mov.u64 $0, $1; }",
        "{ .reg .pred p; setp.ne.u64 p, $1, 0; @! p st.global.u64 [$1], $1; mov.u64 $0, $1; }",
        "{ .reg .pred p; setp.ne.u64 p, $1, 0; @!p\nst.global.u64 [$1], $1; mov.u64 $0, $1; }",
        "mov.u64 $0, $1; /**/st.global.u64 [$1], $1;",
        "mov.u64 $0, $1; // \nst.global.u64 [$1], $1;",
        // Memory.
        "ld.global.u64 $0, [$1];",
        "mov.u64 $0, [$1];",
        "st.async.weak.shared::cluster.b64 [$1], $0;",
        "atom.global.add.u64 $0, [$1], 1;",
        "prefetch.global.L1 [$1]; mov.u64 $0, $1;",
        "{ .local .b64 a; mov.u64 $0, a; }",
        "{ .shared .b64 a; mov.u64 $0, a; }",
        "mov.u64 $0, fuse_report;",
        // Registers of the code around it.
        "mov.u64 %rd1, $1; mov.u64 $0, $1;",
        "{ .reg .b64 %rd1; mov.u64 %rd1, $1; mov.u64 $0, %rd1; }",
        "mov.u64 $0, %rd1;",
        "add.u64 $1, $1, 8; mov.u64 $0, $1;",
        "{ .reg .b32 t; mov.b64 {t, $2}, $1; mov.u64 $0, $1; }",
        "setp.eq.u64 %p1|%p2, $1, $2; mov.u64 $0, $1;",
        ".reg .b64 t; mov.u64 $0, $1;",
        "{ .reg .b64 t<3>; mov.u64 $0, $1; }",
        "{ { .reg .b64 t; } mov.u64 $0, t; }",
        "@%p1 mov.u64 $0, $1;",
        "@$1 mov.u64 $0, $1;",
        // Control.
        "again: mov.u64 $0, $1; bra again;",
        "mov.u64 $0, $1; bra again;",
        "mov.u64 $0, $1; exit;",
        "mov.u64 $0, $1; trap;",
        "call.uni ($0), f, ($1);",
        "bar.sync 0; mov.u64 $0, $1;",
        "mov.u64 $0, $1; } ret; {",
        "shfl.sync.idx.b32 $0, $1, 0, 31, -1;",
        // Directives and the assembler's own.
        ".loc 1 2 3\nmov.u64 $0, $1;",
        ".pragma \"nounroll\"; mov.u64 $0, $1;",
        "# 1 \"file\"\nmov.u64 $0, $1;",
        "mov.u64 $0, \\\n$1;",
        "mov.u64 $0, $1; /* ",
        "mov.u64 $0, $1; / st",
        "mov.u64 $0, $$1;",
        "mov.u64 $0, ${1};",
        "mov.u64 $0, $1",
        "mov.u64 $0, $1; @",
        "{ mov.u64 $0, $1;",
        "mov.u64 $0, $1; \u{e9}",
        "MOV.u64 $0, $1;",
        "",
    ];
    let report: String = refused.iter().map(|text| format!("{text:?}: {}", mistakes_of(text))).collect();
    expect![[r##"
        "{ .reg .pred p; setp.ne.u64 p, $1, 0; @ p st.global.u64 [$1], $1; mov.u64 $0, $1; }": `st.global.u64` does more than compute with registers
        "{ .reg .pred p; setp.ne.u64 p, $1, 0; @p/**/st.global.u64 [$1], $1; mov.u64 $0, $1; }": `st.global.u64` does more than compute with registers
        "{ .reg .pred p; setp.ne.u64 p, $1, 0; @! p st.global.u64 [$1], $1; mov.u64 $0, $1; }": `st.global.u64` does more than compute with registers
        "{ .reg .pred p; setp.ne.u64 p, $1, 0; @!p\nst.global.u64 [$1], $1; mov.u64 $0, $1; }": `st.global.u64` does more than compute with registers
        "mov.u64 $0, $1; /**/st.global.u64 [$1], $1;": `st.global.u64` does more than compute with registers
        "mov.u64 $0, $1; // \nst.global.u64 [$1], $1;": `st.global.u64` does more than compute with registers
        "ld.global.u64 $0, [$1];": `ld.global.u64` does more than compute with registers
        "mov.u64 $0, [$1];": `[` is not part of an operand of `mov.u64`
        "st.async.weak.shared::cluster.b64 [$1], $0;": `st.async.weak.shared::cluster.b64` does more than compute with registers
        "atom.global.add.u64 $0, [$1], 1;": `atom.global.add.u64` does more than compute with registers
        "prefetch.global.L1 [$1]; mov.u64 $0, $1;": `prefetch.global.L1` does more than compute with registers
        "{ .local .b64 a; mov.u64 $0, a; }": the directive `.local` does more than declare registers
        "{ .shared .b64 a; mov.u64 $0, a; }": the directive `.shared` does more than declare registers
        "mov.u64 $0, fuse_report;": `fuse_report` is no register that `.reg` declares
        "mov.u64 %rd1, $1; mov.u64 $0, $1;": `%rd1` is no register that `.reg` declares
        "{ .reg .b64 %rd1; mov.u64 %rd1, $1; mov.u64 $0, %rd1; }": `.reg` declares names of letters, such as `t`, found `%rd1`
        "mov.u64 $0, %rd1;": `%rd1` is no register that `.reg` declares
        "add.u64 $1, $1, 8; mov.u64 $0, $1;": `add.u64` writes `$1`, an operand: write a result or a register of `.reg`
        "{ .reg .b32 t; mov.b64 {t, $2}, $1; mov.u64 $0, $1; }": `mov.b64` writes `$2`, an operand: write a result or a register of `.reg`
        "setp.eq.u64 %p1|%p2, $1, $2; mov.u64 $0, $1;": `%p1` is no register that `.reg` declares
        ".reg .b64 t; mov.u64 $0, $1;": `.reg` stands in braces, for the text may be there several times: `{ .reg .f32 t; .. }`
        "{ .reg .b64 t<3>; mov.u64 $0, $1; }": `.reg` declares names of letters, such as `t`, found `<`
        "{ { .reg .b64 t; } mov.u64 $0, t; }": `t` is no register that `.reg` declares
        "@%p1 mov.u64 $0, $1;": `@` is followed by a predicate that `.reg` declares, found `%p1`
        "@$1 mov.u64 $0, $1;": `@` is followed by a predicate that `.reg` declares, found `$1`
        "again: mov.u64 $0, $1; bra again;": `again:` is a label, and nothing jumps in inline PTX
        "mov.u64 $0, $1; bra again;": `bra` does more than compute with registers
        "mov.u64 $0, $1; exit;": `exit` does more than compute with registers
        "mov.u64 $0, $1; trap;": `trap` does more than compute with registers
        "call.uni ($0), f, ($1);": `call.uni` does more than compute with registers
        "bar.sync 0; mov.u64 $0, $1;": `bar.sync` does more than compute with registers
        "mov.u64 $0, $1; } ret; {": `}` closes nothing
        "shfl.sync.idx.b32 $0, $1, 0, 31, -1;": `shfl.sync.idx.b32` does more than compute with registers
        ".loc 1 2 3\nmov.u64 $0, $1;": the directive `.loc` does more than declare registers
        ".pragma \"nounroll\"; mov.u64 $0, $1;": the directive `.pragma` does more than declare registers
        "# 1 \"file\"\nmov.u64 $0, $1;": a statement begins with an instruction, found `#`
        "mov.u64 $0, \\\n$1;": `\` is not part of an operand of `mov.u64`
        "mov.u64 $0, $1; /* ": a comment does not end
        "mov.u64 $0, $1; / st": `/` is not part of inline PTX
        "mov.u64 $0, $$1;": `$` is followed by the number of an operand
        "mov.u64 $0, ${1};": `$` is followed by the number of an operand
        "mov.u64 $0, $1": `mov.u64` ends with `;`
        "mov.u64 $0, $1; @": an instruction is missing at the end
        "{ mov.u64 $0, $1;": `{` is not closed
        "mov.u64 $0, $1; é": a statement begins with an instruction, found `é`
        "MOV.u64 $0, $1;": `MOV.u64` does more than compute with registers
        "": nothing is written to `$0`, the result
    "##]].assert_eq(&report);
}

#[test]
fn mistakes_of_hints() {
    let source = "#[fuse_kernel()]
        fn k(x: &[f32], n: i32) {
            let y = tl::multiple_of(n, 12);
            let y = tl::multiple_of(n, n);
            let y = tl::multiple_of(2.5, 4);
            let y = tl::max_contiguous(n, 4);
            let y = tl::max_constancy(n, 4);
            let y = tl::max_constancy(tl::load(x + tl::arange(0, 64)), 4);
            let y = tl::max_contiguous(tl::arange(0, 64) < n, 4);
            let y = tl::max_constancy(tl::arange(0, 64) < n, 0);
            let y = tl::max_constancy(tl::arange(0, 64) < n, 1);
        }";
    expect![[r#"
        3: `12`: `tl::multiple_of` takes a power of two, found 12
        4: `n`: what is claimed is a constant integer, found a scalar of type i32
            help: constants are literals and const parameters of the kernel
        5: `2.5`: `tl::multiple_of` takes integers, found f32
        6: `n`: `tl::max_contiguous` takes a tile, found a scalar
        7: `n`: `tl::max_constancy` takes a tile, found a scalar
        8: `tl::load(x + tl::arange(0, 64))`: `tl::max_constancy` takes integers or a mask, found f32[64]
        9: `tl::arange(0, 64) < n`: `tl::max_contiguous` takes integers, found bool[64]
        10: `0`: `tl::max_constancy` takes a power of two, found 0
    "#]]
    .assert_eq(&render(&mistakes(source), source));
}

//! Modules marked `#[fuse_module]`: their functions, constants and enums, as their kernels see them.

use expect_test::{Expect, expect};

use tile_ir::ir;
use tile_ir::support::diagnostic::Errors;
use tile_ir::testing::{module, module_beside, render};

/// The tile IR of a module's kernels.
fn check_module(source: &str, expected: Expect) {
    check_beside(&[], source, expected);
}

/// The tile IR of the kernels of a module that uses items of others.
fn check_beside(others: &[&str], source: &str, expected: Expect) {
    let (funcs, errors) = module_beside(others, source);
    assert!(errors.is_empty(), "{}", render(&errors, source));
    let texts: Vec<String> = funcs.iter().map(|func| ir::print(func, &|_| None)).collect();
    expected.assert_eq(&texts.concat());
}

/// Every mistake of a module.
fn check_errors(source: &str, expected: Expect) {
    let (_, errors) = module(source);
    expected.assert_eq(&render(&errors, source));
}

#[test]
fn functions_constants_and_enums() {
    check_module(
        "mod activations {
            const SLOPE: f32 = 1.0 / 128.0;
            pub const WIDTH: usize = 32 * 2;
            pub enum Activation { None, Relu = 4, Leaky }

            #[fuse_fn]
            fn activate<T: Float, const ACT: u32>(x: Tile<T>) -> Tile<T> {
                match ACT {
                    Activation::None => x,
                    Activation::Relu => tl::maximum(x, 0.0),
                    Activation::Leaky => leaky(x.to::<f32>()).to::<T>(),
                    _ => tl::no_such_function(x),
                }
            }

            #[fuse_fn]
            fn leaky(x: Tile<f32>) -> Tile<f32> { tl::select(x < 0.0, x * SLOPE, x) }

            #[fuse_kernel(T = [f16], ACT = [Activation::Leaky])]
            pub fn apply<T: Float, const ACT: u32>(out: &mut [T]) {
                let p = out + tl::arange(0, WIDTH);
                tl::store(p, activate::<_, ACT>(tl::load(p)));
            }

            #[fuse_kernel(ACT = [Activation::Relu])]
            pub fn apply_to_f32<const ACT: u32>(out: &mut [f32]) {
                let p = out + tl::arange(0, WIDTH);
                tl::store(p, activate::<f32, ACT>(tl::load(p)));
            }
        }",
        expect![[r#"
            kernel apply(out: &mut [f16]) {
              %0 = arange 0 : i32[64]
              %1 = load out[%0] : f16[64]
              %2 = cast %1 : f32[64]
              %3 = constant 0.0 : f32
              %4 = splat %3 : f32[64]
              %5 = lt %2, %4 : bool[64]
              %6 = constant 0.0078125 : f32
              %7 = splat %6 : f32[64]
              %8 = mul %2, %7 : f32[64]
              %9 = select %5, %8, %2 : f32[64]
              %10 = cast %9 : f16[64]
              store %10, out[%0]
            }
            kernel apply_to_f32(out: &mut [f32]) {
              %0 = arange 0 : i32[64]
              %1 = load out[%0] : f32[64]
              %2 = constant 0.0 : f32
              %3 = splat %2 : f32[64]
              %4 = maximum %1, %3 : f32[64]
              store %4, out[%0]
            }
        "#]],
    );
}

#[test]
fn parameters_of_an_enum_are_constants() {
    check_module(
        "mod m {
            pub enum Reduction { Maximum = -1, Sum }

            #[fuse_fn]
            fn reduced(x: Tile<f32>, reduction: Reduction) -> Tile<f32> {
                match reduction {
                    Reduction::Sum => tl::sum(x, 0),
                    Reduction::Maximum => tl::max(x, 0),
                }
            }

            #[fuse_kernel(reduction = [Reduction::Maximum], num_warps = if reduction == Reduction::Sum { 0 } else { 4 })]
            fn row(x: &[f32], reduction: Reduction, n: i32, out: &mut [f32]) {
                let cols = tl::arange(0, 64);
                tl::store(out, reduced(tl::load(x + cols, cols < n), reduction));
            }
        }",
        expect![[r#"
            kernel row(x: &[f32], %0 n: i32, out: &mut [f32]) {
              %1 = arange 0 : i32[64]
              %2 = splat %0 : i32[64]
              %3 = lt %1, %2 : bool[64]
              %4 = load x[%1] mask %3 : f32[64]
              %5 = reduce %4 axes [0] : f32 { |%6, %7|
                %8 = maximum %6, %7 : f32
                yield %8
              }
              %9 = constant 0 : i32
              store %5, out[%9]
            }
        "#]],
    );
}

#[test]
fn mistakes_with_enums() {
    check_errors(
        "mod m {
            pub enum Reduction { Sum, Maximum, Minimum }

            #[fuse_fn]
            fn reduced(x: Tile<f32>, reduction: Reduction) -> Tile<f32> {
                match reduction {
                    Reduction::Sum => tl::sum(x, 0),
                    Reduction::Maximum => tl::max(x, 0),
                }
            }

            #[fuse_kernel]
            fn row(x: &[f32], reduction: Reduction, n: i32, out: &mut [f32]) {
                let row = tl::load(x + tl::arange(0, 64));
                tl::store(out, reduced(row, reduction));
                tl::store(out, reduced(row, n));
            }

            pub enum Computed { One = BASE, Two }

            #[fuse_kernel]
            fn of_computed(computed: Computed, out: &mut [f32]) { tl::store(out, 1.0); }

            #[fuse_kernel(N = [64])]
            fn of_const<const N: Reduction>(n: Direction, out: &mut [f32]) { tl::store(out, n); }

            #[fuse_kernel(
                N = [64], when = n > 64,
            )]
            fn without_configs<const N: usize>(n: i32, out: &mut [f32]) { tl::store(out, N as f32); }

            #[fuse_kernel(
                when = n > 64 && device.has_wgmma(),
                configs = [{ N: 64, when: out.len() > 4 }, { N: 128 }],
            )]
            fn of_written_memory<const N: usize>(n: i32, out: &mut [f32]) { tl::store(out, N as f32); }
        }",
        expect![[r#"
            6: `match`: this `match` does not cover every value
                help: end it with an arm for the others: `_ => ..`
                note: in the call of `reduced` on line 15; in the variant reduction = 2
            16: `n`: argument 2 of `reduced` is a `Reduction` known at build, found a scalar of type i32
            22: `Computed`: a value of `Computed` is not known in a kernel
                help: write the discriminants as numbers
            25: `Reduction`: a const parameter is an integer or a `bool`
                help: an enum of a `#[fuse_module]` is a parameter of its own, `mask: Mask`: each of its values has a variant
            25: `Direction`: `Direction` is no type of a kernel's parameter
                help: a struct's fields are parameters of their own; an enum without fields is one of the same `#[fuse_module]`, or imported there
            28: `n > 64`: `when` chooses nothing: it names no constant with listed values, and there are no configs
                help: `when = n <= BLOCK`, or a condition of one config, `configs = [{ .., when: n > 64 }, { .. }]`
            34: `out`: a condition with `device` cannot ask `out`, which the call writes
                help: ask a parameter that is read, or pass its extent as a number
        "#]],
    );
}

#[test]
fn mistakes_stand_where_they_are_made() {
    check_errors(
        "mod m {
            #[fuse_fn(inline)]
            #[cfg(unix)]
            fn f(x: Vec<f32>) -> Tile<f32> { x }
            #[fuse_fn]
            fn f(x: Tile<f32>) -> Tile<f32> { x }
            #[fuse_fn]
            fn mixed<T: Float>(x: Tile<T>) -> Tile<T> { x + 1i32 }
            #[fuse_fn]
            fn empty(x: Tile<f32>) -> Tile<f32> {}
            #[fuse_fn]
            fn full(x: Tile<f32>) { x }
            #[fuse_fn]
            fn of<T: Float, const N: usize>() -> Tile<T> { tl::zeros::<T>([N]) }
            const BIG: usize = size_of::<u8>();
            const LOOP: usize = LOOP + 1;
            enum E { A }

            #[fuse_kernel(T = [f16, f32])]
            fn k<T: Float>(x: &[T], out: &mut [f32]) {
                mixed(tl::load(x));
                empty(1.0);
                full(1.0);
                of::<f32>();
                of();
                of::<f32, BIG>();
                of::<f32, LOOP>();
                of::<f32, { E::B as usize }>();
                mixd(1.0);
                other::mixed(1.0);
            }
            #[fuse_kernel]
            fn l(out: &mut [f32]) { mixed(tl::load(out)); }
        }",
        expect![[r#"
            2: `inline`: `fuse_fn` takes no arguments
            4: `Vec<f32>`: this type has no meaning in a kernel
                help: memory is a slice, `&[f32]`: calls pass a buffer for it
            6: `f`: `f` is defined twice
            8: `+`: `+` needs one element type, found f16 and i32
                help: a number without a suffix has the type of what stands beside it: write `1.0`
                note: in the call of `mixed` on line 21
            8: `+`: `+` needs one element type, found f32 and i32
                help: a number without a suffix has the type of what stands beside it: write `1.0`
                note: in the call of `mixed` on line 33
            10: `}`: `empty` gives a value, but its body ends without one
                help: the value is the last expression, without a semicolon behind it
                note: in the call of `empty` on line 22
            12: `x`: `full` gives nothing, but its body ends with the float 1.0
                help: say what it gives: `-> Tile<f32>`
                note: in the call of `full` on line 23
            15: `size_of`: `size_of` cannot be called in a constant
                help: a kernel knows constants made of literals, operators and other constants
            16: `LOOP`: the value of `LOOP` is made of itself
            24: `of`: `of` takes 2 generic arguments, found 1
            25: `of`: the constant `N` of `of` is not known here
                help: give it: `of::<_, 64>(..)`
            28: `E::B`: `E` has no variant `B`
                help: it has `A`
            28: `usize`: `usize` is not an element type
                help: memory and scalars have a fixed width: use `i64` or `i32`
            29: `mixd`: `mixd` is not a function here
                help: did you mean `mixed`?
            30: `other::mixed`: `other::mixed` cannot be called in a kernel
                help: kernels call the functions of `tl::`, and those marked `#[fuse_fn]` in a `#[fuse_module]`: one of another module by a `use` with its name in the kernel's own module or body
        "#]],
    );
}

const ACTIVATIONS: &str = "mod activations {
    use crate::scales::{self, HALF};

    pub enum Activation { None, Relu = 4, Halved }

    pub const WIDTH: usize = 64;

    #[fuse_fn]
    pub fn activate<T: Float, const ACT: u32>(x: Tile<T>, then: impl Fn(Tile<T>) -> Tile<T>) -> Tile<T> {
        match ACT {
            Activation::None => then(x),
            Activation::Relu => tl::maximum(then(x), 0.0),
            Activation::Halved => halved(then(x)),
            _ => tl::no_such_function(x),
        }
    }

    #[fuse_fn]
    fn halved<T: Float>(x: Tile<T>) -> Tile<T> { scales::scaled(x, HALF) }
}";

const SCALES: &str = "mod scales {
    pub const HALF: f32 = 1.0 / 2.0;

    #[fuse_fn]
    pub fn scaled<T: Float>(x: Tile<T>, by: f32) -> Tile<T> { (x.to::<f32>() * by).to::<T>() }
}";

#[test]
fn items_of_other_modules() {
    check_beside(
        &[SCALES, ACTIVATIONS],
        "mod kernels {
            use crate::activations::{self, Activation, activate as act};

            // It is not the one of `scales`, which a function of `activations` means.
            const HALF: f32 = 8.0;

            #[fuse_kernel(ACT = [Activation::Halved], N = [activations::WIDTH])]
            fn apply<const ACT: u32, const N: usize>(out: &mut [f16]) {
                let p = out + tl::arange(0, N);
                tl::store(p, act::<_, ACT>(tl::load(p), |x| x + 3.0));
            }

            #[fuse_kernel]
            fn of_body(out: &mut [f32]) {
                use crate::scales::scaled;
                let activate = scaled(1.0f32, HALF);
                tl::store(out, activations::activate::<f32, { activations::Activation::Relu }>(activate, |x| x));
            }
        }",
        expect![[r#"
            kernel apply(out: &mut [f16]) {
              %0 = arange 0 : i32[64]
              %1 = load out[%0] : f16[64]
              %2 = constant 3.0 : f16
              %3 = splat %2 : f16[64]
              %4 = add %1, %3 : f16[64]
              %5 = constant 0.5 : f32
              %6 = cast %4 : f32[64]
              %7 = splat %5 : f32[64]
              %8 = mul %6, %7 : f32[64]
              %9 = cast %8 : f16[64]
              store %9, out[%0]
            }
            kernel of_body(out: &mut [f32]) {
              %0 = constant 8.0 : f32
              %1 = constant 0 : i32
              store %0, out[%1]
            }
        "#]],
    );
}

/// A name that is bound is no import, whatever a `use` declaration says.
#[test]
fn bound_names_are_not_imported() {
    let source = "mod kernels {
        use crate::host::{scale, apply};

        #[fuse_kernel]
        fn scaled(out: &mut [f32], scale: f32) {
            let apply = |x| x * scale;
            tl::store(out, apply(2.0f32));
        }
    }";
    let (funcs, errors) = module_beside(&[], source);
    assert!(errors.is_empty() && funcs.len() == 1, "{}", render(&errors, source));
}

#[test]
fn mistakes_of_imports_stand_on_the_call() {
    let source = "mod kernels {
        use crate::activations::{Activation, activate};

        #[fuse_kernel]
        fn missing_variant(out: &mut [f32]) {
            tl::store(out, activate::<f32, { Activation::Gelu }>(tl::load(out), |x| x));
        }

        #[fuse_kernel]
        fn in_its_body(out: &mut [f32]) {
            tl::store(out, activate::<f32, 9>(tl::load(out), |x| x));
        }

        #[fuse_kernel]
        fn in_the_closure(out: &mut [f32]) {
            tl::store(out, activate::<f32, { Activation::Relu }>(tl::load(out), |x| x + missing));
        }

        #[fuse_kernel]
        fn another_count(out: &mut [f32]) {
            tl::store(out, activate::<f32, { Activation::Relu }>(tl::load(out)));
        }
    }";
    let (_, errors) = module_beside(&[SCALES, ACTIVATIONS], source);
    // The file of a text that was never one has a number.
    let places = |line: &str| {
        line.split(", <").next().unwrap_or_default().split(" in <").next().unwrap_or_default().to_string()
    };
    let text: Vec<String> = render(&errors, source).lines().map(places).collect();
    expect![[r#"
        6: `Activation::Gelu`: `Activation` has no variant `Gelu`
            help: it has `None`, `Relu` and `Halved`
            note: `activate` is declared
        11: `activate::<f32, 9>(tl::load(out), |x| x)`: `tl::no_such_function` does not exist
            help: the functions of `tl::` are those in its documentation; `tl::inline_ptx` writes any other instruction
            note: in `activate`
        16: `missing`: `missing` is not defined
            note: `activate` is declared
        21: `activate`: `activate` takes 2 arguments, found 1
            note: `activate` is declared"#]].assert_eq(&text.join("\n"));
}

const SOFTMAX: &str = "mod softmax {
    #[fuse_struct]
    pub struct Row { m: Tile<f32>, l: Tile<f32> }

    impl Row {
        pub fn new<const M: usize>() -> Self {
            Self { m: tl::full([M], f32::NEG_INFINITY), l: tl::zeros::<f32>([M]) }
        }

        pub fn step(&mut self, scores: Tile<f32>) -> (Tile<f32>, Tile<f32>) {
            let m = tl::maximum(self.m, tl::max(scores, 1));
            let alpha = tl::exp2(self.m - m);
            let p = tl::exp2(scores - m.col());
            self.l = self.l * alpha + tl::sum(p, 1);
            self.m = m;
            (p, alpha)
        }

        pub fn sum(&self) -> Tile<f32> { self.l }
    }

    #[fuse_fn]
    pub fn scaled(row: Row, by: f32) -> Row { Row { l: row.l * by, ..row } }
}";

#[test]
fn structs_are_values_with_methods() {
    let source = "mod kernels {
        use crate::softmax::{Row, scaled};

        #[fuse_struct]
        struct State { softmax: Row, acc: Tile<f32> }

        #[fuse_kernel]
        fn attend(x: &[f32], out: &mut [f32], n: i32) {
            let lanes = tl::arange(0, 8);
            let mut state = State { softmax: Row::new::<1>(), acc: tl::zeros::<f32>([1]) };
            for i in 0..n {
                let (p, alpha) = state.softmax.step(tl::load(x + i * 8 + lanes).row());
                state.acc *= alpha;
                state.acc = state.acc + tl::sum(p, 1);
            }
            let last = if n > 3 { scaled(state.softmax, 2.0) } else { state.softmax };
            tl::store(out + tl::arange(0, 1), state.acc / last.sum());
        }
    }";
    let expected = expect![[r#"
        kernel attend(x: &[f32], out: &mut [f32], %0 n: i32) {
          %1 = arange 0 : i32[8]
          %2 = constant -inf : f32
          %3 = splat %2 : f32[1]
          %4 = constant 0.0 : f32
          %5 = splat %4 : f32[1]
          %6 = constant 0 : i32
          %7 = constant 1 : i32
          %8, %9, %10 = for %6..%0 step %7 carry %3, %5, %5 : f32[1], f32[1], f32[1] { |%11, %12, %13, %14|
            %15 = constant 8 : i32
            %16 = mul %11, %15 : i32
            %17 = splat %16 : i32[8]
            %18 = add %17, %1 : i32[8]
            %19 = load x[%18] : f32[8]
            %20 = expand_dims %19 axis 0 : f32[1, 8]
            %21 = reduce %20 axes [1] : f32[1] { |%22, %23|
              %24 = maximum %22, %23 : f32
              yield %24
            }
            %25 = maximum %12, %21 : f32[1]
            %26 = sub %12, %25 : f32[1]
            %27 = exp2 %26 : f32[1]
            %28 = expand_dims %25 axis 1 : f32[1, 1]
            %29 = broadcast %28 : f32[1, 8]
            %30 = sub %20, %29 : f32[1, 8]
            %31 = exp2 %30 : f32[1, 8]
            %32 = mul %13, %27 : f32[1]
            %33 = reduce %31 axes [1] : f32[1] { |%34, %35|
              %36 = add %34, %35 : f32
              yield %36
            }
            %37 = add %32, %33 : f32[1]
            %38 = mul %14, %27 : f32[1]
            %39 = reduce %31 axes [1] : f32[1] { |%40, %41|
              %42 = add %40, %41 : f32
              yield %42
            }
            %43 = add %38, %39 : f32[1]
            yield %25, %37, %43
          }
          %44 = constant 3 : i32
          %45 = gt %0, %44 : bool
          %46, %47 = if %45 : f32[1], f32[1] {
            %48 = constant 2.0 : f32
            %49 = splat %48 : f32[1]
            %50 = mul %9, %49 : f32[1]
            yield %8, %50
          } {
            yield %8, %9
          }
          %51 = arange 0 : i32[1]
          %52 = div %10, %47 : f32[1]
          store %52, out[%51]
        }
    "#]];
    check_beside(&[SOFTMAX], source, expected);
}

/// Types that a call decides are no mistake of a function that no kernel calls.
#[test]
fn functions_with_structs_that_no_kernel_calls() {
    let source = "mod library {
        #[fuse_struct]
        pub struct Sum { total: Tile<f32> }

        impl Sum {
            pub fn add(&mut self, x: Tile<f32>) -> Tile<f32> { self.total += x; self.twice() }
            fn twice(&self) -> Tile<f32> { self.total * 2.0 }
        }

        #[fuse_fn]
        pub fn added(x: &[f32], n: i32) -> Tile<f32> {
            let mut sum = Sum { total: 0.0 };
            for i in 0..n { sum.add(tl::load(x + i)); }
            sum.total
        }
    }";
    let module = tile_ir::frontend::syntax::parse_module(
        Default::default(),
        source.parse().expect("tokens"),
        vec![],
        &mut Errors::new(),
    );
    let module = module.expect("a module");
    let uncalled = module.uncalled();
    assert_eq!(uncalled.len(), 3);
    for function in uncalled {
        let errors = tile_ir::frontend::typeck::check_function(function, module.items.clone());
        assert!(errors.is_empty(), "{}", render(&errors, source));
    }
}

#[test]
fn mistakes_about_structs() {
    check_errors(
        "mod kernels {
            #[fuse_struct]
            struct Pair { first: Tile<f32>, second: Tile<i32> }

            impl Pair {
                fn total(self) -> Tile<f32> { self.first + self.second.to::<f32>() }
                fn clear(&mut self) { self.first = 0.0; }
            }

            #[fuse_struct]
            struct Other { first: Tile<f32> }

            #[fuse_fn]
            fn first_of(pair: Pair) -> Tile<f32> { pair.frist }

            #[fuse_kernel]
            fn wrong_fields(out: &mut [f32]) {
                let pair = Pair { first: 1.0, third: 2 };
                let other = Pair { first: 1.0 };
                let typed = Pair { first: 1.0, second: tl::load(out) };
            }

            #[fuse_kernel]
            fn wrong_uses(out: &mut [f32]) {
                let pair = Pair { first: 1.0, second: 2 };
                let other = Other { first: 1.0 };
                tl::store(out, first_of(other));
                tl::store(out, first_of(pair));
                tl::store(out, pair.sum());
                tl::store(out, pair.total(3));
                tl::store(out, pair + 1.0);
                pair.clear();
                pair.first = 2.0;
                Pair { first: 1.0, second: 2 }.clear();
                let absent = Nothing { x: 1 };
            }
        }",
        expect![[r#"
            14: `frist`: `Pair` has no field `frist`
                help: did you mean `first`?
                note: in the call of `first_of` on line 28
            18: `third`: `Pair` has no field `third`
                help: it has `first` and `second`
            19: `Pair`: `Pair` has 1 field here without a value
                help: give `second` one
            20: `tl::load(out)`: `second` of `Pair` is i32, found f32
                help: convert it: `.to::<i32>()`
            27: `other`: argument 1 of `first_of` is a `Pair`, found a `Other`
            29: `sum`: `Pair` has no method `sum`
                help: it has `total` and `clear`
            30: `total`: `total` takes no arguments, found 1
            31: `pair`: `+` takes tiles and scalars, found a struct
            32: `pair`: `pair` cannot be assigned twice
                help: declare it `let mut pair`, or bind it again: `let mut pair = pair;`
            33: `pair`: `pair` cannot be assigned twice
                help: declare it `let mut pair`, or bind it again: `let mut pair = pair;`
            34: `Pair { first: 1.0, second: 2 }`: a method with `&mut self` changes a variable
                help: give it a name first: `let mut state = ..;`
            35: `Nothing`: a struct cannot be used in a kernel
                help: values go together as a tuple, `(a, b)`, or as a struct of a `#[fuse_module]` that is marked `#[fuse_struct]`
        "#]],
    );
}

/// Conditions and ranges change variables too, but for those of a `while`.
#[test]
fn methods_in_conditions_and_ranges() {
    let source = |statement: &str| {
        format!(
            "mod kernels {{
                #[fuse_struct]
                struct Counter {{ n: i32 }}

                impl Counter {{
                    fn next(&mut self) -> i32 {{ self.n += 1; self.n }}
                }}

                #[fuse_kernel]
                fn counts(out: &mut [i32], n: i32) {{
                    let mut counter = Counter {{ n: n }};
                    for i in 0..n {{ {statement} }}
                    tl::store(out, counter.n);
                }}
            }}"
        )
    };
    for statement in [
        "if counter.next() > 3 { tl::store(out + i, i); }",
        "for j in 0..counter.next() { tl::store(out + i + j, i); }",
    ] {
        let (funcs, errors) = module(&source(statement));
        assert!(errors.is_empty(), "{statement}: {errors:?}");
        let text = ir::print(&funcs[0], &|_| None);
        // The loop carries the count.
        let carried = text.lines().find(|line| line.contains(" = for ")).expect("a loop with a result");
        assert!(carried.contains("carry %0 : i32"), "{text}");
    }
    let (_, errors) = module(&source("while counter.next() < 9 { tl::store(out, i); }"));
    let texts: Vec<&str> = errors.iter().map(|error| error.message.as_str()).collect();
    assert_eq!(texts, ["the condition of a `while` changes no variable"]);
}

#[test]
fn names_that_are_defined_twice() {
    check_errors(
        "mod kernels {
            #[fuse_struct]
            struct Pair { first: i32, first: f32 }

            impl Pair {
                fn sum(self) -> i32 { self.first }
                fn sum(self) -> i32 { self.first }
            }

            #[fuse_struct]
            struct Pair { other: i32 }

            #[fuse_struct]
            struct One { own: i32 }

            #[fuse_kernel]
            fn twice(out: &mut [i32]) {
                tl::store(out, One { own: 1, own: 2 }.own);
            }
        }",
        expect![[r#"
            3: `first`: `first` is defined twice
            7: `sum`: `sum` is defined twice
            11: `Pair`: `Pair` is defined twice
            18: `own`: `own` is given twice
        "#]],
    );
}

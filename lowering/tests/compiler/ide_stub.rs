//! What rustc and editors see of a kernel that is compiled elsewhere.

use expect_test::{Expect, expect};

use lowering::expand::ide_stub::{function, imports};
use proc_macro2::TokenStream;
use tile_ir::frontend::syntax::Kernel;
use tile_ir::support::diagnostic::Errors;

fn check(source: &str, make: fn(&Kernel) -> TokenStream, expected: Expect) {
    let mut errors = Errors::new();
    let item: TokenStream = source.parse().expect("tokens");
    let kernel = tile_ir::frontend::syntax::parse(TokenStream::new(), item, &mut errors).expect("a kernel");
    expected.assert_eq(&make(&kernel).to_string());
}

#[test]
fn the_body_is_as_written_with_every_argument() {
    check(
        "fn k<T: Float>(x: &[T], n: i32) {
            let y = tl::load(x + n).to::<f32>();
            tl::store(x, tl::sum(y, 0,), n > 0);
            let z = tl::full::<f32>([4], 1.0) + tl::load();
            foo::load(x);
        }",
        function,
        expect![
            "# [allow (warnings , clippy :: all)] const _ : () = { fn body < T : Float > (x : & [T] , n : i32) { let y = tl :: load (x + n , :: dsl_runtime :: tl :: Absent , :: dsl_runtime :: tl :: Absent ,) . to :: < f32 > () ; tl :: store (x , tl :: sum (y , 0 , :: dsl_runtime :: tl :: Absent ,) , n > 0) ; let z = tl :: full :: < f32 > ([4] , 1.0) + tl :: load () ; foo :: load (x) ; } } ;"
        ],
    );
}

#[test]
fn views_are_those_with_a_kernel_s_methods() {
    check(
        "fn k(x: &View<f32, 2>, out: &mut dsl_runtime::View<f32, 2>) { out.store(x.load::<4, 4>(0, 0), 0, 0); }",
        function,
        expect![
            "# [allow (warnings , clippy :: all)] const _ : () = { fn body (x : & :: dsl_runtime :: tl :: View < f32 , 2 > , out : & mut dsl_runtime :: View < f32 , 2 >) { out . store (x . load :: < 4 , 4 > (0 , 0) , 0 , 0) ; } } ;"
        ],
    );
    check(
        "fn k(x: &View<f32, 2>) {}",
        imports,
        expect!["# [allow (unused_imports)] const _ : () = { use View as _ ; } ;"],
    );
}

#[test]
fn imports_are_mentioned_once_where_they_begin_a_path() {
    check(
        "fn k<T: Float, Element: Number>(x: &[T], h: &[f16], g: &[half::bf16]) {
            let y = tl::load(x) + tl::load(h).to::<f16>() + dsl_runtime::tl::load(x).tl;
            let z = tl + 1;
        }",
        imports,
        expect![
            "# [allow (unused_imports)] const _ : () = { use Float as _ ; use Number as _ ; const _ : :: core :: marker :: PhantomData < f16 > = :: core :: marker :: PhantomData ; use tl as _ ; } ;"
        ],
    );
}

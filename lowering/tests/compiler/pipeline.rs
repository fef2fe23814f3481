//! The list of passes: what runs is in it, in its order, and the book shows it.

use std::cell::RefCell;
use std::path::Path;

use tile_ir::ir::pass::{PassObserver, PassRunner, RanPass};

use lowering::driver::pipeline::{KernelRequests, PASSES, shared};
use lowering::driver::specialize::specializations;

use crate::first;

#[derive(Default)]
struct Names(RefCell<Vec<&'static str>>);

impl PassObserver for Names {
    fn ran(&self, pass: RanPass) {
        self.0.borrow_mut().push(pass.name);
    }
}

fn position(name: &str) -> usize {
    PASSES.iter().position(|pass| pass.name == name).unwrap_or_else(|| panic!("{name} is not in the list"))
}

/// The passes of the last specialization, which has no guards, and all passes that ran.
fn passes_of(source: &str) -> (Vec<&'static str>, Vec<&'static str>) {
    let names = Names::default();
    let (mut func, requests) = first(source);
    let requests = KernelRequests { runner: PassRunner::observed_by(&names), ..requests };
    shared(&mut func, requests).expect("passes that keep functions valid");
    specializations(&func, requests).expect("specializations that fit");
    let all = names.0.into_inner();
    let start = all.iter().rposition(|name| *name == "legalize_index").expect("accesses are made legal");
    (all[start..].to_vec(), all)
}

#[test]
fn passes_run_in_the_order_of_the_list() {
    let row = "#[fuse_kernel]
        fn k(x: &[bf16], out: &mut [bf16], n: i32) {
            let i = tl::arange(0, 1024);
            let x = tl::load(x + tl::program_id(0) * n + i, i < n, 0.0).to::<f32>();
            tl::store(out + tl::program_id(0) * n + i, (x / tl::sum(x, 0)).to::<bf16>(), i < n);
        }";
    let product = "#[fuse_kernel]
        fn k(a: &View<bf16, 2>, b: &View<bf16, 2>, out: &mut View<f32, 2>, end: i64) {
            let mut acc = tl::zeros::<f32>([64, 64]);
            for start in (0..end).step_by(64) {
                acc = tl::dot(a.load::<64, 64>(0, start), b.load::<64, 64>(start, 0), acc);
            }
            out.store(acc, 0, 0);
        }";
    for source in [row, product] {
        let (last, all) = passes_of(source);
        let places: Vec<usize> = last.iter().map(|name| position(name)).collect();
        assert!(places.is_sorted(), "{last:?}");
        all.iter().for_each(|name| assert!(position(name) < PASSES.len()));
        assert!(all.contains(&"membar") && all.contains(&"strength_reduce"), "{all:?}");
    }
}

#[test]
fn the_book_lists_the_passes_in_their_order() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src/compiler/passes.md");
    let page = std::fs::read_to_string(path).expect("the page of passes");
    let rows = PASSES.iter().map(|pass| {
        let optional = if pass.optional { "yes" } else { "" };
        format!("| `{}` | {} | {optional} |\n", pass.name, pass.summary)
    });
    let mut rest = page.as_str();
    for row in rows {
        let found = rest.find(&row).unwrap_or_else(|| panic!("the page lacks, in this place:\n{row}"));
        rest = &rest[found + row.len()..];
    }
}

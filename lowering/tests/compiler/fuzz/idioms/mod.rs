//! Kernels as users write them, with random choices: products, attention, rows, elementwise chains, atomics, views of
//! many axes. Each comes with the launches that its specializations are for and those that miss their guards.

mod attention;
mod elementwise;
mod product;
mod rows;
mod views;

use super::program::Program;
use super::sketch::Sketch;
use lowering::devtools::fuzzgen::SplitMix64;

/// A random idiom.
pub fn generate(random: SplitMix64) -> Program {
    let mut sketch = Sketch::new(random);
    if sketch.chance(3) {
        let warps = sketch.random.of(&["1", "2", "4", "4", "8", "8", "16"]);
        sketch.settings.push(format!("num_warps = {warps}"));
    }
    if sketch.chance(6) {
        let stages = sketch.random.of(&["1", "2", "3", "5"]);
        sketch.settings.push(format!("num_stages = {stages}"));
    }
    let make = sketch.random.of(&[
        product::product as fn(&mut Sketch),
        product::product,
        product::product,
        product::product,
        attention::attention,
        attention::attention,
        rows::rows,
        rows::rows,
        rows::rows,
        elementwise::elementwise,
        elementwise::atomics,
        views::views,
    ]);
    make(&mut sketch);
    sketch.finish()
}

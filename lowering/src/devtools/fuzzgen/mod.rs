//! Random kernels with their results: the expansion of `random_programs!` in the crate that runs them.
//!
//! A program loads tiles of integers, permutes, reduces and combines them, in loops too, and stores the last ones. The
//! reference evaluates it element by element, without layouts, so that every layout, conversion and reduction must agree
//! with it bit for bit. The same seed gives the same program.

mod tile;

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote};

use tile::{HostTile, binary_op, broadcast, is_legal_extent, reduce_op};

/// The SplitMix64 random number generator.
pub struct SplitMix64(u64);

impl SplitMix64 {
    pub fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit as u64) as usize
    }

    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// An operation from a tile to one of the same shape.
#[derive(Clone, Copy, Debug)]
enum TileStep {
    /// Adds the sum along an axis.
    AddSum(usize),
    /// Subtracts the maximum along an axis.
    SubMax(usize),
    /// Reverses the axes and reads the elements in row-major order.
    Reverse,
    /// The maximum of the tile and three times its [`TileStep::Reverse`].
    Mix,
    /// `v * 5 + 1`
    Scale,
    /// Positive elements, and the minimum of the tile for the others.
    Clip,
}

/// A kernel's source, generated statement by statement together with the values that it computes.
struct Program {
    random: SplitMix64,
    /// `i32` or `i64`: elements wrap.
    elem: &'static str,
    text: String,
    tiles: Vec<(String, HostTile)>,
    output: Vec<i64>,
    names: usize,
}

/// A generated kernel, its input and its expected output.
#[derive(Debug)]
pub struct Generated {
    pub elem: &'static str,
    pub num_warps: usize,
    pub num_ctas: usize,
    /// The statements of the body.
    pub body: String,
    pub input: Vec<i64>,
    pub output: Vec<i64>,
}

const INPUT: usize = 2048;
const SHAPES: [&[usize]; 14] = [
    &[64],
    &[8, 16],
    &[16, 8],
    &[32, 32],
    &[1, 32],
    &[32, 1],
    &[3, 40],
    &[12, 20],
    &[4, 8, 16],
    &[2, 3, 8],
    &[16, 1, 4],
    &[128, 4],
    &[5, 64],
    &[1],
];

/// The program of a seed.
pub fn generate(seed: u64) -> Generated {
    let mut random = SplitMix64::new(seed);
    let elem = random.of(&["i32", "i32", "i64"]);
    let num_warps = random.of(&[1, 2, 4, 4, 8, 16]);
    let input: Vec<i64> = (0..INPUT).map(|_| i64::from(random.bits() as i16)).collect();
    let mut program = Program { random, elem, text: String::new(), tiles: vec![], output: vec![], names: 0 };
    program.load(&input);
    let steps = 4 + program.random.below(6);
    for _ in 0..steps {
        program.step(&input);
    }
    program.store();
    let num_ctas = program.random.of(&[1, 1, 2, 4]);
    Generated { elem, num_warps, num_ctas, body: program.text, input, output: program.output }
}

impl Program {
    fn name(&mut self) -> String {
        self.names += 1;
        format!("v{}", self.names)
    }

    fn wrap(&self, value: i64) -> i64 {
        if self.elem == "i32" { i64::from(value as i32) } else { value }
    }

    fn define(&mut self, text: &str, tile: HostTile) {
        let name = self.name();
        self.text += &format!("let {name} = {text};\n");
        self.tiles.push((name, tile));
    }

    fn pick(&mut self) -> (String, HostTile) {
        let index = self.random.below(self.tiles.len());
        self.tiles[index].clone()
    }

    /// A tile of contiguous elements, or of elements a stride apart.
    fn load(&mut self, input: &[i64]) {
        let shape = self.random.of(&SHAPES).to_vec();
        let count: usize = shape.iter().product();
        let (start, stride) = (self.random.below(64), 1 + self.random.below(2) * self.random.below(2));
        let text =
            format!("tl::load(x + {start} + {stride} * tl::reshape(tl::arange(0, {count}), {shape:?}))");
        let data = (0..count).map(|i| input.get(start + stride * i).copied().unwrap_or(0)).collect();
        self.define(&text, HostTile { shape, data });
    }

    fn step(&mut self, input: &[i64]) {
        let (name, tile) = self.pick();
        match self.random.below(8) {
            0 => self.load(input),
            1 => self.permute(&name, &tile),
            2 => self.reshape(&name, &tile),
            3 => self.reduce(&name, &tile),
            4 => self.combine(&name, &tile),
            5 => self.branch(&name, &tile),
            _ => self.loop_steps(&name, &tile),
        }
    }

    fn permute(&mut self, name: &str, tile: &HostTile) {
        let mut order: Vec<usize> = (0..tile.shape.len()).collect();
        let (first, second) = (self.random.below(order.len()), self.random.below(order.len()));
        order.swap(first, second);
        self.define(&format!("tl::permute({name}, {order:?})"), tile.permuted(&order));
    }

    fn reshape(&mut self, name: &str, tile: &HostTile) {
        let count = tile.data.len();
        let divisors: Vec<usize> = (1..=count)
            .filter(|&d| count.is_multiple_of(d) && is_legal_extent(d) && is_legal_extent(count / d))
            .collect();
        let rows = self.random.of(&divisors);
        let shape = if self.random.below(4) == 0 && is_legal_extent(count) {
            vec![count]
        } else {
            vec![rows, count / rows]
        };
        self.define(&format!("tl::reshape({name}, {shape:?})"), HostTile { shape, data: tile.data.clone() });
    }

    fn reduce(&mut self, name: &str, tile: &HostTile) {
        let axis = self.random.below(tile.shape.len());
        let what = self.random.of(&["sum", "max", "min"]);
        let reduced = tile.reduced(axis, |a, b| self.wrap(reduce_op(what, a, b)));
        self.define(&format!("tl::{what}({name}, {axis}, true)"), reduced);
    }

    /// Combines two tiles if their shapes broadcast, else the tile and the sum of the other one.
    fn combine(&mut self, name: &str, tile: &HostTile) {
        let (other_name, other) = self.pick();
        let symbol = self.random.of(&["+", "-", "*", "^", "&"]);
        let fits = broadcast(&tile.shape, &other.shape).filter(|shape| {
            shape.iter().product::<usize>() <= 1024 && is_legal_extent(shape.iter().product())
        });
        let (text, other) = match fits {
            Some(_) => (other_name, other),
            None => {
                let all: i64 = other.data.iter().fold(0, |sum, &v| self.wrap(sum.wrapping_add(v)));
                (format!("tl::sum({other_name})"), HostTile { shape: vec![], data: vec![all] })
            }
        };
        let shape = broadcast(&tile.shape, &other.shape).unwrap_or_default();
        let (a, b) = (tile.broadcast(&shape), other.broadcast(&shape));
        let data = a.iter().zip(&b).map(|(&a, &b)| self.wrap(binary_op(symbol, a, b))).collect();
        self.define(&format!("{name} {symbol} {text}"), HostTile { shape, data });
    }

    /// A branch on a scalar of the data, with a random step in each branch.
    fn branch(&mut self, name: &str, tile: &HostTile) {
        let branches = [self.random_step(&tile.shape), self.random_step(&tile.shape)];
        let texts = branches.map(|branch| branch.text(name, &tile.shape));
        let taken = tile.data.iter().fold(0i64, |sum, &v| self.wrap(sum.wrapping_add(v))) > 0;
        let result = self.apply_step(tile, branches[usize::from(!taken)]);
        let text = format!("if tl::sum({name}) > 0 {{ {} }} else {{ {} }}", texts[0], texts[1]);
        self.define(&text, result);
    }

    /// A loop of `n` iterations with two random steps each.
    fn loop_steps(&mut self, name: &str, tile: &HostTile) {
        let carried = self.name();
        let steps = [self.random_step(&tile.shape), self.random_step(&tile.shape)];
        let texts = steps.map(|step| format!("{carried} = {};\n", step.text(&carried, &tile.shape)));
        self.text += &format!(
            "let mut {carried} = {name};\nfor i in 0..n {{\n{}{}{carried} += i.to::<{}>();\n}}\n",
            texts[0], texts[1], self.elem
        );
        let mut value = tile.clone();
        for i in 0..TRIP_COUNT {
            for step in steps {
                value = self.apply_step(&value, step);
            }
            value.data.iter_mut().for_each(|v| *v = self.wrap(v.wrapping_add(i)));
        }
        self.tiles.push((carried, value));
    }

    fn random_step(&mut self, shape: &[usize]) -> TileStep {
        let axis = self.random.below(shape.len());
        self.random.of(&[
            TileStep::AddSum(axis),
            TileStep::SubMax(axis),
            TileStep::Reverse,
            TileStep::Mix,
            TileStep::Scale,
            TileStep::Clip,
        ])
    }

    fn apply_step(&self, tile: &HostTile, step: TileStep) -> HostTile {
        let pairs = |other: &[i64], join: fn(i64, i64) -> i64| {
            tile.data.iter().zip(other).map(|(&a, &b)| self.wrap(join(a, b))).collect()
        };
        let data = match step {
            TileStep::AddSum(axis) => {
                let sums = tile.reduced(axis, |a, b| self.wrap(a.wrapping_add(b)));
                pairs(&sums.broadcast(&tile.shape), i64::wrapping_add)
            }
            TileStep::SubMax(axis) => {
                let largest = tile.reduced(axis, i64::max);
                pairs(&largest.broadcast(&tile.shape), i64::wrapping_sub)
            }
            TileStep::Reverse => tile.reversed(),
            TileStep::Mix => pairs(
                &tile.reversed().iter().map(|&v| self.wrap(v.wrapping_mul(3))).collect::<Vec<_>>(),
                i64::max,
            ),
            TileStep::Scale => {
                tile.data.iter().map(|&v| self.wrap(v.wrapping_mul(5).wrapping_add(1))).collect()
            }
            TileStep::Clip => {
                let smallest = tile.data.iter().copied().min().unwrap_or(0);
                tile.data.iter().map(|&v| if v > 0 { v } else { smallest }).collect()
            }
        };
        HostTile { shape: tile.shape.clone(), data }
    }

    /// Stores the last tiles, in their own shape or flat.
    fn store(&mut self) {
        let stored: Vec<(String, HostTile)> = self.tiles.iter().rev().take(3).cloned().collect();
        for (name, tile) in stored {
            let (count, start) = (tile.data.len(), self.output.len());
            self.text += &if self.random.below(2) == 0 && is_legal_extent(count) {
                format!(
                    "tl::store(out + {start} + tl::arange(0, {count}), tl::reshape({name}, [{count}]));\n"
                )
            } else {
                let shape = &tile.shape;
                format!(
                    "tl::store(out + {start} + tl::reshape(tl::arange(0, {count}), {shape:?}), {name});\n"
                )
            };
            self.output.extend(&tile.data);
        }
    }
}

/// The argument `n` of every launch.
const TRIP_COUNT: i64 = 3;

impl TileStep {
    fn text(self, name: &str, shape: &[usize]) -> String {
        let order: Vec<usize> = (0..shape.len()).rev().collect();
        let reversed = format!("tl::reshape(tl::permute({name}, {order:?}), {shape:?})");
        match self {
            TileStep::AddSum(axis) => format!("{name} + tl::sum({name}, {axis}, true)"),
            TileStep::SubMax(axis) => format!("{name} - tl::max({name}, {axis}, true)"),
            TileStep::Reverse => reversed,
            TileStep::Mix => format!("tl::maximum({name}, {reversed} * 3)"),
            TileStep::Scale => format!("{name} * 5 + 1"),
            TileStep::Clip => format!("tl::select({name} > 0, {name}, tl::min({name}))"),
        }
    }
}

/// Expands `random_programs!(count)`: as many kernels, and the list `PROGRAMS` of runs with their expected outputs.
pub fn random_programs(count: TokenStream) -> TokenStream {
    let count: u64 = count.to_string().parse().unwrap_or(16);
    let (kernels, cases): (Vec<TokenStream>, Vec<TokenStream>) = (0..count).map(expand).unzip();
    quote! {
        use crate::case::{Job, Output, Program};
        use dsl_runtime::prelude::*;

        #(#kernels)*

        /// Random programs, with what they read and what they must write as bytes.
        pub static PROGRAMS: &[Program] = &[#(#cases),*];
    }
}

fn expand(seed: u64) -> (TokenStream, TokenStream) {
    let generated = generate(seed);
    let kernel = format_ident!("program_{seed}");
    let elem = Ident::new(generated.elem, Span::call_site());
    let [num_warps, num_ctas] = [generated.num_warps, generated.num_ctas].map(Literal::usize_unsuffixed);
    let body: TokenStream = generated.body.parse().expect("generated text is Rust");
    let text = &generated.body;
    let bytes = |values: &[i64]| {
        Literal::byte_string(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
    };
    let (input, output) = (bytes(&generated.input), bytes(&generated.output));
    let trip_count = Literal::i64_unsuffixed(TRIP_COUNT);
    let definition = quote! {
        #[fuse_kernel(num_warps = #num_warps, num_ctas = #num_ctas, unreported)]
        fn #kernel(x: &[#elem], out: &mut [#elem], n: i32) {
            #body
        }
    };
    let case = quote! {
        Program {
            seed: #seed,
            text: #text,
            input: #input,
            output: #output,
            dtype: <#elem as Element>::DTYPE,
            run: |job: &Job, count: usize| {
                let x = job.operand::<#elem>(0)?;
                let mut out = Output::<#elem>::new(&job.device, vec![count], job.shift)?;
                #kernel(&x, &mut out, #trip_count).grid(1).launch(&job.device)?;
                out.finish()
            },
        }
    };
    (definition, case)
}

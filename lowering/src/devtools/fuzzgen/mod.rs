//! Random kernels and what they compute: what `random_programs!` expands to in the crate that runs them.
//!
//! A program loads tiles of integers, moves, folds and combines them, in loops too, and stores what it has. It is
//! evaluated here by loops over elements, which know nothing of layouts, so that every layout, conversion and reduction
//! must agree with them bit for bit. The same numbers give the same programs.

mod tile;

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote};

use tile::{HostTile, apply, broadcast, fold, legal};

/// A generator of numbers (SplitMix64).
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    pub(crate) fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit as u64) as usize
    }

    pub(crate) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// How a tile becomes one of the same shape.
#[derive(Clone, Copy, Debug)]
enum TileStep {
    /// Adds the sum along an axis.
    AddSum(usize),
    /// Takes the largest along an axis away.
    LessMax(usize),
    /// Reverses the axes and reads the elements in row-major order.
    Reverse,
    /// The larger of the element and three times another order of the tile's elements.
    Mix,
    /// `v * 5 + 1`
    Scale,
    /// Elements of one sign, and the smallest of all for the others.
    Clip,
}

/// A kernel's text, grown statement by statement beside the values it computes.
struct Program {
    random: SplitMix64,
    /// `i32` or `i64`: elements wrap.
    elem: &'static str,
    text: String,
    tiles: Vec<(String, HostTile)>,
    output: Vec<i64>,
    names: usize,
}

/// What a generated kernel is made of, and what it writes.
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

    /// A tile of elements one after the other, or a stride apart.
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
            _ => self.turns(&name, &tile),
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
        let divisors: Vec<usize> =
            (1..=count).filter(|&d| count.is_multiple_of(d) && legal(d) && legal(count / d)).collect();
        let rows = self.random.of(&divisors);
        let shape =
            if self.random.below(4) == 0 && legal(count) { vec![count] } else { vec![rows, count / rows] };
        self.define(&format!("tl::reshape({name}, {shape:?})"), HostTile { shape, data: tile.data.clone() });
    }

    fn reduce(&mut self, name: &str, tile: &HostTile) {
        let axis = self.random.below(tile.shape.len());
        let what = self.random.of(&["sum", "max", "min"]);
        let folded = tile.folded(axis, |a, b| self.wrap(fold(what, a, b)));
        self.define(&format!("tl::{what}({name}, {axis}, true)"), folded);
    }

    /// Two tiles where their shapes allow it, else the tile and a scalar made of the other one.
    fn combine(&mut self, name: &str, tile: &HostTile) {
        let (other_name, other) = self.pick();
        let symbol = self.random.of(&["+", "-", "*", "^", "&"]);
        let fits = broadcast(&tile.shape, &other.shape)
            .filter(|shape| shape.iter().product::<usize>() <= 1024 && legal(shape.iter().product()));
        let (text, other) = match fits {
            Some(_) => (other_name, other),
            None => {
                let all: i64 = other.data.iter().fold(0, |sum, &v| self.wrap(sum.wrapping_add(v)));
                (format!("tl::sum({other_name})"), HostTile { shape: vec![], data: vec![all] })
            }
        };
        let shape = broadcast(&tile.shape, &other.shape).unwrap_or_default();
        let (a, b) = (tile.broadcast(&shape), other.broadcast(&shape));
        let data = a.iter().zip(&b).map(|(&a, &b)| self.wrap(apply(symbol, a, b))).collect();
        self.define(&format!("{name} {symbol} {text}"), HostTile { shape, data });
    }

    /// A branch on a scalar of the data, each side a turn of its own.
    fn branch(&mut self, name: &str, tile: &HostTile) {
        let sides = [self.turn(&tile.shape), self.turn(&tile.shape)];
        let texts = sides.map(|side| side.text(name, &tile.shape));
        let taken = tile.data.iter().fold(0i64, |sum, &v| self.wrap(sum.wrapping_add(v))) > 0;
        let result = self.turned(tile, sides[usize::from(!taken)]);
        let text = format!("if tl::sum({name}) > 0 {{ {} }} else {{ {} }}", texts[0], texts[1]);
        self.define(&text, result);
    }

    /// A loop that turns a tile `n` times, in two ways each time.
    fn turns(&mut self, name: &str, tile: &HostTile) {
        let carried = self.name();
        let turns = [self.turn(&tile.shape), self.turn(&tile.shape)];
        let texts = turns.map(|turn| format!("{carried} = {};\n", turn.text(&carried, &tile.shape)));
        self.text += &format!(
            "let mut {carried} = {name};\nfor i in 0..n {{\n{}{}{carried} += i.to::<{}>();\n}}\n",
            texts[0], texts[1], self.elem
        );
        let mut value = tile.clone();
        for i in 0..TIMES {
            for turn in turns {
                value = self.turned(&value, turn);
            }
            value.data.iter_mut().for_each(|v| *v = self.wrap(v.wrapping_add(i)));
        }
        self.tiles.push((carried, value));
    }

    fn turn(&mut self, shape: &[usize]) -> TileStep {
        let axis = self.random.below(shape.len());
        self.random.of(&[
            TileStep::AddSum(axis),
            TileStep::LessMax(axis),
            TileStep::Reverse,
            TileStep::Mix,
            TileStep::Scale,
            TileStep::Clip,
        ])
    }

    fn turned(&self, tile: &HostTile, turn: TileStep) -> HostTile {
        let pairs = |other: &[i64], join: fn(i64, i64) -> i64| {
            tile.data.iter().zip(other).map(|(&a, &b)| self.wrap(join(a, b))).collect()
        };
        let data = match turn {
            TileStep::AddSum(axis) => {
                let sums = tile.folded(axis, |a, b| self.wrap(a.wrapping_add(b)));
                pairs(&sums.broadcast(&tile.shape), i64::wrapping_add)
            }
            TileStep::LessMax(axis) => {
                let largest = tile.folded(axis, i64::max);
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

    /// Stores the last values, in their own shape or flat.
    fn store(&mut self) {
        let kept: Vec<(String, HostTile)> = self.tiles.iter().rev().take(3).cloned().collect();
        for (name, tile) in kept {
            let (count, start) = (tile.data.len(), self.output.len());
            self.text += &if self.random.below(2) == 0 && legal(count) {
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

/// What `n` is in every launch.
const TIMES: i64 = 3;

impl TileStep {
    fn text(self, name: &str, shape: &[usize]) -> String {
        let order: Vec<usize> = (0..shape.len()).rev().collect();
        let reversed = format!("tl::reshape(tl::permute({name}, {order:?}), {shape:?})");
        match self {
            TileStep::AddSum(axis) => format!("{name} + tl::sum({name}, {axis}, true)"),
            TileStep::LessMax(axis) => format!("{name} - tl::max({name}, {axis}, true)"),
            TileStep::Reverse => reversed,
            TileStep::Mix => format!("tl::maximum({name}, {reversed} * 3)"),
            TileStep::Scale => format!("{name} * 5 + 1"),
            TileStep::Clip => format!("tl::select({name} > 0, {name}, tl::min({name}))"),
        }
    }
}

/// Expands `random_programs!(count)`: as many kernels, and the list `PROGRAMS` of what to run and what it must give.
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
    let times = Literal::i64_unsuffixed(TIMES);
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
                #kernel(&x, &mut out, #times).grid(1).launch(&job.device)?;
                out.finish()
            },
        }
    };
    (definition, case)
}

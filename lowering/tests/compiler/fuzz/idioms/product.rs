//! Products of matrices: operands by pointers or views in either order, masks, loops over K, batches, epilogues.

use tile_ir::support::dtype::DType;

use crate::fuzz::data::Data;
use crate::fuzz::element::Element;
use crate::fuzz::program::{Node, Plan, PlannedMemory};
use crate::fuzz::sketch::{Sketch, arange, float, full, int, program_id};

const ELEMENTS: [DType; 10] = [
    DType::F16,
    DType::F16,
    DType::BF16,
    DType::BF16,
    DType::F32,
    DType::F32,
    DType::I8,
    DType::F8E4M3,
    DType::F8E5M2,
    DType::F64,
];

/// An operand of `outer x K` elements, or its transpose in memory.
struct Operand {
    memory: usize,
    outer: usize,
    inner: usize,
    /// In memory a line has consecutive elements of the outer axis.
    transposed: bool,
    /// The distance of lines, of an operand by pointers.
    stride: Option<Node>,
    extents: [Node; 2],
    /// Of a matrix of a batch.
    batch: Option<Node>,
    masked: bool,
    pub hint: &'static str,
}

impl Operand {
    /// The tile of `outer x inner` elements that begins there; operand B is turned.
    fn tile(&self, sketch: &Sketch, start: &Node, k: &Node, is_b: bool) -> Node {
        let (outer, inner) = (start.clone() + arange(self.outer), k.clone() + arange(self.inner));
        let [outer_end, k_end] = self.extents.clone();
        let Some(stride) = self.stride.clone() else {
            let tile = if self.transposed {
                sketch.load_view(self.memory, &[self.inner, self.outer], vec![k.clone(), start.clone()])
            } else {
                sketch.load_view(self.memory, &[self.outer, self.inner], vec![start.clone(), k.clone()])
            };
            let tile = tile.hinted(self.hint);
            return if self.transposed == is_b { tile } else { tile.permuted(&[1, 0]) };
        };
        // Operand A is `outer x inner`, operand B `inner x outer`.
        let place = |outer: Node, inner: Node| {
            if is_b { (inner.col(), outer.row()) } else { (outer.col(), inner.row()) }
        };
        let (first, second) = place(outer.clone(), inner.clone());
        let (first_end, second_end) = if is_b { (k_end, outer_end) } else { (outer_end, k_end) };
        let first_is_line = self.transposed == is_b;
        let mut offset = if first_is_line {
            first.clone() * stride + second.clone()
        } else {
            second.clone() * stride + first.clone()
        };
        if let Some(batch) = &self.batch {
            offset = batch.clone() + offset;
        }
        let rest = if self.masked {
            let mask = first.less(first_end).and(second.less(second_end));
            vec![mask, Node::literal(sketch.memory[self.memory].dtype, 0)]
        } else {
            vec![]
        };
        let rest =
            if sketch.memory[self.memory].dtype.is_f8() { rest.into_iter().take(1).collect() } else { rest };
        sketch.load(self.memory, offset, rest).hinted(self.hint)
    }
}

pub fn product(sketch: &mut Sketch) {
    let elem = sketch.random.of(&ELEMENTS);
    let acc_type = match elem {
        DType::I8 => DType::I32,
        DType::F64 => DType::F64,
        _ => DType::F32,
    };
    let batched = sketch.chance(5);
    let (by_views, masked) = (!batched && sketch.chance(2), sketch.chance(2));
    // What TMA and `wgmma` take: lines of 128 bytes, and rows for a warpgroup.
    let by_tma = by_views && elem != DType::F64 && !sketch.chance(4);
    let line = 128 / elem.bytes() as usize;
    let m_blocks: &[usize] = match elem {
        _ if by_tma => &[64, 64, 128],
        DType::F64 => &[16, 32],
        _ => &[16, 32, 64, 128],
    };
    let n_blocks: &[usize] = if by_tma { &[32, 64, 128] } else { m_blocks };
    let k_blocks: &[usize] = match elem {
        _ if by_tma => &[line],
        DType::I8 | DType::F8E4M3 | DType::F8E5M2 => &[32, 64],
        _ => &[16, 32, 64],
    };
    let [m_block, n_block, k_block] = [m_blocks, n_blocks, k_blocks].map(|blocks| sketch.random.of(blocks));
    let [m, n, k] = [0, 1, 2].map(|_| sketch.scalar(DType::I32));
    let start = [m_block, n_block].map(|block| block as i64);
    let [row, column] =
        [sketch.bind(program_id(0) * int(start[0])), sketch.bind(program_id(1) * int(start[1]))];
    let operand = |sketch: &mut Sketch, outer: usize, extent: &Node| Operand {
        memory: if by_views { sketch.view(elem, 2, false) } else { sketch.slice(elem, false) },
        outer,
        inner: k_block,
        transposed: sketch.chance(2),
        stride: (!by_views).then(|| sketch.scalar(DType::I32)),
        extents: [extent.clone(), k.clone()],
        batch: batched.then(|| program_id(2) * sketch.scalar(DType::I32)),
        masked,
        hint: if by_tma { "" } else { sketch.load_hint() },
    };
    let a = operand(sketch, m_block, &m);
    let b = operand(sketch, n_block, &n);
    let acc = sketch.bind_mut(full(&[m_block, n_block], 0.0, acc_type));
    let suffix = match elem {
        DType::F32 => {
            sketch.random.of(&["", "", ".input_precision(\"tf32\")", ".input_precision(\"tf32x3\")"])
        }
        _ => "",
    };
    let (fused, converted) = (sketch.chance(2), elem == DType::I8 && sketch.chance(3));
    // Operands of quantized products are converted on the way.
    let product_type = if converted { sketch.random.of(&[DType::F16, DType::BF16]) } else { elem };
    sketch.repeat([int(0), k.clone(), int(k_block as i64)], |sketch, at| {
        let x = a.tile(sketch, &row, &at, false).to(product_type);
        let y = b.tile(sketch, &column, &at, true).to(product_type);
        let (x, y) = (sketch.bind(x), sketch.bind(y));
        let value = if converted {
            acc.clone() + x.dot(y, None, suffix).to(acc_type)
        } else if fused {
            acc.clone() + x.dot(y, None, suffix)
        } else {
            x.dot(y, Some(acc.clone()), suffix)
        };
        sketch.assign(&acc, value);
    });
    let scaled = acc_type == DType::F32 && sketch.chance(2);
    let result = epilogue(sketch, acc, scaled);
    let out_type = match acc_type {
        DType::I32 | DType::F64 => acc_type,
        _ => sketch.random.of(&[DType::F32, DType::F16, DType::BF16]),
    };
    let (rows, columns) = (row.clone() + arange(m_block), column.clone() + arange(n_block));
    if by_views {
        let out = sketch.view(out_type, 2, true);
        sketch.store_view(out, vec![row, column], result);
    } else {
        let out = sketch.slice(out_type, true);
        let mask = rows.clone().col().less(m.clone()).and(columns.clone().row().less(n.clone()));
        let offset = rows.col() * n.clone() + columns.row();
        let offset = if batched { program_id(2) * (m * n) + offset } else { offset };
        sketch.store(out, offset, result, Some(mask));
    }
    if !masked && !by_views {
        sketch.settings.push("unreported".into());
    } else if sketch.chance(6) {
        sketch.settings.push("unchecked".into());
    }
    let shape = ProductShape { block: [m_block, n_block, k_block], batched, by_views, scaled };
    plan(sketch, &[&a, &b], shape);
}

/// An activation in the accumulator's type, and perhaps a scale.
fn epilogue(sketch: &mut Sketch, acc: Node, scaled: bool) -> Node {
    if acc.ty.dtype != DType::F32 {
        return acc;
    }
    let value = if scaled { acc * sketch.scalar(DType::F32) } else { acc };
    match sketch.random.of(&["", "", "relu", "gelu", "silu", "tanh", "sigmoid", "half"]) {
        "" => value,
        "half" => value * float(0.5, DType::F32) + float(1.0, DType::F32),
        name => Node::call(name, vec![value]),
    }
}

struct ProductShape {
    block: [usize; 3],
    batched: bool,
    by_views: bool,
    scaled: bool,
}

/// One launch of whole tiles with rows at multiples of 16 bytes, one with tiles that hang over, one of any extents.
fn plan(sketch: &mut Sketch, operands: &[&Operand], shape: ProductShape) {
    let block = shape.block.map(|block| block as i64);
    let whole = sketch.memory[operands[0].memory].dtype == DType::I8;
    for number in 0..3 {
        let extents: Vec<i64> = (0..3)
            .map(|axis| {
                let tiles = 1 + sketch.random.below(if axis == 2 { 4 } else { 2 }) as i64;
                match number {
                    0 => tiles * block[axis],
                    1 => (tiles * block[axis] - 16 * sketch.random.below(3) as i64).max(16),
                    _ => sketch.random.below((tiles * block[axis]) as usize + 1) as i64 + i64::from(axis < 2),
                }
            })
            .collect();
        let [m, n, k] = [extents[0], extents[1], extents[2]];
        let batches = if shape.batched { 1 + sketch.random.below(3) as i64 } else { 1 };
        let mut scalars: Vec<Element> = extents.iter().map(|&extent| Element::whole(extent.into())).collect();
        let fraction = if whole { Data::Whole { limit: 7 } } else { Data::Fraction };
        let data = sketch.random.of(&[Data::Whole { limit: 4 }, Data::Whole { limit: 4 }, fraction]);
        let mut memory = vec![];
        for (operand, outer) in operands.iter().zip([m, n]) {
            let [lines, line] = if operand.transposed { [k, outer] } else { [outer, k] };
            let pad = sketch.random.of(if number == 2 { &[0, 1, 3] } else { &[0, 0, 16] });
            if shape.by_views {
                let order: [usize; 2] = if number > 0 && sketch.chance(3) { [1, 0] } else { [0, 1] };
                memory.push(PlannedMemory::view(&[lines, line], &order, pad, data));
                continue;
            }
            let stride = line + pad;
            scalars.push(Element::whole(stride.into()));
            let matrix = (lines * stride).max(1);
            if shape.batched {
                scalars.push(Element::whole(matrix.into()));
            }
            let slack = sketch.random.of(&[0, 0, 64]);
            let len = (matrix * batches - if lines > 0 { pad } else { 0 }).max(0) as usize + slack;
            memory.push(PlannedMemory::slice(len, data));
        }
        if shape.scaled {
            scalars.push(Element::Float(sketch.random.of(&[0.125, 1.0, -0.5])));
        }
        let initial = Data::Whole { limit: 3 };
        memory.push(if shape.by_views {
            let pad = sketch.random.of(&[0, 0, 8, 1]);
            PlannedMemory::view(&[m, n], &[0, 1], pad, initial)
        } else {
            PlannedMemory::slice((batches * m * n) as usize, initial)
        });
        let grid = [(m + block[0] - 1) / block[0], (n + block[1] - 1) / block[1], batches];
        sketch.plans.push(Plan { grid, scalars, memory });
    }
}

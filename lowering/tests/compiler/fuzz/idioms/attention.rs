//! Attention with an online softmax: two chained dots in a loop, masks of finite and infinite values.

use tile_ir::support::dtype::DType;

use crate::fuzz::data::Data;
use crate::fuzz::element::Element;
use crate::fuzz::program::{Node, Plan, PlannedMemory};
use crate::fuzz::sketch::{Sketch, arange, float, full, int, program_id};

/// What scores become where a mask hides them.
pub const MASKS: [f64; 5] = [f64::NEG_INFINITY, -1e9, -1e10, -1e30, f32::MIN as f64];

pub fn attention(sketch: &mut Sketch) {
    let elem = sketch.random.of(&[DType::F16, DType::BF16, DType::F32]);
    let by_tma = sketch.chance(2);
    let width = if by_tma { 128 / elem.bytes() as usize } else { sketch.random.of(&[16, 32, 64]) };
    let m_block = if by_tma { 64 } else { sketch.random.of(&[16, 64]) };
    let n_block = if by_tma { 64 } else { sketch.random.of(&[16, 32, 64]) };
    let [q, k, v] = [0, 1, 2].map(|_| sketch.view(elem, 2, false));
    let result_type = sketch.random.of(&[elem, DType::F32]);
    let out = sketch.view(result_type, 2, true);
    let keys = sketch.scalar(DType::I32);
    let scale = sketch.scalar(DType::F32);
    let row = sketch.bind(program_id(0) * int(m_block as i64));
    let queries = sketch.load_view(q, &[m_block, width], vec![row.clone(), int(0)]);
    let queries = sketch.bind(queries);
    let hidden = sketch.random.of(&MASKS);
    let start = if sketch.chance(2) { f64::NEG_INFINITY } else { -1e38 };
    let max = sketch.bind_mut(full(&[m_block], start, DType::F32));
    let sum = sketch.bind_mut(full(&[m_block], 0.0, DType::F32));
    let acc = sketch.bind_mut(full(&[m_block, width], 0.0, DType::F32));
    let causal = sketch.chance(2);
    let hides = causal || sketch.chance(2);
    let rows = row.clone() + arange(m_block);
    sketch.repeat([int(0), keys.clone(), int(n_block as i64)], |sketch, at| {
        let columns = sketch.bind(at.clone() + arange(n_block));
        let key = sketch.load_view(k, &[n_block, width], vec![at.clone(), int(0)]);
        let scores = queries.clone().dot(key.permuted(&[1, 0]), None, "") * scale.clone();
        let kept = columns.clone().row().less(keys.clone());
        let scores = if causal {
            let kept = kept.and(columns.row().less(rows.clone().col()));
            kept.choose(scores, float(hidden, DType::F32))
        } else if hides {
            kept.choose(scores, float(hidden, DType::F32))
        } else {
            scores
        };
        let scores = sketch.bind(scores);
        let next =
            sketch.bind(Node::call("maximum", vec![max.clone(), scores.clone().reduced("max", 1, false)]));
        let power = sketch.bind(Node::call("exp", vec![scores - next.clone().col()]));
        let decay = sketch.bind(Node::call("exp", vec![max.clone() - next.clone()]));
        sketch.assign(&sum, sum.clone() * decay.clone() + power.clone().reduced("sum", 1, false));
        let value = sketch.load_view(v, &[n_block, width], vec![at, int(0)]);
        sketch.assign(&acc, power.to(elem).dot(value, Some(acc.clone() * decay.col()), ""));
        sketch.assign(&max, next);
    });
    let result = acc / sum.col();
    sketch.store_view(out, vec![row, int(0)], result);
    for number in 0..3 {
        let blocks = 1 + sketch.random.below(4) as i64;
        let keys = match number {
            0 => blocks * n_block as i64,
            1 => blocks * n_block as i64 - 3,
            _ => 1 + sketch.random.below(100) as i64,
        };
        let queries =
            if number == 0 { 2 * m_block as i64 } else { 1 + sketch.random.below(2 * m_block) as i64 };
        let data = sketch.random.of(&[Data::Whole { limit: 2 }, Data::Fraction]);
        let pad = if number == 2 { 1 } else { 0 };
        let view = |rows: i64| PlannedMemory::view(&[rows, width as i64], &[0, 1], pad, data);
        let memory = vec![view(queries), view(keys), view(keys), view(queries)];
        let scale = sketch.random.of(&[0.125, 1.0, 0.3]);
        let scalars = vec![Element::whole(keys.into()), Element::Float(f64::from(scale as f32))];
        let grid = [(queries + m_block as i64 - 1) / m_block as i64, 1, 1];
        sketch.plans.push(Plan { grid, scalars, memory });
    }
}

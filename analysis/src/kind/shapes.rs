//! The rules for shapes and types that kinds share. A rule says what does not fit by the names and the types of both sides.

use super::declaration::{Named, Operands};
use crate::dtype::DType;
use crate::graph::TensorType;

type Made = Result<Vec<TensorType>, String>;

/// That there are as many inputs as a kind takes.
pub(super) fn count(operands: &Operands<'_>, least: usize, most: usize) -> Result<(), String> {
    let found = operands.inputs.len();
    if (least..=most).contains(&found) {
        return Ok(());
    }
    let needed = match (least, most) {
        (least, most) if least == most => least.to_string(),
        (least, usize::MAX) => format!("{least} or more"),
        (least, most) => format!("{least} to {most}"),
    };
    Err(format!("needs {needed} inputs, found {found}"))
}

fn misfit(left: Named<'_>, right: Named<'_>, needed: &str) -> String {
    format!("`{}` is {} and `{}` is {}: {needed}", left.0, left.1, right.0, right.1)
}

/// One input, and a result of its type.
pub(super) fn one(operands: &Operands<'_>, _: usize) -> Made {
    count(operands, 1, 1)?;
    Ok(vec![operands.inputs[0].1.clone()])
}

/// Two or more inputs of one type, and a result of it.
pub(super) fn alike(operands: &Operands<'_>, _: usize) -> Made {
    count(operands, 2, usize::MAX)?;
    let first = operands.inputs[0];
    for &other in &operands.inputs[1..] {
        if other.1 != first.1 {
            return Err(misfit(first, other, "shapes and types must be the same"));
        }
    }
    Ok(vec![first.1.clone()])
}

/// Rows, then numbers for their columns, as many as a row has, of any type; a result of the rows' type.
pub(super) fn columns(operands: &Operands<'_>, least: usize, most: usize) -> Made {
    count(operands, least, most)?;
    let rows = operands.inputs[0];
    for &column in &operands.inputs[1..] {
        if column.1.shape != [rows.1.row_len()] {
            return Err(misfit(rows, column, "there must be a number for each column"));
        }
    }
    Ok(vec![rows.1.clone()])
}

/// Rows, and a result without their last extent.
pub(super) fn reduced(operands: &Operands<'_>, _: usize) -> Made {
    count(operands, 1, 1)?;
    let rows = operands.inputs[0].1;
    let Some((_, kept)) = rows.shape.split_last() else {
        return Err(format!("`{}` is {rows}: a row to reduce is needed", operands.inputs[0].0));
    };
    Ok(vec![TensorType::new(kept, rows.dtype)])
}

/// Rows of two halves, and a result of one half.
pub(super) fn halves(operands: &Operands<'_>, _: usize) -> Made {
    count(operands, 1, 1)?;
    let (name, rows) = operands.inputs[0];
    let Some((&cols, outer)) = rows.shape.split_last().filter(|(cols, _)| cols.is_multiple_of(2)) else {
        return Err(format!("`{name}` is {rows}: rows of two halves are needed"));
    };
    Ok(vec![TensorType::new([outer, &[cols / 2]].concat(), rows.dtype)])
}

/// Rows and a scalar for each: `[.., n]` and `[..]`.
pub(super) fn a_number_each(rows: Named<'_>, numbers: Named<'_>) -> Result<Vec<u64>, String> {
    match rows.1.shape.split_last() {
        Some((_, outer)) if numbers.1.shape == outer => Ok(outer.to_vec()),
        _ => Err(misfit(rows, numbers, "there must be a number for each row")),
    }
}

/// `[.., m, k]` and `[.., k, n]`, or `[k, n]` for all; `[n, k]` where operand B is transposed.
pub(super) fn matmul(operands: &Operands<'_>, _: usize) -> Made {
    count(operands, 2, 2)?;
    let (a, b) = (operands.inputs[0], operands.inputs[1]);
    let fits = || {
        let (&k, outer) = a.1.shape.split_last()?;
        let (batches, last) = b.1.shape.split_at_checked(b.1.shape.len().checked_sub(2)?)?;
        let (inner, n) = if operands.params.transposed { (last[1], last[0]) } else { (last[0], last[1]) };
        let batches_fit =
            batches.is_empty() || outer.split_last().is_some_and(|(_, a_batches)| a_batches == batches);
        (k == inner && batches_fit).then(|| [outer, &[n]].concat())
    };
    let order = if operands.params.transposed { "[.., n, k]" } else { "[.., k, n]" };
    let shape = fits().ok_or_else(|| misfit(a, b, &format!("a product needs [.., m, k] and {order}")))?;
    if a.1.dtype != b.1.dtype && operands.params.dtype.is_none() {
        return Err(misfit(a, b, "types must be the same, or `dtype` must say what comes out"));
    }
    // Sums of `i8` do not fit into it.
    let natural = if a.1.dtype == DType::I8 { DType::I32 } else { a.1.dtype };
    Ok(vec![TensorType::new(shape, operands.params.dtype.unwrap_or(natural))])
}

/// `q` of `[.., queries, heads * dim]`, `k` and `v` of `[.., keys, kv_heads * dim]`.
pub(super) fn attention(operands: &Operands<'_>, _: usize) -> Made {
    count(operands, 3, 3)?;
    let [q, k, v] = [operands.inputs[0], operands.inputs[1], operands.inputs[2]];
    if k.1 != v.1 {
        return Err(misfit(k, v, "keys and values must be the same"));
    }
    let heads = operands.params.heads.unwrap_or(1);
    let kv_heads = operands.params.kv_heads.unwrap_or(heads);
    if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        return Err(format!("{heads} heads do not share {kv_heads} key and value heads evenly"));
    }
    let fits = || {
        let (q_outer, k_outer) = (q.1.shape.split_last_chunk::<2>()?, k.1.shape.split_last_chunk::<2>()?);
        let (q_width, k_width) = (q_outer.1[1], k_outer.1[1]);
        let heads_fit = q_width.is_multiple_of(heads)
            && k_width.is_multiple_of(kv_heads)
            && q_width / heads == k_width / kv_heads;
        (q_outer.0 == k_outer.0 && heads_fit && q.1.dtype == k.1.dtype).then_some(())
    };
    let needed = format!("[.., queries, {heads} * dim] and [.., keys, {kv_heads} * dim] are needed");
    fits().ok_or_else(|| misfit(q, k, &needed))?;
    Ok(vec![q.1.clone()])
}

/// The parts of rows: of the sizes that are given, or of one size.
pub(super) fn parts(operands: &Operands<'_>, outputs: usize) -> Made {
    count(operands, 1, 1)?;
    let (name, rows) = operands.inputs[0];
    let Some((&cols, outer)) = rows.shape.split_last() else {
        return Err(format!("`{name}` is {rows}: rows to split are needed"));
    };
    let mut sizes = operands.params.sizes.clone();
    if sizes.is_empty() {
        if outputs == 0 || !cols.is_multiple_of(outputs as u64) {
            return Err(format!("`{name}` is {rows}: its rows do not split into {outputs} parts evenly"));
        }
        sizes = vec![cols / outputs as u64; outputs];
    }
    let sum = sizes.iter().try_fold(0u64, |sum, &size| sum.checked_add(size));
    if sum != Some(cols) {
        return Err(format!("`{name}` is {rows}: parts of {sizes:?} do not add up to its rows"));
    }
    Ok(sizes.into_iter().map(|size| TensorType::new([outer, &[size]].concat(), rows.dtype)).collect())
}

/// Another shape of as many elements.
pub(super) fn reshaped(operands: &Operands<'_>, _: usize) -> Made {
    count(operands, 1, 1)?;
    let (name, from) = operands.inputs[0];
    let to = TensorType::new(operands.params.sizes.clone(), from.dtype);
    if to.checked_bytes() != Some(from.bytes()) {
        return Err(format!(
            "`{name}` is {from}: a shape of {} has another number of elements",
            to.shape_text()
        ));
    }
    Ok(vec![to])
}

/// The last two extents change places.
pub(super) fn transposed(operands: &Operands<'_>, _: usize) -> Made {
    count(operands, 1, 1)?;
    let (name, from) = operands.inputs[0];
    let Some((outer, &[rows, cols])) = from.shape.split_last_chunk::<2>() else {
        return Err(format!("`{name}` is {from}: two extents to exchange are needed"));
    };
    Ok(vec![TensorType::new([outer, &[cols, rows]].concat(), from.dtype)])
}

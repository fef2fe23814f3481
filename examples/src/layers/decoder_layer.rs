//! A layer of a decoder as Llama has it: `y = x + attention(norm(x)) · Wo`, `out = y + down(silu(g) * u)` with `[g, u] = norm(y) · W1`;
//! RMSNorm, rotary embedding, causal attention of grouped heads.
//!
//! **Launches.** Operation by operation there are 16: norm, three matmuls, two rotations, attention, matmul, addition; norm, two
//! matmuls, activation, multiplication, matmul, addition. Here: the norm, one matmul for queries, keys and values that also rotates
//! them while one wave of tiles is enough ([`crate::linear_rope`]), attention, a matmul with the residual in its epilogue; then
//! [`GatedFeedForward`]. That makes seven for 2 to 16 tokens, and eight to eleven for others. [`DecoderLayer::cost`] counts launches and bytes of
//! both. Attention and the matmul behind it are not fused: a tile of the result needs all heads of its rows, and every program of a row's
//! other tiles would compute them again.
//!
//! **Rounding.** That of its kernels one after the other; what is between them is rounded to `T`.
//!
//! **Source.** Touvron and others, *LLaMA*, 2023, arXiv:2302.13971, section 2.2; Vaswani and others, 2017, arXiv:1706.03762.

use dsl_runtime::Result;
use dsl_runtime::prelude::*;

use crate::activation::Activation;
use crate::attention::Attention;
use crate::feed_forward::{Down, GatedFeedForward, added_cost};
use crate::float::HalfFloat;
use crate::form::{Cost, Form};
use crate::linear_rope::{self, LinearRope};
use crate::matmul::Matmul;
use crate::norm_linear::FoldedLinear;
use crate::rope::{Angles, Heads};
use crate::shape::Checks;

const CHECKS: Checks = Checks("decoder_layer");

/// The weights of a layer whose rows have `k` elements.
#[derive(Clone, Copy)]
pub struct LayerWeights<'a, T: HalfFloat> {
    /// Queries, keys and values, with the norm before them: `[k, (queries + 2 * keys) * dim]`. Pairs of queries and keys are adjacent,
    /// see [`crate::linear_rope::interleave_pairs`].
    pub qkv: &'a FoldedLinear<T>,
    /// What is behind attention: `[queries * dim, k]`.
    pub output: View<'a, T, 2>,
    /// Gate and value, with the norm before them: `[k, 2 * f]`.
    pub up: &'a FoldedLinear<T>,
    /// `[f, k]`
    pub down: View<'a, T, 2>,
}

/// A layer for sequences without a cache: `DecoderLayer::new(weights, heads, angles)`. `T` is `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct DecoderLayer<'a, T: HalfFloat> {
    weights: LayerWeights<'a, T>,
    heads: Heads,
    angles: Angles<'a>,
    sequences: usize,
    eps: f32,
}

impl<'a, T: HalfFloat> DecoderLayer<'a, T> {
    /// A sequence with a token for each position of `angles`, which rotate all of a head; `eps` is 1e-5.
    pub fn new(weights: LayerWeights<'a, T>, heads: Heads, angles: Angles<'a>) -> Self {
        DecoderLayer { weights, heads, angles, sequences: 1, eps: 1e-5 }
    }

    /// The tokens are those of so many sequences of one length, one behind the other.
    pub fn sequences(self, sequences: usize) -> Self {
        DecoderLayer { sequences, ..self }
    }

    /// What is added to the mean squares.
    pub fn eps(self, eps: f32) -> Self {
        DecoderLayer { eps, ..self }
    }

    /// Computes `out` of `x`, `k` elements for each token, on a device or stream.
    ///
    /// # Errors
    /// If shapes and lengths do not fit together; if there is no memory for what is between the operations; those of a launch.
    pub fn launch<'o>(
        &self,
        on: impl LaunchOn,
        x: impl Into<Slice<'a, T>>,
        out: impl Into<SliceMut<'o, T>>,
    ) -> Result<()> {
        let (x, out) = (x.into(), out.into());
        let LayerWeights { qkv: layer, output, .. } = self.weights;
        let (tokens, [of_heads, k]) = (self.angles.positions.len(), output.shape());
        let (queries, rotated, columns) = self.columns();
        CHECKS.extents("the output's weights", [of_heads, k], [queries, k])?;
        CHECKS.extents("the weights of queries, keys and values", layer.weight()?.shape(), [k, columns])?;
        CHECKS.extents("x", [x.len()], [tokens * k])?;
        if tokens.checked_rem(self.sequences).unwrap_or(1) != 0 {
            return Err(
                CHECKS.error(format!("{tokens} tokens are no {} sequences of one length", self.sequences))
            );
        }
        if tokens * k == 0 {
            return Ok(());
        }
        let mut normalized = on.temporary::<T>(tokens * k)?;
        layer.normalize(on, x, normalized.slice_mut(), self.eps)?;
        let mut qkv = on.temporary::<T>(tokens * columns)?;
        let linear = LinearRope::new(normalized.slice(), layer.weight()?, self.angles);
        let linear = layer.bias().map_or(linear, |bias| linear.bias(bias));
        linear.rotated(rotated).launch(on, qkv.slice_mut())?;
        let mut attended = on.temporary::<T>(tokens * queries)?;
        self.attend(on, qkv.slice(), attended.slice_mut())?;
        let mut attention_out = on.temporary::<T>(tokens * k)?;
        let linear = Matmul::new(attended.slice().view([tokens, queries])?, output);
        linear.launch_with_residual(on, x, attention_out.slice_mut())?;
        self.feed_forward().launch(on, attention_out.slice(), out)
    }

    fn feed_forward(&self) -> GatedFeedForward<'a, T> {
        let down = Down { weight: self.weights.down, bias: None };
        GatedFeedForward::new(self.weights.up, down, Activation::Silu).eps(self.eps)
    }

    /// Columns of queries, rotated columns, and all columns.
    fn columns(&self) -> (usize, usize, usize) {
        let (Heads { queries, keys }, dim) = (self.heads, 2 * self.angles.half);
        (queries * dim, (queries + keys) * dim, (queries + 2 * keys) * dim)
    }

    /// Attention of each sequence, whose heads are columns of the packed matrix and of the result.
    fn attend(&self, on: impl LaunchOn, qkv: Slice<'_, T>, mut out: SliceMut<'_, T>) -> Result<()> {
        let (Heads { queries, keys }, dim) = (self.heads, 2 * self.angles.half);
        let (heads, length) = (queries + 2 * keys, self.angles.positions.len() / self.sequences);
        let packed = qkv.view([self.sequences, length, heads, dim])?.permute([0, 2, 1, 3]);
        let of = |first: usize, count: usize| packed.slice(1, first..first + count);
        let out = out.view_mut([self.sequences, length, queries, dim])?.permute([0, 2, 1, 3]);
        let attention = Attention::new(of(0, queries), of(queries, keys), of(queries + keys, keys));
        attention.causal().launch(on, out)
    }

    /// Launches and bytes of [`DecoderLayer::launch`], and operation by operation. Attention reads its keys once in both.
    pub fn cost(&self, on: impl LaunchOn) -> [Cost; 2] {
        let (tokens, [_, k], size) =
            (self.angles.positions.len(), self.weights.output.shape(), size_of::<T>());
        let (queries, rotated, columns) = self.columns();
        let kernel = |elements: usize| Cost::of(size, elements);
        let linear = |k: usize, n: usize| kernel(tokens * k + k * n + tokens * n);
        let norm = kernel(2 * tokens * k);
        let keys = rotated - queries;
        let rotation = kernel(2 * tokens * rotated);
        let attention = kernel(tokens * (columns + queries));
        let [ours, separate] = self.feed_forward().cost(on, tokens);
        let rotation_cost = match linear_rope::form::<T>(on, tokens, [k, columns]) {
            Form::Fused => Cost::default(),
            Form::Separate => rotation,
        };
        let output = added_cost(on, tokens, self.weights.output);
        let ours = norm + linear(k, columns) + rotation_cost + attention + output + ours;
        let matmuls = linear(k, queries) + linear(k, keys) + linear(k, keys);
        let rotations = kernel(2 * tokens * queries) + kernel(2 * tokens * keys);
        let addition = kernel(3 * tokens * k);
        // Gate and value are two matmuls there, which read the rows twice.
        let separate = separate + kernel(tokens * k);
        [ours, norm + matmuls + rotations + attention + linear(queries, k) + addition + separate]
    }
}

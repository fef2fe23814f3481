//! The PTX of a warpgroup's dot: `wgmma` instructions, their fence and their commit, as one statement.

use crate::gpu::emit::dot::smem_descriptor::SmemDescriptor;
use crate::gpu::emit::statement;
use crate::mlir::builder::{Builder, Val};
use crate::mlir::types::{Elem, Ty};
use tile_ir::ops::schedule::AfterIssue;
use tile_ir::support::dtype::DType;

/// An operand in a statement, and for a descriptor whether it is MN-major.
pub(super) struct WgmmaOperand {
    text: String,
    mn_major: Option<bool>,
}

/// One PTX statement of wgmma instructions.
pub(super) struct WgmmaStatement {
    lines: Vec<String>,
    /// The accumulators of each set of rows.
    accs: Vec<usize>,
    operands: Vec<Val>,
    constraints: Vec<String>,
    /// The accumulators that it adds to, in the order of the results.
    before: Vec<Val>,
}

impl WgmmaStatement {
    /// With the accumulators to add to, in the order of the lists.
    pub(super) fn new(lists: &[Vec<usize>], before: Option<&[Val]>) -> WgmmaStatement {
        WgmmaStatement {
            lines: vec![],
            accs: lists.iter().map(Vec::len).collect(),
            operands: vec![],
            constraints: vec![],
            before: before.unwrap_or_default().to_vec(),
        }
    }

    pub(super) fn results(&self) -> usize {
        self.accs.iter().sum()
    }

    /// The number of an operand.
    pub(super) fn operand(&mut self, value: Val, constraint: &str) -> usize {
        let place = self.operands.iter().position(|known| known.id() == value.id()).unwrap_or_else(|| {
            self.operands.push(value);
            self.constraints.push(constraint.into());
            self.operands.len() - 1
        });
        self.results() + place
    }

    /// Lets `again` say whether the first wgmma adds to the accumulator.
    pub(super) fn add_if(&mut self, b: &mut Builder, again: Option<Val>) {
        if let Some(again) = again {
            let again = b.zext(again, Elem::I32);
            let operand = self.operand(again, "r");
            self.lines.push(format!("setp.ne.b32 again, ${operand}, 0;"));
        }
    }

    /// A fragment in registers.
    pub(super) fn fragment(&mut self, words: &[Val]) -> WgmmaOperand {
        let names: Vec<String> = words.iter().map(|&word| format!("${}", self.operand(word, "r"))).collect();
        WgmmaOperand { text: format!("{{{}}}", names.join(", ")), mn_major: None }
    }

    /// A tile from `distance` on, in units of a descriptor.
    pub(super) fn matrix(&mut self, name: &str, matrix: &SmemDescriptor, distance: i64) -> WgmmaOperand {
        let descriptor = self.operand(matrix.descriptor, "r");
        let upper = matrix.upper_word();
        self.lines.push(format!("add.s32 word, ${descriptor}, {distance};"));
        self.lines.push(format!("mov.b64 {name}, {{word, {upper}}};"));
        WgmmaOperand { text: name.to_string(), mn_major: Some(matrix.mn_major) }
    }

    pub(super) fn multiply(
        &mut self,
        instruction: &WgmmaShape,
        set: usize,
        factors: [WgmmaOperand; 2],
        adds: &str,
    ) {
        let mn_major: String = factors
            .iter()
            .filter_map(|factor| factor.mn_major)
            .map(|mn_major| format!(", {}", u32::from(mn_major)))
            .collect();
        let [left, right] = factors.map(|factor| factor.text);
        let accs = self.accs(set);
        let [name, rest] = instruction.text(&mn_major);
        self.lines.push(format!("{name} {accs}, {left}, {right}, {adds}{rest};"));
    }

    /// The accumulator registers of a set.
    pub(super) fn accs(&self, set: usize) -> String {
        let first: usize = self.accs[..set].iter().sum();
        let names: Vec<String> = (first..first + self.accs[set]).map(|i| format!("${i}")).collect();
        format!("{{{}}}", names.join(", "))
    }

    pub(super) fn finish(self, b: &mut Builder, sum: Ty, then: AfterIssue) -> Vec<Val> {
        let results = self.results();
        let wait = if then == AfterIssue::Wait { "wgmma.wait_group.sync.aligned 0;\n" } else { "" };
        let text = format!(
            "{{\n.reg .b64 left, right;\n.reg .b32 word;\n.reg .pred none, all, again;\nsetp.ne.b32 none, 0, 0;\nsetp.eq.b32 all, 0, 0;\nwgmma.fence.sync.aligned;\n{}\nwgmma.commit_group.sync.aligned;\n{wait}}}",
            self.lines.join("\n")
        );
        let tied = (0..self.before.len()).map(|i| i.to_string());
        let outputs = std::iter::repeat_n(format!("={}", letter(sum)), results);
        let constraints: Vec<String> =
            outputs.chain(self.constraints).chain(tied).chain(["~{memory}".to_string()]).collect();
        let operands: Vec<Val> = self.operands.into_iter().chain(self.before).collect();
        statement(b, &text, &constraints.join(","), &operands, &vec![sum; results])
    }
}

/// The shape of a `wgmma` instruction, and its operands' type.
pub(super) struct WgmmaShape {
    pub columns: u32,
    /// The K extent of the instruction.
    pub inner: u32,
    pub dtype: DType,
}

impl WgmmaShape {
    /// Its name, and what follows the operands: their signs and, where there is a choice, whether they are MN-major.
    pub(super) fn text(&self, mn_major: &str) -> [String; 2] {
        let (sum, factor, rest) = match self.dtype {
            DType::I8 => ("s32", "s8", String::new()),
            DType::F8E4M3 => ("f32", "e4m3", ", 1, 1".into()),
            DType::F8E5M2 => ("f32", "e5m2", ", 1, 1".into()),
            DType::F32 => ("f32", "tf32", ", 1, 1".into()),
            DType::F16 => ("f32", "f16", format!(", 1, 1{mn_major}")),
            _ => ("f32", "bf16", format!(", 1, 1{mn_major}")),
        };
        let WgmmaShape { columns, inner, .. } = self;
        [format!("wgmma.mma_async.sync.aligned.m64n{columns}k{inner}.{sum}.{factor}.{factor}"), rest]
    }
}

/// The register of a statement that holds a value.
pub(super) fn letter(ty: Ty) -> &'static str {
    if ty.elem.is_float() { "f" } else { "r" }
}

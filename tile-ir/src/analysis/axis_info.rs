//! The data flow analysis that finds the axis info of every value of a function.

pub use crate::analysis::launch_assumptions::LaunchAssumptions;
use crate::ir::axis_info::{AxisEnv, AxisInfo, clip};
use crate::ir::{Block, Func, Op, ParamKind, Value, View};

/// The axis info of every value of a function.
#[derive(Debug)]
pub struct AxisInfoMap {
    infos: Vec<Option<AxisInfo>>,
}

impl AxisInfoMap {
    pub fn analyze(func: &Func, assumptions: &LaunchAssumptions) -> AxisInfoMap {
        let infos = vec![None; func.value_count()];
        let budget = PASSES * func.value_count().max(64);
        let mut analysis = AxisInfoAnalysis { func, infos, assumptions, budget };
        for param in &func.params {
            if let ParamKind::Scalar { value, .. } = param.kind {
                let mut info = AxisInfo::unknown(func.ty(value));
                info.divisor = assumptions.multiple(value);
                info.range = assumptions.ranges.get(&value).copied().unwrap_or(info.range);
                if let Some(&least) = assumptions.least.get(&value) {
                    info.range.0 = info.range.0.max(least);
                }
                if func.is_view_scalar(value) {
                    info.range = (info.range.0.max(0), info.range.1.min(View::LIMIT - 1));
                }
                analysis.infos[value.index()] = Some(info);
            }
        }
        analysis.block(&func.body);
        AxisInfoMap { infos: analysis.infos }
    }

    pub fn get(&self, func: &Func, value: Value) -> AxisInfo {
        self.infos[value.index()].clone().unwrap_or_else(|| AxisInfo::unknown(func.ty(value)))
    }
}

/// Visits per operation, on average: nested loops are repeated within every repetition of the enclosing ones.
const PASSES: usize = 64;

/// The forward data flow analysis.
struct AxisInfoAnalysis<'f> {
    func: &'f Func,
    infos: Vec<Option<AxisInfo>>,
    assumptions: &'f LaunchAssumptions,
    /// How many more visits are made before loop-carried values become unknown.
    budget: usize,
}

impl AxisInfoAnalysis<'_> {
    fn op(&mut self, op: &Op) {
        self.budget = self.budget.saturating_sub(1);
        let infos = op.kind.operation().axis_info(self, &op.results);
        for (&result, mut info) in op.results.iter().zip(infos) {
            let ty = self.func.ty(result);
            // The proof of this bound also shows that the value does not wrap.
            if let Some(&least) = self.assumptions.least.get(&result) {
                info.range = (info.range.0.max(least), info.range.1.min(ty.dtype.range().1));
            }
            info.divisor = info.divisor.max(self.assumptions.multiple(result));
            self.infos[result.index()] = Some(clip(info, ty));
        }
    }
}

impl AxisEnv for AxisInfoAnalysis<'_> {
    fn func(&self) -> &Func {
        self.func
    }

    fn info(&self, value: Value) -> AxisInfo {
        self.infos[value.index()].clone().unwrap_or_else(|| AxisInfo::unknown(self.func.ty(value)))
    }

    fn set(&mut self, value: Value, info: AxisInfo) {
        self.infos[value.index()] = Some(info);
    }

    fn most_programs(&self, axis: u8) -> Option<i128> {
        self.assumptions.grid[usize::from(axis)]
    }

    fn block(&mut self, block: &Block) {
        for op in &block.ops {
            self.op(op);
        }
    }

    fn carry(&mut self, inits: &[Value], args: &[Value], body: &Block) -> Vec<AxisInfo> {
        let mut carried: Vec<AxisInfo> = inits.iter().map(|&init| self.info(init)).collect();
        loop {
            let exhausted = self.budget == 0;
            if exhausted {
                carried = args.iter().map(|&arg| AxisInfo::unknown(self.func.ty(arg))).collect();
            }
            for (&arg, info) in args.iter().zip(&carried) {
                self.set(arg, info.clone());
            }
            self.block(body);
            if exhausted {
                return carried;
            }
            let next: Vec<AxisInfo> = carried
                .iter()
                .zip(&body.yields)
                .zip(args)
                .map(|((before, &end), &arg)| {
                    let met = before.meet(&self.info(end));
                    // Widening: a range that grew is given up at once. Powers of two only shrink, so this ends.
                    let full = AxisInfo::unknown(self.func.ty(arg)).range;
                    AxisInfo { range: if met.range == before.range { met.range } else { full }, ..met }
                })
                .collect();
            if next == carried {
                return carried;
            }
            carried = next;
        }
    }
}

//! Assertions and `print` of a debug build.
//!
//! A failed assertion writes the module's report record. `print` is CUDA's `vprintf`: a format in global memory, and the
//! arguments promoted as C does, one behind the other on the thread's stack.

use tile_ir::ir::{Func, Op, Value};
use tile_ir::ops::{Assert, Print, Site};
use tile_ir::support::dtype::DType;

use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::{Builder, Gpu, ModuleBuilder, Space, report};
use crate::gpu::layout::Layout;
use crate::mlir::builder::{AccessFlags, Val};
use crate::mlir::cast;
use crate::mlir::types::{Elem, Ty};

/// Whether a function prints anything.
pub(super) fn prints(func: &Func) -> bool {
    func.sites.iter().any(|site| matches!(site, Site::Print { .. }))
}

pub(super) fn declare_printf(module: &mut ModuleBuilder) {
    let pointer = Ty::scalar(Elem::Ptr(Space::Generic));
    module.declare("vprintf", &[pointer, pointer], Ty::I32);
}

/// The name of a site's format.
fn format_name(entry: &str, site: u32) -> String {
    format!("{entry}_line_{site}")
}

/// Declares the format strings of a kernel.
pub(super) fn declare_formats(module: &mut ModuleBuilder, func: &Func, entry: &str) {
    for (index, site) in (0..).zip(&func.sites) {
        if let Site::Print { label, dtypes, .. } = site {
            let format = format(label, site.shape().rank(), dtypes);
            module.global_text(&format_name(entry, index), &format);
        }
    }
}

/// A line as `dsl_runtime::device_print` writes it on the CPU.
fn format(label: &str, rank: usize, dtypes: &[DType]) -> String {
    let mut line = label.replace('%', "%%") + ": program (%d, %d, %d)";
    if rank > 0 {
        line += &format!(", element ({})", vec!["%d"; rank].join(", "));
    }
    if !dtypes.is_empty() {
        let values: Vec<&str> = dtypes.iter().map(|&dtype| conversion(dtype)).collect();
        line += &format!(": {}", values.join(", "));
    }
    line + "\n"
}

/// Floats with as many digits as distinguish any two.
fn conversion(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool | DType::I8 | DType::I16 | DType::I32 | DType::U8 | DType::U16 => "%d",
        DType::U32 => "%u",
        DType::I64 => "%lld",
        DType::U64 => "%llu",
        DType::F8E5M2 => "%.2g",
        DType::F8E4M3 => "%.3g",
        DType::BF16 => "%.4g",
        DType::F16 => "%.5g",
        DType::F32 => "%.9g",
        DType::F64 => "%.17g",
    }
}

/// A value as an argument of a variadic C function.
fn promoted(b: &mut Builder, value: Val, dtype: DType) -> Val {
    if dtype.is_float() {
        return cast::cast(b, value, dtype, DType::F64);
    }
    if dtype.bytes() >= 4 {
        return value;
    }
    if dtype.is_signed() { b.sext(value, Elem::I32) } else { b.zext(value, Elem::I32) }
}

impl Gpu<'_> {
    fn layout_of(&self, value: Value) -> Option<&Layout> {
        (!self.func.ty(value).is_scalar()).then(|| self.layout(value))
    }

    /// The coordinates of a register's element; none of a scalar.
    fn element(&mut self, b: &mut Builder, like: Option<Value>, register: usize) -> Vec<Val> {
        let Some(layout) = like.and_then(|value| self.layout_of(value)).cloned() else { return vec![] };
        (0..layout.shape().rank()).map(|axis| self.coord(b, &layout, register, axis)).collect()
    }
}

impl GpuEmit for Assert {
    /// Reports the first of a thread's elements that fail.
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let shape = gpu.func.ty(self.holds).shape.clone();
        let failed: Vec<Val> = gpu.registers(self.holds).iter().map(|&holds| b.not(holds)).collect();
        let any = failed.iter().copied().reduce(|one, other| b.or(one, other));
        let any = any.expect("a tile has a register in every thread");
        b.if_then(any, |b| {
            gpu.scope(|gpu| {
                let mut index = b.int(Ty::I64, 0);
                for (register, &failed) in failed.iter().enumerate().rev() {
                    let mut own = b.int(Ty::I32, 0);
                    for (axis, coord) in gpu.element(b, Some(self.holds), register).into_iter().enumerate() {
                        let extent = b.int(Ty::I32, i64::from(shape[axis]));
                        let row = b.mul(own, extent);
                        own = b.add(row, coord);
                    }
                    let own = b.zext(own, Elem::I64);
                    index = b.select(failed, own, index);
                }
                let length = b.int(Ty::I64, shape.elements() as i64);
                let record = b.address_of(report::GLOBAL, Space::Global);
                let element = report::ReportedElement { index, length, program: gpu.program.coord };
                element.write(b, record, gpu.func, op);
            });
        });
    }
}

impl GpuEmit for Print {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, _: &Op) {
        let like = self.values.first().copied().or(self.mask);
        let writer = gpu.writer(b, like.and_then(|value| gpu.layout_of(value)));
        let mask = self.mask.map(|mask| gpu.registers(mask));
        let count = like.map_or(1, |value| gpu.register_count(value));
        let rank = like.map_or(0, |value| gpu.func.ty(value).shape.rank());
        let buffer = b.stack((gpu.program.coord.len() + rank + self.values.len()) as u32);
        let format = format_name(&gpu.entry.name, self.site);
        for register in 0..count {
            let active = match (mask.as_ref().map(|mask| mask[register]), writer) {
                (Some(mask), Some(writer)) => Some(b.and(mask, writer)),
                (mask, writer) => mask.or(writer),
            };
            let print = |gpu: &mut Gpu, b: &mut Builder| {
                let arguments = line_arguments(self, gpu, b, register);
                print_line(b, &format, buffer, arguments);
            };
            match active {
                Some(active) => b.if_then(active, |b| gpu.scope(|gpu| print(gpu, b))),
                None => print(gpu, b),
            }
        }
    }
}

/// The coordinates and values of a register's element, as `vprintf` takes them.
fn line_arguments(print: &Print, gpu: &mut Gpu, b: &mut Builder, register: usize) -> Vec<Val> {
    let like = print.values.first().copied().or(print.mask);
    let mut arguments = gpu.program.coord.to_vec();
    arguments.extend(gpu.element(b, like, register));
    for &value in &print.values {
        let dtype = gpu.func.ty(value).dtype;
        let element = gpu.registers(value)[register];
        arguments.push(promoted(b, element, dtype));
    }
    arguments
}

/// Prints arguments, which it writes to the buffer, in a format.
fn print_line(b: &mut Builder, format: &str, buffer: Val, arguments: Vec<Val>) {
    let mut next = 0u32;
    for argument in arguments {
        let bytes = argument.ty.elem.bits() / 8;
        let offset = next.next_multiple_of(bytes);
        let pointer = b.offset_bytes(buffer, offset as i32);
        b.store(argument, pointer, AccessFlags::aligned(bytes));
        next = offset + bytes;
    }
    let format = b.address_of(format, Space::Global);
    let format = b.generic(format);
    b.call_declared("vprintf", &[format, buffer], Ty::I32);
}

//! Element types by the names that Triton, NumPy, PyTorch, C, CUDA and LLVM have for them.

use super::row::{Answer, Foreign, NameKind, row};
use crate::support::dtype::DType;

pub(super) const TABLE: &[Foreign] = &[
    element(&["float16", "fp16", "half", "f16_t"], DType::F16),
    element(&["bfloat16", "__nv_bfloat16"], DType::BF16),
    element(&["float32", "fp32", "float", "single"], DType::F32),
    element(&["float64", "fp64", "double"], DType::F64),
    element(&["float8e4nv", "float8_e4m3fn", "fp8e4nv", "fp8e4m3", "F8E4M3", "__nv_fp8_e4m3"], DType::F8E4M3),
    element(&["float8e5", "float8_e5m2", "fp8e5", "fp8e5m2", "F8E5M2", "__nv_fp8_e5m2"], DType::F8E5M2),
    element(&["int1", "i1", "boolean"], DType::Bool),
    element(&["int8", "int8_t"], DType::I8),
    element(&["int16", "short", "int16_t"], DType::I16),
    element(&["int32", "int", "int32_t"], DType::I32),
    element(&["int64", "long", "int64_t", "ptrdiff_t"], DType::I64),
    element(&["uint8", "byte", "uint8_t", "uchar"], DType::U8),
    element(&["uint16", "uint16_t", "ushort"], DType::U16),
    element(&["uint32", "uint", "uint32_t", "unsigned"], DType::U32),
    element(&["uint64", "uint64_t", "size_t", "ulong"], DType::U64),
];

const fn element(names: &'static [&'static str], dtype: DType) -> Foreign {
    row(names, NameKind::Type, Answer::Type(dtype))
}

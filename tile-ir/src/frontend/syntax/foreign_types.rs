//! Element types by the names that Triton, NumPy, PyTorch, C and LLVM have for them.

use crate::support::dtype::DType;

/// The element type that another language calls `name`.
pub fn element_type(name: &str) -> Option<DType> {
    Some(match name {
        "float16" | "fp16" | "half" | "Half" => DType::F16,
        "bfloat16" => DType::BF16,
        "float32" | "fp32" | "float" | "single" => DType::F32,
        "float64" | "fp64" | "double" => DType::F64,
        "float8e4nv" | "float8_e4m3fn" | "fp8e4nv" | "fp8e4m3" | "F8E4M3" => DType::F8E4M3,
        "float8e5" | "float8_e5m2" | "fp8e5" | "fp8e5m2" | "F8E5M2" => DType::F8E5M2,
        "int1" | "i1" | "boolean" => DType::Bool,
        "int8" | "char" => DType::I8,
        "int16" | "short" => DType::I16,
        "int32" | "int" => DType::I32,
        "int64" | "long" => DType::I64,
        "uint8" | "byte" => DType::U8,
        "uint16" => DType::U16,
        "uint32" | "uint" => DType::U32,
        "uint64" => DType::U64,
        _ => return None,
    })
}

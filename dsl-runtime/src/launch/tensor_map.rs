//! Tensor maps: the TMA descriptors of views.
//!
//! Takes a declared map and the arguments of a launch; gives the encoded `CUtensorMap`, or why there is none. It
//! allocates nothing.

use std::ffi::c_void;
use std::sync::OnceLock;

use cudarc::driver::sys::CUresult;

use crate::dtype::DType;
use crate::error::Result;
use crate::guard::{LaunchArgs, name};
use crate::kernel::{Multicast, Param, Polynomial, TensorMap};
use crate::libcuda;

/// The most axes of a view.
const MAX_AXES: usize = 5;

/// A map as a kernel takes it: the driver's `CUtensorMap`.
#[repr(C, align(64))]
pub(super) struct CuTensorMap([u64; 16]);

/// Why there is no map of a parameter.
pub(super) struct EncodeFailure {
    param: u8,
    cause: Cause,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
enum Cause {
    #[error("these arguments give no view of rank {rank}")]
    NoView { rank: usize },
    #[error("its elements cannot be {0}")]
    DType(DType),
    #[error("its swizzle cannot be {0} bytes")]
    Swizzle(u32),
    #[error("the driver is older than CUDA 12")]
    OldDriver,
    #[error("{0:?}")]
    Driver(CUresult),
}

impl EncodeFailure {
    /// The refusal in words, in terms of the kernel's parameters.
    pub(super) fn text(&self, params: &[Param]) -> String {
        format!("a map of `{}` was refused: {}", name(params, self.param), self.cause)
    }
}

/// `CUtensorMapDataType`. What it lacks goes as unsigned integers of the same size: a GPU only copies elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
enum DataType {
    U8,
    U16,
    U32,
    I32,
    U64,
    I64,
    F16,
    F32,
    F64,
    BF16,
    /// `F32` in memory, rounded as it is copied.
    TF32 = 11,
}

impl DataType {
    fn of(dtype: DType, tf32: bool) -> Option<DataType> {
        Some(match dtype {
            DType::F32 if tf32 => DataType::TF32,
            DType::Bool => return None,
            DType::I8 | DType::U8 | DType::F8E4M3 | DType::F8E5M2 => DataType::U8,
            DType::I16 | DType::U16 => DataType::U16,
            DType::U32 => DataType::U32,
            DType::I32 => DataType::I32,
            DType::U64 => DataType::U64,
            DType::I64 => DataType::I64,
            DType::F16 => DataType::F16,
            DType::F32 => DataType::F32,
            DType::F64 => DataType::F64,
            DType::BF16 => DataType::BF16,
        })
    }
}

/// `CUtensorMapSwizzle`, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
enum Swizzle {
    B32 = 1,
    B64 = 2,
    B128 = 3,
}

impl Swizzle {
    fn of(bytes: u32) -> Option<Swizzle> {
        match bytes {
            32 => Some(Swizzle::B32),
            64 => Some(Swizzle::B64),
            128 => Some(Swizzle::B128),
            _ => None,
        }
    }
}

/// The arguments of the driver call, the innermost axis first; beyond the rank all is 0.
struct Request {
    data_type: DataType,
    swizzle: Swizzle,
    rank: usize,
    address: u64,
    extents: [u64; MAX_AXES],
    /// In bytes, of all axes but the innermost, whose elements are contiguous.
    strides: [u64; MAX_AXES],
    block: [u32; MAX_AXES],
}

impl TensorMap {
    /// The map for these arguments, whose types are `dtypes`, for a launch with multicast loads or without.
    pub(super) fn encode(
        &self,
        launch_args: &LaunchArgs<'_>,
        dtypes: &[DType],
        multicast: bool,
    ) -> Result<CuTensorMap, EncodeFailure> {
        let encoded = self.request(launch_args, dtypes, multicast).and_then(|request| request.encode());
        encoded.map_err(|cause| EncodeFailure { param: self.param, cause })
    }

    /// Of a map with multicast: how many bytes a program loads through it, and whether rows of the innermost axis begin
    /// within sectors of memory, for these arguments.
    pub(super) fn multicast_loads(
        &self,
        launch_args: &LaunchArgs<'_>,
        dtypes: &[DType],
    ) -> Option<(u64, bool)> {
        let Multicast { axis, step, bytes } = self.multicast?;
        let request = self.request(launch_args, dtypes, false).ok()?;
        let iterations = request.extents[request.rank - 1 - usize::from(axis)].div_ceil(step.into());
        Some((iterations.saturating_mul(bytes.into()), request.is_sector_misaligned()))
    }

    fn request(
        &self,
        launch_args: &LaunchArgs<'_>,
        dtypes: &[DType],
        multicast: bool,
    ) -> Result<Request, Cause> {
        let rank = self.block.len();
        let no_view = Cause::NoView { rank };
        if !(1..=MAX_AXES).contains(&rank) || [self.extents.len(), self.strides.len()] != [rank; 2] {
            return Err(no_view);
        }
        let number = |sum: Polynomial| {
            launch_args.value(sum).and_then(|value| u64::try_from(value).ok()).ok_or(no_view)
        };
        let dtype = *dtypes.get(usize::from(self.param)).ok_or(no_view)?;
        let mut request = Request {
            data_type: DataType::of(dtype, self.tf32).ok_or(Cause::DType(dtype))?,
            swizzle: Swizzle::of(self.swizzle).ok_or(Cause::Swizzle(self.swizzle))?,
            rank,
            address: launch_args.address(self.param).ok_or(no_view)?,
            extents: [0; MAX_AXES],
            strides: [0; MAX_AXES],
            block: [0; MAX_AXES],
        };
        for (inner, axis) in (0..rank).rev().enumerate() {
            request.extents[inner] = number(self.extents[axis])?;
            request.block[inner] = self.block[axis];
            if inner > 0 {
                request.strides[inner - 1] = number(self.strides[axis])?.saturating_mul(dtype.bytes() as u64);
            }
        }
        if multicast && self.multicast.is_some() {
            request.block[1] /= 2;
        }
        Ok(request)
    }
}

/// The type of `cuTensorMapEncodeTiled`, whose numbers at the end are enumerations.
type Encode = unsafe extern "C" fn(
    map: *mut CuTensorMap,
    data_type: u32,
    rank: u32,
    address: *mut c_void,
    extents: *const u64,
    strides: *const u64,
    block: *const u32,
    steps: *const u32,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
) -> CUresult;

/// `CU_TENSOR_MAP_INTERLEAVE_NONE`
const NO_INTERLEAVE: u32 = 0;
/// `CU_TENSOR_MAP_L2_PROMOTION_L2_128B` and `..256B`: what L2 reads at once. More does not pay where rows begin within sectors.
const L2_BY_128_BYTES: u32 = 2;
const L2_BY_256_BYTES: u32 = 3;
/// Bytes that memory is read in.
const SECTOR_BYTES: u64 = 32;
/// `CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE`: elements outside the extents are 0.
const ZERO_FILL: u32 = 0;

/// The driver's function, if it has it.
///
/// The bindings' own panics where the driver lacks the symbol, and is not there at all where a build finds CUDA 11.
fn encode_function() -> Option<Encode> {
    static ENCODE: OnceLock<Option<Encode>> = OnceLock::new();
    // SAFETY: the function has had this type since CUDA 12.0, the first that has it.
    *ENCODE.get_or_init(|| unsafe { libcuda::function(c"cuTensorMapEncodeTiled") })
}

impl Request {
    /// Whether rows of the innermost axis begin at addresses that are no multiples of a sector.
    fn is_sector_misaligned(&self) -> bool {
        let strides =
            (1..self.rank).filter(|&axis| self.extents[axis] > 1).map(|axis| self.strides[axis - 1]);
        strides.chain([self.address]).any(|bytes| !bytes.is_multiple_of(SECTOR_BYTES))
    }

    fn encode(&self) -> Result<CuTensorMap, Cause> {
        let encode = encode_function().ok_or(Cause::OldDriver)?;
        let mut map = CuTensorMap([0; 16]);
        // SAFETY: `map` is as large and as aligned as the driver wants it, and the arrays have as many numbers as it
        // reads, at most five. It only stores the address.
        let status = unsafe {
            encode(
                &mut map,
                self.data_type as u32,
                self.rank as u32,
                std::ptr::without_provenance_mut(self.address as usize),
                self.extents.as_ptr(),
                self.strides.as_ptr(),
                self.block.as_ptr(),
                [1; MAX_AXES].as_ptr(),
                NO_INTERLEAVE,
                self.swizzle as u32,
                if self.is_sector_misaligned() { L2_BY_128_BYTES } else { L2_BY_256_BYTES },
                ZERO_FILL,
            )
        };
        if status == CUresult::CUDA_SUCCESS { Ok(map) } else { Err(Cause::Driver(status)) }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::dtype::Element;
    use crate::guard::KernelArg;
    use crate::kernel::{ParamKind, Symbol, Term};

    /// A scalar, a view's memory, and its extents and strides.
    fn kernel_args(address: u64, scalars: &[i64]) -> Vec<KernelArg> {
        let scalar = |value: i64| KernelArg::Scalar { dtype: DType::I64, bits: value.bits() };
        let mut kernel_args = vec![scalar(7), KernelArg::Slice { address, len: 1000 }];
        kernel_args.extend(scalars.iter().map(|&value| scalar(value)));
        kernel_args
    }

    /// What the driver is asked for a map, with its numbers, or a refusal in words. The view `a` of `dtype` at 0x80
    /// comes after a scalar; `scalars` are its extents and strides.
    fn check(map: TensorMap, dtype: DType, scalars: &[i64], expected: Expect) {
        let kernel_args = kernel_args(0x80, scalars);
        let launch_args = LaunchArgs { kernel_args: &kernel_args, grid: [1; 3] };
        let params = [
            Param { name: "n", kind: ParamKind::Scalar },
            Param { name: "a", kind: ParamKind::View(map.block.len() as u8) },
        ];
        let text = match map.request(&launch_args, &[DType::I64, dtype], false) {
            Ok(Request { data_type, swizzle, rank, address, extents, strides, block }) => format!(
                "{data_type:?} ({}) of {:?} by {:?} at {address:#x}, block {:?}, {swizzle:?} ({})",
                data_type as u32,
                &extents[..rank],
                &strides[..rank - 1],
                &block[..rank],
                swizzle as u32
            ),
            Err(cause) => EncodeFailure { param: map.param, cause }.text(&params),
        };
        expected.assert_eq(&text);
    }

    /// The scalars behind the slice, each by itself.
    const SCALARS: [Polynomial; 12] = {
        macro_rules! scalars {
            ($($position:literal)*) => { [$(&[Term::of(&[Symbol::Scalar($position)])]),*] };
        }
        scalars!(2 3 4 5 6 7 8 9 10 11 12 13)
    };

    /// The map of a view of rank `N`, whose extents and then its strides are scalars behind its memory.
    const fn view<const N: usize>(block: &'static [u32; N], swizzle: u32) -> TensorMap {
        let (extents, others) = SCALARS.as_slice().split_at(N);
        let strides = others.split_at(N).0;
        TensorMap { param: 1, extents, strides, block, swizzle, tf32: false, multicast: None }
    }

    const VECTOR: TensorMap = view(&[16], 32);
    const MATRIX: TensorMap = view(&[128, 64], 128);
    const BATCH: TensorMap = view(&[2, 32, 16], 64);

    /// Of an axis with one element the stride says nothing.
    #[test]
    fn multicast_loads_halves() {
        let of = |multicast_loads: bool, address: u64, scalars: &[i64]| {
            let kernel_args = kernel_args(address, scalars);
            let launch_args = LaunchArgs { kernel_args: &kernel_args, grid: [1; 3] };
            let multicast = multicast_loads.then_some(Multicast { axis: 1, step: 64, bytes: 1000 });
            let (map, dtypes) = (TensorMap { multicast, ..MATRIX }, [DType::I64, DType::BF16]);
            let request = map.request(&launch_args, &dtypes, true).unwrap_or_else(|cause| panic!("{cause}"));
            (map.multicast_loads(&launch_args, &dtypes), request.block[0], request.block[1])
        };
        assert_eq!(of(true, 0x80, &[300, 200, 208, 1]), (Some((4000, false)), 64, 64));
        assert_eq!(of(true, 0x80, &[300, 200, 200, 1]), (Some((4000, true)), 64, 64));
        assert_eq!(of(false, 0x80, &[300, 200, 200, 1]), (None, 64, 128));
        assert_eq!(of(true, 0x90, &[300, 192, 208, 1]), (Some((3000, true)), 64, 64));
        assert_eq!(of(true, 0x80, &[1, 200, 200, 1]), (Some((4000, false)), 64, 64));
    }

    #[test]
    fn the_innermost_axis_comes_first() {
        check(
            VECTOR,
            DType::F16,
            &[1000, 1],
            expect!["F16 (6) of [1000] by [] at 0x80, block [16], B32 (1)"],
        );
        check(
            MATRIX,
            DType::BF16,
            &[300, 200, 208, 1],
            expect!["BF16 (9) of [200, 300] by [416] at 0x80, block [64, 128], B128 (3)"],
        );
        check(
            BATCH,
            DType::F32,
            &[5, 300, 200, 0, 256, 1],
            expect!["F32 (7) of [200, 300, 5] by [1024, 0] at 0x80, block [16, 32, 2], B64 (2)"],
        );
        let five = view(&[1, 2, 3, 4, 16], 32);
        check(
            five,
            DType::I8,
            &[3, 4, 5, 6, 7, 960, 16, 48, 192, 1],
            expect![
                "U8 (0) of [7, 6, 5, 4, 3] by [192, 48, 16, 960] at 0x80, block [16, 4, 3, 2, 1], B32 (1)"
            ],
        );
        check(
            MATRIX,
            DType::F64,
            &[1 << 32, 1 << 36, 1 << 39, 1],
            expect![
                "F64 (8) of [68719476736, 4294967296] by [4398046511104] at 0x80, block [64, 128], B128 (3)"
            ],
        );
    }

    #[test]
    fn each_type_has_the_driver_s_number() {
        let text: String = DType::ALL
            .map(|dtype| match [DataType::of(dtype, false), DataType::of(dtype, true)] {
                [Some(plain), Some(tf32)] if plain != tf32 => {
                    format!("{dtype}: {plain:?} ({}), {tf32:?} ({})\n", plain as u32, tf32 as u32)
                }
                [Some(data_type), _] => format!("{dtype}: {data_type:?} ({})\n", data_type as u32),
                [None, _] => format!("{dtype}: none\n"),
            })
            .concat();
        expect![[r#"
            bool: none
            i8: U8 (0)
            i16: U16 (1)
            i32: I32 (3)
            i64: I64 (5)
            u8: U8 (0)
            u16: U16 (1)
            u32: U32 (2)
            u64: U64 (4)
            f8e4m3: U8 (0)
            f8e5m2: U8 (0)
            f16: F16 (6)
            bf16: BF16 (9)
            f32: F32 (7), TF32 (11)
            f64: F64 (8)
        "#]]
        .assert_eq(&text);
    }

    #[test]
    fn a_refusal_says_what_was_refused() {
        check(
            MATRIX,
            DType::Bool,
            &[300, 200, 208, 1],
            expect!["a map of `a` was refused: its elements cannot be bool"],
        );
        check(
            TensorMap { swizzle: 16, ..MATRIX },
            DType::F16,
            &[300, 200, 208, 1],
            expect!["a map of `a` was refused: its swizzle cannot be 16 bytes"],
        );
        check(
            TensorMap { block: &[], ..MATRIX },
            DType::F16,
            &[],
            expect!["a map of `a` was refused: these arguments give no view of rank 0"],
        );
        check(
            TensorMap { block: &[1; 6], ..MATRIX },
            DType::F16,
            &[1; 12],
            expect!["a map of `a` was refused: these arguments give no view of rank 6"],
        );
        check(
            MATRIX,
            DType::F16,
            &[300, 200],
            expect!["a map of `a` was refused: these arguments give no view of rank 2"],
        );
        check(
            MATRIX,
            DType::F16,
            &[300, -200, 208, 1],
            expect!["a map of `a` was refused: these arguments give no view of rank 2"],
        );
        check(
            TensorMap { param: 0, ..VECTOR },
            DType::F16,
            &[1000, 1],
            expect!["a map of `n` was refused: these arguments give no view of rank 1"],
        );
        let params = [Param { name: "a", kind: ParamKind::View(2) }];
        let text = |cause| EncodeFailure { param: 0, cause }.text(&params);
        expect!["a map of `a` was refused: the driver is older than CUDA 12"]
            .assert_eq(&text(Cause::OldDriver));
        expect!["a map of `a` was refused: CUDA_ERROR_INVALID_VALUE"]
            .assert_eq(&text(Cause::Driver(CUresult::CUDA_ERROR_INVALID_VALUE)));
    }
}

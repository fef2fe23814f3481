//! What the generated lists of cases are made of, and how a case gets its memory.
//!
//! Elements travel as their bits in a `u64`, so that one harness serves every element type. Inputs and outputs lie
//! inside larger buffers: outputs between canaries, and, in a shifted job, everything one element off its alignment.

use std::error::Error;

use dsl_runtime::{Buffer, DType, Device, Element, Slice, SliceMut, bf16, f8e4m3, f8e5m2, f16};

pub type Failure = Box<dyn Error + Send + Sync>;

/// The bits of every result of a launch.
pub type Results = Result<Vec<Vec<u64>>, Failure>;

/// How operand types determine the result's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TypeRule {
    /// All operands of one type, which is the result's.
    Same,
    /// All operands of one type; the result is `bool`.
    Compare,
    /// A `bool`, then two operands of one type, which is the result's.
    Select,
}

/// What an operation may do on a GPU to numbers below the smallest normal `f32` when it computes in `f32`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subnormal {
    Kept,
    /// A result may be zero.
    Result,
    /// An argument may count as zero.
    Argument,
}

/// Rows of the table that one kernel computes.
#[derive(Debug)]
pub struct Case {
    pub rule: TypeRule,
    pub params: usize,
    pub rows: &'static [Row],
    /// One for each element type of the rows' class; gives the rows' results in order.
    pub runs: &'static [Run],
}

/// One row of the table.
#[derive(Debug)]
pub struct Row {
    pub name: &'static str,
    /// The bound on the error of `f32`, in units in the last place; 0.5 is correctly rounded.
    pub ulp_f32: f64,
    pub ulp_f64: f64,
    pub subnormal: Subnormal,
    pub float: Option<fn(&[f64]) -> f64>,
    /// The magnitude that a result counts as at least in the bound.
    pub error_floor: Option<fn(&[f64]) -> f64>,
    pub int: Option<fn(&[i128], DType) -> i128>,
}

/// A kernel for one element type.
#[derive(Debug)]
pub struct Run {
    pub dtype: DType,
    pub run: fn(&Job) -> Results,
}

/// A kernel that was generated with what it computes.
#[derive(Debug)]
pub struct Program {
    pub seed: u64,
    /// Its source text.
    pub text: &'static str,
    /// Eight bytes for each element that it reads.
    pub input: &'static [u8],
    /// Eight bytes for each element that it must write.
    pub output: &'static [u8],
    pub dtype: DType,
    pub run: fn(&Job, usize) -> Results,
}

/// An element type whose values can be made from their bits.
pub trait Bits: Element {
    fn from_bits(bits: u64) -> Self;
}

macro_rules! bits {
    ($($ty:ty: |$bits:ident| $value:expr;)*) => {$(
        impl Bits for $ty {
            fn from_bits($bits: u64) -> Self {
                $value
            }
        }
    )*};
}

bits! {
    bool: |bits| bits & 1 != 0;
    i8: |bits| bits as i8;
    i16: |bits| bits as i16;
    i32: |bits| bits as i32;
    i64: |bits| bits as i64;
    u8: |bits| bits as u8;
    u16: |bits| bits as u16;
    u32: |bits| bits as u32;
    u64: |bits| bits;
    f8e4m3: |bits| f8e4m3::from_bits(bits as u8);
    f8e5m2: |bits| f8e5m2::from_bits(bits as u8);
    f16: |bits| f16::from_bits(bits as u16);
    bf16: |bits| bf16::from_bits(bits as u16);
    f32: |bits| f32::from_bits(bits as u32);
    f64: |bits| f64::from_bits(bits);
}

/// Elements as typed values.
pub fn typed<T: Bits>(bits: &[u64]) -> Vec<T> {
    bits.iter().map(|&bits| T::from_bits(bits)).collect()
}

/// Values as their bits.
pub fn untyped<T: Bits>(values: &[T]) -> Vec<u64> {
    values.iter().map(|value| value.bits()).collect()
}

/// Operands for one launch.
#[derive(Debug)]
pub struct Job {
    pub device: Device,
    /// Of one length.
    pub operands: Vec<Vec<u64>>,
    /// By how many elements inputs and outputs are shifted from the start of their buffers.
    pub shift: usize,
}

impl Job {
    /// The elements of a tile of the generated kernels.
    pub const BLOCK: usize = 1024;

    /// The programs that cover the operands.
    pub fn grid(&self) -> usize {
        self.operands[0].len().div_ceil(Self::BLOCK)
    }

    pub fn len(&self) -> i32 {
        self.operands[0].len() as i32
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Operand `index` in memory of the device.
    pub fn operand<T: Bits>(&self, index: usize) -> Result<Operand<T>, Failure> {
        Operand::new(&self.device, &typed::<T>(&self.operands[index]), self.shift)
    }

    /// Memory for `count` results of every element.
    pub fn output<T: Bits>(&self, count: usize) -> Result<Output<T>, Failure> {
        Output::new(&self.device, vec![self.operands[0].len(); count], self.shift)
    }
}

/// An input inside a larger buffer.
#[derive(Debug)]
pub struct Operand<T: Bits> {
    buffer: Buffer<T>,
    start: usize,
    len: usize,
}

impl<T: Bits> Operand<T> {
    pub fn new(device: &Device, values: &[T], shift: usize) -> Result<Operand<T>, Failure> {
        let mut all = vec![T::from_bits(CANARY); shift];
        all.extend_from_slice(values);
        all.extend([T::from_bits(CANARY); 64]);
        Ok(Operand { buffer: device.upload(&all)?, start: shift, len: values.len() })
    }
}

impl<'a, T: Bits> From<&'a Operand<T>> for Slice<'a, T> {
    fn from(operand: &'a Operand<T>) -> Self {
        operand.buffer.slice(operand.start..operand.start + operand.len)
    }
}

/// The canary around every input and output, and in every output before the launch.
const CANARY: u64 = 0x5a5a_a5a5_5a5a_a55b;

/// Canaries on either side of an output; keeps the output 64-byte aligned when nothing is shifted.
const MARGIN: usize = 64;

/// Results between canaries.
#[derive(Debug)]
pub struct Output<T: Bits> {
    buffer: Buffer<T>,
    start: usize,
    parts: Vec<usize>,
}

impl<T: Bits> Output<T> {
    /// Memory for parts of these lengths, one after the other.
    pub fn new(device: &Device, parts: Vec<usize>, shift: usize) -> Result<Output<T>, Failure> {
        let start = MARGIN + shift;
        let len: usize = parts.iter().sum();
        let all = vec![T::from_bits(CANARY); start + len + MARGIN];
        Ok(Output { buffer: device.upload(&all)?, start, parts })
    }

    /// Memory that holds values before the launch.
    pub fn holding(device: &Device, values: &[T], shift: usize) -> Result<Output<T>, Failure> {
        let mut all = vec![T::from_bits(CANARY); MARGIN + shift];
        all.extend_from_slice(values);
        all.extend([T::from_bits(CANARY); MARGIN]);
        Ok(Output { buffer: device.upload(&all)?, start: MARGIN + shift, parts: vec![values.len()] })
    }

    /// The value of an element that nothing wrote.
    pub fn untouched() -> u64 {
        T::from_bits(CANARY).bits()
    }

    /// What was written, part by part; an error if anything outside was written.
    pub fn finish(self) -> Results {
        let all = untyped(&self.buffer.download()?);
        let len: usize = self.parts.iter().sum();
        let outside = (0..self.start).chain(self.start + len..all.len());
        for index in outside {
            if all[index] != Self::untouched() {
                let place = index as i64 - self.start as i64;
                return Err(
                    format!("element {place} of an output of {len} was written: {:#x}", all[index]).into()
                );
            }
        }
        let mut rest = &all[self.start..self.start + len];
        let mut parts = vec![];
        for &part in &self.parts {
            let (own, others) = rest.split_at(part);
            parts.push(own.to_vec());
            rest = others;
        }
        Ok(parts)
    }
}

impl<'a, T: Bits> From<&'a mut Output<T>> for SliceMut<'a, T> {
    fn from(output: &'a mut Output<T>) -> Self {
        let len: usize = output.parts.iter().sum();
        output.buffer.slice_mut(output.start..output.start + len)
    }
}

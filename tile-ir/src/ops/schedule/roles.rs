//! Roles of warps, and the programs that a persistent block runs.

use super::{Operation, expect_storage, is_pipe, operand_fields, ordered};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::text::{FieldText, OperationText, TextWriter};
use crate::ir::{Block, Func, ParseError, TextReader, Type, Value};
use crate::ops::syntax::syntax;
use crate::ops::{Effect, expect_types};
use crate::support::dtype::DType;

/// Warps of the producer.
const PRODUCER_WARPS: u32 = 1;

/// What warps do in a warp-specialized kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// One thread of one warp issues loads.
    Producer,
    /// Warpgroups issue dots and store results.
    Consumer,
}

impl Role {
    /// In the order of their blocks.
    pub const ALL: [Role; 2] = [Role::Producer, Role::Consumer];

    pub fn name(self) -> &'static str {
        match self {
            Role::Producer => "producer",
            Role::Consumer => "consumer",
        }
    }
}

/// Runs two blocks at once, each in warps of its own, which meet only at barriers: one warp is the producer.
#[derive(Clone, Debug)]
pub struct WarpSpecialize {
    pub producer: Block,
    pub consumer: Block,
    /// Warpgroups of the consumers.
    pub warpgroups: u32,
    /// Registers of a thread of each role, where they are not the same.
    pub registers: Option<[u32; 2]>,
}

impl OperationText for WarpSpecialize {
    fn name(&self) -> &'static str {
        "warp_specialize"
    }

    fn write(&self, _: &mut TextWriter) {}

    fn is_named(name: &str) -> bool {
        name == "warp_specialize"
    }

    fn read(_: &str, _: &mut TextReader) -> Result<WarpSpecialize, ParseError> {
        let (producer, consumer) = (Block::default(), Block::default());
        Ok(WarpSpecialize { producer, consumer, warpgroups: 0, registers: None })
    }

    fn has_block_headers(&self) -> bool {
        true
    }

    /// `producer(warps 1, registers 24)`, `consumer(warpgroups 2, registers 240)`; registers stand at both or at none.
    fn write_block_header(&self, index: usize, out: &mut TextWriter) {
        let role = Role::ALL[index];
        let warps = match role {
            Role::Producer => format!("warps {PRODUCER_WARPS}"),
            Role::Consumer => format!("warpgroups {}", self.warpgroups),
        };
        let registers = self.registers.map(|own| format!(", registers {}", own[index])).unwrap_or_default();
        out.push(&format!("{}({warps}{registers})", role.name()));
    }

    fn read_block_header(&mut self, index: usize, input: &mut TextReader) -> Result<(), ParseError> {
        let role = Role::ALL[index];
        input.expect(role.name())?;
        input.expect("(")?;
        match role {
            Role::Producer => {
                input.expect("warps")?;
                input.expect(&PRODUCER_WARPS.to_string())?;
            }
            Role::Consumer => {
                input.expect("warpgroups")?;
                self.warpgroups = input.integer()?;
            }
        }
        if role == Role::Producer && input.take(",") {
            self.registers = Some([0; 2]);
            input.expect("registers")?;
        } else if self.registers.is_some() {
            input.expect(",")?;
            input.expect("registers")?;
        }
        if let Some(registers) = &mut self.registers {
            registers[index] = input.integer()?;
        }
        input.expect(")")
    }
}

impl Operation for WarpSpecialize {
    operand_fields!();

    fn blocks(&self) -> Vec<&Block> {
        vec![&self.producer, &self.consumer]
    }

    fn blocks_mut(&mut self) -> Vec<&mut Block> {
        vec![&mut self.producer, &mut self.consumer]
    }

    fn verify(&self, _: &Func, results: &[Value]) -> Result<(), String> {
        if self.warpgroups == 0 {
            return Err("there is no consumer".into());
        }
        if results.is_empty() { Ok(()) } else { Err("gives no result".into()) }
    }

    fn result_count(&self) -> usize {
        0
    }

    ordered!();
}

/// Runs the programs of a persistent block in one role, with carried pipeline states. The producer schedules them, from a counter
/// if `dynamic`, and publishes each ([`Publish`]); consumers take them from there.
#[derive(Clone, Debug)]
pub struct WorkTiles {
    pub role: Role,
    pub dynamic: bool,
    pub inits: Vec<Value>,
    /// Where work tiles are published.
    pub address: u32,
    /// Takes the published scalars if it is the consumers', then the carried states; yields the carried states.
    pub body: Block,
    /// The types of the published scalars.
    pub scalars: Vec<DType>,
}

impl WorkTiles {
    /// The arguments of the body that are published scalars.
    pub fn published(&self) -> &[Value] {
        let count = if self.role == Role::Consumer { self.scalars.len() } else { 0 };
        &self.body.args[..count]
    }

    /// The carried states as arguments of the body.
    pub fn states(&self) -> &[Value] {
        &self.body.args[self.published().len()..]
    }
}

syntax!(WorkTiles: "work_tiles" role [dynamic] ["at" address] [scalars] ["carry" inits] {body: Block::default()});

impl Operation for WorkTiles {
    fn block_args(&self, func: &Func, _: usize) -> Vec<Type> {
        let scalars = if self.role == Role::Consumer { &self.scalars[..] } else { &[] };
        let scalars = scalars.iter().map(|&dtype| Type::scalar(dtype));
        scalars.chain(self.inits.iter().map(|&init| func.ty(init).clone())).collect()
    }

    operand_fields!(inits);

    fn blocks(&self) -> Vec<&Block> {
        vec![&self.body]
    }

    fn blocks_mut(&mut self) -> Vec<&mut Block> {
        vec![&mut self.body]
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        if !results.is_empty() {
            return Err("gives no result".into());
        }
        for list in [self.states(), &self.body.yields] {
            expect_types("the number of carried states", list.len(), self.inits.len())?;
            for (&value, &init) in list.iter().zip(&self.inits) {
                expect_storage("a carried state", func, value, is_pipe)?;
                expect_types("a carried state", func.ty(value), func.ty(init))?;
            }
        }
        Ok(())
    }

    fn result_count(&self) -> usize {
        0
    }

    ordered!();
}

/// The producer publishes the current work tile: its program ids, and these scalars.
#[derive(Clone, Debug)]
pub struct Publish {
    pub scalars: Vec<Value>,
}

syntax!(Publish: "publish" [scalars]);

impl Operation for Publish {
    operand_fields!(scalars);

    fn verify(&self, func: &Func, _: &[Value]) -> Result<(), String> {
        let all = self.scalars.iter().all(|&scalar| func.ty(scalar).is_scalar());
        if all { Ok(()) } else { Err("a published value is no scalar".into()) }
    }

    fn result_count(&self) -> usize {
        0
    }

    ordered!();
}

/// A quotient of integer scalars that differs between programs; where the dividend is the smaller there is no division.
#[derive(Clone, Copy, Debug)]
pub struct TileQuotient {
    pub dividend: Value,
    pub divisor: Value,
}

syntax!(TileQuotient: "tile_quotient" dividend, divisor);

impl Operation for TileQuotient {
    operand_fields!(dividend, divisor);

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_types("the divisor", func.ty(self.divisor), func.ty(self.dividend))?;
        expect_types("the result", func.ty(results[0]), func.ty(self.dividend))
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Source
    }
}

/// Which blocks of views this program and that of the other block of the cluster both load. `offsets` computes the offsets that
/// do not change in a loop, those of one load after those of another, `counts` of each. The first result says that the launch has
/// clusters and this program has no peer, the others whether both load the same block.
#[derive(Clone, Debug)]
pub struct PeerShares {
    pub offsets: Block,
    pub counts: Vec<usize>,
}

syntax!(PeerShares: "peer_shares" [counts] {offsets: Block::default()});

impl Operation for PeerShares {
    fn result_count(&self) -> usize {
        1 + self.counts.len()
    }

    operand_fields!();

    fn blocks(&self) -> Vec<&Block> {
        vec![&self.offsets]
    }

    fn blocks_mut(&mut self) -> Vec<&mut Block> {
        vec![&mut self.offsets]
    }

    fn effect(&self) -> Effect {
        Effect::Write
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_types("the number of offsets", self.offsets.yields.len(), self.counts.iter().sum())?;
        expect_types("the number of results", results.len(), 1 + self.counts.len())?;
        let flag = Type::scalar(DType::Bool);
        results.iter().try_for_each(|&result| expect_types("a result", func.ty(result), &flag))
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Source
    }
}

impl FieldText for Role {
    fn write(&self, out: &mut TextWriter) {
        out.word(self.name());
    }

    fn read(input: &mut TextReader) -> Result<Role, ParseError> {
        input.one_of(&Role::ALL.map(|role| (role.name(), role)))
    }
}

/// Types of scalars, as `i32, i64`.
impl FieldText for Vec<DType> {
    fn write(&self, out: &mut TextWriter) {
        let types: Vec<String> = self.iter().map(DType::to_string).collect();
        out.word(&types.join(", "));
    }

    fn read(input: &mut TextReader) -> Result<Vec<DType>, ParseError> {
        input.list(TextReader::dtype)
    }

    fn absent() -> Option<Vec<DType>> {
        Some(vec![])
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

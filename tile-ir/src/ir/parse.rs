//! Tile IR from its text: the inverse of [`super::print`].
//!
//! ```text
//! kernel     = "kernel" name "(" [param {"," param}] ")" ["reports"] ["stating" number] ["viewing" shape {"and" shape}]
//!              ["assuming" assumption {"and" assumption}] block
//! param      = value name ":" dtype
//!            | name ":" "&" ["mut"] ("[" dtype "]" | "View" "<" dtype "," rank ">" view)
//! view       = ["transposed"] ["shape" "(" values ")"] ["stride" "(" values ")"]
//! shape      = name "[" sum {"," sum} "by" sum {"," sum} "]"
//! sum        = number {symbol} {"+" number {symbol}}
//! symbol     = name | "len" "(" name ")" | "num_programs" "(" axis ")" | "cdiv" "(" number {symbol} "," number {symbol} ")"
//! assumption = number "divides" name | number "<=" name | name "<=" number | "num_programs" "(" axis ")" "<=" number
//! block      = "{" ["|" values "|"] {operation} ["yield" values] "}"
//! operation  = [values "="] name operands {attribute} [":" types] ({block} | "{" {header block} "}")
//! attribute  = word [operand]
//! type       = dtype ["[" extents "]"]
//! ```
//!
//! Each operation says which operands and attributes it has (`ops::syntax`). A value has any name behind `%`, which is
//! known from its definition to the end of the block. What follows from types is not written: the types of a block's
//! arguments, the extents of a tile of a view that is loaded or stored. A view has the extents and strides that follow it
//! as parameters, unless others are written, `_` for one that is nowhere defined any more.

use std::collections::HashMap;

use proc_macro2::Span;

use super::assumption::Assumption;
use super::lexer::{ParseError, Token, TokenKind};
use super::reader::TextReader;
use super::verify::verify_operation;
use super::{Block, Func, Op, Param, ParamId, ParamKind, Type, Value, View, verify};
use crate::ops::{Kind, expect_types, read_operation};
use crate::support::diagnostic::Loc;
use crate::support::dtype::DType;

/// The function that a text is; it is verified.
pub fn parse(text: &str) -> Result<Func, ParseError> {
    let mut reader = TextReader::new(text, Loc::from(Span::call_site()))?;
    let start = reader.token();
    reader.kernel()?;
    reader.end()?;
    verify(&reader.func).map_err(|what| start.error(what))?;
    Ok(reader.func)
}

/// What a text says of a view.
struct ViewText<'t> {
    name: Token<'t>,
    memory: ParamId,
    rank: usize,
    transposed: bool,
    shape: Option<Vec<Token<'t>>>,
    strides: Option<Vec<Token<'t>>>,
}

fn expect_count(place: Token, of: &str, found: usize, wanted: usize) -> Result<(), ParseError> {
    expect_types(&format!("the number of {of}"), found, wanted).map_err(|what| place.error(what))
}

/// What stands for a value that is nowhere defined any more.
pub(super) const UNDEFINED: &str = "_";

impl<'t> TextReader<'t> {
    fn kernel(&mut self) -> Result<(), ParseError> {
        self.expect("kernel")?;
        self.func.name = self.take_kind(TokenKind::Word, "the name of the kernel")?.text.into();
        let views = self.params()?;
        self.func.reports = self.take("reports");
        if self.take("stating") {
            self.func.stated_multiple = Some(self.integer()?);
        }
        if self.take("viewing") {
            self.slice_view()?;
            while self.take("and") {
                self.slice_view()?;
            }
        }
        if self.take("assuming") {
            self.assumption()?;
            while self.take("and") {
                self.assumption()?;
            }
        }
        self.expect("{")?;
        self.func.body.ops = self.operations()?;
        self.expect("}")?;
        // Only now is everything defined that may be an extent or a stride.
        views.iter().try_for_each(|view| self.other_extents(view))
    }

    fn params(&mut self) -> Result<Vec<ViewText<'t>>, ParseError> {
        self.expect("(")?;
        let mut views = vec![];
        let mut more = !self.begins(")");
        while more {
            let param = if self.begins_value() { self.scalar()? } else { self.memory_param(&mut views)? };
            self.func.params.push(param);
            more = self.take(",");
        }
        self.expect(")")?;
        for ViewText { name, memory, rank, transposed, .. } in &views {
            let mut view = View::of_params(&self.func.params, *memory, *rank).ok_or_else(|| {
                name.error(format!("the extents and strides of `{}` do not follow it", name.text))
            })?;
            if *transposed {
                view.transpose();
            }
            self.func.views.push(view);
        }
        Ok(views)
    }

    fn scalar(&mut self) -> Result<Param, ParseError> {
        let token = self.value_name()?;
        let name = self.param_name()?;
        self.expect(":")?;
        let dtype = self.dtype()?;
        let value = self.func.value(Type::scalar(dtype));
        self.define(token, value)?;
        Ok(Param { name, kind: ParamKind::Scalar { value, dtype } })
    }

    /// A slice or a view.
    fn memory_param(&mut self, views: &mut Vec<ViewText<'t>>) -> Result<Param, ParseError> {
        let token = self.token();
        let name = self.param_name()?;
        self.expect(":")?;
        self.expect("&")?;
        let mutable = self.take("mut");
        if self.take("[") {
            let elem = self.dtype()?;
            self.expect("]")?;
            return Ok(Param { name, kind: ParamKind::Slice { elem, mutable } });
        }
        self.expect("View")?;
        self.expect("<")?;
        let elem = self.dtype()?;
        self.expect(",")?;
        let rank: u8 = self.integer()?;
        let rank = usize::from(rank);
        self.expect(">")?;
        let memory = ParamId(self.func.params.len() as u32);
        let transposed = rank > 1 && self.take("transposed");
        let shape = if self.take("shape") { Some(self.view_values()?) } else { None };
        let strides = if self.take("stride") { Some(self.view_values()?) } else { None };
        views.push(ViewText { name: token, memory, rank, transposed, shape, strides });
        Ok(Param { name, kind: ParamKind::Slice { elem, mutable } })
    }

    /// The names of values that the body may define.
    fn view_values(&mut self) -> Result<Vec<Token<'t>>, ParseError> {
        self.expect("(")?;
        let names = self.list(|reader| {
            let token = reader.token();
            if reader.take(UNDEFINED) { Ok(token) } else { reader.value_name() }
        })?;
        self.expect(")")?;
        Ok(names)
    }

    /// Gives a view the extents and strides that are written behind it.
    fn other_extents(&mut self, text: &ViewText<'t>) -> Result<(), ParseError> {
        let shape = text.shape.as_ref().map(|names| self.view_scalars(text, names)).transpose()?;
        let strides = text.strides.as_ref().map(|names| self.view_scalars(text, names)).transpose()?;
        let view = self.func.views.iter_mut().find(|view| view.memory == text.memory);
        let view = view.expect("a view for each of these texts");
        view.shape = shape.unwrap_or_else(|| view.shape.clone());
        view.strides = strides.unwrap_or_else(|| view.strides.clone());
        Ok(())
    }

    fn view_scalars(&mut self, view: &ViewText<'t>, names: &[Token<'t>]) -> Result<Vec<Value>, ParseError> {
        expect_count(view.name, "values", names.len(), view.rank)?;
        let scalar = |&name: &Token<'t>| {
            let fresh = Type::scalar(DType::I64);
            if name.text == UNDEFINED { Ok(self.func.value(fresh)) } else { self.known(name) }
        };
        names.iter().map(scalar).collect()
    }

    fn assumption(&mut self) -> Result<(), ParseError> {
        let token = self.token();
        let assumption = if self.begins_call("num_programs") {
            self.expect("(")?;
            let axis = self.integer()?;
            self.expect(")")?;
            self.expect("<=")?;
            Assumption::Programs(axis, self.integer()?)
        } else if token.kind != TokenKind::Number {
            let scalar = self.scalar_param()?;
            self.expect("<=")?;
            Assumption::AtMost(scalar, self.integer()?)
        } else {
            let number: i64 = self.integer()?;
            if self.take("divides") {
                let by = u32::try_from(number).ok().filter(|by| by.is_power_of_two());
                let by = by.ok_or_else(|| token.error("expected a power of two".into()))?;
                Assumption::Multiple(self.scalar_param()?, by)
            } else {
                self.expect("<=")?;
                Assumption::AtLeast(self.scalar_param()?, number)
            }
        };
        self.func.assumptions.push(assumption);
        Ok(())
    }

    // ---- operations

    /// Operations up to the end of their block.
    fn operations(&mut self) -> Result<Vec<Op>, ParseError> {
        let mut ops = vec![];
        while !self.begins("yield") && !self.begins("}") {
            ops.push(self.operation()?);
        }
        Ok(ops)
    }

    fn operation(&mut self) -> Result<Op, ParseError> {
        let mut results = vec![];
        if self.begins_value() {
            results = self.list(TextReader::value_name)?;
            self.expect("=")?;
        }
        let name = self.take_kind(TokenKind::Word, "an operation")?;
        let mut kind = read_operation(name.text, self)
            .unwrap_or_else(|| Err(name.error(format!("there is no operation `{}`", name.text))))?;
        let values = self.results(&results)?;
        kind.operation_mut().infer(&self.func, &values);
        self.blocks(&mut kind)?;
        let op = Op { kind, results: values, loc: self.func.loc };
        verify_operation(&self.func, &op).map_err(|what| name.error(what))?;
        for (name, &value) in results.into_iter().zip(&op.results) {
            self.define(name, value)?;
        }
        Ok(op)
    }

    /// Values for results, of the types that stand here.
    fn results(&mut self, names: &[Token<'t>]) -> Result<Vec<Value>, ParseError> {
        if names.is_empty() {
            return Ok(vec![]);
        }
        self.expect(":")?;
        let start = self.token();
        let types = self.list(TextReader::ty)?;
        expect_count(start, "types", types.len(), names.len())?;
        Ok(types.into_iter().map(|ty| self.func.value(ty)).collect())
    }

    fn blocks(&mut self, kind: &mut Kind) -> Result<(), ParseError> {
        let has_headers = kind.operation().has_block_headers();
        if has_headers {
            self.expect("{")?;
        }
        for index in 0..kind.operation().blocks().len() {
            kind.operation_mut().read_block_header(index, self)?;
            let types = kind.operation().block_args(&self.func, index);
            let isolated = kind.operation().isolated();
            let inside = if isolated { HashMap::new() } else { self.names.clone() };
            let outside = std::mem::replace(&mut self.names, inside);
            let block = self.block(types)?;
            self.names = outside;
            *kind.operation_mut().blocks_mut().swap_remove(index) = block;
        }
        if has_headers { self.expect("}") } else { Ok(()) }
    }

    fn block(&mut self, types: Vec<Type>) -> Result<Block, ParseError> {
        self.expect("{")?;
        let mut args = vec![];
        let start = self.token();
        if self.take("|") {
            args = self.list(TextReader::value_name)?;
            self.expect("|")?;
        }
        expect_count(start, "the block's arguments", args.len(), types.len())?;
        let args = args.into_iter().zip(types).map(|(arg, ty)| {
            let value = self.func.value(ty);
            self.define(arg, value)
        });
        let args = args.collect::<Result<Vec<Value>, ParseError>>()?;
        let ops = self.operations()?;
        let yields = if self.take("yield") { self.list(TextReader::value)? } else { vec![] };
        self.expect("}")?;
        Ok(Block { args, ops, yields })
    }
}

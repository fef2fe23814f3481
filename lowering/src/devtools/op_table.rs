//! Tests of the lanewise table: the expansion of `op_table!` in the crate that runs them.
//!
//! Takes the table; gives one kernel for all rows of one signature (class of element types, typing rule, number of
//! operands), one for all conversions, and lists with the name of each row, its reference, its error bound and
//! how to run it on each element type. A row added to the table is tested without anyone writing a test.
//!
//! The expansion uses `crate::case`, where the calling crate declares the types of the lists.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote};
use tile_ir::ops::scalar::{ORACLE_SOURCE, Oracle, ScalarOp, TABLE, TypeRule, elementary};
use tile_ir::support::dtype::{Class, DType};

/// Rows that one kernel computes: they share class, rule and number of operands.
struct TableGroup {
    kernel: Ident,
    rows: Vec<&'static ScalarOp>,
}

/// The elements of a tile in the generated kernels.
const BLOCK: u32 = 1024;

/// Expands `op_table!()`.
pub fn op_table() -> TokenStream {
    let groups = groups();
    let kernels = groups.iter().map(kernel);
    let cases = groups.iter().map(case);
    let (cast, cast_runs) = (cast_kernel(), cast_runs());
    let oracles = text(ORACLE_SOURCE);
    quote! {
        use crate::case::{Case, Job, Row, TypeRule, Run, Subnormal};
        use dsl_runtime::prelude::*;

        #oracles
        #(#kernels)*
        #cast

        /// The lanewise table, rows of one signature together.
        pub static CASES: &[Case] = &[#(#cases),*];

        /// Every element type converted to every element type, in the order of `DType::ALL`.
        pub static CASTS: &[Run] = &[#(#cast_runs),*];
    }
}

fn groups() -> Vec<TableGroup> {
    let mut groups: Vec<TableGroup> = vec![];
    for row in TABLE.iter().chain(elementary::FUNCTIONS) {
        let class =
            if row.class == Class::Any { "any".into() } else { row.class.describe().replace(' ', "_") };
        let rule = format!("{:?}", row.rule).to_lowercase();
        let kernel = format_ident!("{class}_{rule}_{}", row.params.len());
        match groups.iter_mut().find(|group| group.kernel == kernel) {
            Some(group) => group.rows.push(row),
            None => groups.push(TableGroup { kernel, rows: vec![row] }),
        }
    }
    groups
}

impl TableGroup {
    fn signature_row(&self) -> &'static ScalarOp {
        self.rows[0]
    }

    /// The operands' element types when the type parameter is `elem`.
    fn operand_types(&self, elem: &Ident) -> Vec<Ident> {
        let is_condition = |i: usize| self.signature_row().rule == TypeRule::Select && i == 0;
        (0..self.signature_row().params.len())
            .map(|i| if is_condition(i) { name(DType::Bool) } else { elem.clone() })
            .collect()
    }

    fn result_type(&self, elem: &Ident) -> Ident {
        if self.signature_row().rule == TypeRule::Compare { name(DType::Bool) } else { elem.clone() }
    }
}

/// The kernel of a group: row `i` writes the `i`th `n` elements of `out`.
fn kernel(group: &TableGroup) -> TokenStream {
    let TableGroup { kernel, rows } = group;
    let class = group.signature_row().class;
    let (members, bound) = (class.members().map(name), bound(class));
    let elem = Ident::new("T", Span::call_site());
    let inputs = operands(group);
    let types = group.operand_types(&elem);
    let result = group.result_type(&elem);
    let block = Literal::u32_unsuffixed(BLOCK);
    let stores = rows.iter().enumerate().map(|(i, row)| {
        let value = expression(row, &inputs);
        let index = Literal::usize_unsuffixed(i);
        quote! { tl::store(out + #index * n + offsets, #value, mask); }
    });
    quote! {
        #[fuse_kernel(T = [#(#members),*], unreported)]
        fn #kernel<T: #bound>(#(#inputs: &[#types],)* out: &mut [#result], n: i32) {
            let offsets = tl::program_id(0) * #block + tl::arange(0, #block);
            let mask = offsets < n;
            #(let #inputs = tl::load(#inputs + offsets, mask);)*
            #(#stores)*
        }
    }
}

/// `x`, `y`, ..: the kernel's operands.
fn operands(group: &TableGroup) -> Vec<Ident> {
    (0..group.signature_row().params.len()).map(|i| format_ident!("operand_{i}")).collect()
}

/// How a user writes the row.
fn expression(row: &ScalarOp, operands: &[Ident]) -> TokenStream {
    match (row.binary, row.unary, operands) {
        (Some(op), _, [x, y]) => {
            let symbol = text(op.symbol());
            quote! { #x #symbol #y }
        }
        (_, Some(op), [x]) => {
            let symbol = text(op.symbol());
            quote! { #symbol #x }
        }
        _ => {
            let name = Ident::new(row.name, Span::call_site());
            quote! { tl::#name(#(#operands),*) }
        }
    }
}

/// The harness's `Case` of a group.
fn case(group: &TableGroup) -> TokenStream {
    let TableGroup { kernel, rows } = group;
    let operands = operands(group);
    let count = Literal::usize_unsuffixed(rows.len());
    let runs = group.signature_row().class.members().map(|dtype| {
        let elem = name(dtype);
        let (types, result) = (group.operand_types(&elem), group.result_type(&elem));
        let indices = (0..operands.len()).map(Literal::usize_unsuffixed);
        let label = variant(dtype);
        quote! {
            Run {
                dtype: #label,
                run: |job: &Job| {
                    #(let #operands = job.operand::<#types>(#indices)?;)*
                    let mut out = job.output::<#result>(#count)?;
                    let call = #kernel::<#elem>(#(&#operands,)* &mut out, job.len());
                    call.grid(job.grid()).launch(&job.device)?;
                    out.finish()
                },
            }
        }
    });
    let rule = debug_name(group.signature_row().rule);
    let params = Literal::usize_unsuffixed(operands.len());
    let rows = rows.iter().map(|row| row_data(row));
    quote! {
        Case { rule: TypeRule::#rule, params: #params, rows: &[#(#rows),*], runs: &[#(#runs),*] }
    }
}

fn row_data(row: &ScalarOp) -> TokenStream {
    let ScalarOp { name, ulp, .. } = row;
    let (f32, f64) = (ulp.f32, ulp.f64);
    let subnormal = debug_name(row.subnormal);
    let (float, int) = (oracle(row.float.as_ref()), oracle(row.int.as_ref()));
    let error_floor = oracle(row.error_floor.as_ref());
    quote! {
        Row { name: #name, ulp_f32: #f32, ulp_f64: #f64, subnormal: Subnormal::#subnormal, float: #float, error_floor: #error_floor, int: #int }
    }
}

fn oracle<F>(oracle: Option<&Oracle<F>>) -> TokenStream {
    match oracle {
        Some(oracle) => {
            let source = text(oracle.source);
            quote! { ::core::option::Option::Some(#source) }
        }
        None => quote! { ::core::option::Option::None },
    }
}

// ---- conversions

/// One element type to every element type.
fn cast_kernel() -> TokenStream {
    let members: Vec<Ident> = DType::ALL.map(name).to_vec();
    let outs: Vec<Ident> = DType::ALL.iter().map(|dtype| format_ident!("to_{}", dtype.name())).collect();
    let block = Literal::u32_unsuffixed(BLOCK);
    quote! {
        #[fuse_kernel(T = [#(#members),*], unreported)]
        fn cast<T: Element>(x: &[T], #(#outs: &mut [#members],)* n: i32) {
            let offsets = tl::program_id(0) * #block + tl::arange(0, #block);
            let mask = offsets < n;
            let x = tl::load(x + offsets, mask);
            #(tl::store(#outs + offsets, x.to::<#members>(), mask);)*
        }
    }
}

fn cast_runs() -> Vec<TokenStream> {
    let members: Vec<Ident> = DType::ALL.map(name).to_vec();
    let outs: Vec<Ident> = DType::ALL.iter().map(|dtype| format_ident!("to_{}", dtype.name())).collect();
    let run = |dtype: DType| {
        let (elem, label) = (name(dtype), variant(dtype));
        quote! {
            Run {
                dtype: #label,
                run: |job: &Job| {
                    let x = job.operand::<#elem>(0)?;
                    #(let mut #outs = job.output::<#members>(1)?;)*
                    let call = cast::<#elem>(&x, #(&mut #outs,)* job.len());
                    call.grid(job.grid()).launch(&job.device)?;
                    let mut all = vec![];
                    #(all.extend(#outs.finish()?);)*
                    Ok(all)
                },
            }
        }
    };
    DType::ALL.into_iter().map(run).collect()
}

// ---- names

/// The element type as Rust writes it.
fn name(dtype: DType) -> Ident {
    Ident::new(dtype.name(), Span::call_site())
}

/// The element type as data.
fn variant(dtype: DType) -> TokenStream {
    let variant = debug_name(dtype);
    quote! { DType::#variant }
}

/// A variant of an enum that the calling crate declares alike.
fn debug_name(value: impl std::fmt::Debug) -> Ident {
    Ident::new(&format!("{value:?}"), Span::call_site())
}

/// The narrowest bound that the language has for a class.
fn bound(class: Class) -> Ident {
    let bound = match class {
        Class::Float => "Float",
        Class::Integer => "Integer",
        Class::Number | Class::Signed => "Number",
        Class::Bits | Class::Bool | Class::Computed | Class::Any => "Element",
    };
    Ident::new(bound, Span::call_site())
}

/// Source text of the table as tokens.
fn text(source: &str) -> TokenStream {
    source.parse().expect("the table's own source text is Rust")
}

//! Which PTX a kernel may have: statements that compute from registers to registers.
//!
//! A safe kernel reaches memory through its slices and views alone, and its threads run what the compiler schedules. So the text is
//! parsed, and all that is not on a list is refused. A statement writes a result or a register that the text declares, and reads these, the
//! operands, numbers and special registers: it knows none of the registers around it.

use std::iter::Peekable;
use std::str::Chars;

/// Instructions that compute from registers to registers, whatever their modifiers are.
const INSTRUCTIONS: &[&str] = &[
    // Arithmetic.
    "abs",
    "add",
    "addc",
    "copysign",
    "cos",
    "div",
    "dp2a",
    "dp4a",
    "ex2",
    "fma",
    "lg2",
    "mad",
    "mad24",
    "madc",
    "max",
    "min",
    "mul",
    "mul24",
    "neg",
    "rcp",
    "rem",
    "rsqrt",
    "sad",
    "sin",
    "sqrt",
    "sub",
    "subc",
    "tanh",
    "testp",
    // Logic and bits.
    "and",
    "bfe",
    "bfi",
    "bfind",
    "bmsk",
    "brev",
    "clz",
    "cnot",
    "fns",
    "lop3",
    "not",
    "or",
    "popc",
    "prmt",
    "shf",
    "shl",
    "shr",
    "szext",
    "xor",
    // Conversion, comparison and selection.
    "cvt",
    "mov",
    "selp",
    "set",
    "setp",
    "slct",
    // Video.
    "vabsdiff",
    "vabsdiff2",
    "vabsdiff4",
    "vadd",
    "vadd2",
    "vadd4",
    "vavrg2",
    "vavrg4",
    "vmad",
    "vmax",
    "vmax2",
    "vmax4",
    "vmin",
    "vmin2",
    "vmin4",
    "vset",
    "vset2",
    "vset4",
    "vshl",
    "vshr",
    "vsub",
    "vsub2",
    "vsub4",
];

/// Special registers, without their axes.
const SPECIAL_REGISTERS: &[&str] = &[
    "%clock",
    "%clock64",
    "%clock_hi",
    "%ctaid",
    "%globaltimer",
    "%globaltimer_hi",
    "%globaltimer_lo",
    "%laneid",
    "%lanemask_eq",
    "%lanemask_ge",
    "%lanemask_gt",
    "%lanemask_le",
    "%lanemask_lt",
    "%nctaid",
    "%nsmid",
    "%ntid",
    "%nwarpid",
    "%smid",
    "%tid",
    "%warpid",
    "WARP_SZ",
];

/// What inline PTX may have.
pub(super) const ALLOWED: &str = "inline PTX computes from registers to registers, in an `unchecked` kernel too: arithmetic, logic, shifts, conversions, comparisons, selections, `mov`, bit and video instructions, predicates, and `.reg` in braces";

/// A mistake in the text, and whether the list of what is allowed helps.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Problem {
    pub text: String,
    pub about_list: bool,
}

type Judged<T> = Result<T, Problem>;

fn problem<T>(text: impl Into<String>) -> Judged<T> {
    Err(Problem { text: text.into(), about_list: false })
}

fn refused<T>(text: impl Into<String>) -> Judged<T> {
    Err(Problem { text: text.into(), about_list: true })
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum PtxToken {
    /// `$0`
    Operand(usize),
    /// A name with its modifiers: `add.f32`, `.reg`, `%tid.x`.
    Word(String),
    /// A number begins with a digit.
    Number(String),
    Sign(char),
}

impl PtxToken {
    fn text(&self) -> String {
        match self {
            PtxToken::Operand(index) => format!("${index}"),
            PtxToken::Word(text) | PtxToken::Number(text) => text.clone(),
            PtxToken::Sign(sign) => sign.to_string(),
        }
    }
}

/// The tokens of a text without its comments, given the number of results and operands together.
fn tokens(text: &str, operands: usize) -> Judged<Vec<PtxToken>> {
    let mut rest = text.chars().peekable();
    let mut tokens = vec![];
    while let Some(first) = rest.next() {
        tokens.push(match first {
            ' ' | '\t' | '\n' => continue,
            '/' => {
                comment(&mut rest)?;
                continue;
            }
            '$' => {
                let digits = run(&mut rest, String::new(), |c| c.is_ascii_digit());
                match digits.parse::<usize>() {
                    Ok(index) if index < operands => PtxToken::Operand(index),
                    Ok(index) => {
                        return problem(format!(
                            "`${index}` stands for nothing: there are {operands} results and operands"
                        ));
                    }
                    Err(_) => return problem("`$` is followed by the number of an operand"),
                }
            }
            c if c.is_ascii_digit() => {
                PtxToken::Number(run(&mut rest, c.into(), |c| c.is_ascii_alphanumeric() || c == '.'))
            }
            c if c.is_ascii_alphabetic() || ['_', '%', '.'].contains(&c) => {
                let in_word = |c: char| c.is_ascii_alphanumeric() || ['_', '.'].contains(&c);
                let mut word = run(&mut rest, c.into(), in_word);
                while rest.clone().take(2).eq([':', ':']) {
                    word.extend(rest.by_ref().take(2));
                    word = run(&mut rest, word, in_word);
                }
                PtxToken::Word(word)
            }
            sign => PtxToken::Sign(sign),
        });
    }
    Ok(tokens)
}

/// The characters that satisfy a condition, behind `word`.
fn run(rest: &mut Peekable<Chars>, mut word: String, takes: impl Fn(char) -> bool) -> String {
    while let Some(next) = rest.next_if(|&c| takes(c)) {
        word.push(next);
    }
    word
}

/// Skips a comment whose first `/` is read.
fn comment(rest: &mut Peekable<Chars>) -> Judged<()> {
    match rest.next() {
        Some('/') => {
            rest.find(|&c| c == '\n');
            Ok(())
        }
        Some('*') => {
            let mut last = ' ';
            let end = rest.find(|&c| {
                c == '/' && std::mem::replace(&mut last, c) == '*' || {
                    last = c;
                    false
                }
            });
            if end.is_some() { Ok(()) } else { problem("a comment does not end") }
        }
        _ => refused("`/` is not part of inline PTX"),
    }
}

/// What is wrong with the statements, given the number of results and that of operands.
pub(super) fn check(text: &str, results: usize, operands: usize) -> Judged<()> {
    let tokens = tokens(text, results + operands)?;
    let mut parser = PtxParser { tokens, position: 0, scopes: vec![], results: vec![false; results] };
    while parser.position < parser.tokens.len() {
        parser.statement()?;
    }
    if !parser.scopes.is_empty() {
        return problem("`{` is not closed");
    }
    match parser.results.iter().position(|is_written| !is_written) {
        Some(0) if results == 1 => problem("nothing is written to `$0`, the result"),
        Some(index) => problem(format!("nothing is written to `${index}`, a result")),
        None => Ok(()),
    }
}

struct PtxParser {
    tokens: Vec<PtxToken>,
    position: usize,
    /// The registers that each open brace has declared.
    scopes: Vec<Vec<String>>,
    /// Whether each result is written.
    results: Vec<bool>,
}

impl PtxParser {
    fn next(&mut self) -> Option<PtxToken> {
        let token = self.tokens.get(self.position).cloned();
        self.position += 1;
        token
    }

    fn take(&mut self, sign: char) -> bool {
        let found = self.tokens.get(self.position) == Some(&PtxToken::Sign(sign));
        self.position += usize::from(found);
        found
    }

    /// Whether the text declares a register, whose component `name` may be.
    fn is_declared(&self, name: &str) -> bool {
        let register = name.split('.').next().unwrap_or_default();
        self.scopes.iter().flatten().any(|declared| declared == register)
    }

    fn statement(&mut self) -> Judged<()> {
        if self.take(';') {
            return Ok(());
        }
        if self.take('{') {
            self.scopes.push(vec![]);
            return Ok(());
        }
        if self.take('}') {
            return if self.scopes.pop().is_some() { Ok(()) } else { problem("`}` closes nothing") };
        }
        let guard = self.take('@').then(|| {
            self.take('!');
            self.next()
        });
        let name = match self.next() {
            Some(PtxToken::Word(name)) => name,
            Some(other) => {
                return refused(format!("a statement begins with an instruction, found `{}`", other.text()));
            }
            None => return problem("an instruction is missing at the end"),
        };
        if self.take(':') {
            return refused(format!("`{name}:` is a label, and nothing jumps in inline PTX"));
        }
        if name == ".reg" {
            return self.declaration();
        }
        if name.starts_with('.') {
            return refused(format!("the directive `{name}` does more than declare registers"));
        }
        if !INSTRUCTIONS.contains(&name.split('.').next().unwrap_or_default()) {
            return refused(format!("`{name}` does more than compute with registers"));
        }
        match guard.flatten() {
            Some(PtxToken::Word(predicate)) if self.is_declared(&predicate) => {}
            Some(other) => {
                let found = other.text();
                return problem(format!(
                    "`@` is followed by a predicate that `.reg` declares, found `{found}`"
                ));
            }
            None => {}
        }
        self.operands(&name)
    }

    /// `.reg` up to `;`
    fn declaration(&mut self) -> Judged<()> {
        if self.scopes.is_empty() {
            return problem(
                "`.reg` stands in braces, for the text may be there several times: `{ .reg .f32 t; .. }`",
            );
        }
        loop {
            match self.next() {
                Some(PtxToken::Word(name)) if name.starts_with('.') => {}
                Some(PtxToken::Word(name)) if !name.starts_with('%') && !name.contains('.') => {
                    self.scopes.last_mut().expect("a scope").push(name);
                }
                Some(PtxToken::Sign(',')) => {}
                Some(PtxToken::Sign(';')) => return Ok(()),
                Some(other) => {
                    return problem(format!(
                        "`.reg` declares names of letters, such as `t`, found `{}`",
                        other.text()
                    ));
                }
                None => return problem("`.reg` ends with `;`"),
            }
        }
    }

    /// The operands of an instruction, the one that it writes first.
    fn operands(&mut self, instruction: &str) -> Judged<()> {
        let (mut writes, mut depth) = (true, 0);
        loop {
            match self.next() {
                Some(PtxToken::Operand(index)) if writes && index < self.results.len() => {
                    self.results[index] = true;
                }
                Some(PtxToken::Operand(index)) if writes => {
                    return problem(format!(
                        "`{instruction}` writes `${index}`, an operand: write a result or a register of `.reg`"
                    ));
                }
                Some(PtxToken::Word(name)) if self.is_declared(&name) || name == "_" => {}
                Some(PtxToken::Word(name)) if !writes && is_special(&name) => {}
                Some(PtxToken::Word(name)) => {
                    return problem(format!("`{name}` is no register that `.reg` declares"));
                }
                Some(PtxToken::Operand(_)) => {}
                Some(PtxToken::Number(_) | PtxToken::Sign('-' | '!')) if !writes => {}
                Some(PtxToken::Sign('|')) if writes => {}
                Some(PtxToken::Sign('{')) if depth == 0 => depth = 1,
                Some(PtxToken::Sign('}')) if depth == 1 => depth = 0,
                Some(PtxToken::Sign(',')) => writes &= depth == 1,
                Some(PtxToken::Sign(';')) if depth == 0 => return Ok(()),
                Some(other) => {
                    return refused(format!(
                        "`{}` is not part of an operand of `{instruction}`",
                        other.text()
                    ));
                }
                None => return problem(format!("`{instruction}` ends with `;`")),
            }
        }
    }
}

/// Whether a name is a special register, or an axis of one.
fn is_special(name: &str) -> bool {
    let (register, axis) = name.split_once('.').unwrap_or((name, "x"));
    SPECIAL_REGISTERS.contains(&register) && ["x", "y", "z"].contains(&axis)
}

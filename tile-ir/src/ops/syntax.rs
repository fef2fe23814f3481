//! The text of an operation, declared once: [`syntax`] makes the printing and the parsing of it.

/// Declares how an operation is written: its name, then its fields as they follow each other.
///
/// | item | what it is in the text |
/// | --- | --- |
/// | `field` | the field |
/// | `,` | a comma |
/// | `[field]` | the field's name as a word, and the field; nothing where the field is absent |
/// | `["word" field]` | the same with another word |
/// | `{field: value}` | nothing: a field that is read as `value`, until its block is read or it is inferred |
macro_rules! syntax {
    ($op:ident: $name:literal $($item:tt)*) => {
        impl crate::ir::text::OperationText for $op {
            fn name(&self) -> &'static str {
                $name
            }

            fn write(&self, out: &mut crate::ir::text::TextWriter) {
                crate::ops::syntax::syntax!(@write self out $($item)*);
            }

            fn is_named(name: &str) -> bool {
                name == $name
            }

            fn read(
                _: &str,
                input: &mut crate::ir::TextReader,
            ) -> Result<$op, crate::ir::ParseError> {
                crate::ops::syntax::syntax!(@read input $op [] $($item)*)
            }
        }
    };
    (@write $self:ident $out:ident) => { let _ = &$out; };
    (@write $self:ident $out:ident , $($rest:tt)*) => {
        $out.push(",");
        crate::ops::syntax::syntax!(@write $self $out $($rest)*);
    };
    (@write $self:ident $out:ident $field:ident $($rest:tt)*) => {
        crate::ir::text::FieldText::write(&$self.$field, $out);
        crate::ops::syntax::syntax!(@write $self $out $($rest)*);
    };
    (@write $self:ident $out:ident [$field:ident] $($rest:tt)*) => {
        $out.attribute(stringify!($field), &$self.$field);
        crate::ops::syntax::syntax!(@write $self $out $($rest)*);
    };
    (@write $self:ident $out:ident [$word:literal $field:ident] $($rest:tt)*) => {
        $out.attribute($word, &$self.$field);
        crate::ops::syntax::syntax!(@write $self $out $($rest)*);
    };
    (@write $self:ident $out:ident {$field:ident: $value:expr} $($rest:tt)*) => {
        crate::ops::syntax::syntax!(@write $self $out $($rest)*);
    };
    (@read $input:ident $op:ident [$($fields:ident)*]) => {{
        let _ = &$input;
        Ok($op { $($fields),* })
    }};
    (@read $input:ident $op:ident [$($fields:ident)*] , $($rest:tt)*) => {{
        $input.expect(",")?;
        crate::ops::syntax::syntax!(@read $input $op [$($fields)*] $($rest)*)
    }};
    (@read $input:ident $op:ident [$($fields:ident)*] $field:ident $($rest:tt)*) => {{
        let $field = crate::ir::text::FieldText::read($input)?;
        crate::ops::syntax::syntax!(@read $input $op [$($fields)* $field] $($rest)*)
    }};
    (@read $input:ident $op:ident [$($fields:ident)*] [$field:ident] $($rest:tt)*) => {{
        let $field = $input.attribute(stringify!($field))?;
        crate::ops::syntax::syntax!(@read $input $op [$($fields)* $field] $($rest)*)
    }};
    (@read $input:ident $op:ident [$($fields:ident)*] [$word:literal $field:ident] $($rest:tt)*) => {{
        let $field = $input.attribute($word)?;
        crate::ops::syntax::syntax!(@read $input $op [$($fields)* $field] $($rest)*)
    }};
    (@read $input:ident $op:ident [$($fields:ident)*] {$field:ident: $value:expr} $($rest:tt)*) => {{
        let $field = $value;
        crate::ops::syntax::syntax!(@read $input $op [$($fields)* $field] $($rest)*)
    }};
}

pub(crate) use syntax;

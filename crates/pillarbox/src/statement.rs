//! SQL statements with the table names filled in, rendered once.

use std::sync::{Arc, OnceLock};

/// A SQL file, and its text with the names filled in after the first use.
#[derive(Debug)]
pub(crate) struct Statement {
    template: &'static str,
    rendered: OnceLock<Arc<str>>,
}

impl Statement {
    pub(crate) const fn new(template: &'static str) -> Self {
        Self {
            template,
            rendered: OnceLock::new(),
        }
    }

    /// `render` must always fill in the same names, because it is called only once.
    pub(crate) fn rendered(&self, render: impl FnOnce(&str) -> String) -> &Arc<str> {
        self.rendered.get_or_init(|| render(self.template).into())
    }
}

/// A struct of statements, each with its file.
macro_rules! statements {
    ($(#[$about:meta])* $visible:vis struct $name:ident { $($field:ident: $file:literal,)+ }) => {
        $(#[$about])*
        #[derive(Debug)]
        $visible struct $name {
            $($visible $field: $crate::statement::Statement,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($field: $crate::statement::Statement::new(include_str!($file)),)+
                }
            }
        }
    };
}
pub(crate) use statements;

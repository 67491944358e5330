//! Where the value of a field comes from.

/// Reads one value from a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Column(String),
    /// A value inside a column with JSON.
    Path {
        column: String,
        path: Vec<String>,
    },
    /// Fixed text with the values of columns.
    Text(Vec<Part>),
    /// The first that is not null.
    First(Vec<Source>),
}

/// A part of a [`Source::Text`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Fixed(String),
    Column(String),
}

/// A source that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    #[error("it is empty: name a column")]
    Empty,
    #[error("a brace has no partner: write a column as {{name}}, and a brace as {{{{ or }}}}")]
    Brace,
    #[error("`->` needs a column before it and a key after it, such as `payload->customer->id`")]
    Path,
}

impl Source {
    pub fn column(name: &str) -> Self {
        Self::Column(name.to_owned())
    }

    /// Reads what a configuration says:
    ///
    /// - `customer_id`: a column
    /// - `payload->customer->id`: a value inside a column with JSON
    /// - `orders.{event_type}`: text with the values of columns; doubled braces are braces
    /// - `'order'`: fixed text
    /// - `partition_key | aggregate_id`: the first that is not null
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        let mut sources = text.split('|').map(|one| Self::parse_one(one.trim()));
        let first = sources.next().ok_or(SourceError::Empty)??;
        let others = sources.collect::<Result<Vec<_>, _>>()?;
        Ok(match others.is_empty() {
            true => first,
            false => Self::First([vec![first], others].concat()),
        })
    }

    fn parse_one(text: &str) -> Result<Self, SourceError> {
        if text.is_empty() {
            return Err(SourceError::Empty);
        }
        let fixed = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
        if let Some(fixed) = fixed {
            return Ok(Self::Text(vec![Part::Fixed(fixed.to_owned())]));
        }
        if text.contains(['{', '}']) {
            return Self::template(text);
        }
        let mut steps = text.split("->").map(str::trim).map(str::to_owned);
        let column = steps.next().ok_or(SourceError::Empty)?;
        let path: Vec<String> = steps.collect();
        if column.is_empty() || path.iter().any(String::is_empty) {
            return Err(SourceError::Path);
        }
        Ok(match path.is_empty() {
            true => Self::Column(column),
            false => Self::Path { column, path },
        })
    }

    fn template(template: &str) -> Result<Self, SourceError> {
        let mut parts = Vec::new();
        let mut fixed = String::new();
        let mut rest = template;
        while let Some(at) = rest.find(['{', '}']) {
            fixed.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            let after = &rest[at + 1..];
            if after.starts_with(brace) {
                fixed.push_str(brace);
                rest = &after[1..];
                continue;
            }
            if brace == "}" {
                return Err(SourceError::Brace);
            }
            let (column, after) = after.split_once('}').ok_or(SourceError::Brace)?;
            if column.is_empty() || column.contains('{') {
                return Err(SourceError::Brace);
            }
            if !fixed.is_empty() {
                parts.push(Part::Fixed(std::mem::take(&mut fixed)));
            }
            parts.push(Part::Column(column.to_owned()));
            rest = after;
        }
        fixed.push_str(rest);
        if !fixed.is_empty() {
            parts.push(Part::Fixed(fixed));
        }
        Ok(Self::Text(parts))
    }

    /// The columns it reads.
    pub fn columns(&self) -> Vec<&str> {
        match self {
            Self::Column(column) | Self::Path { column, .. } => vec![column],
            Self::Text(parts) => parts
                .iter()
                .filter_map(|part| match part {
                    Part::Column(column) => Some(column.as_str()),
                    Part::Fixed(_) => None,
                })
                .collect(),
            Self::First(sources) => sources.iter().flat_map(Self::columns).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(column: &str, path: &[&str]) -> Source {
        let path = path.iter().map(|step| (*step).to_owned()).collect();
        Source::Path {
            column: column.into(),
            path,
        }
    }

    #[test]
    fn a_source_is_a_column_a_path_a_text_or_a_choice() {
        let fixed = |text: &str| Part::Fixed(text.into());
        let column = |name: &str| Part::Column(name.into());
        for (text, source) in [
            ("eventType", Source::column("eventType")),
            ("payload->customer -> id", path("payload", &["customer", "id"])),
            ("'order'", Source::Text(vec![fixed("order")])),
            ("''", Source::Text(vec![fixed("")])),
            (
                "outbox.{a}.{b c}!{{x}}",
                Source::Text(vec![
                    fixed("outbox."),
                    column("a"),
                    fixed("."),
                    column("b c"),
                    fixed("!{x}"),
                ]),
            ),
            ("{a}", Source::Text(vec![column("a")])),
            (
                "key | payload->id",
                Source::First(vec![Source::column("key"), path("payload", &["id"])]),
            ),
        ] {
            assert_eq!(Source::parse(text).unwrap(), source, "{text}");
        }
    }

    #[test]
    fn a_source_that_names_no_column_is_a_mistake() {
        for (text, error) in [
            ("", SourceError::Empty),
            ("a | ", SourceError::Empty),
            ("a->", SourceError::Path),
            ("->a", SourceError::Path),
            ("a{b", SourceError::Brace),
            ("a}b", SourceError::Brace),
            ("{}", SourceError::Brace),
            ("{a{b}", SourceError::Brace),
            ("{{}", SourceError::Brace),
        ] {
            assert_eq!(Source::parse(text), Err(error), "{text}");
        }
    }
}

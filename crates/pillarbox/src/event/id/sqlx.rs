//! An id as a column of text, for the application's own queries.

use sqlx::{Database, Decode, Encode, Type, encode::IsNull, error::BoxDynError};

use super::EventId;

impl<DB: Database> Type<DB> for EventId
where
    String: Type<DB>,
{
    fn type_info() -> DB::TypeInfo {
        String::type_info()
    }

    fn compatible(info: &DB::TypeInfo) -> bool {
        String::compatible(info)
    }
}

impl<'q, DB: Database> Encode<'q, DB> for EventId
where
    String: Encode<'q, DB>,
{
    fn encode_by_ref(&self, buffer: &mut DB::ArgumentBuffer) -> Result<IsNull, BoxDynError> {
        self.to_string().encode(buffer)
    }
}

impl<'r, DB: Database> Decode<'r, DB> for EventId
where
    String: Decode<'r, DB>,
{
    fn decode(value: DB::ValueRef<'r>) -> Result<Self, BoxDynError> {
        String::decode(value).map(Self::from)
    }
}

#[cfg(feature = "postgres")]
impl sqlx::postgres::PgHasArrayType for EventId {
    fn array_type_info() -> sqlx::postgres::PgTypeInfo {
        String::array_type_info()
    }
}

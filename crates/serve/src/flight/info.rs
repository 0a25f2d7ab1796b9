//! Properties of the server and its types: `GetSqlInfo` and `GetXdbcTypeInfo`.

use std::sync::LazyLock;

use arrow_flight::error::Result;
use arrow_flight::sql::metadata::{
    SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder,
};
use arrow_flight::sql::{
    Nullable, Searchable, SqlInfo, SqlNullOrdering, SqlSupportedCaseSensitivity,
    SqlSupportedTransaction, XdbcDataType, XdbcDatetimeSubcode,
};

/// Properties of the server. They are constants, so an error here is a bug in this file.
pub(super) static SQL_INFO: LazyLock<Result<SqlInfoData>> = LazyLock::new(|| {
    let mut info = SqlInfoDataBuilder::new();
    info.append(SqlInfo::FlightSqlServerName, "skopos");
    info.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    info.append(SqlInfo::FlightSqlServerReadOnly, true);
    info.append(SqlInfo::FlightSqlServerSql, true);
    info.append(SqlInfo::FlightSqlServerSubstrait, false);
    info.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::None as i32);
    info.append(SqlInfo::FlightSqlServerCancel, false);
    info.append(SqlInfo::FlightSqlServerBulkIngestion, false);
    info.append(SqlInfo::FlightSqlServerStatementTimeout, 0);
    info.append(SqlInfo::FlightSqlServerTransactionTimeout, 0);
    info.append(SqlInfo::SqlDdlCatalog, false);
    info.append(SqlInfo::SqlDdlSchema, false);
    info.append(SqlInfo::SqlDdlTable, false);
    info.append(
        SqlInfo::SqlIdentifierCase,
        SqlSupportedCaseSensitivity::SqlCaseSensitivityLowercase as i64,
    );
    info.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    info.append(SqlInfo::SqlAllTablesAreSelectable, true);
    info.append(SqlInfo::SqlNullOrdering, SqlNullOrdering::SqlNullsSortedHigh as i64);
    info.append(SqlInfo::SqlTransactionsSupported, false);
    info.build()
});

/// Types of columns.
pub(super) static TYPES: LazyLock<Result<XdbcTypeInfoData>> = LazyLock::new(|| {
    let mut types = XdbcTypeInfoDataBuilder::new();
    let plain = |name: &str, data_type: XdbcDataType, size: i32| XdbcTypeInfo {
        type_name: name.to_owned(),
        data_type,
        sql_data_type: data_type,
        column_size: Some(size),
        nullable: Nullable::NullabilityNullable,
        searchable: Searchable::Full,
        ..XdbcTypeInfo::default()
    };
    let number = |name, data_type, bits, unsigned| XdbcTypeInfo {
        unsigned_attribute: Some(unsigned),
        num_prec_radix: Some(2),
        ..plain(name, data_type, bits)
    };
    let quoted = |info: XdbcTypeInfo| XdbcTypeInfo {
        literal_prefix: Some("'".to_owned()),
        literal_suffix: Some("'".to_owned()),
        ..info
    };
    types.append(plain("boolean", XdbcDataType::XdbcBit, 1));
    types.append(number("bigint", XdbcDataType::XdbcBigint, 64, false));
    types.append(number("bigint unsigned", XdbcDataType::XdbcBigint, 64, true));
    types.append(number("double", XdbcDataType::XdbcDouble, 53, false));
    types.append(XdbcTypeInfo {
        case_sensitive: true,
        ..quoted(plain("varchar", XdbcDataType::XdbcVarchar, i32::MAX))
    });
    types.append(XdbcTypeInfo {
        datetime_subcode: Some(XdbcDatetimeSubcode::XdbcSubcodeTimestamp),
        ..quoted(plain("timestamp", XdbcDataType::XdbcTimestamp, 35))
    });
    types.build()
});

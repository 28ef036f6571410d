"""The schema: what other programs rely on."""

import json

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from tests.support import ROOT
from tools.spark.source.schema import TABLES, VERSION, schema

DOCUMENT = ROOT / "docs" / "spark.md"

# Version 1: whoever renames, removes or changes one of these makes another version. More may come behind them.
FIRST = {
    "messages": "store partition digest folder octets modified staged path damage",
    "mailboxes": "store partition id name owner domain uidvalidity uidnext highestmodseq epoch created removed "
                 "special_use quota_root keywords subscriptions records written path damage identity octets",
    "references": "store partition mailbox name owner domain uid modseq digest octets skip head internal_date zone "
                  "saved flags keywords seen answered flagged deleted draft removed serial",
    "quotas": "store partition root kind limit_octets limit_messages default_octets default_messages mailbox written",
    "rights": "store partition mailbox name owner identifier rights negative",
}


def test_version_one():
    assert VERSION == 1
    assert {name: [column.name for column in TABLES[name]][:len(FIRST[name].split())] for name in TABLES} == {
        name: columns.split() for name, columns in FIRST.items()}


@pytest.mark.parametrize("table", FIRST)
def test_spark_has_the_very_same_types(table):
    """Spark compares them, and refuses batches of any others."""
    assert to_arrow_schema(from_arrow_schema(schema(table)), timezone="UTC").equals(schema(table))


@pytest.mark.parametrize("table", FIRST)
def test_octets_are_integers_and_times_are_in_utc(table):
    for field in schema(table):
        if field.name in ("octets", "limit_octets"):
            assert field.type == pa.int64()
        if field.name in ("modified", "created", "removed", "written", "internal_date", "saved") and not (
                table == "references" and field.name == "removed"):
            assert field.type == pa.timestamp("us", tz="UTC")


def test_columns_in_the_order_that_is_wanted():
    assert schema("messages", ("octets", "digest")).names == ["octets", "digest"]
    with pytest.raises(ValueError, match="table messages has no column uid"):
        schema("messages", ("digest", "uid"))
    with pytest.raises(ValueError, match="there is no table message: only messages, mailboxes"):
        schema("message")


@pytest.mark.parametrize("table", FIRST)
def test_every_column_is_in_the_document(table):
    """docs/spark.md has a line for each column: its name, its type in Spark, and what it means."""
    kinds = {"string": "text", "bigint": "integer", "int": "integer (32 bits)", "boolean": "boolean",
             "timestamp": "timestamp", "array<string>": "list of texts"}
    text = DOCUMENT.read_text()
    section = text[text.index(f"### {table}\n"):].split("\n### ")[0]
    for column in TABLES[table]:
        kind = kinds[from_arrow_schema(pa.schema([pa.field("x", column.type)]))["x"].dataType.simpleString()]
        assert f"| `{column.name}` | {kind} | {column.text} |" in section.replace("\\|", "|"), json.dumps(column.name)

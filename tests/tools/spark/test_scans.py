"""One scan of a table changes no other: what a query reads is right whatever was asked in the session before it, and
whatever else the query asks, in SQL and through frames."""

import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tools.spark.conftest import LOCAL, rows
from tools.spark.sparksession import tables

WHERE = [LOCAL]
COLUMNS = {"references": ("partition", "owner", "digest"), "messages": ("partition", "digest", "folder"),
           "mailboxes": ("partition", "owner")}
ABSENT = "none such"
EXAMPLES = int(os.environ.get("SCANS", "3"))


@pytest.fixture(scope="module")
def read(place):
    """The rows of each table, read without Spark and without a filter."""
    return {table: rows(list(place.stores), table) for table in COLUMNS}


def test_three_counts_in_one_query(spark, place, read):
    tables(spark, place.stores, ["references"])
    owners = Counter(row["owner"] for row in read["references"])
    query = """SELECT (SELECT count(*) FROM references WHERE owner = 'alice') AS a,
                      (SELECT count(*) FROM references WHERE owner = 'bob') AS b,
                      (SELECT count(*) FROM references) AS every"""
    for _ in range(2):
        assert tuple(spark.sql(query).first()) == (owners["alice"], owners["bob"], owners.total())
        assert spark.table("references").where("owner = 'bob'").count() == owners["bob"]
        assert spark.table("references").count() == owners.total()


@st.composite
def scans(draw, table):
    """A column, a comparison, and numbers of the values to compare with; None for a scan without a condition."""
    column = draw(st.sampled_from((None, *COLUMNS[table])))
    numbers = draw(st.lists(st.integers(0, 1 << 30), min_size=1, max_size=2))
    return column, draw(st.sampled_from(("=", "in", "like", "not"))), numbers


def condition(scan, found):
    """The SQL of a scan, and the same in Python; values are those of the rows."""
    column, how, numbers = scan
    if column is None:
        return "true", lambda row: True
    every = [*sorted({row[column] for row in found if row[column] is not None}), ABSENT]
    values = [every[number % len(every)] for number in numbers]
    first = values[0]
    return {
        "=": (f"{column} = '{first}'", lambda row: row[column] == first),
        "in": (f"{column} IN ({', '.join(map(repr, values))})", lambda row: row[column] in values),
        "like": (f"{column} LIKE '{first[:3]}%'",
                 lambda row: row[column] is not None and row[column].startswith(first[:3])),
        "not": (f"NOT {column} = '{first}'", lambda row: row[column] is not None and row[column] != first),
    }[how]


@st.composite
def queries(draw):
    """A query of two or three scans of one table, and maybe one of another; joined or side by side, asked in SQL or
    through frames."""
    table, other = draw(st.permutations(tuple(COLUMNS)))[:2]
    tables_asked = [table] * draw(st.integers(2, 3)) + draw(st.sampled_from(([], [other])))
    return (draw(st.sampled_from(("sql", "frames"))), draw(st.booleans()),
            [(table, draw(scans(table))) for table in tables_asked])


def answer(spark, api, joined, parts):
    """The counts of the scans; joined: how many pairs of rows of the first and the last are on the same partition."""
    if joined:
        (one, first), (other, last) = parts[0], parts[-1]
        if api == "sql":
            return spark.sql(f"""SELECT count(*) FROM (SELECT partition FROM {one} WHERE {first})
                                 JOIN (SELECT partition FROM {other} WHERE {last}) USING (partition)""").first()[0]
        return spark.table(one).where(first).select("partition").join(
            spark.table(other).where(last).select("partition"), "partition").count()
    if api == "sql":
        return list(spark.sql("SELECT " + ", ".join(
            f"(SELECT count(*) FROM {table} WHERE {text}) AS c{at}" for at, (table, text) in enumerate(parts))).first())
    return [spark.table(table).where(text).count() for table, text in parts]


def test_any_sequence_of_queries(spark, place, read):
    @settings(max_examples=EXAMPLES, deadline=None, database=None,
              suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(st.lists(queries(), min_size=2, max_size=3))
    def ask(sequence):
        for api, joined, some in sequence:
            means = [(table, *condition(scan, read[table])) for table, scan in some]
            left = [[row for row in read[table] if keep(row)] for table, _, keep in means]
            if joined:
                one, other = (Counter(row["partition"] for row in found) for found in (left[0], left[-1]))
                expected = sum(count * other[name] for name, count in one.items())
            else:
                expected = list(map(len, left))
            assert answer(spark, api, joined, [(table, text) for table, text, _ in means]) == expected, means

    tables(spark, place.stores, list(COLUMNS))      # what one example has asked was before the next, too
    ask()

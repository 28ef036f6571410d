"""The page of the quota report in a real browser: charts are drawn, nothing is fetched, it fits a phone and paper.

With PICTURES=FOLDER the picture of docs/quota-report.md is made in that folder.
"""

import os
import re
import zlib
from datetime import timedelta
from pathlib import Path

import pytest
from attrs import evolve

from store.tables.quotatable import QuotaUse
from tests.support.clients.chromium import chromium
from tests.tools.spark.test_report_figures import NOW, TERMS, box, limit, made, read
from tools.spark.report.page import page
from tools.spark.report.totals import Live, grown, with_default
from tools.spark.report.what_if import compared

LONG = "a.very.long.name.with.many.parts.that.no.phone.can.show.on.one.line@department.of.something.example.org"
EVIL = "<script>alert(1)</script>&\"'"
# Marks that have a length, by hand: nobody is between 90 and 99 per cent; bars of users and domains have two parts.
CHARTS = {"What sharing saves": 3, "How full quotas are": 5, "Largest users": 20, "Domains": 6,
          "Fastest growing since 2026-06-01": 10, "Back ends and partitions": 2, "When users last got mail": 6,
          "Kinds of folder": 1, "Senders": 1, "Age of messages": 1, "Size of message files": 1,
          "What a purge delay of so many days would free": 1}
# Each chart's name and the marks in it: what they are, and their left, width and height in the window.
DRAWN = """[...document.querySelectorAll("svg.chart")].map(chart => [chart.getAttribute("aria-label").split(".")[0],
    chart.getBoundingClientRect().width, [...chart.querySelectorAll("rect:not(.track):not(.axis)")].map(mark => {
        const place = mark.getBoundingClientRect();
        return [mark.getAttribute("class"), place.left, place.right, place.height, getComputedStyle(mark).fill]})])"""
OUTSIDE = """[...document.querySelectorAll("body *")].filter(each => !each.closest(".scroll") &&
    each.getBoundingClientRect().right > innerWidth + 0.5).map(each => each.outerHTML.slice(0, 80))"""
OVERLAP = """[...document.querySelectorAll("svg.chart g")].filter(each => {
    const [label, value] = ["label", "value"].map(kind => each.querySelector("text." + kind).getBoundingClientRect());
    return label.bottom > value.top && value.bottom > label.top && label.right > value.left && value.right > label.left
    }).map(each => each.textContent)"""


def everything(long=LONG, evil=EVIL):
    """A report in which nothing is left out; names are long, and made to do harm."""
    boxes = [box(f"user{at:02}", "INBOX", at, (at + 1) * 10**7, user_unique=10**6, newest=NOW - timedelta(20 * at))
             for at in range(30)]
    boxes += [box(long, "INBOX", 9, 10**12, fair_share=10**11, file_octets=10**11), box("x@b.org", evil, 2, 10**9)]
    limits = [limit(f"user{at:02}", 10**8 + 10**7 * at) for at in range(30)]
    limits += [limit(long, 10**12), limit("x@b.org", 9)]
    found = evolve(read(boxes, limits, waiting=10**10), lists={
        "ages": [{"age": "a week", "kind": evil, "messages": 3, "logical": 10**9, "unread": 1}],
        "sizes": [{"size_class": "10 KiB", "files": 9, "file_octets": 10**4, "messages": 9, "logical": 10**4}],
        "senders": [{"sender": evil, "files": 9, "file_octets": 10**9, "messages": 9, "logical": 10**9}],
        "purge": [{"days": 1, "freed": 10**9, "files": 2}], "messages": [], "rubbish": 0})
    live = Live({"user07": QuotaUse(8 * 10**7, 7, refused=int(NOW.timestamp()) - 60)}, {"user08": (5, 0)},
                int(NOW.timestamp()))
    report = made(found, evolve(TERMS, settings=evolve(TERMS.settings, default_quota=5 * 10**8)), live)
    grown(report, {"created": "2026-06-01T00:00:00Z", "users": [
        {"store": "/s", "user": f"user{at:02}", "logical": at * 10**6} for at in range(30)]})
    report["what_if"] = {"terms": ["fair shares were charged"], **compared(
        report, made(found, with_default(TERMS, None, "fair")))}
    return report | {"problems": [evil], "notes": ["A note"]}


@pytest.fixture(scope="module")
def text():
    return page(everything())


@pytest.fixture(scope="module")
def path(text, tmp_path_factory):
    found = tmp_path_factory.mktemp("page") / "report.html"
    found.write_text(text, encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


def test_it_names_no_other_place(text):
    assert not re.search(r"https?:|//[a-z]|url\(|@import|<script|<link|<img|<iframe|\ssrc=|\shref=", text)
    assert "default-src 'none'" in text and "&lt;script&gt;alert(1)" in text


def test_numbers_are_for_people(text):
    """4.65 GB of thirty users, 1 GB of one, and 1,000 GB of one whose fair share is a tenth; and 10 GB wait."""
    assert "936.6 GiB" in text and "107.7 GiB" in text and "89 %" in text
    assert "105,650,000,000 + 10,000,000,000 = 115,650,000,000." in text


def test_charts_are_drawn(browser, path):
    """Each with its marks, which have a size and are within the chart; and no request but that for the page."""
    browser.open(path, 1280)
    charts = {name: (width, marks) for name, width, marks in browser.value(DRAWN)}
    assert set(charts) == set(CHARTS)
    for name, count in CHARTS.items():
        width, marks = charts[name]
        assert width > 300
        shown = [mark for mark in marks if mark[3] > 0 and mark[2] > mark[1]]
        assert len(shown) == count, (name, len(shown))
        assert all(mark[4] not in ("none", "rgb(0, 0, 0)") for mark in shown), name
    bars = {kind: right - left for kind, left, right, *_ in charts["What sharing saves"][1]}
    assert bars["fair"] / bars["light"] == pytest.approx(0.10505, abs=0.0001)
    assert {event["request"]["url"] for event in browser.named("Network.requestWillBeSent")} == {path.as_uri()}
    assert browser.named("Log.entryAdded") == browser.named("Runtime.exceptionThrown") == []
    assert browser.value("document.scripts.length") == 0


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_nothing_is_wider_than_the_window(browser, path, width):
    browser.open(path, width, mobile=width < 700)
    assert browser.value("innerWidth") == width
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value(OUTSIDE) == []
    assert browser.value(OVERLAP) == []
    sizes = browser.value('[...document.querySelectorAll("svg.chart text")].map(each => '
                          'each.getBoundingClientRect().height)')
    assert min(sizes) >= 10                 # as large on a phone


def test_those_who_hear_it(browser, path):
    """Each chart has a name, a sentence and its figures as a table; each table has heads."""
    browser.open(path, 800)
    assert browser.value('[...document.querySelectorAll("svg.chart")].every(each => each.getAttribute("role") == "img" '
                         '&& each.getAttribute("aria-label").length > 30)')
    assert browser.value('[...document.querySelectorAll("figure")].every(each => each.querySelector("figcaption") '
                         '&& each.querySelectorAll("details tbody tr").length)')
    assert browser.value('[...document.querySelectorAll("table")].every(each => each.querySelector("th[scope=col]"))')
    assert browser.value("document.documentElement.lang") == "en"


def brightness(colour):
    """Relative luminance, by the formula of WCAG 2."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("dark", [False, True])
def test_what_is_written_can_be_read(browser, path, dark):
    """A contrast of 4.5 at least, by day and by night."""
    browser.open(path, 800, dark=dark)
    for selector, colour in (("h2", "color"), (".dim", "color"), ("figcaption", "color"), (".cards .bad dd", "color"),
                             (".cards .good dd", "color"), ("svg text.value", "fill"), ("svg text.label", "fill")):
        front, back = (brightness(browser.value(f'getComputedStyle(document.querySelector("{where}")).{what}'))
                       for where, what in ((selector, colour), ("section", "backgroundColor")))
        assert (max(front, back) + 0.05) / (min(front, back) + 0.05) >= 4.5, selector
    page = brightness(browser.value('getComputedStyle(document.body).backgroundColor'))
    assert page < 0.05 if dark else page > 0.8


def test_print(browser, path):
    """A few pages, white, charts among them; what can be opened on the screen is left out."""
    browser.open(path, 640, dark=True, media="print")       # as wide as the paper is
    assert browser.value('getComputedStyle(document.body).backgroundColor') == "rgb(255, 255, 255)"
    assert browser.value('getComputedStyle(document.querySelector("details")).display') == "none"
    assert browser.value('[...document.querySelectorAll("svg.chart")].every(each => each.getBoundingClientRect().width '
                         '> 100)')
    assert browser.value(OVERLAP) == []
    pdf = browser.pdf()
    assert pdf.startswith(b"%PDF-") and 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 8
    streams = [zlib.decompress(data) for data in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL)
               if data[:1] == b"\x78"]
    filled = sum(len(re.findall(rb"\bf\*?\b", data)) for data in streams)
    assert filled > 40                      # bars and columns


def test_a_report_with_nothing_in_it(browser, tmp_path):
    report = made(read([]))
    grown(report, None)
    path = tmp_path / "empty.html"
    path.write_text(page(report | {"problems": [], "notes": [], "what_if": None}), encoding="utf-8")
    browser.open(path, 390, mobile=True)
    assert browser.value("document.documentElement.scrollWidth") <= 390
    assert browser.value('document.querySelectorAll(".problem").length') == 0


def picture(browser, tmp_path):
    report = everything("sales@example.org", "lists")
    (tmp_path / "report.html").write_text(page(report | {"problems": []}), encoding="utf-8")
    browser.open(tmp_path / "report.html", 1000)
    (Path(os.environ["PICTURES"]) / "quota-report.png").write_bytes(browser.screenshot(height=1400))


if os.environ.get("PICTURES"):
    test_picture = picture

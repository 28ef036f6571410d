"""tools/http/console/historycharts: what was over time, drawn."""

import re
from xml.etree import ElementTree

from tools.http.console.historycharts import fullness, over_time

SPAN = (1_800_000_000.0, 1_800_086_400.0)
PARTS = [None, {"delivered": 50, "refused": 5, "used": 30, "free": 10}, None,
         {"delivered": 100, "refused": 0, "used": 20, "free": 60}]


def drawn(svg: str) -> dict[str, list[tuple[int, int]]]:
    """Of each class the columns: place and height."""
    return {each.attrib["class"]: [(int(place), int(height)) for place, height in re.findall(
        r"M(\d+) 1000v-(\d+)h1v\2z", each.attrib["d"])] for each in ElementTree.fromstring(svg).iter("path")}


def test_columns_have_their_places_and_heights() -> None:
    svg = over_time("Deliveries", PARTS, "delivered", "refused", span=SPAN)
    assert drawn(svg) == {"fair": [(1, 500), (3, 1000)], "bad": [(1, 50)]}
    label = ElementTree.fromstring(svg).attrib["aria-label"]
    assert label == "Deliveries. 150 in all. At most 100 in a part of this time; refused: 5."
    assert "style=" not in svg and ">100<" in svg and ">01-15 08:00<" in svg and ">01-16 08:00<" in svg


def test_how_full_volumes_were() -> None:
    svg = fullness("Volumes", PARTS, span=SPAN)
    assert drawn(svg) == {"fair": [(1, 750), (3, 250)]}
    assert ElementTree.fromstring(svg).attrib["aria-label"] == "Volumes. 25 % at the end, 75 % at most."


def test_nothing_is_known() -> None:
    assert drawn(over_time("x", [None] * 3, "open", span=SPAN, summed=False)) == {}
    assert drawn(fullness("x", [], span=SPAN)) == {}

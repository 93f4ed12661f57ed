"""Charts and drafted trees: which are drawn, that all lies within them, and that any text makes a sound drawing."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.bench.record import Tree
from fleetctl.bench.records import load
from fleetctl.bench.report.charts import Axis, Chart, Mark, Series
from fleetctl.bench.report.choose import charts
from fleetctl.bench.report.scale import scale
from fleetctl.bench.report.svg import draw
from fleetctl.bench.report.trees import draw_tree, layout
from fleetctl.bench.summary import summarize
from tests.bench import synthetic
from tests.bench.synthetic import FOUR, Spec

SWEEP = [FOUR[1]] + [
    Spec("ddtree", "tree", 30.0, 2 + budget / 20, varied={"budget": budget, "topk": top})
    for budget in (8, 16, 64)
    for top in (4, 8)
]
CROWD = [replace(spec, concurrency=size) for size in (1, 4, 16) for spec in FOUR[2:]]
LONG = [
    replace(spec, varied={"context_tokens": length}, context=length)
    for length in (512, 2048, 8192)
    for spec in (FOUR[0], FOUR[3])
]


SUITES = {"four": list(FOUR), "sweep": SWEEP, "crowd": CROWD, "long": LONG}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Chart]]:
    """The charts of each suite."""
    root = tmp_path_factory.mktemp("charts")
    paths = {name: synthetic.write(root, specs, identity=name) for name, specs in SUITES.items()}
    return {name: charts(summarize([load(path)])) for name, path in paths.items()}


@pytest.mark.parametrize(
    ("suite", "keys"),
    [
        ("four", {"by-prompt"}),
        ("sweep", {"by-prompt", "accepted-over", "speed-over"}),
        ("crowd", {"by-prompt", "throughput", "each"}),
        ("long", {"by-prompt", "context", "context-first"}),
    ],
)
def test_what_was_varied_is_what_is_drawn(made: dict[str, list[Chart]], suite: str, keys: set[str]) -> None:
    assert {chart.key for chart in made[suite]} == keys | {"first-token", "pauses"}


def test_a_sweep_is_a_line_for_each_top_k_over_budgets(made: dict[str, list[Chart]]) -> None:
    drawn = next(chart for chart in made["sweep"] if chart.key == "accepted-over")
    assert [series.name for series in drawn.series] == ["ddtree · topk 4", "ddtree · topk 8"]
    assert [mark.x for mark in drawn.series[0].marks] == [8, 16, 64]
    heights = [mark.y for mark in drawn.series[0].marks]
    assert heights == sorted(heights) and drawn.x.log and drawn.x.ticks == [8, 16, 64]
    assert len({series.style for series in drawn.series}) == 2


def ends(text: ElementTree.Element) -> list[tuple[float, float]]:
    """Where a text begins and ends, its letters taken as half as wide as they are high."""
    x, y, long = float(text.attrib["x"]), float(text.attrib["y"]), 6.0 * len(text.text or "")
    left = x - {"middle": long / 2, "end": long}.get(text.attrib.get("text-anchor", ""), 0.0)
    return [(left, y), (left + long, y)]


@pytest.mark.parametrize("width", [350.0, 620.0])
@pytest.mark.parametrize("suite", list(SUITES))
def test_all_of_a_drawing_lies_within_it(made: dict[str, list[Chart]], suite: str, width: float) -> None:
    for chart in made[suite]:
        root = ElementTree.fromstring(draw(chart, width, "wide"))
        height = float(root.attrib["height"])
        points = [
            (float(x), float(y))
            for path in root.iter("path")
            for x, y in re.findall(r"M(-?[\d.]+) (-?[\d.]+)", path.attrib["d"])
        ]
        texts = [end for text in root.iter("text") for end in ends(text)]
        assert points and texts
        assert all(0 <= x <= width and 0 <= y <= height for x, y in points + texts), chart.key


numbers = st.floats(min_value=1e-4, max_value=1e7)


@given(st.lists(numbers, min_size=1, max_size=20), st.booleans(), st.sampled_from([None, 0.0]))
def test_a_scale_has_a_place_for_every_value_and_a_few_ticks(
    values: list[float], log: bool, start: float | None
) -> None:
    found = scale(Axis("x", log=log, start=None if log else start), values)
    places = [found.place(value) for value in values]
    assert all(0 <= place <= 1 for place in places)
    order = sorted(range(len(values)), key=values.__getitem__)
    assert [places[index] for index in order] == sorted(places)
    assert found.low <= min(values) * (1 + 1e-9) and found.high >= max(values) * (1 - 1e-9)
    assert 0 < len(found.ticks) < 16 and all(math.isfinite(tick) for tick in found.ticks)


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_name_makes_a_sound_drawing(row: str, series: str) -> None:
    drawn = Series(series, 0, [Mark(2.0, 0.0, 1.0, 3.0)], [(2.0, 0.0)], joined=False)
    chart = Chart("k", "rows", row, series, "", Axis("x"), Axis(""), [drawn], [row])
    ElementTree.fromstring(draw(chart, 350.0, "narrow"))


@st.composite
def trees(draw_from: st.DrawFn) -> Tree:
    count = draw_from(st.integers(1, 24))
    parents = [-1, *(draw_from(st.integers(0, node - 1)) for node in range(1, count))]
    tokens = draw_from(st.lists(st.text(max_size=20), min_size=count, max_size=count))
    return Tree(0, tokens, parents, None, [])


@settings(max_examples=50)
@given(trees())
def test_a_trees_nodes_stand_apart_and_no_branch_crosses_another(tree: Tree) -> None:
    found = layout(tree)
    assert found is not None
    assert len({(node.depth, node.row) for node in found.nodes}) == len(tree.tokens)
    leaves = [node for node in found.nodes if node.index not in tree.parents]
    assert sorted(node.row for node in leaves) == list(range(found.rows))
    for node in found.nodes[1:]:
        parent = found.nodes[node.parent]
        assert node.depth == parent.depth + 1 and node.row >= parent.row
    ElementTree.fromstring(draw_tree(tree))


def test_the_accepted_path_is_marked_and_nothing_else() -> None:
    tree = Tree(3, ["a", "b", "c", "d"], [-1, 0, 0, 1], [1, 0.5, 0.25, 0.125], [1, 3])
    root = ElementTree.fromstring(draw_tree(tree))
    taken = [group.findtext("text") for group in root.iter("g") if group.attrib["class"] == "node taken"]
    assert taken == ["b", "d"]
    assert "2 accepted: bd" in root.attrib["aria-label"]
    assert [found.text for found in root.iter("title")][1] == "b, drafted with 50.0%"


@pytest.mark.parametrize("parents", [[], [0, 0], [-1, 1], [-1, 0, 5], [-1]])
def test_what_is_no_tree_is_not_drawn(parents: list[int]) -> None:
    assert draw_tree(Tree(0, ["a", "b"], parents, None, [])) == ""

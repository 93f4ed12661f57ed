"""Drafted trees as drawings: where each node stands, and the SVG of it. One row a leaf, depth to the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.bench.record import Tree
from fleetctl.bench.report.svg import Canvas
from fleetctl.bench.report.words import visible

MOST_NODES = 256
MOST_LETTERS = 14
LETTER, HEIGHT, ROW, SPACE = 7.3, 20.0, 27.0, 22.0


@dataclass(frozen=True)
class Node:
    """A token at ``depth`` and ``row`` (both from 0); ``prob``: the drafter's, after its parent."""

    index: int
    parent: int
    depth: int
    row: int
    text: str
    prob: float | None
    accepted: bool


@dataclass(frozen=True)
class Layout:
    """Nodes, parents before children, with how many rows, depths and accepted drafts; ``cut``: nodes left out."""

    nodes: list[Node]
    rows: int
    depths: int
    accepted: int
    cut: int


def drafts(trees: Sequence[Tree]) -> bool:
    """Whether anything was drafted in these steps; plain decoding has roots only."""
    return any(len(tree.tokens) > 1 for tree in trees)


def layout(tree: Tree) -> Layout | None:
    """Where the nodes of ``tree`` stand; None where its lists do not make a tree."""
    count = len(tree.tokens)
    if not count or len(tree.parents) != count or tree.parents[0] != -1:
        return None
    if any(not 0 <= parent < node for node, parent in enumerate(tree.parents[1:], 1)):
        return None
    shown = min(count, MOST_NODES)
    children: list[list[int]] = [[] for _ in range(shown)]
    depth = [0] * shown
    for node in range(1, shown):
        children[tree.parents[node]].append(node)
        depth[node] = depth[tree.parents[node]] + 1
    rows = [0] * shown
    free = 0
    waiting = [0]
    while waiting:
        node = waiting.pop()
        rows[node] = free
        if not children[node]:
            free += 1
        waiting += reversed(children[node])
    accepted = set(tree.accepted)
    probs = tree.probs if tree.probs and len(tree.probs) == count else None
    nodes = [
        Node(
            node,
            tree.parents[node],
            depth[node],
            rows[node],
            visible(tree.tokens[node]),
            probs[node] if probs and node else None,
            node in accepted or node == 0,
        )
        for node in range(shown)
    ]
    return Layout(nodes, free, max(depth) + 1, len(accepted), count - shown)


def draw_tree(tree: Tree) -> str:
    """The tree as SVG, its accepted path marked; "" where it is none."""
    found = layout(tree)
    if found is None:
        return ""
    widths = column_widths(found.nodes, LETTER)
    lefts = [sum(width + SPACE for width in widths[:depth]) for depth in range(found.depths)]
    canvas = Canvas(2 + lefts[-1] + widths[-1], found.rows * ROW + 4)
    places = [(1 + lefts[node.depth], 3 + node.row * ROW) for node in found.nodes]
    for taken in (False, True):
        for node in found.nodes[1:]:
            if node.accepted == taken:
                _edge(canvas, node, places, widths[found.nodes[node.parent].depth])
    for node in found.nodes:
        _box(canvas, node, places[node.index], widths[node.depth])
    words = "".join(node.text for node in found.nodes if node.accepted and node.index)
    label = (
        f"Drafted tree of step {tree.step}: {len(found.nodes) - 1} drafts, {found.accepted} accepted: {words}"
    )
    return canvas.render(label, "tree")


def column_widths(nodes: Sequence[Node], letter: float) -> list[float]:
    """How wide the boxes of each depth are, for letters of a width."""
    depths = max(node.depth for node in nodes) + 1
    longest = [1] * depths
    for node in nodes:
        longest[node.depth] = max(longest[node.depth], len(shorten(node.text)))
    return [14 + letter * letters for letters in longest]


def shorten(text: str) -> str:
    """At most so many letters that the boxes stay narrow."""
    return text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1] + "…"


def _edge(canvas: Canvas, node: Node, places: list[tuple[float, float]], width: float) -> None:
    x1, y1 = places[node.parent][0] + width, places[node.parent][1] + HEIGHT / 2
    x2, y2 = places[node.index][0], places[node.index][1] + HEIGHT / 2
    middle = x1 + SPACE / 2
    path = (
        f"M{x1:.1f} {y1:.1f}H{x2:.1f}" if y1 == y2 else f"M{x1:.1f} {y1:.1f}H{middle:.1f}V{y2:.1f}H{x2:.1f}"
    )
    canvas.add("path", class_="edge taken" if node.accepted else "edge", d=path)


def _box(canvas: Canvas, node: Node, place: tuple[float, float], width: float) -> None:
    kind = "root" if not node.index else "taken" if node.accepted else "left"
    canvas.open(class_=f"node {kind}")
    prob = f", drafted with {node.prob:.1%}" if node.prob is not None else ""
    canvas.add("title", f"{node.text}{prob}")
    canvas.add("rect", x=place[0], y=place[1], width=width, height=HEIGHT, rx=4)
    canvas.add("text", shorten(node.text), x=place[0] + width / 2, y=place[1] + 14, text_anchor="middle")
    canvas.close()

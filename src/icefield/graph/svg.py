"""The graph as one SVG file: no script, light and dark, the same bytes for the same graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from icefield.graph.layout import Layout, arrange
from icefield.graph.nodes import owner_of

if TYPE_CHECKING:
    from icefield.graph.nodes import Graph, Node

BOX, LINE, GAP = 46.0, 12.0, 18.0
BETWEEN, MARGIN, HEAD, PAD = 64.0, 24.0, 44.0, 14.0
LETTER, SMALL_LETTER, ROOM = 8.2, 6.5, 30.0
SOURCE = 30.0
# (light accent, dark accent), taken in turn by the schemas from left to right.
PALETTE = (
    ("#b45309", "#f59e0b"),
    ("#475569", "#94a3b8"),
    ("#a16207", "#eab308"),
    ("#0e7490", "#22d3ee"),
    ("#7c3aed", "#a78bfa"),
    ("#15803d", "#4ade80"),
    ("#be185d", "#f472b6"),
)
STYLE = """
  svg { --page:#ffffff; --box:#ffffff; --ink:#0f172a; --soft:#64748b; --line:#94a3b8; --lane:6%; }
  @media (prefers-color-scheme: dark) {
    svg { --page:#0d1117; --box:#161b22; --ink:#e6edf3; --soft:#8b949e; --line:#57606a; --lane:11%; }
  }
  text { font-family: ui-sans-serif, system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
  .page { fill: var(--page); }
  .lane { opacity: var(--lane); }
  .head { font-size: 13px; font-weight: 700; letter-spacing: .04em; }
  .box { fill: var(--box); stroke-width: 1.5; }
  .name { font-size: 13px; font-weight: 600; fill: var(--ink); }
  .kind { font-size: 11px; fill: var(--soft); }
  .source { fill: var(--box); stroke: var(--line); stroke-dasharray: 4 3; }
  .edge { fill: none; stroke: var(--line); stroke-width: 1.6; }
  .lookup { stroke-dasharray: 5 4; }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lane:
    """A band of columns: the sources, or one schema (several, where they read one another)."""

    name: str
    colour: int
    first: int
    last: int


def draw(graph: Graph) -> str:
    """A picture of the graph from left to right: sources, then the schemas as lanes, each in its colour."""
    lanes, columns = _columns(graph)
    edges = [(feed, name) for name, node in _ordered(graph) for feed in _feeds(node)]
    layout = arrange(columns, list(dict.fromkeys(edges)), box=BOX, line=LINE, gap=GAP)
    widths = [_width(row, graph) for row in layout.columns]
    lefts = [MARGIN + sum(widths[:c]) + BETWEEN * c for c in range(len(widths))]
    width = (lefts[-1] + widths[-1] if widths else 240.0) + MARGIN
    height = layout.height + HEAD + 2 * PAD + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{len(graph)} tables">',
        f"<style>{STYLE}{_colours(lanes)}</style>",
        f'<rect class="page" width="{width:.0f}" height="{height:.0f}" rx="12"/>',
        *_draw_lanes(lanes, lefts, widths, height),
        *_draw_edges(layout, lefts, widths, graph),
        *_draw_boxes(layout, lefts, widths, graph, lanes),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _ordered(graph: Graph) -> list[tuple[str, Node]]:
    return [(name, graph.nodes[name]) for name in graph.order]


def _feeds(node: Node) -> tuple[str, ...]:
    """Keys of everything a table reads; a source's key is its own table's, with a sign no name can have."""
    return tuple(f"*{node.name}" if edge.source else owner_of(str(edge.table)) for edge in node.edges)


def _columns(graph: Graph) -> tuple[list[_Lane], dict[str, int]]:
    columns: dict[str, int] = {f"*{name}": 0 for name, node in _ordered(graph) if node.source}
    lanes = [_Lane(name="sources", colour=-1, first=0, last=0)] if columns else []
    first, colour = len(lanes), 0
    for schemas in _schema_order(graph):
        names = [name for name in graph.order if graph.nodes[name].schema in schemas]
        depth: dict[str, int] = {}
        for name in names:
            depth[name] = 1 + max((depth[read] for read in graph.nodes[name].needs if read in depth), default=-1)
        columns |= {name: first + depth[name] for name in names}
        last = first + max(depth.values())
        lanes.append(_Lane(name=", ".join(schemas), colour=colour % len(PALETTE), first=first, last=last))
        first, colour = last + 1, colour + 1
    return lanes, columns


def _schema_order(graph: Graph) -> list[list[str]]:
    """Schemas so that rows flow to the right; those that read one another share a lane."""
    schemas = list(dict.fromkeys(node.schema for _, node in _ordered(graph)))
    reads: dict[str, set[str]] = {schema: set() for schema in schemas}
    for _, node in _ordered(graph):
        reads[node.schema] |= {graph.nodes[read].schema for read in node.needs} - {node.schema}
    order: list[list[str]] = []
    while reads:
        free = next((schema for schema, needs in reads.items() if not needs & reads.keys()), None)
        taken = [free] if free is not None else list(reads)
        order.append(taken)
        reads = {schema: needs for schema, needs in reads.items() if schema not in taken}
    return order


def _label(key: str, graph: Graph) -> tuple[str, str]:
    if key.startswith("*"):
        source = graph.nodes[key[1:]].source
        return "", source.name if source is not None else ""
    node = graph.nodes[key]
    count = len(node.row_checks) + len(node.table_checks)
    checks = f" · {count} check{'s' if count != 1 else ''}" if count else ""
    return node.name.partition(".")[2], node.refresh.kind + checks


def _width(row: tuple[str, ...], graph: Graph) -> float:
    labels = [_label(key, graph) for key in row if ">" not in key]
    return max((max(len(a) * LETTER, len(b) * SMALL_LETTER) for a, b in labels), default=60.0) + ROOM


def _colours(lanes: list[_Lane]) -> str:
    light = "".join(f"  svg {{ --c{i}:{PALETTE[i][0]}; }}\n" for i in sorted({lane.colour for lane in lanes} - {-1}))
    dark = "".join(f"    svg {{ --c{i}:{PALETTE[i][1]}; }}\n" for i in sorted({lane.colour for lane in lanes} - {-1}))
    return f"{light}  @media (prefers-color-scheme: dark) {{\n{dark}  }}\n"


def _draw_lanes(lanes: list[_Lane], lefts: list[float], widths: list[float], height: float) -> list[str]:
    parts = []
    for lane in lanes:
        left, right = lefts[lane.first] - PAD, lefts[lane.last] + widths[lane.last] + PAD
        colour = "var(--soft)" if lane.colour < 0 else f"var(--c{lane.colour})"
        parts.append(
            f'<rect class="lane" x="{left:.1f}" y="{MARGIN / 2:.1f}" width="{right - left:.1f}" '
            f'height="{height - MARGIN:.1f}" rx="12" style="fill:{colour}"/>'
            f'<text class="head" x="{left + PAD:.1f}" y="{MARGIN / 2 + 24:.1f}" style="fill:{colour}">'
            f"{escape(lane.name)}</text>"
        )
    return parts


def _draw_edges(layout: Layout, lefts: list[float], widths: list[float], graph: Graph) -> list[str]:
    parts = []
    for path in layout.lines:
        start, end = layout.items[path[0]], layout.items[path[-1]]
        x, y = lefts[start.column] + widths[start.column], start.y + HEAD + PAD
        steps = [f"M{x:.1f},{y:.1f}"]
        for key in path[1:]:
            item = layout.items[key]
            to_x, to_y = lefts[item.column], item.y + HEAD + PAD
            middle = (x + to_x) / 2
            steps.append(f"C{middle:.1f},{y:.1f} {middle:.1f},{to_y:.1f} {to_x:.1f},{to_y:.1f}")
            x, y = to_x, to_y
            if key != path[-1]:
                x = lefts[item.column] + widths[item.column]
                steps.append(f"H{x:.1f}")
        looked_up = (
            all(edge.lookup for edge in graph.nodes[end.key].edges if edge.table and owner_of(edge.table) == path[0])
            and path[0] in graph
        )
        parts.append(f'<path class="edge{" lookup" if looked_up else ""}" d="{" ".join(steps)}"/>')
    return parts


def _draw_boxes(layout: Layout, lefts: list[float], widths: list[float], graph: Graph, lanes: list[_Lane]) -> list[str]:
    parts = []
    for key, item in layout.items.items():
        if ">" in key:
            continue
        x, y, width = lefts[item.column], item.y + HEAD + PAD, widths[item.column]
        lane = next(lane for lane in lanes if lane.first <= item.column <= lane.last)
        parts.append(_source(key, x, y, width, graph) if key.startswith("*") else _table(key, x, y, width, graph, lane))
    return parts


def _source(key: str, x: float, y: float, width: float, graph: Graph) -> str:
    return (
        f'<g><rect class="source" x="{x:.1f}" y="{y - SOURCE / 2:.1f}" '
        f'width="{width:.1f}" height="{SOURCE:.1f}" rx="15"/>'
        f'<text class="kind" x="{x + PAD:.1f}" y="{y + 4:.1f}">{escape(_label(key, graph)[1])}</text></g>'
    )


def _table(key: str, x: float, y: float, width: float, graph: Graph, lane: _Lane) -> str:
    name, kind = _label(key, graph)
    comment = graph.nodes[key].comment
    return (
        f"<g><title>{escape(f'{key}: {comment}' if comment else key)}</title>"
        f'<rect class="box" style="stroke:var(--c{lane.colour})" x="{x:.1f}" y="{y - BOX / 2:.1f}" '
        f'width="{width:.1f}" height="{BOX:.1f}" rx="9"/>'
        f'<text class="name" x="{x + PAD:.1f}" y="{y - 3:.1f}">{escape(name)}</text>'
        f'<text class="kind" x="{x + PAD:.1f}" y="{y + 13:.1f}">{escape(kind)}</text></g>'
    )

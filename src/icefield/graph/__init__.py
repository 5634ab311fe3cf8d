"""Declared tables as a graph of plain data: order, selection, picture. Pure: no Spark, no disk, no clock."""

from icefield.graph.build import build_graph as build_graph
from icefield.graph.nodes import READABLE as READABLE
from icefield.graph.nodes import Edge as Edge
from icefield.graph.nodes import Graph as Graph
from icefield.graph.nodes import Node as Node
from icefield.graph.nodes import changes_of as changes_of
from icefield.graph.nodes import measures_of as measures_of
from icefield.graph.nodes import owner_of as owner_of
from icefield.graph.nodes import quarantine_of as quarantine_of
from icefield.graph.selection import select as select

"""Holds events to OpenLineage's published model: the classes that its Python client has made from the JSON schemas.

Every object must have all required fields, no field that its class does not know, and values of the right types. A
facet is found by its `_schemaURL`, which names schema and version, and must be of the kind that its place asks for.

With a folder of the schemas themselves (`spec/` of OpenLineage's repository) in ICEFIELD_OPENLINEAGE_SPEC, and
`jsonschema` installed, events are also held to these.
"""

from __future__ import annotations

import datetime as dt
import importlib
import json
import os
import pkgutil
import types
import typing
import uuid
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import attr
from openlineage.client import generated
from openlineage.client.generated import base

SPEC = os.environ.get("ICEFIELD_OPENLINEAGE_SPEC", "")


def require_valid(event: Mapping[str, Any]) -> None:
    problems = list(_object(event, base.RunEvent, "event"))
    problems += [f"{event['eventTime']} is no time with a zone"] * (not _is_time(event["eventTime"]))
    assert not problems, problems
    if SPEC:
        _require_schemas(event)


@cache
def _facets() -> dict[str, type]:
    """Every class of a facet by the schema that it is made from."""
    modules = [
        importlib.import_module(f"{generated.__name__}.{m.name}") for m in pkgutil.iter_modules(generated.__path__)
    ]
    classes = {one for module in modules for one in vars(module).values() if isinstance(one, type)}
    return {one._get_schema(): one for one in classes if issubclass(one, base.BaseFacet)}


def _value(value: Any, kind: Any, place: str) -> Iterator[str]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return
    if origin in (typing.Union, types.UnionType):
        options = [list(_value(value, one, place)) for one in arguments if one is not type(None)]
        yield from min(options, key=len)
    elif origin is list:
        yield from [] if isinstance(value, list) else [f"{place} is no list"]
        for number, item in enumerate(value):
            yield from _value(item, arguments[0], f"{place}[{number}]")
    elif origin is dict:
        for key, item in value.items():
            yield from _value(item, arguments[1], f"{place}.{key}")
    elif isinstance(kind, type) and issubclass(kind, base.BaseFacet):
        yield from _facet(value, kind, place)
    elif attr.has(kind):
        yield from _object(value, kind, place)
    elif isinstance(kind, type) and issubclass(kind, Enum):
        yield from [] if value in {one.value for one in kind} else [f"{place} is {value!r}"]
    elif type(value) is not kind:
        yield f"{place} is {value!r}, no {kind.__name__}"


def _facet(value: Any, kind: type, place: str) -> Iterator[str]:
    found = _facets().get(value.get("_schemaURL"))
    if found is None or not issubclass(found, kind):
        yield f"{place} is no {kind.__name__}: {value.get('_schemaURL')}"
    else:
        yield from _object(value, found, place)


def _object(value: Any, kind: type, place: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{place} is no object"
        return
    hints = typing.get_type_hints(kind)
    fields = {one.name: one for one in attr.fields(kind)}
    always = {"_producer", "_schemaURL", "producer", "schemaURL"} & set(fields)
    required = {name for name, one in fields.items() if one.default is attr.NOTHING} | always
    yield from (f"{place} has no {name}" for name in required - set(value))
    yield from (f"{place} has an unknown {name}" for name in set(value) - set(fields))
    for name in set(value) & set(fields):
        if name == "runId" and str(uuid.UUID(value[name])) != value[name]:
            yield f"{place}.{name} is no UUID"
        yield from _value(value[name], hints[name], f"{place}.{name}")


def _is_time(text: str) -> bool:
    return dt.datetime.fromisoformat(text).tzinfo is not None and "T" in text


# -- the schemas themselves


def _require_schemas(event: Mapping[str, Any]) -> None:
    _validator("OpenLineage", "/$defs/RunEvent").validate(event)
    places = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
    found = [place.get(kind, {}) for place in places for kind in ("facets", "inputFacets", "outputFacets")]
    for name, facet in (pair for facets in found for pair in facets.items()):
        schema = facet["_schemaURL"].partition("#")[0].rpartition("/")[2].removesuffix(".json")
        _validator(schema, "").validate({name: facet})  # the schema says under which name it stands
        assert name in _schema(schema)["properties"]


@cache
def _schema(name: str) -> Any:
    (file,) = Path(SPEC).rglob(f"{name}.json")
    return json.loads(file.read_text())


@cache
def _validator(name: str, pointer: str) -> Any:
    from jsonschema import Draft202012Validator, FormatChecker
    from referencing import Registry, Resource

    files = [json.loads(file.read_text()) for file in Path(SPEC).rglob("*.json") if "tests" not in file.parts]
    schemas = [one for one in files if "$id" in one]
    registry = Registry().with_resources([(one["$id"], Resource.from_contents(one)) for one in schemas])
    wanted = {"$ref": f"{_schema(name)['$id']}#{pointer}"}
    return Draft202012Validator(wanted, registry=registry, format_checker=FormatChecker())

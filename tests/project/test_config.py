"""icefield.toml: found like git finds its folder, read strictly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from icefield.errors import InvalidConfig, NoProject, UnknownProfile
from icefield.project import find_project
from icefield.project.config import read_config, table_files

if TYPE_CHECKING:
    from .conftest import Write

FULL = """
[project]
name = "shop"
tables = ["b.py", "a*.py"]
default_profile = "dev"

[profile.dev]
lake = "../lakes/dev"

[profile.dev.spark]
"spark.driver.memory" = "3g"
spark.sql.shuffle.partitions = 4
"spark.ui.enabled" = false

[profile.dev.settings]
limit = 5
secret = "${env:ICEFIELD_TEST_SECRET}"

[profile.prod]
lake = "/srv/lake"

[dagster]
preview = 3
"""


def test_the_nearest_folder_with_the_file_is_the_project(write: Write) -> None:
    root = write()
    deep = root / "a" / "b"
    deep.mkdir(parents=True)
    assert find_project(deep) == find_project(root) == find_project(root / "icefield.toml") == root.resolve()


def test_no_project_is_said_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NoProject, match="icefield init DIR"):
        find_project(tmp_path)
    with pytest.raises(NoProject, match="does not exist"):
        find_project(tmp_path / "nowhere")


def test_everything_it_says_is_read(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICEFIELD_TEST_SECRET", "x")
    root = write(**{"icefield.toml": FULL})
    config = read_config(root)
    assert (config.name, config.profile.name) == ("shop", "dev")
    assert config.profile.lake == root.parent / "lakes" / "dev"
    assert config.profile.spark == {
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
    }
    assert config.profile.settings == {"limit": 5, "secret": "x"}
    assert config.dagster == {"preview": 3}


def test_databases_are_read_and_never_shown(write: Write) -> None:
    root = write(
        **{
            "icefield.toml": '[profile.local.jdbc.shop]\nurl = "jdbc:mysql://h/d?password=c4n4ry"\nuser = "reader"\n'
            'password = "${file:secret}"\njar = "drivers/mysql.jar"\ndriver = "com.mysql.cj.jdbc.Driver"\n',
            "secret": "c4n4ry-too\n",
        }
    )
    found = read_config(root).profile.jdbc["shop"]
    assert (found.password, found.jars) == ("c4n4ry-too", (root / "drivers" / "mysql.jar",))
    assert "c4n4ry" not in repr(read_config(root))


def test_the_profile_is_the_given_one_else_the_variables_else_the_default(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICEFIELD_TEST_SECRET", "x")
    root = write(**{"icefield.toml": FULL})
    monkeypatch.setenv("ICEFIELD_PROFILE", "prod")
    assert read_config(root).profile.name == "prod"
    assert read_config(root, "dev").profile.name == "dev"
    monkeypatch.delenv("ICEFIELD_PROFILE")
    assert read_config(root).profile.name == "dev"


def test_without_profiles_the_lake_is_a_folder_of_the_project(write: Write) -> None:
    root = write()
    assert read_config(root).profile.lake == root / "lake"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[projet]\nname='x'", "did you mean `project`"),
        ("[project]\ntabels=['a.py']", "did you mean `tables`"),
        ("[profile.local]\nlke='x'", "did you mean `lake`"),
        ("[project]\nname=3", "is not a string"),
        ("[project]\ntables=3", "is not a list of files"),
        ("[project]\nname='x", "is not valid TOML"),
        ("profile=3", "is not a section"),
        ("[profile.local]\nlake='${env:ICEFIELD_TEST_NOT_SET}'", "export ICEFIELD_TEST_NOT_SET"),
        ("[profile.local.spark]\na=[1]", "write a string, a number, true or false"),
        ("[profile.local.jdbc]\nurl='jdbc:x'", "[profile.local.jdbc] url is not a section"),
        ("[profile.local.jdbc.shop]\nuser='x'", "[profile.local.jdbc.shop] has no url"),
        ("[profile.local.jdbc.shop]\nurl='postgresql://x'", 'url does not begin with "jdbc:"'),
        ("[profile.local.jdbc.shop]\nurl='jdbc:x'\npasword='x'", "did you mean `password`"),
        ("[profile.local.jdbc.shop]\nurl='jdbc:x'\npassword=1", "password is not a string"),
    ],
)
def test_what_it_does_not_know_is_refused(write: Write, text: str, says: str) -> None:
    root = write(**{"icefield.toml": text})
    with pytest.raises(InvalidConfig) as refused:
        read_config(root)
    assert says in str(refused.value)
    assert refused.value.where == "icefield.toml"


def test_an_unknown_profile_is_offered_the_known_ones(write: Write) -> None:
    root = write(**{"icefield.toml": "[profile.prod]\nlake='x'"})
    with pytest.raises(UnknownProfile, match="did you mean `prod`"):
        read_config(root, "prd")


def test_an_unset_variable_of_another_profile_does_not_matter(write: Write) -> None:
    root = write(**{"icefield.toml": FULL})
    assert read_config(root, "prod").profile.lake == Path("/srv/lake")


def test_what_is_missing_for_kafka_matters_to_whoever_asks_a_broker(write: Write) -> None:
    section = "[profile.local.kafka]\nbrokers='b:1'\n[profile.local.kafka.options]\n'sasl.password'='${env:NOT_SET}'"
    kafka = read_config(write(**{"icefield.toml": section})).profile.kafka
    with pytest.raises(InvalidConfig, match="export NOT_SET=") as refused:
        kafka.require_settings()
    assert refused.value.what == "[profile.local.kafka] options.sasl.password uses ${env:NOT_SET}, which is not set"
    assert kafka == read_config(write(**{"icefield.toml": section})).profile.kafka, "nothing has changed"


def test_tables_are_the_patterns_in_their_order_without_tests(write: Write) -> None:
    root = write(**{name: "" for name in ("a1.py", "a2.py", "b.py", "test_b.py", "conftest.py")})
    assert [file.name for file in table_files(read_config(root))] == ["a1.py", "a2.py", "b.py"]
    write(**{"icefield.toml": '[project]\ntables = ["b.py", "a*.py"]'})
    assert [file.name for file in table_files(read_config(root))] == ["b.py", "a1.py", "a2.py"]


def test_a_named_file_that_is_not_there_is_refused(write: Write) -> None:
    root = write(**{"bronze.py": "", "icefield.toml": '[project]\ntables = ["bronz.py"]'})
    with pytest.raises(InvalidConfig, match=r"did you mean `bronze.py`"):
        table_files(read_config(root))

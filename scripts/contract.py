"""Write the contract of a release in docs/reference/contract: what users of leadsman and its apps rely on, a fact a
line.

A release writes it. From then on, each change of a fact needs a line below *Unreleased* of CHANGELOG.md that names it.

Usage: ``python scripts/contract.py``; with ``--check`` it prints the changes that have no such line.
"""

import ast
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import griffe
from reference import DOCUMENTS, commands

from leadsman.core.introspection.schema import Schema, resolved, schema_of
from leadsman.core.introspection.topic_schemas import MAX_DEPTH, schemas
from leadsman.core.settings.sections import BROKER, SECTIONS, keys_of, section_of
from leadsman.core.settings.sources import Where
from leadsman.tools.cli.arguments import EXIT_CODES
from leadsman.tools.difference.picture import FORMAT, Picture, PictureNode
from leadsman.tools.difference.side import Run
from leadsman.tools.difference.sides import Side, pictures_of

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "reference" / "contract"
CHANGES = ROOT / "CHANGELOG.md"
APPS = sorted(path.name for path in ROOT.glob("apps/*2mqtt"))
LENGTH = 120.0
"""Seconds of virtual time for which an app runs on its twins: each device is read."""
BREAKS = "What breaks"
"""The heading in the changes for what disappears."""
REQUIRED = "required"
"""In a fact about what a user must give."""
PARTS = " "
"""Between the parts of a name."""

Name = tuple[str, ...]
"""Of a fact: what it is about, from the whole to the part, such as an app, a topic, and a field."""
Facts = dict[Name, str]
"""What is promised, by its name."""


class Change(NamedTuple):
    """A fact that differs from the contract."""

    name: Name
    before: str | None
    """None: it appears."""
    after: str | None
    """None: it disappears."""

    @property
    def breaks(self) -> bool:
        """Whether something that works with the contract needs a change."""
        return self.after is None or (_is_required(self.after) and not _is_required(self.before))

    def __str__(self) -> str:
        name = PARTS.join(self.name)
        if self.before is None:
            return f"+ {name} = {self.after}"
        return f"- {name} = {self.before}" if self.after is None else f"~ {name} = {self.before} → {self.after}"


def _is_required(fact: str | None) -> bool:
    """Whether a user must give it."""
    return fact is not None and REQUIRED in fact.split(", ")


def differences(before: Facts, after: Facts) -> Iterator[Change]:
    """What changes. Of what appears or disappears as a whole, only the whole is listed."""
    for name in sorted({*before, *after}):
        was, will = before.get(name), after.get(name)
        if was != will:
            above = [name[:length] for length in range(1, len(name))]
            whole = any((each in before) != (each in after) for each in above)
            if not (whole and None in (was, will)):
                yield Change(name, was, will)


def without_entry(changes: Iterable[Change], text: str) -> Iterator[Change]:
    """The changes that no line of the changes names.

    Args:
        changes: all of them.
        text: of CHANGELOG.md. A line names a fact if the last part of its name stands in it as code; what breaks is
            named below that heading.
    """
    sections = re.split(r"^### ", unreleased(text), flags=re.MULTILINE)
    breaking = "\n".join(each for each in sections if each.startswith(BREAKS))
    for change in changes:
        word = re.compile(rf"(?<![\w-]){re.escape(change.name[-1])}(?![\w-])")
        code = re.findall(r"`([^`]+)`", breaking if change.breaks else "\n".join(sections))
        if not any(word.search(each) for each in code):
            yield change


def unreleased(text: str) -> str:
    """What CHANGELOG.md says of no release yet."""
    found = re.search(r"^## Unreleased$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def written(facts: Facts) -> str:
    """The facts as a file has them."""
    return "".join(f"{PARTS.join(name)} = {text}\n" for name, text in sorted(facts.items()))


def read(text: str) -> Facts:
    """The facts of a file."""
    lines = (line.partition(" = ") for line in text.splitlines())
    return {tuple(name.split(PARTS)): fact for name, _, fact in lines}


def python() -> Facts:
    """What a program may import: all that the reference describes, with its parameters and attributes."""
    named = re.compile(r"^::: (leadsman[\w.]+)$", re.MULTILINE)
    names = {name for page in ROOT.glob("docs/reference/*.md") for name in named.findall(page.read_text("utf-8"))}
    package = griffe.load("leadsman", search_paths=[ROOT / "src"], resolve_aliases=True)
    found: Facts = {}
    for name in names:
        found |= _of_object((name,), package[name.removeprefix("leadsman.")], package)
    return found


def _of_object(name: Name, given: griffe.Object | griffe.Alias, package: griffe.Object | griffe.Alias) -> Facts:
    each = given.final_target if given.is_alias else given
    if each.is_attribute:
        value = "" if each.annotation is not None or "instance-attribute" in each.labels else f" {each.value}"
        return {name: _line(f"attribute {_annotated(each.annotation)}".strip() + value)}
    if each.is_function:
        return {name: _line(f"function, returns {each.returns}")} | _of_parameters(name, each.parameters, package)
    found = {name: "module"} if each.is_module else {name: _line(", ".join(("class", *map(str, each.bases))))}
    for member, inner in (each.members if each.is_module else each.all_members).items():
        if member == "__init__":
            parameters = (inner.final_target if inner.is_alias else inner).parameters
            found |= _of_parameters(name, parameters, package)
        elif not member.startswith("_") and not (each.is_module and (inner.is_alias or inner.is_module)):
            found |= _of_object((*name, member), inner, package)
    return found


def _of_parameters(name: Name, parameters: griffe.Parameters, package: griffe.Object | griffe.Alias) -> Facts:
    found: Facts = {}
    for number, each in enumerate(parameters):
        options = re.fullmatch(r"Unpack\[(\w+)\]", str(each.annotation))
        if options is not None and each.kind is griffe.ParameterKind.var_keyword:
            found[(*name, f"**{each.name}")] = options[1]  # its keys are facts of the class
        elif each.name not in ("self", "cls"):
            kind = "" if each.kind is griffe.ParameterKind.keyword_only else f" {number}"
            default = "required" if each.default is None else f"default {each.default}"
            found[(*name, f"({each.name})")] = _line(f"parameter{kind}, {_annotated(each.annotation)}, {default}")
    return found


def _annotated(annotation: str | griffe.Expr | None) -> str:
    """The type of an annotation, without what stands beside it."""
    inner = re.fullmatch(r"Annotated\[(.*)\]", str(annotation or ""), re.DOTALL)
    tree = ast.parse(f"({inner[1]},)" if inner else "()", mode="eval").body
    assert isinstance(tree, ast.Tuple)
    return ast.unparse(tree.elts[0]) if tree.elts else str(annotation or "")


def command_line() -> Facts:
    """Commands with their options, and exit codes."""
    found: Facts = {("exit", str(code)): _line(meaning) for code, meaning in EXIT_CODES.items()}
    for name, parser in commands():
        found["leadsman", name] = "command"
        for each in parser._actions:
            if "--help" not in each.option_strings:
                option = max(each.option_strings, key=len, default=each.dest)
                taken = "no value" if each.nargs == 0 else str(each.metavar or each.dest)
                choices = "" if each.choices is None else f", of {' '.join(map(str, each.choices))}"
                optional = each.nargs == "*"  # before Python 3.15 argparse calls it required
                needed = ", required" if each.required and not optional else ""
                found["leadsman", name, option] = f"{taken}{choices}{needed}"
    return found


def settings() -> Facts:
    """The settings that every app has, and what holds where nobody sets them."""
    found: Facts = {}
    for name in SECTIONS:
        defaults = {} if name == BROKER else section_of(name).values()._asdict()
        for key in keys_of(name):
            found[name, key] = _line(f"default {defaults.get(key)!r}")
    return found


def documents() -> Facts:
    """The fields of the documents that an app publishes and writes."""
    return {
        (title.replace(" ", "-").lower(), *name): fact
        for title, kind in DOCUMENTS.items()
        for name, fact in _fields(schema_of(kind), "always").items()
    }


def _fields(whole: Schema, needed: str, node: Schema | None = None, depth: int = 0) -> Facts:
    """The fields of a schema by their paths. `needed` is what is said of one that is in each document."""
    found: Facts = {}
    _, around = resolved(whole, whole if node is None else node)
    inner = around.get("additionalProperties") if "properties" not in around else None
    items = around.get("items")
    for name, each in (
        *around.get("properties", {}).items(),
        *((("*", inner),) if isinstance(inner, dict) else ()),
        *((("[]", items),) if isinstance(items, dict) else ()),
    ):
        always = f", {needed}" if name in around.get("required", ()) else ""
        default = f", default {json.dumps(each['default'])}" if "default" in each else ""
        unit = f", {each['unit']}" if "unit" in each else ""
        found[name,] = f"{_type(whole, each)}{unit}{default}{always}"
        if depth < MAX_DEPTH:
            found |= {(name, *below): fact for below, fact in _fields(whole, needed, each, depth + 1).items()}
    return found


def _type(whole: Schema, node: Schema) -> str:
    if "anyOf" in node:
        return " | ".join(_type(whole, each) for each in node["anyOf"])
    if "$ref" in node:
        return _type(whole, whole["$defs"][node["$ref"].rpartition("/")[2]])
    if "enum" in node or "const" in node:
        return " | ".join(json.dumps(each) for each in node.get("enum", [node.get("const")]))
    limits = [f"{word} {node[word]}" for word in ("minimum", "maximum", "maxLength", "pattern") if word in node]
    return " ".join((str(node.get("format") or node.get("type") or "any"), *limits))


def metrics() -> Facts:
    """The families of what is measured, with their labels."""
    found: Facts = {}
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("gauge", "counter"):
                name, _, *labels = (ast.literal_eval(each) for each in node.args)
                suffix = "_total" if node.func.id == "counter" else ""
                found[f"leadsman_{name}{suffix}",] = ", ".join((node.func.id, *labels))
    return found


def files() -> Facts:
    """The files that a later version reads, with the numbers of their layouts, as a tested table has them."""
    page = (ROOT / "docs/adr/state.md").read_text("utf-8")
    rows = re.findall(r"^\| `?([\w. ]+?)`? \| (\d+) \|", page, re.MULTILINE)
    return {(name.replace(" ", "-"),): f"layout {number}" for name, number in rows}


def http() -> Facts:
    """The paths of the HTTP endpoint, with their answers."""
    document = json.loads((ROOT / "src/leadsman/extensions/http/openapi.json").read_text("utf-8"))
    found: Facts = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            found[path, method] = ", ".join(sorted(operation["responses"]))
            for each in operation.get("parameters", ()):
                found[path, method, each["name"]] = f"{each['in']}{', required' if each.get('required') else ''}"
    return found


def apps() -> dict[str, Facts]:
    """What each app publishes while it runs on its twins, and its settings."""
    with tempfile.TemporaryDirectory() as folder:
        sides = [Side(name, Path(sys.executable), Path(folder), _run(name)) for name in APPS]
        pictures = zip(APPS, pictures_of(sides), strict=True)
        return {name: _settings(name) | _taken(name) | _published(name, each) for name, each in pictures}


def _run(name: str) -> Run:
    given = getattr(import_module(f"{name}.settings"), "DEMO", {})
    return Run(
        picture=FORMAT,
        target=f"{name}.app:app",
        config=None,
        settings=given,
        sessions=[],
        length=LENGTH,
        begins=None,
        seed=1,
    )


def _settings(name: str) -> Facts:
    model = import_module(f"{name}.app").app.setup.declaration.model
    return {
        ("setting", ".".join(path)): fact for path, fact in _fields(schema_of(model, "validation"), REQUIRED).items()
    }


def _taken(name: str) -> Facts:
    """The topics that it subscribes to, and the payloads that it takes."""
    app = import_module(f"{name}.app").app
    found: Facts = {}
    with app.unloaded():
        app.load(Where.nowhere(_run(name)["settings"]))
        topics = schemas(app.topics, {**app.telemetries, **app.sources}, app.commands)["topics"]
    for topic, schema in topics.items():
        if schema.get("direction") == "in" and not topic.endswith("/introspect"):
            place = _place(topic)
            found |= {place[:2]: "device", place: f"takes {_type(schema, schema)}"}
            found |= {(*place, ".".join(path)): fact for path, fact in _fields(schema, REQUIRED).items()}
    return found


def _published(name: str, picture: Picture) -> Facts:
    found: Facts = {}
    places = picture["found"]["fields"]
    for topic, node in places["topics"]["fields"].items():
        described, place = topic.endswith("/config"), _place(topic)
        retained = " ".join(str(value) for value in node["fields"]["retained"]["values"])
        found |= {place[:2]: "device", place: f"{topic if described else 'published'}, retained {retained}"}
        if not _is_described(name, topic):
            for path, fact in _values(node["fields"]["payload"], described=described):
                found[*place, ".".join(path) or "(payload)"] = fact
    for entity, node in places["entities"]["fields"].items():
        found["entity", *entity.split(PARTS)] = "entity"
        for path, fact in _values(node, described=True):
            found["entity", *entity.split(PARTS), ".".join(path)] = fact
    return found


def _place(topic: str) -> Name:
    """Where the facts about a topic stand: below its device, or its device in Home Assistant."""
    levels = topic.split("/")
    if levels[-1] == "config":
        return "entity", "/".join(levels[-3:-1])
    return ("topic", "/".join(levels[:2]), *(["/".join(levels[2:])] if levels[2:] else []))


def _is_described(app: str, topic: str) -> bool:
    """Whether the documents have what is in a topic."""
    level = topic.rpartition("/")[2]
    return topic.startswith((f"{app}/status", f"{app}/registry")) or level in (
        "availability",
        "health",
        "ledger",
        "error",
    )


def _values(node: PictureNode, path: Name = (), *, described: bool) -> Iterator[tuple[Name, str]]:
    """The places below one: their types; their values where they describe something."""
    types = [each for each in node["types"] if each != "missing"]
    if not {"object", "list", "message"} & {*types}:
        values = f" {json.dumps(node['values'], ensure_ascii=False)}" if described else ""
        yield path, _line(" or ".join(types) + values)
    for name, each in node["fields"].items():
        yield from _values(each, (*path, name), described=described)


def _line(text: str) -> str:
    return " ".join(text.split())


def contract() -> dict[str, Facts]:
    """All facts, by the names of their files."""
    kinds = (python, command_line, settings, documents, files, metrics, http)
    return {each.__name__.replace("_", "-"): each() for each in kinds} | apps()


def unnamed(released: Mapping[str, Facts], now: Mapping[str, Facts], changes: str) -> Iterator[str]:
    """What to do about each change that the changes do not name.

    Args:
        released: the facts of the release, by the names of their files.
        now: those of the code.
        changes: the text of CHANGELOG.md.
    """
    for file in sorted({*released, *now}):
        found = differences(released.get(file, {}), now.get(file, {}))
        for change in without_entry(found, changes):
            below = f"a line below {BREAKS} of" if change.breaks else "a line in"
            yield f"{file}: {change}\n    write {below} CHANGELOG.md with `{change.name[-1]}`, or take the change back"


def released() -> dict[str, Facts]:
    """The facts of the last release, by the names of their files."""
    return {path.stem: read(path.read_text("utf-8")) for path in FOLDER.glob("*.txt")}


def main() -> None:
    """Write the contract, or check it."""
    if "--check" in sys.argv:
        found = [*unnamed(released(), contract(), CHANGES.read_text("utf-8"))]
        raise SystemExit("\n".join(found) or 0)
    if any(FOLDER.iterdir()) and unreleased(CHANGES.read_text("utf-8")).strip():
        raise SystemExit(
            "the contract is that of a release: move what is below Unreleased in CHANGELOG.md to its section"
        )
    for path in FOLDER.glob("*.txt"):
        path.unlink()
    for name, facts in contract().items():
        (FOLDER / f"{name}.txt").write_text(written(facts), "utf-8")


if __name__ == "__main__":
    main()

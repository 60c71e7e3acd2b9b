"""From YAML to the scenario's records, remembering on which line each value stands."""

from __future__ import annotations

import types
from difflib import get_close_matches
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NamedTuple,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
import yaml

from gpuledger.sources.simulated.forms import SHOWN, Form, quoted
from gpuledger.sources.simulated.schema import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterable

NULL = "tag:yaml.org,2002:null"
MERGE = "tag:yaml.org,2002:merge"
TAGS = {
    f"tag:yaml.org,2002:{name}"
    for name in (
        ["null", "bool", "int", "float", "timestamp", "str", "seq", "map", "merge", "value"]
    )
}
MOST_TEXT = 1 << 20
MOST_VALUES = 200_000
KINDS = {yaml.ScalarNode: "a value", yaml.SequenceNode: "a list", yaml.MappingNode: "a mapping"}


Pair: TypeAlias = "tuple[yaml.Node, yaml.Node]"


class Misfit(Exception):  # noqa: N818  what it says is a sentence for the author of a scenario
    """Something that may not be there, and on which line."""

    def __init__(self, line: int, says: str) -> None:
        super().__init__(f"line {line}: {says}")


class Parsed(NamedTuple):
    """A scenario, and the line of each of its values by the value's path."""

    scenario: Scenario
    lines: dict[str, int]


def parse(text: str) -> Parsed:
    """Parse a scenario's text; Misfit says where it does not fit and what does."""
    try:
        if len(text) > MOST_TEXT:
            raise Misfit(1, f"too large: more than {MOST_TEXT} characters")
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            raise Misfit(1, "the file is empty: `gpus:` at least has to be there")
        walker = _Walker()
        return Parsed(walker.convert(Scenario, node, ""), walker.lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise Misfit(line, f"not YAML: {error.problem or error.context}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise Misfit(line, f"not YAML: {error.reason}") from error
    except ValueError as error:  # a number that Python does not make a character, or anything, of
        says = "not YAML: an escape or a number in it is out of range"
        raise Misfit(loader.line + 1, says) from error
    except RecursionError as error:
        raise Misfit(1, "not a scenario: nested too deeply") from error


def allowed(given: str, values: Iterable[str]) -> str:
    """Say what is allowed instead, the nearest first."""
    values = list(values)
    near = get_close_matches(given[:SHOWN], values, n=1)
    return (f"did you mean {near[0]}? " if near else "") + f"allowed: {', '.join(values)}"


class _Walker:
    """Goes through nodes and types side by side."""

    def __init__(self) -> None:
        self.lines: dict[str, int] = {}
        self._pairs_of: dict[int, dict[str, Pair]] = {}
        self._values = 0

    def convert(self, hint: Any, node: yaml.Node, path: str, form: Form | None = None) -> Any:
        self.lines[path] = node.start_mark.line + 1
        self._count(node)
        if node.tag not in TAGS:
            raise self._misfit(node, path, f"a tag ({quoted(node.tag)}) may not be here")
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Annotated:
            form = next((a for a in arguments[1:] if isinstance(a, Form)), form)
            return self.convert(arguments[0], node, path, form)
        if origin in {Union, types.UnionType}:
            return self._one_of(arguments, node, path, form)
        if origin is tuple:
            return self._list(arguments, node, path)
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            return self._record(hint, node, path)
        return self._scalar(hint, node, path, form)

    def _one_of(
        self, arguments: tuple[Any, ...], node: yaml.Node, path: str, form: Form | None
    ) -> Any:
        """Choose the type that is written as the node is."""
        if type(None) in arguments and node.tag == NULL:
            return None
        arms = [a for a in arguments if a is not type(None)]
        fits = [arm for arm in arms if isinstance(node, _written_as(arm))]
        return self.convert((fits or arms)[0], node, path, form)

    def _record(self, hint: type[msgspec.Struct], node: yaml.Node, path: str) -> Any:
        fields = {field.encode_name: field for field in msgspec.structs.fields(hint)}
        if not isinstance(node, yaml.MappingNode):
            raise self._misfit(
                node, path, f"{_shown(node)}, not a mapping with {', '.join(fields)}"
            )
        hints = _hints(hint)
        values: dict[str, Any] = {}
        for key, (key_node, value) in self._pairs(node, path).items():
            if key.startswith("_"):
                continue  # the author's own: an anchor's place, a remark
            if key not in fields:
                says = f"{quoted(key)} is no key here: {allowed(key, fields)}"
                raise self._misfit(key_node, path, says)
            name = fields[key].name
            values[name] = self.convert(hints[name], value, f"{path}.{key}".lstrip("."))
        for key, field in fields.items():
            if field.required and field.name not in values:
                raise self._misfit(node, path, f"{key!r} is missing")
        return hint(**values)

    def _pairs(self, node: yaml.MappingNode, path: str) -> dict[str, Pair]:
        """Give a mapping's keys, those of merges (`<<`) where it has none of that name."""
        if (known := self._pairs_of.get(id(node))) is not None:
            return known
        self._pairs_of[id(node)] = {}  # for a mapping that merges itself
        seen: set[str] = set()
        own: dict[str, Pair] = {}
        merged: dict[str, Pair] = {}
        for key, value in node.value:
            self._count(key)
            if not isinstance(key, yaml.ScalarNode) or key.tag not in TAGS:
                raise self._misfit(key, path, "a key has to be a word")
            name = str(key.value)
            if name in seen:
                raise self._misfit(key, path, f"{quoted(name)} is given twice")
            seen.add(name)
            if key.tag != MERGE:
                own[name] = key, value
                continue
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(source, yaml.MappingNode):
                    raise self._misfit(source, path, "`<<` merges mappings only")
                for brought, pair in self._pairs(source, path).items():
                    self._count(source)
                    merged.setdefault(brought, pair)
        self._pairs_of[id(node)] = merged | own
        return merged | own

    def _count(self, node: yaml.Node) -> None:
        """Count a value: an alias counts as all that it stands for."""
        self._values += 1
        if self._values > MOST_VALUES:
            raise self._misfit(node, "", f"too large: more than {MOST_VALUES} values")

    def _list(self, arguments: tuple[Any, ...], node: yaml.Node, path: str) -> Any:
        endless = arguments[-1] is ...
        wanted = "a list" if endless else "a pair `[since, value]`"
        if not isinstance(node, yaml.SequenceNode):
            raise self._misfit(node, path, f"{_shown(node)}, not {wanted}")
        if not endless and len(node.value) != len(arguments):
            raise self._misfit(node, path, f"a list of {len(node.value)}, not {wanted}")
        hints = [arguments[0]] * len(node.value) if endless else arguments
        return tuple(
            self.convert(hint, item, f"{path}[{i}]")
            for i, (hint, item) in enumerate(zip(hints, node.value, strict=True))
        )

    def _scalar(self, hint: Any, node: yaml.Node, path: str, form: Form | None) -> Any:
        literals = get_args(hint)
        wanted = form.name if form else "true or false" if hint is bool else "one of the words"
        if not isinstance(node, yaml.ScalarNode) or node.tag == NULL:
            says = f"allowed: {', '.join(literals)}" if literals else f"a {wanted} is wanted"
            raise self._misfit(node, path, f"{_shown(node)}: {says}")
        text = str(node.value)
        if form is not None:
            try:
                return form.parse(text)
            except ValueError as error:
                raise self._misfit(node, path, str(error)) from error
        words = literals or ("true", "false")
        if text not in words:
            kernels = ", or a profile of your own" if path.endswith(".kernels") else ""
            says = f"{quoted(text)} is not allowed: {allowed(text, words)}{kernels}"
            raise self._misfit(node, path, says)
        return text if literals else text == "true"

    def _misfit(self, node: yaml.Node, path: str, says: str) -> Misfit:
        return Misfit(node.start_mark.line + 1, f"{path}: {says}" if path else says)


@cache
def _hints(record: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(record, include_extras=True)


def _written_as(hint: Any) -> type[yaml.Node]:
    if get_origin(hint) is Annotated:
        return _written_as(get_args(hint)[0])
    if get_origin(hint) is tuple:
        return yaml.SequenceNode
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return yaml.MappingNode
    return yaml.ScalarNode


def _shown(node: yaml.Node) -> str:
    if node.tag == NULL:
        return "nothing is given"
    return next(name for kind, name in KINDS.items() if isinstance(node, kind))

"""From YAML to the scenario's records, remembering on which line each value stands."""

from __future__ import annotations

import types
from difflib import get_close_matches
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
import yaml

from gpuledger.sources.simulated.forms import Form
from gpuledger.sources.simulated.schema import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterable

NULL = "tag:yaml.org,2002:null"
KINDS = {yaml.ScalarNode: "a value", yaml.SequenceNode: "a list", yaml.MappingNode: "a mapping"}


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
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            raise Misfit(1, "the file is empty: `gpus:` at least has to be there")
        walker = _Walker(loader)
        return Parsed(walker.convert(Scenario, node, ""), walker.lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise Misfit(line, f"not YAML: {error.problem or error.context}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise Misfit(line, f"not YAML: {error.reason}") from error
    except RecursionError as error:
        raise Misfit(1, "not a scenario: nested too deeply") from error


def allowed(given: str, values: Iterable[str]) -> str:
    """Say what is allowed instead, the nearest first."""
    values = list(values)
    near = get_close_matches(given, values, n=1)
    return (f"did you mean {near[0]}? " if near else "") + f"allowed: {', '.join(values)}"


class _Walker:
    """Goes through nodes and types side by side."""

    def __init__(self, loader: yaml.SafeLoader) -> None:
        self.lines: dict[str, int] = {}
        self._loader = loader
        self._flat: set[int] = set()

    def convert(self, hint: Any, node: yaml.Node, path: str, form: Form | None = None) -> Any:
        self.lines[path] = node.start_mark.line + 1
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
        self._flatten(node, path)
        hints = get_type_hints(hint, include_extras=True)
        values: dict[str, Any] = {}
        for key_node, value in node.value:
            key = str(key_node.value)
            if key.startswith("_"):
                continue  # the author's own: an anchor's place, a remark
            if key not in fields:
                says = f"{key!r} is no key here: {allowed(key, fields)}"
                raise self._misfit(key_node, path, says)
            name = fields[key].name
            values[name] = self.convert(hints[name], value, f"{path}.{key}".lstrip("."))
        for key, field in fields.items():
            if field.required and field.name not in values:
                raise self._misfit(node, path, f"{key!r} is missing")
        return hint(**values)

    def _flatten(self, node: yaml.MappingNode, path: str) -> None:
        """Put what a merge (`<<`) brings in front of the keys, once a node: those override it."""
        if id(node) in self._flat:
            return
        self._flat.add(id(node))
        seen = set()
        for key, _ in node.value:
            if str(key.value) in seen:
                raise self._misfit(key, path, f"{key.value!r} is given twice")
            seen.add(str(key.value))
        self._loader.flatten_mapping(node)

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
            says = f"{text!r} is not allowed: {allowed(text, words)}{kernels}"
            raise self._misfit(node, path, says)
        return text if literals else text == "true"

    def _misfit(self, node: yaml.Node, path: str, says: str) -> Misfit:
        return Misfit(node.start_mark.line + 1, f"{path}: {says}" if path else says)


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

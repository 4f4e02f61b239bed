"""docs/api.md, made from the code: every public name, its signature and the first line of its docstring.

python -m tests.kit.api_page > docs/api.md
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from typing import Any, Final, TypeGuard

import konverse
from konverse.bridge.views.listing import Source, View
from konverse.bridge.views.views import Views
from konverse.dialog.session.outcome import Outcome
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.transitions import State
from konverse.schemas import errors, stack_errors

INTERNAL: Final = {
    "App": {"answering"},
    "Broker": {
        "adopt",
        "answering",
        "catalog",
        "database",
        "draining",
        "forked",
        "obey",
        "settings",
        "transmission_queue",
        "verification",
    },
    "Dialog": {"staged"},
    "Pool": {"forked", "hear", "keeps", "lease", "options"},
    "Reader": {"forked", "options", "owners", "queue"},
    "Transaction": {
        "clear",
        "conclude",
        "endings",
        "ends",
        "finishes",
        "give_back",
        "idle",
        "locked",
        "received",
        "sends",
        "size_bytes",
    },
    "Message": {"offset", "scope", "stamp"},
    "RoutingService": {"activation", "clauses", "route"},
    "Endpoint": {"carry", "changed", "finished", "held", "lanes", "opener", "sent"},
}
"""Names without an underscore that the parts of konverse have for each other."""

PUBLIC_CLASSES: Final = (Endpoint, State, Views, View, Source, Outcome)
"""What users get from the public names without asking for it by name."""

HEAD: Final = """# Every public name

This page is made from the code by `python -m tests.kit.api_page`; a test holds it to that. Arguments of `connect`
are in [Operating](operating.md#settings), what a handler may rely on in [the guide](guide/first-conversation.md).

"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    values: list[tuple[str, Any]] = []
    functions: list[tuple[str, Any]] = []
    classes: list[tuple[str, Any]] = []
    for name in sorted(konverse.__all__, key=str.lower):
        thing = getattr(konverse, name)
        (classes if inspect.isclass(thing) else functions if callable(thing) else values).append((name, thing))
    parts += ["## konverse\n\n"]
    parts += [_entry(f"konverse.{name}{_signature(thing)}", thing) for name, thing in functions]
    parts += [f"- `konverse.{name}`: `{value!r}`\n" for name, value in values]
    for name, thing in [*classes, *((each.__name__, each) for each in PUBLIC_CLASSES)]:
        parts += [f"\n## {name}\n\n{_first_line(thing)}\n\n", *_members(name, thing)]
    parts += ["\n## konverse.schemas.errors\n\n"]
    parts += [_error(thing) for thing in {**vars(errors), **vars(stack_errors)}.values() if _is_error(thing)]
    return "".join(parts)


def _members(name: str, thing: type) -> Iterator[str]:
    """What can be used of a class: attributes with a docstring behind them, properties, methods."""
    source: Any = ast.parse(inspect.getsource(thing)).body[0]
    bodies = [source.body, *(node.body for node in source.body if getattr(node, "name", "") == "__init__")]
    for body in bodies:
        for node, behind in zip(body, [*body[1:], None], strict=True):
            attribute = _attribute(node)
            text = _text(behind)
            if attribute and text and not attribute.startswith("_") and attribute not in INTERNAL.get(name, ()):
                yield f"- `.{attribute}`: {text}\n"
    for method in source.body:
        if not isinstance(method, ast.FunctionDef) or method.name.startswith("_"):
            continue
        if any(getattr(decorator, "attr", "") == "setter" for decorator in method.decorator_list):
            continue  # its property is there
        if method.name not in INTERNAL.get(name, ()):
            member = inspect.getattr_static(thing, method.name)
            shown = (
                method.name
                if isinstance(member, property)
                else f"{method.name}{_signature(getattr(thing, method.name))}"
            )
            yield _entry(f".{shown}", member)
    for base in thing.__bases__:
        if base.__module__.startswith("konverse.bridge."):
            yield from _members(name, base)
    if issubclass(thing, State):
        yield from (f"- `{state.name}`: `code` {state.code}\n" for state in State)


def _attribute(node: ast.stmt) -> str:
    """The attribute that a statement gives a value or a type."""
    target = (
        node.target if isinstance(node, ast.AnnAssign) else node.targets[0] if isinstance(node, ast.Assign) else None
    )
    return getattr(target, "id", "") or getattr(target, "attr", "")


def _text(node: ast.stmt | None) -> str:
    value = getattr(node, "value", None)
    text = value.value if isinstance(node, ast.Expr) and isinstance(value, ast.Constant) else ""
    return _one_line(text) if isinstance(text, str) else ""


def _entry(shown: str, thing: Any) -> str:
    return f"- `{shown}`: {_first_line(thing)}\n"


def _first_line(thing: Any) -> str:
    return _one_line(inspect.getdoc(thing) or "")


def _one_line(text: str) -> str:
    """The first paragraph as one line."""
    return " ".join(inspect.cleandoc(text).split("\n\n")[0].split())


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.name != "self"]
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(signature.replace(parameters=parameters)))


def _is_error(thing: Any) -> TypeGuard[type[errors.KonverseError]]:
    return inspect.isclass(thing) and issubclass(thing, errors.KonverseError)


def _error(kind: type[errors.KonverseError]) -> str:
    number = f" ({kind.number})" if kind.number else ""
    return f"- `{kind.__name__}`{number} < `{kind.__mro__[1].__name__}`: {_first_line(kind)}\n"


if __name__ == "__main__":
    print(page(), end="")

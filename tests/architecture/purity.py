"""Finds code through which the pure core could give two results for one input."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from tests.architecture.tree import runtime_nodes

MODULES: Final = {
    *("asyncio", "concurrent", "multiprocessing", "sched", "signal", "subprocess", "threading"),
    *("random", "secrets", "time"),
    *("http", "os", "select", "selectors", "shutil", "socket", "ssl", "tempfile", "urllib"),
    *("confluent_kafka", "logging", "pyspark", "redis", "structlog"),
}
"""Threads, randomness and clocks, I/O, servers and logs."""

BUILTINS: Final = {"__import__", "breakpoint", "eval", "exec", "hash", "input", "open", "print"}
"""Built-in functions that do I/O, or whose result differs between processes."""

METHODS: Final = {"import_module", "now", "today", "utcnow", "uuid1", "uuid4", "uuid6", "uuid7"}
"""Functions of modules and classes with such a result, whatever name the module is imported under."""

ORDERED: Final = {"dict", "enumerate", "filter", "iter", "list", "map", "reversed", "tuple", "zip"}
"""Built-in functions that keep the order of their argument, which a set does not have."""

UNORDERED: Final = {"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum"}
"""Built-in functions whose result does not depend on the order, as long as no key makes different things equal."""

SET_TYPES: Final = {"AbstractSet", "MutableSet", "Set", "frozenset", "set"}
SET_METHODS: Final = {"copy", "difference", "intersection", "symmetric_difference", "union"}
SET_OPERATORS: Final = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def impurities(tree: ast.Module) -> list[str]:
    """Forbidden code in a module of the pure core, each as `line: what`."""
    nodes = list(runtime_nodes(tree))
    found = [*_imports(nodes), *_calls(nodes), *_set_orders(tree)]
    return [f"{line}: {what}" for line, what in sorted(set(found))]


def _imports(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
            yield from ((node.lineno, f"imports {alias.name}") for alias in node.names if alias.name in METHODS)
        else:
            continue
        yield from ((node.lineno, f"imports {name}") for name in names if name.partition(".")[0] in MODULES)


def _calls(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    hashing = {
        id(inner)
        for node in nodes
        if isinstance(node, Function) and node.name == "__hash__"
        for inner in ast.walk(node)
    }
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in BUILTINS:
            if not (node.id == "hash" and id(node) in hashing):
                yield node.lineno, f"uses {node.id}"
        elif isinstance(node, ast.Attribute) and node.attr in METHODS:
            yield node.lineno, f"uses {node.attr}"


def _set_orders(tree: ast.Module) -> Iterator[tuple[int, str]]:
    module, functions = _scopes(tree)
    everywhere = _names_of_sets([tree, *runtime_nodes(tree)], only_attributes=True) | _names_of_sets(module)
    for scope in [module, *functions]:
        names = _names_of_sets(scope, everywhere)
        harmless = {id(part) for node in scope for part in _read_in_any_order(node)}
        for node in scope:
            for source in _read_in_order(node, harmless):
                if _is_set(source, names):
                    yield source.lineno, f"depends on the order of the set {ast.unparse(source)}"


def _scopes(tree: ast.Module) -> tuple[list[ast.AST], list[list[ast.AST]]]:
    """The nodes outside functions, and those of each outermost function."""
    functions: list[list[ast.AST]] = []
    inside: set[int] = set()
    nodes = list(runtime_nodes(tree))
    for node in nodes:
        if isinstance(node, Function) and id(node) not in inside:
            functions.append(list(runtime_nodes(node)))
            inside.update(map(id, functions[-1]))
    return [node for node in nodes if id(node) not in inside], functions


def _read_in_any_order(node: ast.AST) -> Iterable[ast.expr]:
    """The expressions whose order does not affect the result of `node`."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=args) if name in UNORDERED and not _has_key(node):
            return args
        case _:
            return []


def _has_key(call: ast.Call) -> bool:
    """Whether `sorted`, `min` or `max` has a key: among equal elements the first one wins."""
    return any(keyword.arg == "key" for keyword in call.keywords)


def _read_in_order(node: ast.AST, harmless: set[int]) -> Iterable[ast.expr]:
    """The expressions whose order affects `node`."""
    match node:
        case ast.For() | ast.AsyncFor():
            return [node.iter]
        case ast.ListComp() | ast.DictComp() | ast.GeneratorExp() if id(node) not in harmless:
            return [generator.iter for generator in node.generators]
        case ast.Call(func=ast.Name(id=name), args=args) if name in ORDERED and id(node) not in harmless:
            return args
        case ast.Call(func=ast.Name(id="max" | "min" | "sorted"), args=args) if _has_key(node):
            return args
        case ast.Call(func=ast.Attribute(attr="join" | "extend" | "fromkeys")):
            return node.args
        case ast.Call(func=ast.Attribute(attr="pop", value=owner), args=[]):
            return [owner]
        case ast.List() | ast.Tuple():
            return [element.value for element in node.elts if isinstance(element, ast.Starred)]
        case ast.YieldFrom():
            return [node.value]
        case ast.Assign(targets=[ast.Tuple() | ast.List()]):
            return [node.value]
        case _:
            return []


def _names_of_sets(nodes: list[ast.AST], known: Iterable[str] = (), *, only_attributes: bool = False) -> set[str]:
    """Variables and arguments that hold a set or are annotated as one; and attributes, with a dot in front."""
    names = {*known}
    fields = [field for node in nodes if isinstance(node, ast.ClassDef) for field in node.body]
    for _ in range(3):  # a = set(); b = a; c = b
        for node in nodes:
            match node:
                case ast.AnnAssign() if _is_set_type(node.annotation):
                    names.add("." * (node in fields) + _name(node.target))
                case ast.arg(annotation=ast.expr() as annotation) if _is_set_type(annotation):
                    names.add(node.arg)
                case ast.Assign() if _is_set(node.value, names):
                    names.update("." * (node in fields) + _name(target) for target in node.targets)
                case _:
                    pass
    return {name for name in names if name.strip(".") and (name.startswith(".") or not only_attributes)}


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f".{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _is_set_type(annotation: ast.expr) -> bool:
    """Whether an annotation is a set, also inside `Final[...]` and in `... | None`."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.BinOp):
        return _is_set_type(annotation.left) or _is_set_type(annotation.right)
    if isinstance(annotation, ast.Subscript):
        wrapped = _name(annotation.value).strip(".") in {"ClassVar", "Final"}
        return _is_set_type(annotation.slice if wrapped else annotation.value)
    return _name(annotation).strip(".") in SET_TYPES


def _is_set(node: ast.expr, names: set[str]) -> bool:
    """Whether an expression is a set, as far as its text shows."""
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Name() | ast.Attribute():
            return _name(node) in names
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.Call(func=ast.Attribute(attr=attr, value=owner)) if attr in SET_METHODS:
            return _is_set(owner, names)
        case ast.BinOp(op=operator) if isinstance(operator, SET_OPERATORS):
            return _is_set(node.left, names) or _is_set(node.right, names) or _is_view(node.left)
        case ast.IfExp():
            return _is_set(node.body, names) or _is_set(node.orelse, names)
        case _:
            return False


def _is_view(node: ast.expr) -> bool:
    """Whether an expression is `mapping.keys()` or `.items()`: operators turn these into sets."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in {"items", "keys"}

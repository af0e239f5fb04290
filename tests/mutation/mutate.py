#!/usr/bin/python3
"""Writes copies of a C++ file, each with one small, systematic mistake.

    mutate.py SOURCE --out DIR [--only FUNCTION] [-- compile flags]

Good tests of a lab fail on nearly all of them. libclang parses SOURCE, so that every change hits an
expression, an argument or a statement as the compiler sees it; nothing but SOURCE itself changes.
The table `OPERATORS` says which kinds of changes there are.

DIR gets NNN.cpp (or NNN.cu), one per mutation, and mutations.json with a list of

    {"id": "train_step-removed-call-3", "file": "042.cpp", "function": "train_step", "line": 91,
     "what": "the call is gone", "before": "model.zero_gradients();", "after": ""}

An id counts the changes of one kind within one function: edits elsewhere do not change it.

Without compile flags: -std=c++20 -I<repository>. CUDA is parsed as C++ with the emulation's
headers. -fopenmp is left out: libclang does not show the loop after a `#pragma omp simd`.
Needs the Debian packages python3-clang-14, libclang-14 and libclang-common-14-dev.
"""
from __future__ import annotations

import argparse
import collections
import glob
import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any, Iterable, NamedTuple, NoReturn

try:
    from clang import cindex
    from clang.cindex import CursorKind as K, TypeKind as T
except ImportError:
    sys.exit("mutate.py: this Python has no clang.cindex: apt install python3-clang-14, and run it "
             "with /usr/bin/python3")

Cursor = Any  # cindex.Cursor; the package has no types
Type = Any

OPERATORS = {
    "arithmetic": "+ - * / % exchanged", "relational": "< <= > >= == != exchanged",
    "logical": "&& and || exchanged, or one side dropped", "sign": "- or ! of one operand dropped",
    "compound": "+= -= *= /= exchanged, or made =", "increment": "++ or -- removed",
    "condition": "of if, while or require: negated, true, false", "ternary": "branches exchanged",
    "constant": "of integers and floating-point numbers", "flag": "true and false exchanged",
    "enum": "another enumerator", "index": "one further, or 0", "arguments": "two exchanged",
    "elements": "two of a braced list exchanged", "removed-call": "", "removed-assignment": "",
    "doubled": "a statement happens twice", "swapped-statements": "two neighbours exchanged",
    "case": "labels of two neighbours exchanged", "rank": "ranks, peers, tags, colors, lanes",
    "group": "another ProcessGroup", "bound": "of a loop: first, end, step",
    "variable": "another one of the same type", "field": "another one of the same type",
    "return": "0, an empty value, or a parameter"}
BINARY = {"+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "%": ["/"], "<": ["<=", ">"],
          "<=": ["<", ">"], ">": [">=", "<"], ">=": [">", "<"], "==": ["!="], "!=": ["=="],
          "&&": ["||"], "||": ["&&"], "+=": ["-=", "="], "-=": ["+=", "="], "*=": ["/=", "="],
          "/=": ["*=", "="]}
SYMMETRIC = {"min", "max", "fmaxf", "fminf"}
RANKS = re.compile(r"i?send|i?recv|broadcast|(all_)?reduce|reduce_scatter|split|world_rank|"
                   r"__shfl.*")
INDEXED = {"operator[]", "at", "rows", "columns", "subspan"}
FUNCTIONS = {K.FUNCTION_DECL, K.CXX_METHOD, K.CONSTRUCTOR, K.DESTRUCTOR}
LOOPS = {K.FOR_STMT, K.CXX_FOR_RANGE_STMT, K.WHILE_STMT}
SCOPES = FUNCTIONS | LOOPS | {K.COMPOUND_STMT, K.LAMBDA_EXPR, K.IF_STMT}
JUMPS = {K.RETURN_STMT, K.BREAK_STMT, K.CONTINUE_STMT, K.NULL_STMT}
VARIABLES = {K.VAR_DECL, K.PARM_DECL}
INTEGERS = set(range(T.CHAR_U.value, T.INT128.value + 1))  # bool has the number before these
NUMBERS = INTEGERS | {T.BOOL.value, T.FLOAT.value, T.DOUBLE.value, T.LONGDOUBLE.value}
MOST = 2  # other variables or fields that replace one


def fail(message: str) -> NoReturn:
    sys.exit(f"mutate.py: {message}")


def load_libclang() -> str:
    """Loads the newest libclang that goes with the Python module; its resource directory."""
    files = {name for folder in ("/usr/lib/llvm-*/lib", "/usr/lib/*-linux-gnu", "/usr/local/lib")
             for name in glob.glob(f"{folder}/libclang-[0-9]*.so*")}
    version = lambda name: [int(n) for n in re.findall(r"\d+", Path(name).name)]  # noqa: E731
    for name in sorted(files, key=lambda f: (version(f)[0], f), reverse=True):
        cindex.Config.library_file = name
        try:
            unit = cindex.Index.create().parse("a.cpp", unsaved_files=[("a.cpp", "int a;")])
            if [c.kind for c in unit.cursor.get_children()] == [K.VAR_DECL]:
                found = glob.glob(f"/usr/lib/llvm-{version(name)[0]}/lib/clang/*/include/stddef.h")
                return str(Path(max(found)).parent.parent) if found else ""
        except (cindex.LibclangError, cindex.TranslationUnitLoadError, ValueError):
            pass  # of another version
    fail("no libclang that goes with clang.cindex: apt install libclang-14 python3-clang-14")


def parse(path: Path, flags: list[str]) -> Any:
    resources = load_libclang()
    if not path.is_file():
        fail(f"no such file: {path}")
    root = next((p for p in path.parents if (p / "tests/emulation/include").is_dir()), Path.cwd())
    flags = [f for f in flags if not f.startswith("-fopenmp")] or ["-std=c++20", f"-I{root}"]
    flags += ["-resource-dir", resources] if resources else []
    if path.suffix == ".cu":
        flags = ["-x", "c++", f"-I{root}/tests/emulation/include", *flags]
    try:
        unit = cindex.Index.create().parse(str(path), flags)
    except cindex.TranslationUnitLoadError:
        fail(f"libclang cannot read {path} with the flags {' '.join(flags)}")
    for problem in unit.diagnostics:
        if problem.severity >= cindex.Diagnostic.Error:
            where = f"{problem.location.file}:{problem.location.line}"
            fail(f"libclang cannot parse {path}: {where}: {problem.spelling}")
    return unit


def plain(kind: Type) -> Type:
    """The type without references, const and typedefs."""
    kind = kind.get_canonical()
    if kind.kind in (T.LVALUEREFERENCE, T.RVALUEREFERENCE):
        kind = kind.get_pointee()
    return kind


def name_of(kind: Type) -> str:
    name = plain(kind).spelling
    return re.sub(r"^const | ?const$", "", name) if is_const(kind) else name


def is_integer(kind: Type) -> bool:
    return plain(kind).kind.value in INTEGERS


def is_group(kind: Type) -> bool:
    return name_of(kind) == "lab::ProcessGroup"


def is_const(kind: Type) -> bool:
    return plain(kind).is_const_qualified()


def binds_writable(kind: Type) -> bool:
    return kind.get_canonical().kind == T.LVALUEREFERENCE and not is_const(kind)


def has_default(kind: Type) -> bool:
    """Whether `return {};` makes a value of this type."""
    record = plain(kind).get_declaration()
    if record.kind == K.NO_DECL_FOUND or name_of(kind).startswith("std::"):
        return True
    parts = list(record.get_children())
    constructors = [p for p in parts if p.kind == K.CONSTRUCTOR]
    if constructors:
        return any(c.is_default_constructor() for c in constructors)
    return all(has_default(p.type) for p in parts if p.kind == K.FIELD_DECL)


def parameters(call: Cursor) -> list[Type]:
    kind = call.referenced.type.get_canonical() if call.referenced else call.type
    if kind.kind == T.POINTER or kind.kind == T.LVALUEREFERENCE:
        kind = kind.get_pointee()
    return list(kind.argument_types()) if kind.kind == T.FUNCTIONPROTO else []


def short(text: str) -> str:
    return " ".join(text.split())


def atom(text: str) -> str:
    return f"({text})" if " " in text else text


class Edit(NamedTuple):
    function: str
    operator: str
    start: int
    end: int
    new: bytes
    what: str


class Facts(NamedTuple):
    """What a statement does, to tell whether it may trade places with its neighbour."""
    declared: set[str]
    used: set[str]
    written: set[str]
    calls: set[str]  # of what may send, compute in place, ...


class Mutator:
    """Walks the tree of one file and collects `edits`."""

    def __init__(self, path: Path, unit: Any) -> None:
        self.path = path
        self.source: bytes = path.read_bytes()
        self.edits: list[Edit] = []
        self.function = "file"  # outside of functions
        self.definition: Cursor = None
        self.parents: list[Cursor] = []
        self.scope: list[Cursor] = []  # variables and parameters, in the order of declaration
        for node in unit.cursor.get_children():
            if node.location.file and node.location.file.name == str(path):
                self.walk(node)

    # --- Reading the tree ---

    def start(self, node: Cursor) -> int:
        return node.extent.start.offset

    def end(self, node: Cursor) -> int:
        return node.extent.end.offset

    def text(self, node: Cursor) -> str:
        return self.source[self.start(node):self.end(node)].decode()

    def own(self, nodes: Iterable[Cursor]) -> list[Cursor]:
        """Those that are written out in the file: no default arguments, for instance."""
        return [n for n in nodes if n and n.extent.start.file and self.start(n) < self.end(n)
                and n.extent.start.file.name == str(self.path)]

    def children(self, node: Cursor) -> list[Cursor]:
        nodes = self.own(node.get_children())
        above = self.parents[-1].kind if self.parents else None
        if node.kind == K.VAR_DECL and above == K.CXX_FOR_RANGE_STMT:
            return []  # its hidden initialiser
        if node.kind == K.CALL_EXPR and node.spelling == "require":
            return nodes[:2]  # not the message
        if node.kind == K.CALL_EXPR and node.spelling == "split":
            return [n for n in nodes if "basic_string" not in name_of(n.type)]  # not the name
        return nodes

    def same_place(self, a: Cursor, b: Cursor) -> bool:
        return (self.start(a), self.end(a)) == (self.start(b), self.end(b))

    def peel(self, node: Cursor) -> Cursor:
        """Without implicit conversions."""
        while node.kind in (K.UNEXPOSED_EXPR, K.CALL_EXPR):
            inner = self.own(node.get_children())
            if len(inner) != 1 or not self.same_place(node, inner[0]):
                break
            node = inner[0]
        return node

    def arguments(self, call: Cursor) -> list[Cursor]:
        found = self.own(call.get_arguments())
        return found[1:] if call.spelling == "operator()" else found

    def operator_of(self, node: Cursor) -> tuple[str, int, list[Cursor]]:
        """A binary operator, where it stands, and its operands."""
        sides = self.own(node.get_arguments() if node.kind == K.CALL_EXPR else node.get_children())
        if len(sides) != 2:
            return "", 0, sides
        between = self.source[self.end(sides[0]):self.start(sides[1])].decode()
        return between.strip(), self.end(sides[0]) + len(between) - len(between.lstrip()), sides

    def sign_of(self, node: Cursor) -> tuple[str, Cursor]:
        """A unary operator and its operand."""
        operand = self.own(node.get_children())[-1]
        return self.text(node).replace(self.text(operand), "", 1).strip(), operand

    def is_literal(self, node: Cursor) -> bool:
        return self.peel(node).kind in (K.INTEGER_LITERAL, K.FLOATING_LITERAL)

    def statement_end(self, node: Cursor) -> int:
        rest = re.match(rb"\s*;", self.source[self.end(node):])
        closed = self.source[self.end(node) - 1:self.end(node)] == b";"
        return self.end(node) + (rest.end() if rest and not closed else 0)

    def root(self, node: Cursor) -> str:
        """The variable that an expression like a.b[i].c() is about."""
        while True:
            node = self.peel(node)
            inner = self.own(node.get_children())
            chain = node.kind in (K.MEMBER_REF_EXPR, K.CALL_EXPR, K.ARRAY_SUBSCRIPT_EXPR)
            if not (chain and inner):
                return node.spelling
            node = inner[0]

    def facts(self, statement: Cursor) -> Facts:
        facts = Facts(set(), set(), set(), set())
        for node in statement.walk_preorder():
            target, inner = node.referenced, self.own(node.get_children())
            if node.kind == K.VAR_DECL:
                facts.declared.add(node.spelling)
            elif node.kind == K.DECL_REF_EXPR or node.kind == K.MEMBER_REF_EXPR and not inner:
                facts.used.add(node.spelling)
            elif node.kind in (K.BINARY_OPERATOR, K.COMPOUND_ASSIGNMENT_OPERATOR):
                operator, _, sides = self.operator_of(node)
                if operator == "=" or "=" in BINARY.get(operator, []):  # += and the like
                    facts.written.add(self.root(sides[0]))
            elif node.kind == K.UNARY_OPERATOR and self.sign_of(node)[0] in ("++", "--"):
                facts.written.add(self.root(inner[-1]))
            elif node.kind == K.CALL_EXPR and target and target.kind != K.CONSTRUCTOR:
                changes = target.kind == K.CXX_METHOD and not (
                    target.is_const_method() or target.is_static_method())
                if changes and inner:
                    facts.written.add(self.root(inner[0]))
                pure = target.kind == K.CXX_METHOD and not changes and node.type.kind != T.VOID
                foreign = re.match(r"c:@N@(std|fmt|__gnu_cxx)@", target.get_usr())
                named = not node.spelling.startswith("operator")
                if node.spelling == "operator()" or named and not pure and not foreign:
                    facts.calls.add(node.spelling)
        return facts

    def may_swap(self, first: Cursor, second: Cursor) -> bool:
        """Whether exchanging them compiles and may make a difference."""
        between = self.source[self.end(first):self.start(second)]
        a, b = self.facts(first), self.facts(second)
        if {first.kind, second.kind} & JUMPS or b"#pragma" in between or (
                first.kind == K.DECL_STMT and a.declared & b.used):
            return False
        fence = any(name.startswith("__sync") for name in a.calls | b.calls)
        return bool(a.calls and b.calls or fence or a.written & (b.used | b.written)
                    or b.written & a.used)

    def groups(self) -> list[str]:
        """All ProcessGroups that the function can name."""
        found = [v.spelling for v in self.scope if is_group(v.type)]
        records = [(f"{v.spelling}.", plain(v.type).get_declaration()) for v in self.scope]
        if self.definition.kind == K.CXX_METHOD:
            records.append(("", self.definition.semantic_parent))
        return found + [prefix + m.spelling for prefix, record in records
                        for m in self.fields(record) if is_group(m.type)]

    def fields(self, record: Cursor) -> list[Cursor]:
        """Those that the function may name."""
        inside = self.definition and self.definition.semantic_parent == record
        return [m for m in record.get_children() if m.kind == K.FIELD_DECL
                and (inside or m.access_specifier == cindex.AccessSpecifier.PUBLIC)]

    # --- Making changes ---

    def add(self, operator: str, start: int, end: int, new: str, what: str) -> None:
        assert operator in OPERATORS
        self.edits.append(Edit(self.function, operator, start, end, new.encode(), what))

    def replace(self, operator: str, node: Cursor, new: str) -> None:
        what = f"`{short(self.text(node))}` became `{short(new)}`" if new else "it is gone"
        self.add(operator, self.start(node), self.end(node), new, what)

    def exchange(self, operator: str, a: Cursor, b: Cursor) -> None:
        whole = operator == "swapped-statements"  # with their semicolons
        end_a, end_b = (self.statement_end(n) if whole else self.end(n) for n in (a, b))
        at = [self.source[i:j].decode() for i, j in
              ((self.start(a), end_a), (end_a, self.start(b)), (self.start(b), end_b))]
        what = "two statements" if whole else f"`{short(at[0])}` and `{short(at[2])}`"
        self.add(operator, self.start(a), end_b, at[2] + at[1] + at[0], f"{what} are exchanged")

    # --- The tree, top down ---

    def walk(self, node: Cursor) -> None:
        outer = self.function, self.definition, len(self.scope)
        if node.kind in FUNCTIONS:
            if not node.is_definition():
                return
            owner = node.semantic_parent
            prefix = f"{owner.spelling}." if owner.kind in (K.CLASS_DECL, K.STRUCT_DECL) else ""
            self.function, self.definition = prefix + node.spelling, node
        handler = self.HANDLERS.get(node.kind)
        if handler:
            handler(self, node)
        inner = self.children(node)
        self.parents.append(node)
        for child in inner:
            self.walk(child)
        self.parents.pop()
        if node.kind in SCOPES:
            del self.scope[outer[2]:]
        self.function, self.definition = outer[:2]
        if node.kind in VARIABLES and self.definition and node.spelling:
            self.scope.append(node)

    def binary(self, node: Cursor) -> None:
        operator, at, sides = self.operator_of(node)
        kind = ("logical" if operator in ("&&", "||") else
                "relational" if operator in ("<", "<=", ">", ">=", "==", "!=") else
                "compound" if operator.endswith("=") else "arithmetic")
        for new in BINARY.get(operator, []):
            self.add(kind, at, at + len(operator), new, f"`{operator}` became `{new}`")
        if kind == "logical":
            for side in sides:
                self.replace(kind, node, self.text(side))

    def unary(self, node: Cursor) -> None:
        operator, operand = self.sign_of(node)
        if operator in ("++", "--"):
            stands_alone = self.parents[-1].kind in (K.FOR_STMT, K.COMPOUND_STMT)
            self.replace("increment", node, "" if stands_alone else self.text(operand))
        elif operator in ("-", "!"):
            self.replace("sign", node, self.text(operand))

    def condition(self, node: Cursor, choices: tuple[str, ...]) -> None:
        if self.operator_of(self.peel(node))[0] not in ("==", "!="):  # else `relational` does it
            self.replace("condition", node, f"!{atom(self.text(node))}")
        for choice in choices:
            self.replace("condition", node, choice)

    def ternary(self, node: Cursor) -> None:
        condition, yes, no = self.own(node.get_children())
        if self.operator_of(self.peel(condition))[0] not in ("==", "!="):
            self.exchange("ternary", yes, no)
        self.replace("ternary", node, self.text(yes))
        self.replace("ternary", node, self.text(no))

    def number(self, node: Cursor) -> None:
        whole = re.fullmatch(r"(0[xX][\da-fA-F']+|\d[\d']*)([uUlLzZ]*)", self.text(node))
        broken = re.fullmatch(r"(\d*\.?\d*(?:[eE][-+]?\d+)?)([fFlL]?)", self.text(node))
        if node.kind == K.INTEGER_LITERAL and whole:
            value = int(whole[1].replace("'", ""), 0)
            for new in (value + 1, value - 1)[:2 if value else 1]:
                self.replace("constant", node, f"{new}{whole[2]}")
        elif node.kind == K.FLOATING_LITERAL and broken:
            value = float(broken[1])
            for new in (2 * value, 0.0) if value else (1.0,):
                self.replace("constant", node, f"{new!r}{broken[2]}")

    def flag(self, node: Cursor) -> None:
        other = {"true": "false", "false": "true"}.get(self.text(node))
        if other:
            self.replace("flag", node, other)

    def index(self, node: Cursor) -> None:
        if not self.is_literal(node) and is_integer(self.peel(node).type):
            self.replace("index", node, f"{atom(self.text(node))} + 1")
            self.replace("index", node, "0")

    def subscript(self, node: Cursor) -> None:
        self.index(self.own(node.get_children())[1])

    def call(self, node: Cursor) -> None:
        name, given, wanted = node.spelling, self.arguments(node), parameters(node)
        if re.fullmatch(r"operator[-+*/%<>=!&|]+", name):
            self.binary(node)
            return
        if name in INDEXED:
            for argument in given[1:] if name == "operator[]" else given:
                self.index(argument)
        if name.startswith("operator") and name != "operator()" or self.text(node).startswith("{"):
            return
        if name == "require":
            self.condition(given[0], ("true",))
            return
        if len(wanted) < len(given) or name == "operator()":
            wanted = [a.type for a in given]
        for (a, to_a), (b, to_b) in itertools.pairwise(zip(given, wanted)):
            same = name_of(to_a) == name_of(to_b) and not binds_writable(to_a)
            if (same or self.fits(a, to_b) and self.fits(b, to_a)) and name not in SYMMETRIC:
                self.exchange("arguments", a, b)
        if RANKS.fullmatch(name):
            self.ranks(given, wanted[len(given):])
        if name == "parallel_for":
            for argument in given[:2]:
                self.shift("bound", argument)

    def fits(self, argument: Cursor, parameter: Type) -> bool:
        actual = self.peel(argument)
        if binds_writable(parameter):
            return name_of(actual.type) == name_of(parameter) and not is_const(actual.type)
        numbers = {plain(actual.type).kind.value, plain(parameter).kind.value} <= NUMBERS
        return numbers or name_of(actual.type) == name_of(parameter)

    def shift(self, operator: str, node: Cursor) -> None:
        literal = re.fullmatch(r"-?\d+", self.text(node))
        for step in (1, -1):
            new = (str(int(literal[0]) + step) if literal else
                   f"{atom(self.text(node))} {'+' if step > 0 else '-'} 1")
            self.replace(operator, node, new)

    def ranks(self, given: list[Cursor], missing: list[Type]) -> None:
        """Of a message: its integers, and what it does not say because that has a default."""
        for argument in given:
            if is_integer(self.peel(argument).type):
                self.shift("rank", argument)
                others = [v.spelling for v in reversed(self.scope) if is_integer(v.type)]
                for other in [o for o in others if o != self.text(argument)][:MOST]:
                    self.replace("rank", argument, other)
        if given and missing:
            record = plain(missing[0]).get_declaration()
            names = [c.spelling for c in record.get_children() if c.kind == K.ENUM_CONSTANT_DECL]
            new = f"{name_of(missing[0])}::{names[-1]}" if names else "1"
            if names or is_integer(missing[0]):
                at = self.end(given[-1])
                self.add("rank", at, at, f", {new}", f"another argument, `{new}`")

    def reference(self, node: Cursor) -> None:
        """The name of a variable, a field or an enumerator."""
        target = node.referenced
        if target is None or not self.text(node).endswith(target.spelling):
            return  # a name within a template, an operator, or a macro
        if target.kind == K.ENUM_CONSTANT_DECL:
            self.enumerator(node, target)
        elif self.definition and is_group(node.type) and target.kind in VARIABLES | {K.FIELD_DECL}:
            for group in self.groups():
                self.replace("group", node, group)
        elif target in self.scope:
            fixed = not is_const(target.type) and self.is_written(node)
            others = [v.spelling for v in reversed(self.scope)
                      if name_of(v.type) == name_of(target.type) and v != target
                      and not (fixed and is_const(v.type))]
            for other in others[:MOST]:
                self.replace("variable", node, other)
        elif target.kind == K.FIELD_DECL:
            same = [m for m in self.fields(target.semantic_parent)
                    if name_of(m.type) == name_of(target.type)]
            for other in self.others(same, target)[:MOST]:
                self.rename("field", node, other.spelling)

    def is_written(self, node: Cursor) -> bool:
        """Whether the variable may change here."""
        parent = self.parents[-1]
        if parent.kind == K.CALL_EXPR:
            given, wanted = self.arguments(parent), parameters(parent)
            given = given[max(0, len(given) - len(wanted)):]  # not the object of an operator
            for argument, parameter in zip(given, wanted):
                if self.same_place(argument, node):
                    return binds_writable(parameter)
        return not (parent.kind == K.UNEXPOSED_EXPR and self.same_place(parent, node))

    def rename(self, operator: str, node: Cursor, new: str) -> None:
        old = node.referenced.spelling
        begin = self.end(node) - len(old)
        self.add(operator, begin, self.end(node), new, f"`{old}` became `{new}`")

    def enumerator(self, node: Cursor, target: Cursor) -> None:
        if self.parents[-1].kind != K.CASE_STMT:  # else two cases would be the same
            others = self.others(list(target.semantic_parent.get_children()), target)
            for other in others[:None if target.type.spelling.endswith("ReduceOp") else 1]:
                self.rename("enum", node, other.spelling)

    def others(self, all_of_them: list[Cursor], one: Cursor) -> list[Cursor]:
        """In their order, from the next one on."""
        at = all_of_them.index(one) if one in all_of_them else 0
        return all_of_them[at + 1:] + all_of_them[:at]

    def elements(self, node: Cursor) -> None:
        values = []
        for element in self.own(node.get_children()):
            inner = self.own(element.get_children())
            values.append(inner[1] if inner and inner[0].kind == K.MEMBER_REF else element)
        for a, b in itertools.pairwise(values):
            if name_of(a.type) == name_of(b.type) != "void":
                self.exchange("elements", a, b)

    def result(self, node: Cursor) -> None:
        value = self.own(node.get_children())
        if not value or any(p.kind == K.LAMBDA_EXPR for p in self.parents):
            return
        kind = self.definition.result_type
        if plain(kind).kind.value in NUMBERS:
            choices = ["true", "false"] if plain(kind).kind == T.BOOL else ["0"]
        else:
            choices = ["{}"] if has_default(kind) else []
        choices += [v.spelling for v in self.definition.get_arguments()
                    if name_of(v.type) == name_of(kind)]
        for choice in choices:
            self.replace("return", value[0], choice)

    # --- Statements ---

    def statement(self, node: Cursor, alone: bool = False, removable: bool = True) -> None:
        """`alone`: without braces after an if or a for."""
        core = self.peel(node)
        if core.kind not in (K.CALL_EXPR, K.BINARY_OPERATOR, K.COMPOUND_ASSIGNMENT_OPERATOR):
            return
        assigns = self.operator_of(core)[0].endswith("=")
        start, end = self.start(node), self.statement_end(node)
        text = self.source[start:end].decode()
        if removable:
            kind = "assignment" if assigns else "call"
            self.add(f"removed-{kind}", start, end, "{}" if alone else "", f"the {kind} is gone")
        if core.spelling != "require" and (not assigns or self.facts(node).calls):
            twice = f"{{ {text} {text} }}" if alone else f"{text} {text}"
            self.add("doubled", start, end, twice, "the statement happens twice")

    def block(self, node: Cursor) -> None:
        previous: Cursor = None
        label: Cursor = None
        for child in self.own(node.get_children()):
            inside = child
            if child.kind == K.CASE_STMT:
                parts = self.own(child.get_children())
                if label:
                    self.exchange("case", label, parts[0])
                label, inside, previous = parts[0], parts[-1], None
            self.statement(inside)
            if previous and self.may_swap(previous, inside):
                self.exchange("swapped-statements", previous, inside)
            previous = inside

    def choice(self, node: Cursor) -> None:
        condition, *branches = self.own(node.get_children())
        if condition.kind not in (K.DECL_STMT, K.VAR_DECL):
            self.condition(condition, ("true", "false"))
        for branch in branches:
            # Without an else, if (false) has removed it already.
            self.statement(branch, alone=True, removable=len(branches) > 1)

    def repetition(self, node: Cursor) -> None:
        *header, body = self.own(node.get_children())
        self.statement(body, alone=True)
        if node.kind == K.WHILE_STMT:
            self.condition(header[0], ("false",))
        elif node.kind == K.CXX_FOR_RANGE_STMT:
            self.range_bounds(header[-1])
        else:
            opening = self.source.index(b"(", self.start(node))
            for part in header:
                slot = self.source[opening:self.start(part)].count(b";")
                (self.first, self.last, self.step)[slot](part)

    def range_bounds(self, node: Cursor) -> None:
        if re.match(r"std::(span|vector)<", name_of(node.type)):
            it = self.text(node)
            for new in (f"std::span({it}).subspan({it}.empty() ? 0 : 1)",
                        f"std::span({it}).first({it}.size() - ({it}.empty() ? 0 : 1))"):
                self.replace("bound", node, new)

    def first(self, node: Cursor) -> None:
        for variable in self.own(node.get_children()):
            value = self.own(variable.get_children())[-1:]
            if value and not self.is_literal(value[0]):
                self.replace("bound", value[0], f"{atom(self.text(value[0]))} + 1")

    def last(self, node: Cursor) -> None:
        operator, _, sides = self.operator_of(self.peel(node))
        if operator in ("<", "<=", ">", ">=", "!=") and not self.is_literal(sides[1]):
            end = atom(self.text(sides[1]))
            for sign in {"<": "-", "<=": "+", ">": "+", ">=": "-"}.get(operator, "-+"):
                self.replace("bound", sides[1], f"{end} {sign} 1")  # `relational` has the other one

    def step(self, node: Cursor) -> None:
        operator, _, sides = self.operator_of(node)
        if operator in ("+=", "-=") and not self.is_literal(sides[1]):
            self.replace("bound", sides[1], f"2 * {atom(self.text(sides[1]))}")
        elif node.kind == K.UNARY_OPERATOR and self.sign_of(node)[0] in ("++", "--"):
            sign, operand = self.sign_of(node)
            self.replace("bound", node, f"{self.text(operand)} {sign[0]}= 2")

    HANDLERS = {
        K.BINARY_OPERATOR: binary, K.COMPOUND_ASSIGNMENT_OPERATOR: binary, K.UNARY_OPERATOR: unary,
        K.CONDITIONAL_OPERATOR: ternary, K.INTEGER_LITERAL: number, K.FLOATING_LITERAL: number,
        K.CXX_BOOL_LITERAL_EXPR: flag, K.ARRAY_SUBSCRIPT_EXPR: subscript, K.CALL_EXPR: call,
        K.DECL_REF_EXPR: reference, K.MEMBER_REF_EXPR: reference, K.INIT_LIST_EXPR: elements,
        K.RETURN_STMT: result, K.COMPOUND_STMT: block, K.IF_STMT: choice, K.FOR_STMT: repetition,
        K.CXX_FOR_RANGE_STMT: repetition, K.WHILE_STMT: repetition}


def write(mutator: Mutator, folder: Path, only: str | None) -> list[dict[str, Any]]:
    """Writes the copies that differ, and what they are."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*" + mutator.path.suffix):
        if re.fullmatch(r"\d{3,}", old.stem):
            old.unlink()  # of another run
    source, entries = mutator.source, []
    seen = {b"".join(source.split())}
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    for edit in mutator.edits:
        changed = source[:edit.start] + edit.new + source[edit.end:]
        key = b"".join(changed.split())
        if key in seen or only not in (None, edit.function):
            continue
        seen.add(key)
        counts[edit.function, edit.operator] += 1
        begin = source.rfind(b"\n", 0, edit.start) + 1
        rest = len(source) - (source + b"\n").index(b"\n", edit.end)
        lines = [short(text[begin:len(text) - rest].decode()) for text in (source, changed)]
        name = f"{len(entries) + 1:03}{mutator.path.suffix}"
        (folder / name).write_bytes(changed)
        entries.append({
            "id": f"{edit.function}-{edit.operator}-{counts[edit.function, edit.operator]}",
            "file": name, "function": edit.function, "line": source.count(b"\n", 0, edit.start) + 1,
            "what": edit.what, "before": lines[0], "after": lines[1]})
    (folder / "mutations.json").write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n")
    return entries


def main() -> None:
    arguments = sys.argv[1:]
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        usage="mutate.py SOURCE --out DIR [--only FUNCTION] [-- compile flags]")
    parser.add_argument("source", type=Path)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", metavar="FUNCTION", help="as in the ids: train_step, Mail.recv")
    options = parser.parse_args(arguments[:cut])
    path = options.source.resolve()
    mutator = Mutator(path, parse(path, arguments[cut + 1:]))
    functions = dict.fromkeys(e.function for e in mutator.edits)
    if options.only not in (None, *functions):
        fail(f"{path.name} has no function {options.only}; it has {', '.join(functions)}")
    try:
        entries = write(mutator, options.out, options.only)
    except OSError as error:
        fail(f"cannot write: {error}")
    kinds = collections.Counter(e["id"].removeprefix(e["function"] + "-").rsplit("-", 1)[0]
                                for e in entries)
    print(f"{len(entries)} mutations of {path.name}: "
          + ", ".join(f"{kinds[k]} {k}" for k in OPERATORS if kinds[k]))


if __name__ == "__main__":
    main()

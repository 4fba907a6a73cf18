"""What kernels use of the hand-written texts in front of them.

The texts are cut into fragments: a macro, a function, a type, or a call of a macro that defines
some. `used_fragments` keeps those whose names are used, by kernels or by other fragments that are
kept. For a kernel that calls `exp_f32x8` these are the function, the functions that it calls, and
the types and macros of all of them.

Names may be pasted together. A call such as ``DIVISION(i32)`` is expanded, as the preprocessor
would, to see that it defines ``idiv_i32`` and ``mod_i32``; and ``TRANSPOSED(f32x8, ...)`` to see
that it uses ``transpose_f32x8``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from lamina.core.recent import memoized
from lamina.runtime.source import Ranges
from lamina.targets.texts import for_lanes

_NAME = re.compile(r"[A-Za-z_]\w*")
# Comments and literals, which have brackets that mean nothing.
_SKIPPED = r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'"""
# All that matters for where a statement ends, and a whole directive, as far as its line goes on.
_TOKEN = re.compile(rf"{_SKIPPED}|#(?:\\\n|/\*.*?\*/|[^\n])*|[^\s/\"'(){{}}\[\];#]+|\S", re.DOTALL)
_BRACKET = re.compile(rf"{_SKIPPED}|[(){{}}\[\]]", re.DOTALL)
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"')
_DEFINE = re.compile(r"#define (\w+)(\(([^)]*)\))?")
_ATTRIBUTE = re.compile(r"\b__(?:attribute|align|launch_bounds)__\s*(?=\()")
_OPENING, _CLOSING = "({[", ")}]"
_CONDITIONALS = ("#if", "#el", "#endif")
_MAX_EXPANSIONS = 10_000  # of one statement: more are a macro that calls itself


@dataclass(frozen=True)
class Macro:
    """A macro: its parameters, None if it takes no arguments, and what it stands for."""

    parameters: tuple[str, ...] | None
    body: str

    @property
    def is_alias(self) -> bool:
        """Does it stand for one other name?"""
        return self.parameters is None and _NAME.fullmatch(self.body) is not None


@dataclass(frozen=True)
class Fragment:
    """A fragment of a text.

    text      as it is printed, below its comment
    defines   the names that it defines; if any of them is used, it is kept
    uses      every name in it
    groups    the numbers of the ``#if`` ... ``#endif`` around it, outermost first
    directive whether it is one of these lines, which stand where anything between them does
    """

    text: str
    defines: frozenset[str]
    uses: frozenset[str]
    groups: tuple[int, ...] = ()
    directive: bool = False


class HelperText(NamedTuple):
    """A text, and the number of lanes that it is printed for; 0 where it has nothing of lanes."""

    template: str
    lanes: int = 0


def used_fragments(
    texts: Sequence[HelperText], users: Iterable[str], whole: Iterable[str] = ()
) -> str:
    """The fragments of `texts` that `users`, texts of kernels, need, in their order; and those that
    are named in the texts `whole`."""
    helpers = _helpers_of(tuple(texts))
    names: set[str] = set().union(*map(helpers.macros.names_in, (*users, *whole)))
    return "".join(map(helpers.text_of, sorted(helpers.reached(names))))


def used_by_each(
    texts: Sequence[HelperText], users: Mapping[str, str]
) -> tuple[str, dict[str, Ranges]]:
    """The fragments of `texts` that all `users` need, texts of kernels by name, in their order; and
    the parts of that text that each of them needs."""
    helpers = _helpers_of(tuple(texts))
    reached = {
        name: helpers.reached(helpers.macros.names_in(text)) for name, text in users.items()
    }
    starts: dict[int, int] = {}
    printed = ""
    for number in sorted(set().union(*reached.values())):
        starts[number] = len(printed)
        printed += helpers.text_of(number)

    def ranges_of(numbers: Iterable[int]) -> Ranges:
        found = ((starts[number], helpers.text_of(number)) for number in sorted(numbers))
        return _joined((start, start + len(text)) for start, text in found)

    return printed, {name: ranges_of(numbers) for name, numbers in reached.items()}


def _joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Ascending ranges, where one takes the place of those that follow each other."""
    joined: list[tuple[int, int]] = []
    for first, end in ranges:
        if joined and joined[-1][1] == first:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((first, end))
    return tuple(joined)


@dataclass(frozen=True)
class Helpers:
    """The fragments of texts that come one after the other, their macros, and tables of them.

    places      of each fragment the number of its text
    definers    the numbers of the fragments that define a name
    conditions  the numbers of the directives of a group, by its text and its number there
    nameless    the numbers of fragments without a name, such as ``using namespace metal;``
    """

    fragments: Sequence[Fragment]
    places: Sequence[int]
    macros: "Macros"
    definers: Mapping[str, Sequence[int]]
    conditions: Mapping[tuple[int, int], Sequence[int]]
    nameless: Sequence[int]

    def text_of(self, number: int) -> str:
        """A fragment as it is printed."""
        return f"{self.fragments[number].text}\n"

    def reached(self, names: Iterable[str]) -> set[int]:
        """The fragments that define one of `names`, or what such fragments use, and so on."""
        kept: set[int] = set()
        seen = set(names)
        waiting = [*self.nameless, *self._definers(seen)]
        while waiting:
            number = waiting.pop()
            if number in kept:
                continue
            kept.add(number)
            fragment, place = self.fragments[number], self.places[number]
            new = fragment.uses - seen
            seen |= new
            waiting += self._definers(new)
            for group in fragment.groups:
                waiting += self.conditions[place, group]
        return kept

    def _definers(self, names: Iterable[str]) -> list[int]:
        return [number for name in names for number in self.definers.get(name, ())]


@memoized(64)
def _helpers_of(texts: tuple[HelperText, ...]) -> Helpers:
    templates = tuple(dict.fromkeys(text.template for text in texts))
    fragments: list[Fragment] = []
    places: list[int] = []
    for place, text in enumerate(texts):
        before = templates[: templates.index(text.template)]
        added = _fragments_of(before, text)
        fragments += added
        places += [place] * len(added)
    definers: dict[str, list[int]] = {}
    conditions: dict[tuple[int, int], list[int]] = {}
    nameless: list[int] = []
    for number, (fragment, place) in enumerate(zip(fragments, places, strict=True)):
        for name in fragment.defines:
            definers.setdefault(name, []).append(number)
        if fragment.directive:
            conditions.setdefault((place, fragment.groups[-1]), []).append(number)
        elif not fragment.defines:
            nameless.append(number)
    return Helpers(fragments, places, _cut(templates).macros, definers, conditions, nameless)


@memoized(64)
def _fragments_of(before: tuple[str, ...], text: HelperText) -> Sequence[Fragment]:
    """The fragments of a text, which may call the macros of the templates before."""
    fragments = _cut((*before, text.template)).fragments
    return [_for_lanes(fragment, text.lanes) for fragment in fragments] if text.lanes else fragments


def _for_lanes(fragment: Fragment, lanes: int) -> Fragment:
    """`fragment` of a template with a number for N."""
    return replace(
        fragment,
        text=for_lanes(fragment.text, lanes),
        defines=frozenset(for_lanes(" ".join(fragment.defines), lanes).split()),
        uses=frozenset(for_lanes(" ".join(fragment.uses), lanes).split()),
    )


# Cutting.


@memoized(64)
def _cut(templates: tuple[str, ...]) -> "_Cutter":
    """The last template, cut, which may call the macros of those before."""
    *before, last = templates
    cutter = _Cutter(Macros())
    if before:
        earlier = _cut(tuple(before))
        cutter.macros.update({name: list(macros) for name, macros in earlier.macros.items()})
        cutter.types.update(earlier.types)
    cutter.cut(last)
    return cutter


@dataclass
class _Cutter:
    """Cuts a text into fragments."""

    macros: "Macros"
    fragments: list[Fragment] = field(default_factory=list)
    types: set[str] = field(default_factory=set)  # of structs, which operators are part of
    groups: list[int] = field(default_factory=list)  # those that are open
    _groups_so_far: int = 0

    def cut(self, text: str) -> None:
        """Add the fragments of `text`."""
        comment = ""
        for statement in self._statements(text):
            code = _COMMENT.sub(" ", statement).strip()
            if not code:
                comment = statement.strip("\n") if statement.strip() else comment
                continue
            printed = f"{comment}\n{statement.strip()}" if comment else statement.strip()
            comment = ""
            if code.startswith("#"):
                self._add_directive(code, printed)
            else:
                self._add_statement(code, printed)

    def _statements(self, text: str) -> Iterator[str]:
        """The directives, comments, definitions and calls of macros of a text, as they stand."""
        start = at = depth = 0
        in_statement = False
        while token := (_BRACKET if depth else _TOKEN).search(text, at):
            what, at = token[0], token.end()
            if what.startswith(("/*", "//")) or (what[0] == "#" and not in_statement):
                ends = not in_statement
            else:
                in_statement = True
                depth += (what in _OPENING) - (what in _CLOSING)
                ends = depth == 0 and self._ends(text, start, at, what)
            if ends:
                yield text[start:at]
                start, in_statement = at, False

    def _ends(self, text: str, start: int, end: int, token: str) -> bool:
        """Does a statement end with `token`, outside of all brackets?"""
        if token == ";":
            return True
        if token == "}":
            following = text[end : end + 2].lstrip(" ")
            return not following.startswith((";", ")", ","))
        if token == ")":
            name = _NAME.match(text[start:end].lstrip())
            return name is not None and self._is_call(text[start:end].strip(), name[0])
        return False

    def _is_call(self, code: str, name: str) -> bool:
        """Is `code` a call of a macro and nothing else?"""
        if name not in self.macros or not code.startswith(f"{name}("):
            return False
        return _end_of_call(code, len(name)) == len(code)

    def _add_directive(self, code: str, printed: str) -> None:
        names = frozenset(_NAME.findall(code)[1:])
        if code.startswith("#if"):
            self._groups_so_far += 1
            self.groups.append(self._groups_so_far)
        if code.startswith(_CONDITIONALS):
            groups = tuple(self.groups)
            self.fragments.append(Fragment(printed, frozenset(), names, groups, directive=True))
            if code.startswith("#endif"):
                self.groups.pop()
        elif definition := _DEFINE.match(code):
            self._add_macro(definition, code, printed)
        elif code.startswith("#undef"):
            for name in names:
                self.macros.pop(name, None)
            self._add(printed, names, ())
        else:  # #include
            self._add(printed, (), ())

    def _add_macro(self, definition: re.Match[str], code: str, printed: str) -> None:
        """Add ``#define``, whose head is `definition`."""
        name, has_parameters, listed = definition.groups()
        parameters = tuple(filter(None, map(str.strip, (listed or "").split(","))))
        body = code[definition.end() :].replace("\\\n", " ").strip()
        macro = Macro(parameters if has_parameters else None, body)
        self.macros.setdefault(name, []).append(macro)
        uses = frozenset(_NAME.findall(_LITERAL.sub(" ", body))) - {name, *parameters}
        self._add(printed, {name}, uses)

    def _add_statement(self, code: str, printed: str) -> None:
        name = _NAME.match(code)
        if name is None or not self._is_call(code, name[0]):
            self._add(printed, self._defined(code), self.macros.names_in(code))
            return
        *others, macro = self.macros[name[0]]
        if not others and _only_calls_parameters(macro):
            for statement in self._statements(self.macros.expanded_once(code)):
                self._add_statement(statement.strip(), statement.strip())
            return
        expanded = self.macros.expanded(code)
        defined: set[str] = set()
        for statement in self._statements(expanded.code):
            defined |= self._defined(statement)
        self._add(printed, defined, expanded.names)

    def _add(self, text: str, defines: Iterable[str], uses: Iterable[str]) -> None:
        names, used = frozenset(defines), frozenset(uses)
        if "operator" not in used:  # one of several types needs the others
            used -= names
        self.fragments.append(Fragment(text, names, used, tuple(self.groups)))

    def _defined(self, code: str) -> set[str]:
        """The names that a statement without macros defines."""
        code = _without_templates(_without_attributes(_LITERAL.sub(" ", code))).strip(" ;\n")
        head = re.split(r"[{=]|\s:\s", code, maxsplit=1)[0]
        names = _NAME.findall(head)
        if not names or names[0] in ("using", "static_assert"):
            return set()
        if names[0] == "namespace":
            return {names[1]}
        if names[0] == "enum":
            return set(_NAME.findall(code)) - {"enum"}
        if names[0] == "typedef":
            pointer = re.search(r"\(\*(\w+)\)", head)
            return {pointer[1] if pointer else _NAME.findall(code)[-1]}
        if "operator" in names:  # it is part of the types that it takes
            return self.types.intersection(names)
        function = re.search(r"(\w+)\s*\(", head)
        if function:
            return {function[1]}
        if "struct" in names:
            name = names[names.index("struct") + 1]
            self.types.add(name)
            return {name}
        return {names[-1]}


@dataclass(frozen=True)
class Expansion:
    """What a call of a macro stands for, and every name that was met on the way."""

    code: str
    names: set[str]


class Macros(dict[str, list[Macro]]):
    """The macros so far, by name: all that a name may stand for, in the branches of an ``#if``."""

    def names_in(self, code: str) -> set[str]:
        """Every name in `code`, and in what calls of macros there that paste names stand for."""
        if "/*" in code or "//" in code:
            code = _COMMENT.sub(" ", code)
        if '"' in code:
            code = _LITERAL.sub(" ", code)
        names = set(_NAME.findall(code))
        pasting = [name for name in names if name in self and self._pastes(name)]
        if pasting:
            for call in re.finditer(rf"\b(?:{'|'.join(pasting)})\(", code):
                end = _end_of_call(code, call.end() - 1)
                names |= self.expanded(code[call.start() : end]).names
        return names

    def _pastes(self, name: str) -> bool:
        """Does a macro paste names together, or call one that does?"""
        for macro in self[name]:
            others = {other for other in _NAME.findall(macro.body) if other in self}
            is_call = macro.parameters is not None
            if is_call and ("##" in macro.body or any(map(self._pastes, others - {name}))):
                return True
        return False

    def expanded_once(self, code: str) -> str:
        """What a call, which is all of `code`, stands for."""
        name, _, arguments = code[:-1].partition("(")
        return _substituted(self[name][-1], _arguments(arguments))

    def expanded(self, code: str) -> Expansion:
        """`code` with every call of a macro replaced by all that it may stand for, and every name
        that stands for one name."""
        names: set[str] = set()
        at = 0
        for _ in range(_MAX_EXPANSIONS):
            found = _NAME.search(code, at)
            if found is None:
                return Expansion(code, names)
            name, start, at = found[0], found.start(), found.end()
            names.add(name)
            macros = self.get(name, [])
            if code[at : at + 1] == "(":
                close = _end_of_call(code, at)
                texts = list(_replaced(macros, code[at:close]))
            else:
                close = at
                texts = [macro.body for macro in macros if macro.is_alias]
            if texts and texts != [code[start:close]]:
                code, at = code[:start] + "\n".join(texts) + code[close:], start
        raise AssertionError(f"{code[:80]}: a macro calls itself")


def _replaced(macros: Sequence[Macro], arguments: str) -> Iterator[str]:
    """What a call of one of `macros` with these arguments, in brackets, may stand for."""
    for macro in macros:
        if macro.parameters is not None:
            yield _substituted(macro, _arguments(arguments[1:-1]))
        elif macro.is_alias:
            yield macro.body + arguments


def _without_attributes(code: str) -> str:
    """`code` without ``__attribute__((...))`` and the like."""
    while found := _ATTRIBUTE.search(code):
        code = f"{code[: found.start()]} {code[_end_of_call(code, found.end()) :]}"
    return code


def _without_templates(code: str) -> str:
    """`code` without ``template <...>`` and the arguments of templates."""
    code = re.sub(r"\btemplate\s*(?=<)", "", code)
    while (shorter := re.sub(r"<[^<>{};]*>", " ", code)) != code:
        code = shorter
    return code


def _end_of_call(code: str, opening: int) -> int:
    """Where the brackets that open at `opening` have closed."""
    depth = 0
    for token in _BRACKET.finditer(code, opening):
        depth += (token[0] in _OPENING) - (token[0] in _CLOSING)
        if depth == 0:
            return token.end()
    return len(code) + 1  # they have not


def _arguments(text: str) -> list[str]:
    """The arguments of a call, from the text between its brackets."""
    arguments, depth = [""], 0
    for character in re.findall(r'"(?:\\.|[^"\\])*"|.', text, re.DOTALL):
        depth += (character in _OPENING) - (character in _CLOSING)
        if character == "," and depth == 0:
            arguments.append("")
        else:
            arguments[-1] += character
    return [argument.strip() for argument in arguments]


def _substituted(macro: Macro, arguments: Sequence[str]) -> str:
    """What a call with these arguments stands for, with names pasted together."""
    assert macro.parameters is not None
    named = [parameter for parameter in macro.parameters if parameter != "..."]
    values: Mapping[str, str] = {
        **dict(zip(named, arguments, strict=False)),
        "__VA_ARGS__": ", ".join(arguments[len(named) :]),
    }
    text = re.sub(r"(?<!#)#(\w+)", '""', macro.body)
    text = _NAME.sub(lambda name: values.get(name[0], name[0]), text)
    return re.sub(r"\s*##\s*", "", text)


def _only_calls_parameters(macro: Macro) -> bool:
    """Is it a list of calls of one of its parameters, as ``F(i8) F(i16)`` of F?"""
    rest, at = macro.body, 0
    while found := _NAME.match(rest, at):
        if found[0] not in (macro.parameters or ()) or rest[found.end() : found.end() + 1] != "(":
            return False
        at = _end_of_call(rest, found.end())
        at += len(rest[at:]) - len(rest[at:].lstrip())
    return at > 0 and at >= len(rest)

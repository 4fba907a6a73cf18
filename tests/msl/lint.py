"""What the Metal Shading Language forbids and clang's C++ for OpenCL lets pass.

It reads what the preprocessor leaves, in tokens: enough for generated programs, and too little for
all of C++.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<skip> //[^\n]* | /\*.*?\*/ | "(?:\\.|[^"\\])*" | [ \t\r]+ | \\\n )
      | (?P<directive> (?<![^\n]) \#(?:[^\n\\]|\\.|\\\n)* )
      | (?P<number> (?:0[xX][\da-fA-F.]+ | \d+\.?\d*(?:[eE][+-]?\d+)? | \.\d+(?:[eE][+-]?\d+)?)
                    (?P<suffix>[a-zA-Z]*) )
      | (?P<name> [A-Za-z_]\w* )
      | (?P<line> \n )
      | (?P<sign> :: | \[\[ | \]\] | && | \|\| | <<= | >>= | << | [-+*/%&|^!=<>]= | ->
                  | \+\+ | -- | . )""",
    re.VERBOSE | re.DOTALL,
)
_FORBIDDEN = {
    "double", "goto", "new", "delete", "try", "catch", "throw", "virtual", "typeid",
    "dynamic_cast", "thread_local", "asm", "alignof", "friend", "__global", "__local", "__private",
    "__constant", "__generic", "f64",
}  # fmt: skip
_SPACES = {"device", "constant", "threadgroup", "thread", "threadgroup_imageblock", "object_data"}
_KINDS = {"half": "half", "f16": "half", "bfloat": "bfloat", "bf16": "bfloat"}
_SCALARS = {
    "void", "bool", "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "size_t",
    "float", "auto", "signed", "unsigned", *_KINDS,
    *(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}  # fmt: skip
_MARKER = re.compile(r'# (\d+) "')
_DECLARES = {
    "typedef", "using", "struct", "class", "enum", "namespace", "template", "constant",
    "static_assert", "union",
}  # fmt: skip
_ARITHMETIC = {"+", "-", "*", "/", "<", ">", "<=", ">=", "==", "!="}
_SUFFIXES = {"", "u", "U", "l", "L", "ul", "UL", "uL", "Ul", "f", "F", "h", "H", "bf", "BF"}


class Token(NamedTuple):
    kind: str
    text: str
    line: int


class Complaint(NamedTuple):
    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


def tokens(source: str) -> tuple[list[Token], list[Complaint]]:
    """The tokens of `source`, a directive as one, and complaints about their spelling."""
    found, complaints, line = [], [], 1
    for match in _TOKEN.finditer(source):
        kind, text = match.lastgroup or "", match.group()
        if match["number"]:
            kind = "number"
            is_hex = text[:2] in ("0x", "0X")
            suffix = match["suffix"].lstrip("abcdefABCDEF") if is_hex else match["suffix"]
            if suffix not in _SUFFIXES:
                complaints.append(Complaint(line, f"{text}: Metal has no such suffix"))
        if kind == "directive" and (marker := _MARKER.match(text)):
            line = int(marker[1]) - 1  # of the preprocessor; the line's end follows
        elif kind not in ("skip", "line"):
            found.append(Token(kind, text, line))
        line += text.count("\n")
    return found, complaints


def lint(source: str) -> list[Complaint]:
    """Everything in `source` that Metal would refuse or leave undefined, by line."""
    every, complaints = tokens(source)
    code = [one for one in every if one.kind != "directive"]
    complaints += _words(code)
    complaints += _pointers(code)
    complaints += _globals(code)
    complaints += _mixtures(code)
    return sorted(set(complaints))


def _words(code: list[Token]) -> Iterator[Complaint]:
    for before, one in zip([None, *code], code, strict=False):
        if one.text in _FORBIDDEN and not (one.text == "delete" and before and before.text == "="):
            yield Complaint(one.line, f"Metal has no {one.text!r}")
        if before and before.text == one.text == "long":
            yield Complaint(one.line, "Metal has no 'long long'")


def _types(code: list[Token]) -> set[str]:
    """The names of types: Metal's, and those that `code` defines."""
    known = set(_SCALARS)
    for at, one in enumerate(code):
        after = code[at + 1].text if at + 1 < len(code) else ""
        if one.text in ("struct", "class", "typename", "enum"):
            known.add(after)
        elif one.text == "typedef":
            end = next(i for i in range(at, len(code)) if code[i].text == ";")
            known.add(code[end - 1].text)
    return known


def _pointers(code: list[Token]) -> Iterator[Complaint]:
    """Each pointer and reference names the address space of what it points to."""
    known = _types(code)
    for at, one in enumerate(code[:-1]):
        if one.text not in ("*", "&") or code[at - 1].text not in known | {"const"}:
            continue
        start = at - 1
        while start and code[start - 1].text not in ("(", ")", ",", ";", "{", "}", "<", "]]"):
            start -= 1
        declaration = {token.text for token in code[start:at]}
        if declaration & known and not declaration & _SPACES:
            text = " ".join(token.text for token in code[start : at + 2])
            yield Complaint(one.line, f"{text!r} names no address space")


def _globals(code: list[Token]) -> Iterator[Complaint]:
    """A variable outside of functions is `constant`."""
    depth, start = 0, 0
    for at, one in enumerate(code):
        if depth and one.text == "static":
            yield Complaint(one.line, "Metal has no static variables in functions")
        if one.text in ("{", "}"):
            depth += 1 if one.text == "{" else -1
        if depth == 0 and one.text in (";", "}"):
            words = [token.text for token in code[start : at + 1]]
            first = code[start]
            is_function = words[-2:] == [")", ";"] and "=" not in words
            starts = _DECLARES.intersection(words) or words in ([";"], ["}"])
            if one.text == ";" and not is_function and not starts:
                text = " ".join(words[:-1])
                yield Complaint(first.line, f"{text!r} is a variable of the program, not constant")
            start = at + 1


def _mixtures(code: list[Token]) -> Iterator[Complaint]:
    """No operation has a half and a bfloat: by the names that a function declares as such."""
    kinds: dict[str, str] = {}
    depth = 0
    for at, one in enumerate(code[:-1]):
        depth += (one.text == "{") - (one.text == "}")
        if one.text == "}" and depth == 0:
            kinds = {}
        if one.text in _KINDS and code[at + 1].kind == "name":
            kinds[code[at + 1].text] = _KINDS[one.text]
        if at and one.text in _ARITHMETIC:
            sides = _operand(code, at - 1, -1), _operand(code, at + 1, 1)
            if {kinds.get(side, _KINDS.get(side)) for side in sides} == {"half", "bfloat"}:
                text = f" {one.text} ".join(sides)
                yield Complaint(one.line, f"{text!r} mixes half and bfloat")


def _operand(code: list[Token], at: int, step: int) -> str:
    """The name that an operand at `at` starts or ends with, brackets passed over."""
    depth = 0
    while 0 <= at < len(code) - 1:
        text = code[at].text
        opens, closes = ("[", "]") if step > 0 else ("]", "[")
        depth += (text == opens) - (text == closes)
        if depth == 0 and text not in ("(", ")", "]", "["):
            break
        at += step
    return code[at].text

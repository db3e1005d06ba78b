"""The debug information of each level, taken out of its text: the text comes back readable, with the source line of each of its lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

Lines = list[int | None]
_MLIR_ALIAS = re.compile(r"^#(loc\d*) = loc\((.*)\)\s*$", re.MULTILINE)
_MLIR_USE = re.compile(r" loc\((#loc\d*|unknown|\"[^\"]*\"\(#loc\d*\)|callsite\([^()]*\)|\"[^\"]*\":\d+:\d+)\)")
_MLIR_PLACE = re.compile(r'"([^"]*)":(\d+):\d+')
_DBG = re.compile(r",? !dbg !(\d+)")
_METADATA = re.compile(r"^!(\d+) = (?:distinct )?!(\w+)\((.*)\)", re.MULTILINE)
_PTX_LOC = re.compile(r"^\s*\.loc\s+(\d+) (\d+) \d+(.*)$")
_PTX_INLINED = re.compile(r"inlined_at (\d+) (\d+) \d+")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+(?:"([^"]*)"\s+)?"([^"]*)"')
_SASS_LINE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)')
_AMD_CHAIN = re.compile(r"; (\S+):(\d+):\d+((?: @\[ \S+:\d+:\d+)*)")


def join(rows: Iterable[tuple[str, int | None]]) -> tuple[str, Lines]:
    kept = list(rows)
    return "".join(text + "\n" for text, _ in kept), [line for _, line in kept]


def mlir_lines(text: str, file: str) -> tuple[str, Lines]:
    """TTIR or TTGIR without its ``loc(...)``; an inlined call counts as the line of the kernel that calls."""
    aliases = dict(_MLIR_ALIAS.findall(text))
    known: dict[str, int | None] = {}

    def resolve(name: str) -> int | None:
        if name not in known:
            known[name] = None  # a cycle ends here
            known[name] = place(aliases.get(name, ""))
        return known[name]

    def place(location: str) -> int | None:
        if direct := _MLIR_PLACE.search(location):
            return int(direct[2]) if direct[1] == file else None
        names = re.findall(r"#(loc\d*)", location)
        return next((line for line in map(resolve, reversed(names)) if line is not None), None)  # the caller comes last

    rows: list[tuple[str, int | None]] = []
    opened: list[int] = []  # operations whose location stands where their regions end
    for line in text.splitlines():
        if line.startswith("#loc"):
            continue
        found = _MLIR_USE.findall(line)
        where = place(found[-1]) if found else None
        if line.lstrip().startswith("}") and opened:
            first = opened.pop()
            rows[first] = (rows[first][0], rows[first][1] or where)
        if line.rstrip().endswith(("{", "({")):
            opened.append(len(rows))
        rows.append((_MLIR_USE.sub("", line), where))
    return join(rows)


def llvm_lines(text: str, file: str) -> tuple[str, Lines]:
    """LLVM IR without debug metadata."""
    nodes = {number: (kind, body) for number, kind, body in _METADATA.findall(text)}

    def field(body: str, name: str) -> str:
        found = re.search(rf"\b{name}: !?(\w+|\"[^\"]*\")", body)
        return found[1].strip('"') if found else ""

    def file_of(number: str) -> str:
        for _ in range(20):
            kind, body = nodes.get(number, ("", ""))
            if kind == "DIFile":
                return f"{field(body, 'directory')}/{field(body, 'filename')}"
            number = field(body, "file") or field(body, "scope")
        return ""

    def line_of(number: str) -> int | None:
        found = None
        for _ in range(50):
            kind, body = nodes.get(number, ("", ""))
            if kind != "DILocation":
                break
            if file_of(field(body, "scope")) == file and (line := int(field(body, "line") or 0)):
                found = line
            number = field(body, "inlinedAt")
        return found

    rows = []
    for line in text.splitlines():
        if re.match(r"^!(\d+ = (distinct )?!(DI\w+)\(|llvm\.dbg)", line):
            continue
        used = _DBG.search(line)
        rows.append((_DBG.sub("", line), line_of(used[1]) if used and not line.startswith("define") else None))
    return join(_without_blank_runs(rows))


def _without_blank_runs(rows: Iterable[tuple[str, int | None]]) -> Iterable[tuple[str, int | None]]:
    blank = True
    for text, line in rows:
        if text.strip() or not blank:
            yield text, line
        blank = not text.strip()


def _assembly_lines(text: str, file: str, is_code: Callable[[str], bool], comment: str) -> tuple[str, Lines]:
    """Assembly with ``.loc`` directives: PTX and AMD's."""
    files: dict[str, str] = {}
    for line in text.splitlines():
        if found := _FILE.match(line):
            files[found[1]] = f"{found[2]}/{found[3]}" if found[2] else found[3]
    rows: list[tuple[str, int | None]] = []
    current: int | None = None
    short = file.rsplit("/", 1)[-1]
    for line in text.splitlines():
        if line.strip().startswith(".section") and ".debug" in line:
            break
        if _FILE.match(line) or re.match(
            r"^\s*\$?\.?L?(tmp|func_begin|func_end)\w*:|^\s*\.cfi_|^\s*\$L__(tmp|func_begin|func_end)\w*:", line
        ):
            continue
        if found := _PTX_LOC.match(line):
            places = [(found[1], found[2]), *_PTX_INLINED.findall(found[3])]
            lines = [int(number) for name, number in places if files.get(name) == file]
            if chain := _AMD_CHAIN.search(found[3]):
                lines = [int(number) for name, number in re.findall(r"(\S+):(\d+):\d+", chain[0]) if name == short] or lines
            current = next((number for number in reversed(lines) if number), None)
            continue
        rows.append(
            (line.split(comment)[0].rstrip() if comment and not is_code(line) else line.rstrip(), current if is_code(line) else None)
        )
    return join(_without_blank_runs(rows))


def ptx_lines(text: str, file: str) -> tuple[str, Lines]:
    return _assembly_lines(text, file, lambda line: line.startswith("\t") and line.strip()[:1] not in (".", "/", ""), "")


def amdgcn_lines(text: str, file: str) -> tuple[str, Lines]:
    return _assembly_lines(text, file, lambda line: line.startswith("\t") and line.strip()[:1] not in (".", ";", ""), "")


def sass_lines(text: str, file: str) -> tuple[str, Lines]:
    """The instructions and labels that ``nvdisasm -gi`` prints. Of the lines above an instruction the last one is the outermost caller."""
    rows: list[tuple[str, int | None]] = []
    current: int | None = None
    for line in text.splitlines():
        if found := _SASS_LINE.match(line):
            current = int(found[2]) if found[1] == file else None
        elif re.match(r"^\s+/\*[0-9a-f]{4,}\*/", line):
            rows.append((line[4:].rstrip() if line.startswith("        ") else line.rstrip(), current))
        elif re.match(r"^[.\w$]+:", line) and not line.startswith(".text."):
            rows.append((line, None))
        elif "SYMBOLS" in line:
            break
    return join(rows)

"""Read the package's public definitions from its source, without importing it: names, signatures, docstrings."""
import ast
import re
import textwrap
from dataclasses import dataclass, field, replace
from pathlib import Path

_functions = ast.FunctionDef, ast.AsyncFunctionDef


@dataclass
class Param:
    "One row of a parameter table; `name` starts with * or ** where the signature has it."
    name: str
    type: str = ''
    default: str = ''
    details: str = ''
    marker: bool = False   # a bare * or /, in the signature but not in the table
    group: str = ''   # heading of its section in the docstring, if not Args

    @property
    def short(self) -> str:
        "The name without stars."
        return self.name.lstrip('*')


@dataclass
class Symbol:
    "One definition: `name` is unique within the module, such as `ImageDataset.filename`."
    name: str
    module: str
    kind: str   # class, function, method, property or constant
    line: int
    doc: str = ''
    public: bool = False
    bases: list[str] = field(default_factory=list)
    params: list[Param] = field(default_factory=list)
    returns: Param | None = None
    called: bool = True   # has a signature to show
    node: ast.AST | None = None   # where it is defined
    delegate: str = ''   # whose parameters `**kwargs` stands for: of `@delegates(delegate, but=[…])`
    but: tuple[str, ...] = ()   # parameters of it that are left out
    value: str = ''   # of a constant, as written

    @property
    def summary(self) -> str:
        "The first line of the docstring; for a constant without a comment, its value."
        if not self.doc and 0 < len(self.value) <= 60: return f'`{self.value}`'
        return ' '.join(self.doc.split('\n\n')[0].split())

    def signature(self, width: int = 84) -> str:
        "The call as it is typed, one line where it fits, else wrapped between parameters."
        if not self.called: return self.name
        parts = [(p.group, p.name + (f'={p.default}' if p.default and not p.marker else '')) for p in self.params]
        end = ')' + (f' -> {self.returns.type}' if self.returns and self.returns.type else '')
        one = f'{self.name}({", ".join(part for _, part in parts)}{end}'
        if len(one) <= width: return one
        lines, line, last = [], '', ''
        for group, part in parts:
            is_new = group not in ('', last)
            if line and (is_new or len(line) + len(part) + 6 > width): lines.append(line); line = ''
            if is_new: lines.append(f'# {group}'); last = group
            line += ('' if not line else ' ') + part + ','
        return '\n'.join([f'{self.name}(', *('    ' + o for o in [*lines, line] if o), end])


def _constant_details(node, lines: list[str]) -> str:
    "The comment beside a constant, after those on lines of their own above it."
    above, at = [], node.lineno - 2
    while at >= 0 and re.match(r'# (?!%%|noqa)', lines[at]): above.insert(0, lines[at][2:].strip()); at -= 1
    beside = re.search(r'   # (?!noqa)(.*)', lines[node.end_lineno - 1])
    return ' '.join([*above, *([beside[1]] if beside else [])])


_section = re.compile(r'\n\n(?=(?:[A-Z*][^\n]*):\n    \S)')


def split_doc(doc: str, params: list[Param], returns: Param | None) -> tuple[str, list[Param], Param | None]:
    "A docstring without the sections about parameters and the result, and these with what the sections say."
    text, *sections = _section.split(doc)
    names, found, groups = {p.short for p in params}, {}, {}
    for section in sections:
        heading, _, body = section.partition(':\n')
        rows = [row.split(':', 1) for row in re.split(r'\n    (?! )', '\n' + body)[1:]]
        if heading.startswith('**'): found[heading.partition(',')[0].lstrip('*')] = heading.partition(', ')[2]
        elif heading == 'Returns': found['return'] = ' '.join(body.split())
        elif all(len(row) == 2 and row[0].lstrip('*') in names for row in rows):
            for name, details in rows:
                found[name.lstrip('*')] = ' '.join(details.split())
                groups[name.lstrip('*')] = '' if heading == 'Args' else heading
        else: text += f'\n\n{section}'
    params = [replace(p, details=found.get(p.short, p.details), group=groups.get(p.short, p.group)) for p in params]
    return text, params, replace(returns, details=found.get('return', '')) if returns else None


def _delegate(fn) -> tuple[str, tuple[str, ...]]:
    "Whose parameters a function takes as well, and which ones it does not."
    for call in fn.decorator_list:
        if not (isinstance(call, ast.Call) and _unparse(call.func) == 'delegates'): continue
        return _unparse(call.args[0]), tuple(o.value for k in call.keywords for o in ast.walk(k.value) if isinstance(o, ast.Constant))
    return '', ()


def _unparse(node) -> str:
    text = ast.unparse(node) if node is not None else ''
    return text[1:-1] if isinstance(node, ast.Constant) and isinstance(node.value, str) else text


def _params(fn, method: bool) -> tuple[list[Param], Param | None]:
    "The parameters of a function, without self or cls, and what it returns."
    a = fn.args
    plain = a.posonlyargs + a.args
    defaults = [None] * (len(plain) - len(a.defaults)) + a.defaults
    rows = [('', p, d) for p, d in zip(plain, defaults, strict=True)]
    if a.posonlyargs: rows.insert(len(a.posonlyargs), ('/', None, None))
    if a.vararg: rows.append(('*', a.vararg, None))
    elif a.kwonlyargs: rows.append(('*', None, None))
    rows += [('', p, d) for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)]
    if a.kwarg: rows.append(('**', a.kwarg, None))
    if method and plain and not any(_unparse(d) == 'staticmethod' for d in fn.decorator_list): rows.pop(0)
    params = [Param(star, marker=True) if p is None else Param(star + p.arg, _unparse(p.annotation), '' if d is None else ast.unparse(d))
              for star, p, d in rows]
    has_result = fn.returns is not None and _unparse(fn.returns) != 'None'
    return params, Param('return', _unparse(fn.returns)) if has_result else None


def _is_record(node: ast.ClassDef) -> bool:
    "Is this class a dataclass or a named tuple, whose fields are its parameters?"
    return (any('dataclass' in _unparse(d) for d in node.decorator_list)
            or any('NamedTuple' in _unparse(b) for b in node.bases))


def _class(node: ast.ClassDef, classes: dict) -> tuple[list[Param], bool]:
    "The parameters of a class: of its own or inherited `__init__`, or the fields of a record."
    methods = {item.name: item for item in node.body if isinstance(item, _functions)}
    made = methods.get('__init__') or methods.get('__new__')
    if made is not None: return _params(made, True)[0], True
    if _is_record(node):
        return [Param(o.target.id, _unparse(o.annotation), ast.unparse(o.value) if o.value is not None else '')
                for o in node.body if isinstance(o, ast.AnnAssign) and not o.target.id.startswith('_')], True
    return next((classes[_unparse(base)] for base in node.bases if _unparse(base) in classes), ([], False))


def _names(tree) -> list[str]:
    "The names in a module's `__all__`, and those that it imports as themselves (`X as X`)."
    found = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom): found += [alias.name for alias in node.names if alias.asname == alias.name]
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, 'target', None)
        if isinstance(target, ast.Name) and target.id == '__all__' and node.value is not None:
            found += [o.value for o in ast.walk(node.value) if isinstance(o, ast.Constant)]
    return found


def read_module(path: Path, module: str, classes: dict | None = None) -> dict[str, Symbol]:
    "All named definitions of one module, such as `readers.tar`, in order."
    source = path.read_text(encoding='utf-8')
    tree, lines = ast.parse(source), source.split('\n')
    public, found, classes = _names(tree), {}, {} if classes is None else classes

    def add(name, kind, node, params=(), returns=None, doc='', **kw):
        doc, params, returns = split_doc(doc, params, returns)
        found[name] = Symbol(name, module, kind, node.lineno, doc=doc, public=name.split('.')[0] in public, params=params,
                             returns=returns, node=node, **kw)
        return params

    for node in tree.body:
        if isinstance(node, _functions):
            params, returns = _params(node, False)
            delegate, but = _delegate(node)
            add(node.name, 'function', node, doc=ast.get_docstring(node) or '', params=params, returns=returns,
                delegate=delegate, but=but)
        elif isinstance(node, ast.ClassDef):
            params, called = _class(node, classes)
            params = add(node.name, 'class', node, doc=ast.get_docstring(node) or '', params=params, called=called,
                         bases=[_unparse(b) for b in node.bases if _unparse(b) != 'object'])
            classes[node.name] = params, called
            for item in node.body:
                value = getattr(item, 'value', None)
                if isinstance(item, ast.AnnAssign) and isinstance(value, ast.Call) and _unparse(value.func) == 'Asked':
                    add(f'{node.name}.{item.target.id}', 'property', item, doc=value.args[0].value, called=False)
                if not isinstance(item, _functions): continue
                params, returns = _params(item, True)
                is_property = any(re.search(r'\b(cached_)?property\b', _unparse(d)) for d in item.decorator_list)
                if any('.setter' in _unparse(d) for d in item.decorator_list): continue
                add(f'{node.name}.{item.name}', 'property' if is_property else 'method', item,
                    doc=ast.get_docstring(item) or '', params=params, returns=returns, called=not is_property)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if not isinstance(target, ast.Name) or target.id.startswith('__'): continue
                add(target.id, 'constant', node, value=_unparse(node.value), doc=_constant_details(node, lines))
    return found


@dataclass
class Package:
    "The definitions of every module, the names of the top level, and these with those of the packages' front doors."
    modules: dict[str, dict[str, Symbol]]
    exported: list[str]
    offered: set[str]

    def find(self, name: str, module: str | None = None) -> Symbol | None:
        "The symbol called `name` (optionally qualified by module) as seen from `module`; public ones first."
        name = name.removeprefix('timmdata.')
        parts = name.split('.')
        for k in range(len(parts) - 1, 0, -1):
            if (qualifier := '.'.join(parts[:k])) in self.modules: return self.modules[qualifier].get('.'.join(parts[k:]))
        if name in self.modules.get(module, {}): return self.modules[module][name]
        return next((o[name] for o in self.modules.values() if name in o and o[name].public), None)

    def linked(self, name: str, module: str | None = None) -> Symbol | None:
        "The symbol that `name` in a sentence means, where a link helps: exported, of this module, or qualified."
        symbol = self.find(name, module)
        if symbol is None or not symbol.public or symbol.name.split('.')[-1].startswith('_'): return None
        top = symbol.name.split('.')[0]
        return symbol if top in self.exported or symbol.module == module or name != symbol.name else None

    def delegated(self, symbol: Symbol) -> list[Param]:
        "The parameters that `**kwargs` of a function stands for."
        target = self.find(symbol.delegate, symbol.module) if symbol.delegate else None
        if target is None: return []
        own = {p.short for p in symbol.params} | set(symbol.but)
        params = [p for p in [*target.params, *self.delegated(target)] if not p.name.startswith('*')]
        return [p for p in params if p.default and p.short not in own]

    def methods(self, name: str, module: str) -> list[Symbol]:
        "The public, documented methods and properties of a class, with those that it has from other classes of the package."
        own = {n.split('.')[-1]: o for n, o in self.modules[module].items() if n.startswith(name + '.') and o.doc
               and not n.split('.')[-1].startswith('_')}
        for base in self.modules[module][name].bases:
            symbol = self.find(base, module)
            if symbol is None or symbol.kind != 'class': continue
            for method in self.methods(symbol.name, symbol.module):
                short = method.name.split('.')[-1]
                own.setdefault(short, replace(method, name=f'{name}.{short}', module=module))
        return list(own.values())


def read_package(path: Path) -> Package:
    "Read every module under `path`; `exported` is `__all__` of its `__init__`, or every public name where it has none."
    files = {'.'.join(p.relative_to(path).with_suffix('').parts): p for p in sorted(path.rglob('*.py'))
             if not p.name.startswith('_')}
    classes = {}
    for _ in range(2):   # twice: a base class may be in a file that is read later
        modules = {name: read_module(p, name, classes) for name, p in files.items()}
    doors = {p: _names(ast.parse(p.read_text(encoding='utf-8'))) for p in [*path.rglob('__init__.py'), *path.glob('_offered.py')]}
    for door, names in doors.items():   # a package's front door may offer whole modules; the top level has none
        if door.parent == path: continue
        inside = {name: '.'.join((*door.parent.relative_to(path).parts, name)) for name in names}
        doors[door] = [n for name in names for n in (modules[inside[name]] if inside[name] in modules else [name])
                       if n == name or modules[inside[name]][n].public and '.' not in n]
    public = [n for o in modules.values() for n, s in o.items() if s.public and '.' not in n]
    alone = [n for name, o in modules.items() if '.' not in name for n, s in o.items() if s.public and '.' not in n]
    return Package(modules, doors.get(path/'_offered.py') or public, {*alone, *(n for names in doors.values() for n in names)})


_timm = re.compile(r'\(((?:not in )?timm\b[^()]*)\)$')


def parameter_table(symbol: Symbol, text) -> str:
    "A markdown table of the parameters and the result; `text` prepares a sentence. Empty where there are none."
    params = [p for p in symbol.params if not p.marker]
    result = symbol.returns if symbol.returns and symbol.returns.details else None
    if not any(p.type or p.details for p in params) and not result: return ''   # the signature says it all
    code = lambda s: f'`{s}`'.replace('|', r'\|') if s else ''   # noqa: E731
    cell = lambda s: _timm.sub(r'<span class="timm">\1</span>', text(s)).replace('|', r'\|')   # noqa: E731
    rows, group = [['Parameter', 'Type', 'Default', 'Details']], ''
    for p in params:
        if p.group != group: rows.append([f'<span class="group">{p.group}</span>', '', '', ''])
        group, anchor = p.group, f'<span id="{symbol.name}-{p.short}"></span>'
        rows.append([anchor + code(p.name), code(p.type), code(p.default) + '{.default}' * bool(p.default), cell(p.details)])
    if result: rows.append(['**Returns**', code(result.type), '', cell(result.details)])
    used = [i for i in range(4) if any(row[i] for row in rows[1:])]
    lines = ['| ' + ' | '.join(row[i] for i in used) + ' |' for row in rows]
    return '\n'.join(['{.docments}', lines[0], '|---' * len(used) + '|', *lines[1:]])


def dedent_code(source: str) -> str:
    "Code without directives, for showing."
    lines = [o for o in source.splitlines() if not re.match(r'\s*#\s*\|', o)]
    return textwrap.dedent('\n'.join(lines)).strip('\n')

"""The size of each package in syntax nodes, and what it may be: python tools/size.py [--write [--why TEXT]]

Lists the packages and the modules at top level beside what `tests/project/size.json` allows; a test fails where one has grown.
`--write` stores the present sizes. Those that have grown need `--why`, a sentence about what the nodes buy, which the file keeps.
"""
import argparse
import ast
import json
import sys
from collections import Counter
from pathlib import Path

from notebooks import root

ALLOWED = root/'tests/project/size.json'


def count_nodes(source: str) -> int:
    "The nodes of a program's syntax tree, without the marks that say whether a name is read or set."
    return sum(not isinstance(node, ast.expr_context) for node in ast.walk(ast.parse(source)))


def sizes(package: Path = root/'timmdata') -> dict[str, int]:
    "Nodes of each package and of each module at top level, in the order of their names."
    found = Counter()
    for path in sorted(package.rglob('*.py')):
        if path.name == '_modidx.py': continue   # an index that nbdev writes
        found[path.relative_to(package).parts[0].removesuffix('.py')] += count_nodes(path.read_text(encoding='utf-8'))
    return dict(found)


def grown(found: dict[str, int], allowed: dict[str, dict]) -> dict[str, int]:
    "What is larger than it may be, or not known, and by how many nodes."
    more = {name: nodes - allowed.get(name, {'nodes': 0})['nodes'] for name, nodes in found.items()}
    return {name: by for name, by in more.items() if by > 0}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--write', action='store_true', help='store the present sizes')
    parser.add_argument('--why', default='', help='what the nodes of those that have grown buy')
    args = parser.parse_args(argv)
    found, allowed = sizes(), json.loads(ALLOWED.read_text(encoding='utf-8')) if ALLOWED.exists() else {}
    more = grown(found, allowed)
    for name, nodes in found.items(): print(f"{name:16}{nodes:8,}{f'  {more[name]:+,}' if name in more else ''}")
    print(f"{'together':16}{sum(found.values()):8,}")
    if not args.write: return bool(more)
    if more and not args.why: parser.error(f'{", ".join(more)} grew: make it smaller, or say what that buys with --why')
    new = {name: {'nodes': nodes, 'why': args.why if name in more else allowed[name]['why']} for name, nodes in found.items()}
    rows = [f' {json.dumps(name)}: {json.dumps(row, ensure_ascii=False)}' for name, row in new.items()]   # a line for each: fewer conflicts
    ALLOWED.write_text('{\n' + ',\n'.join(rows) + '\n}\n', encoding='utf-8', newline='\n')
    return 0


if __name__ == '__main__': sys.exit(main())

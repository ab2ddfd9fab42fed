"""The size of each package in syntax nodes, and its ceiling: python tools/size.py [--write]

Lists the packages and the top-level modules beside their ceilings in `tests/project/size.json`; a test fails if one is above its own,
or all together are above the ceiling of the sum. `--write` lowers the ceilings to the present sizes, rounded up to the next hundred
so that a bug fix has room. It never raises one: a larger package must shrink first.
"""
import argparse
import ast
import json
import math
import sys
from collections import Counter
from pathlib import Path

from notebooks import root

CEILINGS = root/'tests/project/size.json'
STEP, SUM = 100, 'sum'


def count_nodes(source: str) -> int:
    "The nodes of a program's syntax tree, without the marks that say whether a name is read or set."
    return sum(not isinstance(node, ast.expr_context) for node in ast.walk(ast.parse(source)))


def sizes(package: Path = root/'timmdata') -> dict[str, int]:
    "Nodes of each package and top-level module in the order of their names, and their sum."
    found = Counter()
    for path in sorted(package.rglob('*.py')):
        if path.name == '_modidx.py': continue   # an index that nbdev writes
        found[path.relative_to(package).parts[0].removesuffix('.py')] += count_nodes(path.read_text(encoding='utf-8'))
    return {**found, SUM: sum(found.values())}


def above(found: dict[str, int], ceilings: dict[str, int]) -> dict[str, int]:
    "What is above its ceiling, and by how many nodes; a new package has only the ceiling of the sum."
    more = {name: nodes - ceilings.get(name, nodes) for name, nodes in found.items()}
    return {name: by for name, by in more.items() if by > 0}


def lowered(found: dict[str, int], ceilings: dict[str, int]) -> dict[str, int]:
    "The ceilings after a change that is below all of them: the present sizes, rounded up, where that is less."
    return {name: min(math.ceil(nodes / STEP) * STEP, ceilings.get(name, sys.maxsize)) for name, nodes in found.items()}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--write', action='store_true', help='lower the ceilings to the present sizes')
    args = parser.parse_args(argv)
    found, ceilings = sizes(), json.loads(CEILINGS.read_text(encoding='utf-8'))
    more = above(found, ceilings)
    for name, nodes in found.items():
        print(f"{name:16}{nodes:8,}  of {ceilings.get(name, nodes):8,}{f'  {more[name]:+,}' if name in more else ''}")
    if args.write and more: parser.error(f'{", ".join(more)}: above the ceiling, which is never raised. Delete as many nodes first.')
    if args.write: CEILINGS.write_text(json.dumps(lowered(found, ceilings), indent=1) + '\n', encoding='utf-8', newline='\n')
    return bool(more)


if __name__ == '__main__': sys.exit(main())

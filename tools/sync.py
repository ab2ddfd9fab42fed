"""Check that everything generated is what the notebooks say: python tools/sync.py [--write]

Deletes the generated modules, exports them again, cleans the notebooks and rebuilds README.md, then fails if git
sees any difference. It starts from a clean working tree; `--write` only regenerates, whatever the state of the tree.
"""
import argparse
import hashlib
import os
import subprocess
import sys
import warnings

from export import export
from notebooks import find_notebooks, root
from readme import write_readme


def git(*args: str) -> list[str]:
    "The NUL-separated answers of a git command."
    done = subprocess.run(['git', *args], cwd=root, capture_output=True, text=True)
    if done.returncode: raise SystemExit(f'the sync check needs a git checkout: {done.stderr.strip()}')
    return [line for line in done.stdout.split('\0') if line]


def git_status() -> list[str]:
    "What differs from the last commit, untracked files too, as lines of `git status --porcelain`."
    return git('status', '--porcelain', '-z', '--untracked-files=all', '--no-renames')


def hash_files() -> dict[str, str]:
    "Content hashes of all files that git does not ignore."
    paths = (root/name for name in git('ls-files', '-z', '--cached', '--others', '--exclude-standard'))
    return {p.relative_to(root).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in paths if p.is_file()}


def clean_notebooks():
    "Clean all notebooks with nbdev; a notebook that cannot be cleaned is an error, not a warning."
    from nbdev.clean import nbdev_clean
    with warnings.catch_warnings():
        warnings.filterwarnings('error', message='Failed to clean')
        for path in find_notebooks(): nbdev_clean(str(path))


def regenerate():
    "Write modules, cleaned notebooks and README afresh from the notebooks."
    os.environ.pop('IN_TEST', None)
    export()
    clean_notebooks()
    write_readme()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--write', action='store_true', help='regenerate and list what changed; no check')
    args = parser.parse_args(argv)
    if args.write:
        before = hash_files()
        regenerate()
        after = hash_files()
        changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        print('\n'.join(['regenerated:', *(f'  {name}' for name in changed)]) if changed else 'nothing changed')
        return 0
    dirty = git_status()
    if dirty:
        print('\n'.join(['sync check: not run, because the working tree differs from the last commit:',
                         *(f'  {line}' for line in dirty),
                         'Commit or remove these first, or run `python tools/sync.py --write` to regenerate only.']))
        return 2
    regenerate()
    stale = git_status()
    if stale:
        print('\n'.join(['sync check: FAILED. These files are not what the notebooks say:',
                         *(f'  {line}' for line in stale),
                         'They have now been regenerated. If one was edited by hand, move the edit to its notebook',
                         'and run `python tools/sync.py --write`; then commit it together with the notebook.']))
        return 1
    print('sync check: passed. Modules, notebooks and README.md agree.')
    return 0


if __name__ == '__main__': sys.exit(main())

"Print one of the README's two commands: python tools/readme_commands.py 1|2 (1: main job, 2: all tests)"
import re
import sys
from pathlib import Path

BLOCK = re.compile(r'^```sh\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def readme_commands(text: str) -> list[str]:
    "The two commands of a README: each the only line of one of its exactly two ```sh blocks."
    commands = []
    for number, block in enumerate(BLOCK.findall(text), 1):
        lines = [line for line in block.split('\n') if line.strip()]
        if len(lines) != 1: raise ValueError(f'```sh block {number} has {len(lines)} lines; it must hold one command')
        commands.append(lines[0].strip())
    if len(commands) != 2:
        raise ValueError(f'found {len(commands)} ```sh blocks; there must be exactly two: '
                         'install and run the main job, install and run the tests')
    for number, command in enumerate(commands, 1):
        if not command.startswith('pip install '):
            raise ValueError(f'command {number} does not install first (`pip install …`): {command}')
    if 'pytest' not in commands[1]: raise ValueError(f'command 2 does not run the tests (pytest): {commands[1]}')
    return commands


if __name__ == '__main__':
    if sys.argv[1:] not in (['1'], ['2']): raise SystemExit(__doc__)
    readme = Path(__file__).resolve().parent.parent/'README.md'
    try: print(readme_commands(readme.read_text(encoding='utf-8'))[int(sys.argv[1]) - 1])
    except ValueError as error: raise SystemExit(f'README.md: {error}') from None

"American spelling everywhere, as torch: normalize, color, gray."
import re
import subprocess
from pathlib import Path

from synthetic import ROOT

BRITISH = re.compile(r"""\w*(?:colour|grey|normalis|centre|centring|neighbour|behaviour|recognis|posteris|solaris|optimis|labelled|labelling
    |licence|favour|organis|summaris|serialis|initialis|parametris|artefact|catalogue)\w*""", re.IGNORECASE | re.VERBOSE)
EMBEDDED = re.compile(r'[A-Za-z0-9+/=]{120,}')   # pictures in base64
TEXTS = {'.py', '.ipynb', '.md', '.txt', '.css', '.js', '.html', '.ini', '.toml', '.yml', '.svg'}


def find_british(text: str) -> list[str]:
    "Words of British spelling, without what is embedded."
    return sorted(set(BRITISH.findall(EMBEDDED.sub('', text))))


def test_spelling_is_american():
    listed = subprocess.run(['git', 'ls-files', '-z'], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split('\0')
    paths = [ROOT/name for name in listed if Path(name).suffix in TEXTS]
    found = {path: find_british(path.read_text(encoding='utf-8')) for path in paths if path.exists() and path != Path(__file__)}
    assert {str(path): words for path, words in found.items() if words} == {}


def test_the_rule_catches_one():
    assert find_british('a grey cat in normalised colours, LabelLists of gray') == ['colours', 'grey', 'normalised']

"American spelling everywhere, as torch: normalize, color, gray; and no rare word where there is an easy one."
import re
import subprocess
from pathlib import Path

from synthetic import ROOT

UNUSUAL = re.compile('mend(?:s|ed|ing)?', re.IGNORECASE)   # fixes
BRITISH = re.compile(r"""(?:colour|grey|normalis|centre|centring|neighbour|behaviour|recognis|posteris|solaris|optimis|labelled|labelling
    |licence|favour|organis|summaris|serialis|initialis|parametris|artefact|catalogue)""", re.IGNORECASE | re.VERBOSE)
WORD = re.compile(r'\w+')
EMBEDDED = re.compile(r'[A-Za-z0-9+/=]{120,}')   # pictures in base64
TEXTS = {'.py', '.ipynb', '.md', '.txt', '.css', '.js', '.html', '.ini', '.toml', '.yml', '.svg'}


def find_words(text: str) -> list[str]:
    "Unusual words and words of British spelling, without what is embedded."
    plain = EMBEDDED.sub('', text)
    return sorted({word for word in set(WORD.findall(plain)) if BRITISH.search(word) or UNUSUAL.fullmatch(word)})


def test_spelling_is_american():
    listed = subprocess.run(['git', 'ls-files', '-z'], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split('\0')
    paths = [ROOT/name for name in listed if Path(name).suffix in TEXTS]
    found = {path: find_words(path.read_text(encoding='utf-8')) for path in paths if path.exists() and path != Path(__file__)}
    assert {str(path): words for path, words in found.items() if words} == {}


def test_the_rule_catches_one():
    assert find_words('a grey cat in normalised colours, LabelLists of gray') == ['colours', 'grey', 'normalised']
    assert find_words('Recommended: an amendment, which mends it') == ['mends']

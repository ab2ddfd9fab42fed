"Common tasks from needs.txt: the page \"I want to …\", and llms.txt."
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Need:
    "A task in a sentence, the page that explains it, and other search terms for it."
    group: str
    sentence: str
    target: str   # page, or page#anchor
    words: str

    @property
    def page(self) -> str:
        "The page of the target."
        return self.target.partition('#')[0]

    @property
    def url(self) -> str:
        "The address of the target, from the root of the site."
        page, _, anchor = self.target.partition('#')
        return f'{page}.html' + (f'#{anchor}' if anchor else '')


def read_needs(path: Path) -> list[Need]:
    "The needs in needs.txt."
    needs, group = [], ''
    for line in path.read_text(encoding='utf-8').splitlines():
        if not line.strip() or line.startswith('#'): continue
        sentence, *rest = (part.strip() for part in line.split('|'))
        if not rest: group = sentence; continue
        target, words = rest
        needs.append(Need(group, sentence, target, words))
    return needs


def needs_page(needs: list[Need], titles: dict[str, str]) -> str:
    "The page \"I want to …\"; `titles` are those of pages."
    parts, group = ['# I want to …\n\n{.subtitle}\nCommon tasks and the pages that explain them.'], ''
    for need in needs:
        if need.group != group: group = need.group; parts.append(f'\n## {group}\n\n{{.needs}}')
        page, _, anchor = need.target.partition('#')
        target = f'{page}.ipynb' + (f'#{anchor}' if anchor else '')
        parts.append(f'- [{need.sentence}]({target}) <span class="where">{titles[page]}</span>')
    return '\n'.join(parts) + '\n'


def llms(title: str, summary: str, groups: list, needs: list[Need]) -> str:
    "llms.txt, as https://llmstxt.org describes it: what the library is, and each page with its sentence."
    lines = [f'# {title}', '', f'> {summary}', '',
             'Each page is a notebook that runs: an example, the names and the code. `PACKAGE/reference.html` has all parameters.']
    for group in groups:
        lines += ['', f'## {group.caption}' + (f': {group.sentence}' if group.sentence else ''), '']
        lines += [f'- [{page.title}]({page.name}.html): {page.subtitle}' for page in group.pages]
    lines += ['', '## I want to …', '']
    lines += [f'- [{need.sentence}]({need.url})' for need in needs]
    lines += ['', '## Optional', '', '- [API index](api.html): every public name with its meaning']
    lines += [f'- [{group.caption}]({group.caption}/reference.html): every name, parameter and method'
              for group in groups if group.sentence]
    return '\n'.join(lines) + '\n'

"The recipes of the guide `your_trainer`, for frameworks that have no module in `timmdata.integrations`: the code that readers copy."
import sys
from functools import cache
from types import ModuleType

from notebooks import needed, read_notebook, split_cell
from synthetic import ROOT


@cache
def recipe(framework: str) -> ModuleType:
    "Run the first cell of the guide that needs the framework, in its own module."
    cells = read_notebook(ROOT/'nbs/guides/your_trainer.ipynb')['cells']
    source = next(cell['source'] for cell in cells if cell['cell_type'] == 'code' and framework in needed(cell['source']))
    module = sys.modules[f'recipe_of_{framework}'] = ModuleType(f'recipe_of_{framework}')
    exec(compile(split_cell(source)[1], f'the recipe of {framework}', 'exec'), vars(module))
    return module

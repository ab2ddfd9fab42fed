"Packaging: everything is read from settings.ini."
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
config = ConfigParser(delimiters=['='])
config.read(here/'settings.ini', encoding='utf-8')
settings = config['DEFAULT']
# package indexes show README.md away from the repository: its pictures need an address there
pictures = f"{settings['git_url']}/raw/{settings['branch']}/nbs/images/"
readme = (here/'README.md').read_text(encoding='utf-8').replace('](nbs/images/', f']({pictures}')

setup(
    name=settings['lib_name'],
    version=settings['version'],
    description=settings['description'],
    long_description=readme,
    long_description_content_type='text/markdown',
    author=settings['author'],
    author_email=settings['author_email'],
    url=settings['git_url'],
    project_urls={
        'Source': settings['git_url'],
        'Issues': f"{settings['git_url']}/issues",
        'Changelog': f"{settings['git_url']}/blob/{settings['branch']}/CHANGELOG.md",
        'Documentation': f"{settings['git_url']}/blob/{settings['branch']}/README.md#documentation",
        'Benchmarks': f"{settings['git_url']}/blob/{settings['branch']}/benchmarks/README.md",
    },
    keywords=settings['keywords'],
    license='Apache-2.0',
    license_files=['LICENSE'],
    classifiers=[
        'Development Status :: 3 - Alpha',
        'Intended Audience :: Developers',
        'Intended Audience :: Science/Research',
        'Operating System :: POSIX :: Linux',
        'Programming Language :: Python :: 3',
        'Programming Language :: Python :: 3 :: Only',
        *(f'Programming Language :: Python :: 3.{minor}' for minor in range(10, 15)),
        'Topic :: Scientific/Engineering :: Artificial Intelligence',
        'Topic :: Scientific/Engineering :: Image Processing',
        'Typing :: Typed',
    ],
    packages=find_packages(include=['timmdata', 'timmdata.*']),
    package_data={'timmdata': ['py.typed']},
    python_requires='>=' + settings['min_python'],
    install_requires=settings['requirements'].split(),
    extras_require={
        'demo': settings['demo_requirements'].split(),
        'fast': settings['fast_requirements'].split(),
        'regions': settings['regions_requirements'].split(),
        'tables': settings['tables_requirements'].split(),
        'wds': settings['wds_requirements'].split(),
        'hf': settings['hf_requirements'].split(),
        'remote': settings['remote_requirements'].split(),
        'ray': settings['ray_requirements'].split(),
        'inspect': settings['inspect_requirements'].split(),
        'explore': settings['explore_requirements'].split(),
        'integrations': settings['integrations_requirements'].split(),
        'notebooks': settings['notebooks_requirements'].split(),
        'dev': settings['dev_requirements'].split(),
    },
    entry_points={'console_scripts': settings['console_scripts'].split()},
    zip_safe=False,
)

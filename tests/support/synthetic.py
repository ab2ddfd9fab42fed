"The checkout, a picture of one pixel, and the package without what it imports first."
import base64
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# one gray pixel
JPEG = base64.b64decode(
    '/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAP//////////////////////////////////////////////////////////////////////////////'
    '////////wAALCAABAAEBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAACf/EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQEAAD8AVN//2Q==')

# Makes modules of the package importable in a program without all others: importing torch takes seconds.
BARE = f"""import sys, types
sys.modules['timmdata'] = types.ModuleType('timmdata')
sys.modules['timmdata'].__path__ = [{str(ROOT/'timmdata')!r}]"""

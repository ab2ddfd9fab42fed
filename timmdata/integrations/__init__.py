"Other people's training loops: each module makes a loader at home in the framework of its name, and imports it."
__all__ = [
    'base',
    'huggingface',
    'lightning',
]

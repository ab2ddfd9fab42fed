"Training loops of other libraries: each module adapts a loader to the framework of its name, and imports it."
__all__ = [
    'base',
    'huggingface',
    'lightning',
]

"Makes any Python a kernel of Colab, as far as a notebook can tell; used with PYTHONPATH."
import google.colab  # noqa: F401

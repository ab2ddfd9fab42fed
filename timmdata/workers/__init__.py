"Make batches in the consumer's thread, in threads or in processes, behind the same four methods."
from .autotune import resolve_workers
from .base import InlinePool, Task, WorkerPool
from .factory import create_pool
from .processes import ProcessPool
from .settings import WorkerSettings
from .threads import ThreadPool

__all__ = [
    'InlinePool', 'ProcessPool', 'Task', 'ThreadPool', 'WorkerPool', 'WorkerSettings', 'create_pool',
    'resolve_workers',
]

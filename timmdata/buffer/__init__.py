"Batches that are prepared ahead, kept in files, and survive restarts."
from .buffer import BatchBuffer, BufferSettings, remove_stale
from .files import BatchBufferError
from .status import buffer_status, format_status, remove_buffer
from .store import BatchStore

__all__ = [
    'BatchBuffer', 'BatchBufferError', 'BatchStore', 'BufferSettings', 'buffer_status', 'format_status', 'remove_buffer',
    'remove_stale',
]

"""Makes Python look like one on a system without Unix, in each process that has this folder in its PYTHONPATH: spawned ones, too.

Others' packages ask for the platform, which stays what it is, so they are imported before anything is taken away."""
import builtins
import functools
import multiprocessing.context
import multiprocessing.resource_tracker
import multiprocessing.spawn
import multiprocessing.synchronize
import os
import signal
import socket
import sys

import torch.multiprocessing
import torch.utils.data

MODULES = ('fcntl', 'grp', 'posix', 'pty', 'pwd', 'resource', 'syslog', 'termios')
OF_OS = """fork forkpty register_at_fork memfd_create getuid geteuid getgid getegid getpgid killpg setsid sched_getaffinity
    sched_setaffinity pread preadv pwrite posix_fadvise sysconf statvfs mkfifo chown fchown fchmod nice getloadavg
    O_NOFOLLOW O_DIRECTORY O_CLOEXEC O_NONBLOCK O_SYNC sendfile pidfd_open eventfd setpgid wait3 wait4""".split()
OF_SIGNAL = 'pthread_sigmask sigwait SIGKILL SIGHUP SIGCHLD SIGUSR1 SIGUSR2 SIGALRM setitimer alarm pthread_kill'.split()
OF_SOCKET = ('AF_UNIX', 'recv_fds', 'send_fds', 'SO_PEERCRED')
FOLDERS = ('/proc', '/dev/shm', '/sys')


def lack(module, names):
    for name in names:
        if hasattr(module, name): delattr(module, name)


def without_folders(function):
    "The same function, for which some folders are not there."
    def call(path='.', *args, **kwargs):
        if kwargs.get('dir_fd') is not None: raise NotImplementedError('dir_fd unavailable on this platform')
        if str(path).startswith(FOLDERS): raise FileNotFoundError(2, 'No such file or directory', str(path))
        return function(path, *args, **kwargs)
    return call


def only_spawn():
    contexts = multiprocessing.context._concrete_contexts
    for name in [name for name in contexts if name != 'spawn']: del contexts[name]
    multiprocessing.context._default_context._default_context = contexts['spawn']
    multiprocessing.get_all_start_methods = lambda: ['spawn']
    multiprocessing.resource_tracker._HAVE_SIGMASK = False   # it has looked already
    torch.multiprocessing.set_sharing_strategy('file_system')   # as on macOS: descriptors are not sent


class Absent:
    "Finds no module of these names, wherever it is."
    def find_spec(self, name, path=None, target=None):
        if name in MODULES: raise ModuleNotFoundError(f'No module named {name!r}', name=name)


only_spawn()
socket.socketpair = functools.partial(socket.socketpair, socket.AF_UNIX)   # for Python's own pipes, which Windows has of another kind
lack(os, OF_OS)
lack(signal, OF_SIGNAL)
lack(socket, OF_SOCKET)
for name in MODULES: sys.modules.pop(name, None)
sys.meta_path.insert(0, Absent())
os.supports_dir_fd.clear()
os.supports_fd.clear()
for name in ('open', 'stat', 'scandir', 'listdir', 'unlink', 'rename'): setattr(os, name, without_folders(getattr(os, name)))
builtins.open = without_folders(builtins.open)

"Workers that start late, are lost or never start: who gets which task, and what is left at the end."
import gc
import weakref

import pytest
from loader_parts import Coded, wait_until
from pool_contract import build, keys

from timmdata.workers.settings import WorkerSettings
from timmdata.workers.supervisor import SupervisedWorker, Supervisor, end_workers

pytestmark = pytest.mark.timeout(60)


class Scripted(SupervisedWorker):
    "Do nothing by itself: a test decides when it is ready, has an answer or is lost."
    def start(self): self.supervisor.started.append(self)

    def send(self, assignment, refused): self.supervisor.sent.append((self.number, assignment.task.keys[0].index))

    def say(self, function, *args): self.supervisor.tell(function, *args)

    def get_ready(self): self.say(setattr, self, 'is_ready', True)

    def answer(self): self.say(lambda: self.supervisor.finish(self, self.tasks[0], 'made'))

    def die(self): self.say(self._die)

    def _die(self):
        self.loss = f'worker {self.number} was lost'
        self.supervisor.replace(self)


class ScriptedSupervisor(Supervisor):
    worker_class, kind, failure = Scripted, 'worker', 'a worker could not be replaced'

    def __init__(self, *args):
        self.started, self.sent, self.released = [], [], []
        super().__init__(*args)

    def release(self, task): self.released.append(task)

    def wait_for_sent(self, *expected):
        wait_until(lambda: self.sent == list(expected), lambda: f'{self.sent} in place of {list(expected)}', 5)


@pytest.fixture
def supervisor():
    made = ScriptedSupervisor(build(Coded(64)), WorkerSettings(2, 'processes'))   # two batches ahead for each
    yield made
    made.stop()
    assert made.ended.wait(10)


def test_tasks_wait_for_a_worker_and_a_late_one_finds_some(supervisor):
    tasks = [supervisor.submit(keys(begin)) for begin in range(5)]
    first, second = supervisor.started
    first.get_ready()
    supervisor.wait_for_sent((0, 0), (0, 1))
    second.get_ready()
    supervisor.wait_for_sent((0, 0), (0, 1), (1, 2), (1, 3))
    second.answer()
    assert tasks[2].take(timeout=5) == 'made' and tasks[2].made_by == 1
    supervisor.wait_for_sent((0, 0), (0, 1), (1, 2), (1, 3), (1, 4))


def test_the_tasks_of_a_lost_worker_go_to_others_before_all_that_wait(supervisor):
    for worker in supervisor.started: worker.get_ready()
    for begin in range(5): supervisor.submit(keys(begin))
    supervisor.wait_for_sent((0, 0), (1, 1), (0, 2), (1, 3))
    first, second = supervisor.started
    first.die()
    second.answer()
    supervisor.wait_for_sent((0, 0), (1, 1), (0, 2), (1, 3), (1, 0))
    supervisor.started[2].get_ready()   # in place of the first
    supervisor.wait_for_sent((0, 0), (1, 1), (0, 2), (1, 3), (1, 0), (0, 2), (0, 4))
    assert list(supervisor.warnings) == ['worker 0 was lost while making a batch; another worker replaces it']


def test_a_cancelled_task_that_waits_is_not_sent(supervisor):
    task, other = supervisor.submit(keys(0)), supervisor.submit(keys(4))
    task.cancelled = True
    supervisor.started[0].get_ready()
    supervisor.wait_for_sent((0, 4))
    assert supervisor.released == [task]
    supervisor.started[0].answer()
    assert other.take(timeout=5) == 'made'


def test_a_worker_that_is_lost_before_it_is_ready_is_started_four_times(supervisor):
    task = supervisor.submit(keys(0))
    for number in range(4):
        wait_until(lambda number=number: len(supervisor.started) == 2 + number, 'it is not started again', 5)
        supervisor.started[-1 if number else 0].die()
    with pytest.raises(RuntimeError, match='^worker 0 was lost before it was ready$'): task.take(timeout=5)
    assert len(supervisor.started) == 5


def test_a_batch_that_four_workers_die_of_is_an_error_and_the_others_are_made(supervisor):
    task, other = supervisor.submit(keys(0)), supervisor.submit(keys(4))
    for number in range(4):
        wait_until(lambda number=number: len(supervisor.started) == 2 + number, 'it is not started again', 5)
        worker = supervisor.started[-1 if number else 0]
        worker.get_ready()
        worker.die()
    with pytest.raises(RuntimeError, match='^worker 0 was lost, repeatedly with the same batch$'): task.take(timeout=5)
    supervisor.started[1].get_ready()
    supervisor.started[1].answer()
    assert other.take(timeout=5) == 'made' and supervisor.released == [task]


def test_what_comes_after_the_end_is_dropped_and_nothing_is_held(supervisor):
    worker, task = supervisor.started[0], supervisor.submit(keys(0))
    worker.get_ready()
    supervisor.stop('enough')
    worker.die()
    assert supervisor.ended.wait(10) and len(supervisor.started) == 2
    with pytest.raises(RuntimeError, match='enough'): task.take(timeout=5)
    with pytest.raises(RuntimeError, match='enough'): supervisor.submit(keys(4))
    supervisor.started.clear()
    held = weakref.ref(worker)
    gc.disable()
    try:
        del worker
        assert held() is None   # no circle keeps it, though its task is still here
    finally: gc.enable()


class Unstartable(ScriptedSupervisor):
    class worker_class(Scripted):
        def start(self):
            if self.number: raise TypeError('cannot be pickled')
            super().start()

    def disconnect(self): gone.append(True)


gone = []


def test_a_worker_that_cannot_be_started_ends_those_before_it():
    with pytest.raises(TypeError, match='cannot be pickled'): Unstartable(build(Coded(8)), WorkerSettings(2, 'processes'))
    assert gone == [True]


def test_a_task_that_is_submitted_while_a_signal_handler_closes_the_pool_is_finished(supervisor):
    supervisor.acquire = lambda task: supervisor.stop('closed by a handler')
    with pytest.raises(RuntimeError, match='closed by a handler'): supervisor.submit(keys(0)).take(timeout=5)


def test_errors_in_the_listener_end_the_pool_and_every_task(supervisor):
    def fail(): raise MemoryError('no memory')
    task = supervisor.submit(keys(0))
    with supervisor.lock:   # both are there before the first is handled
        for _ in range(2): supervisor.tell(fail)
    with pytest.raises(RuntimeError, match='a worker could not be replaced: MemoryError: no memory') as raised: task.take(timeout=5)
    assert 'in fail' in str(raised.value.__cause__) and supervisor.ended.wait(5)


class Deaf(Scripted):
    "Record all requests, and end only after a certain one."
    def __init__(self, log, number, ends_at):
        self.log, self.number, self.ends_at, self.has_ended = log, number, ends_at, False

    def told(self, how):
        self.log.append((how, self.number))
        self.has_ended |= how == self.ends_at

    def ask_to_end(self): self.told('ask')
    def terminate(self): self.told('terminate')
    def kill(self): self.told('kill')
    def wait(self, deadline): return self.has_ended
    def close(self): self.log.append(('close', self.number))


def test_all_workers_are_told_to_end_before_one_of_them_is_told_more_firmly():
    log = []
    end_workers([Deaf(log, 0, 'kill'), Deaf(log, 1, 'ask'), Deaf(log, 2, 'kill'), Deaf(log, 3, 'terminate')])
    assert log == [*(('ask', k) for k in range(4)), ('terminate', 0), ('terminate', 2), ('terminate', 3), ('kill', 0), ('kill', 2),
                   *(('close', k) for k in range(4))]

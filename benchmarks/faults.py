"""A long run that is disturbed by faults of all kinds at random, against an undisturbed run: every batch is compared.

    python benchmarks/faults.py --seconds 3600 [--seed 7]

Programs train and are killed, interrupted, forked, and started again from their state; workers and producers are killed and stopped;
images and a buffer's files are deleted, cut, changed; disks fill up. See tests/support/fault_runs.py. The counts go to
results/faults.json, which the page `guarantees` reads; a batch that differs, an error without the cause's name, a hang or a leak ends
the run with an error that has its seed. Needs Linux and the requirements of the tests.
"""
import argparse
import datetime
import json
import sys
import tempfile
from pathlib import Path

from results import write_results

sys.path.insert(0, str(Path(__file__).resolve().parents[1]/'tests/support'))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--seconds', type=float, default=300)
    parser.add_argument('--seed', type=int, default=None, help='of a run that is to be repeated')
    a = parser.parse_args()
    from fault_runs import mixed_run
    with tempfile.TemporaryDirectory() as folder: report = mixed_run(a.seconds, Path(folder), a.seed)
    date = datetime.date.today().isoformat()
    write_results('faults', dict(seconds=a.seconds, seed=report['seed'], date=date), counts=report)
    print(json.dumps(report))


if __name__ == '__main__': main()

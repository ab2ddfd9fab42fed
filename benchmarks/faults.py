"""A long run with random faults of all kinds, compared batch by batch with an undisturbed run.

    python benchmarks/faults.py --seconds 3600 [--seed 7]

Programs train and are killed, interrupted, forked and restarted from their state. Workers and producers are killed and stopped. Images and
buffer files are deleted, truncated and changed. Disks fill up. See tests/support/fault_runs.py. The counts go to results/faults.json, which
the guide `guarantees` shows. If a batch differs, an error does not name its cause, or something hangs or leaks, the run stops with an error
that gives the seed. Requires Linux and the test dependencies.
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
    parser.add_argument('--seed', type=int, default=None, help='seed of the run to repeat')
    a = parser.parse_args()
    from fault_runs import mixed_run
    with tempfile.TemporaryDirectory() as folder: report = mixed_run(a.seconds, Path(folder), a.seed)
    date = datetime.date.today().isoformat()
    write_results('faults', dict(seconds=a.seconds, seed=report['seed'], date=date), counts=report)
    print(json.dumps(report))


if __name__ == '__main__': main()

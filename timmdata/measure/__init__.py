"Where the time of an image goes, what limits the loader on this machine, and what would help."
from .diagnosis import BOTTLENECKS, CHANGES, GUIDE, Diagnosis, diagnose, explain_change, format_diagnosis, write_verdict
from .machine import Interrupted, Trial, compare_speeds, describe_machine, format_machine, run_pass
from .page import diagnosis_page
from .stages import BenchResult, StageTime, bench_loader, format_result, measure_stages, plot_results, spread

__all__ = [
    'BOTTLENECKS', 'CHANGES', 'GUIDE', 'Diagnosis', 'diagnose', 'explain_change', 'format_diagnosis', 'write_verdict',
    'Interrupted', 'Trial', 'compare_speeds', 'describe_machine', 'format_machine', 'run_pass',
    'diagnosis_page',
    'BenchResult', 'StageTime', 'bench_loader', 'format_result', 'measure_stages', 'plot_results', 'spread',
]

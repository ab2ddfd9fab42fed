"Measure the time per image, what limits the loader on this machine, and what would help."
from .diagnosis import BOTTLENECKS, CHANGES, GUIDE, Diagnosis, diagnose, format_diagnosis
from .machine import Trial, compare_speeds, describe_machine, format_machine, run_pass
from .stages import StageTime, measure_stages, spread

__all__ = [
    'BOTTLENECKS', 'CHANGES', 'GUIDE', 'Diagnosis', 'diagnose', 'format_diagnosis',
    'Trial', 'compare_speeds', 'describe_machine', 'format_machine', 'run_pass',
    'StageTime', 'measure_stages', 'spread',
]

"Where the time of an image goes, what limits the loader on this machine, and what would help."
from .diagnosis import BOTTLENECKS, CHANGES, GUIDE, Diagnosis, diagnose, explain_change, format_diagnosis
from .machine import Interrupted, Trial, compare_speeds, describe_machine, format_machine, run_pass
from .page import diagnosis_page
from .stages import StageTime, measure_stages, spread

__all__ = [
    'BOTTLENECKS', 'CHANGES', 'GUIDE', 'Diagnosis', 'diagnose', 'explain_change', 'format_diagnosis',
    'Interrupted', 'Trial', 'compare_speeds', 'describe_machine', 'format_machine', 'run_pass',
    'diagnosis_page',
    'StageTime', 'measure_stages', 'spread',
]

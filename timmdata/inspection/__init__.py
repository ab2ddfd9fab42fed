"Check every file of a dataset before training: unreadable files, duplicates, and what a crop cuts away."
from .findings import KINDS, Finding, InspectSettings, Survey, exclusions
from .inspection import Inspection, inspect
from .masks import MaskSurvey, count_classes, measure_masks
from .measure import measure_dataset, measure_image

__all__ = [
    'inspect', 'Inspection', 'InspectSettings', 'KINDS', 'Finding', 'Survey', 'exclusions',
    'measure_dataset', 'measure_image', 'MaskSurvey', 'count_classes', 'measure_masks',
]

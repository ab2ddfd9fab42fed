"Accuracy with several right answers is timm's."
import json

import numpy as np
import pytest
import timm.data as timm_data
import torch

from timmdata.datasets.real_labels import RealLabelsImagenet

pytestmark = pytest.mark.timeout(60)


def test_real_labels_are_timms(tmp_path):
    rng, num = np.random.default_rng(0), 200
    labels = [rng.choice(12, rng.integers(0, 4), replace=False).tolist() for _ in range(num)]
    (tmp_path/'real.json').write_text(json.dumps(labels))
    names = [f'val/n{k % 7}/ILSVRC2012_val_{k:08d}.JPEG' for k in rng.permutation(np.arange(1, num + 1))]
    output = torch.from_numpy(rng.permuted(np.tile(np.arange(12.), (num, 1)), axis=1))
    for topk in ((1, 5), (3,), (5, 1, 2)):
        judges = [kind(names, tmp_path/'real.json', topk) for kind in (RealLabelsImagenet, timm_data.RealLabelsImagenet)]
        for judge in judges:
            for batch in output.split(32): judge.add_result(batch)
        assert judges[0].get_accuracy() == judges[1].get_accuracy()
        assert all(judges[0].get_accuracy(k) == judges[1].get_accuracy(k) for k in topk)
        assert 0 < judges[0].get_accuracy(topk[0]) < 100 and judges[0].sample_idx == judges[1].sample_idx == num


def test_the_labels_that_timm_ships_are_taken_where_no_file_is_given():
    names = [f'ILSVRC2012_val_{k:08d}.JPEG' for k in range(1, 50_001)]
    ours, oracle = RealLabelsImagenet(names), timm_data.RealLabelsImagenet(names)
    for judge in (ours, oracle): judge.add_result(torch.eye(1000)[:100])
    assert ours.real_labels == oracle.real_labels and ours.get_accuracy() == oracle.get_accuracy()

"A loader in fastai, with the recipe of the guide `your_trainer`: fit, evaluation, and the checkpoint in the middle of an epoch."
import os

import pytest
import torch
from framework_runs import NUM, check_resume, make_loader, make_model
from frameworks import require
from guide_recipes import recipe
from loader_parts import nothing_is_left

pytestmark = pytest.mark.timeout(300)
nothing_is_left = pytest.fixture(autouse=True)(nothing_is_left)


@pytest.fixture(scope='module')
def fastai():
    return require('fastai.vision.all')


@pytest.fixture
def learn(fastai):
    loaders = make_loader(), make_loader(is_training=False)
    learn = fastai.Learner(fastai.DataLoaders(*loaders), make_model(), torch.nn.functional.cross_entropy, opt_func=fastai.SGD, lr=0.01)
    with learn.no_bar(), learn.no_logging(): yield learn
    for loader in loaders: loader.close()


@pytest.mark.full
def test_a_killed_run_goes_on(fastai, tmp_path):
    check_resume('fastai_training', tmp_path)


def test_validation_is_in_order_and_complete(learn):
    learn.fit(1)
    for _ in range(2):
        predictions, targets = learn.get_preds(dl=learn.dls.valid)
        assert targets.tolist() == list(range(NUM)) and len(predictions) == NUM
    assert learn.validate()[0] == pytest.approx(torch.nn.functional.cross_entropy(predictions, targets).item(), abs=1e-5)


def test_a_fit_with_the_callback_begins_with_its_own_epoch(fastai, learn, tmp_path):
    "Independent of earlier reads: the learning rate finder trains for a while without calling the callback."
    seen = []
    learn.add_cb(fastai.Callback(after_loss=lambda self: seen.append(self.yb[0].tolist()) if self.training else None))
    first = next(iter(make_loader(num_workers=0)))[1].tolist()
    checkpoint = recipe('fastai').LoaderCheckpoint(tmp_path/'resume.pt', 1)
    with learn.added_cbs(checkpoint): learn.lr_find(num_it=3, show_plot=False)
    assert not checkpoint.path.exists()
    seen.clear()
    learn.fit(1, cbs=recipe('fastai').LoaderCheckpoint(tmp_path/'resume.pt'))
    assert seen[0] == first and len(seen) == len(learn.dls.train)


def test_a_network_of_fastais_takes_the_loaders(fastai, learn):
    "As the guide says: the number of classes is given, and the loader normalizes."
    made = fastai.vision_learner(learn.dls, fastai.resnet18, pretrained=False, n_out=NUM, normalize=False,
                                 loss_func=fastai.CrossEntropyLossFlat())
    assert made.model[-1][-1].out_features == NUM


def test_schedules_go_on(fastai, tmp_path):
    "Compare the one-cycle learning rates of a run that was stopped and one that was not."
    class Stop(fastai.Callback):
        def after_batch(self):
            if self.training and self.train_iter == 13: raise KeyboardInterrupt

    def run(*cbs, every=5):
        loader, rates = make_loader(), []
        record = fastai.Callback(before_step=lambda self: rates.append((self.train_iter, self.opt.hypers[0]['lr'])))
        learn = fastai.Learner(fastai.DataLoaders(loader, loader), make_model(), torch.nn.functional.cross_entropy)
        checkpoint = recipe('fastai').LoaderCheckpoint(tmp_path/'resume.pt', every)
        with learn.no_bar(), learn.no_logging():
            try: learn.fit_one_cycle(2, 0.1, cbs=[checkpoint, record, *cbs])
            finally: loader.close()
        return dict(rates)

    whole = run()
    assert len(whole) == 20 and not list(tmp_path.glob('resume*'))
    with pytest.raises(KeyboardInterrupt): run(Stop())
    resumed = run()
    assert list(resumed) == list(range(10, 20)) and all(whole[k] == pytest.approx(rate) for k, rate in resumed.items())


def test_a_kill_in_the_middle_of_a_checkpoint_keeps_the_last_one(fastai, learn, tmp_path, monkeypatch):
    "Cut short the file that is being written, and skip everything after it."
    path, replace, seen = tmp_path/'resume.pt', os.replace, []
    learn.add_cb(fastai.Callback(after_loss=lambda self: seen.append(self.train_iter) if self.training else None))
    def stop_in_the_middle(source, target):
        if seen[-1] == 8:
            os.truncate(source, os.path.getsize(source) // 2)
            raise KeyboardInterrupt
        replace(source, target)
    monkeypatch.setattr('os.replace', stop_in_the_middle)
    with pytest.raises(KeyboardInterrupt): learn.fit(1, cbs=recipe('fastai').LoaderCheckpoint(path, 3))
    monkeypatch.undo()
    assert torch.load(path, weights_only=False)['train_iter'] == 6
    seen.clear()
    learn.fit(1, cbs=recipe('fastai').LoaderCheckpoint(path, 3))
    assert seen == [6, 7, 8, 9]

"A loader in fastai, with the recipe of the guide `your_trainer`: fit, evaluation, and the checkpoint in the middle of an epoch."

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


def test_schedules_go_on(fastai, tmp_path):
    "The learning rates of a run that was stopped and one that was not, under one cycle."
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

"A loader in fastai: fit, evaluation, what is shown, and the checkpoint in the middle of an epoch."
import numpy as np
import pytest
import torch
from framework_runs import NUM, check_resume, make_loader, make_model
from frameworks import require
from loader_parts import nothing_is_left, program

pytestmark = pytest.mark.timeout(300)
nothing_is_left = pytest.fixture(autouse=True)(nothing_is_left)


@pytest.fixture(scope='module')
def fastai():
    return require('fastai.vision.all')


@pytest.fixture
def dls(fastai):
    from timmdata.integrations.fastai import create_dataloaders
    loaders = make_loader(), make_loader(is_training=False)
    yield create_dataloaders(*loaders, vocab=[f'class {k}' for k in range(NUM)])
    for loader in loaders: loader.close()


@pytest.fixture
def learn(fastai, dls):
    learn = fastai.Learner(dls, make_model(), torch.nn.functional.cross_entropy, opt_func=fastai.SGD, lr=0.01)
    with learn.no_bar(), learn.no_logging(): yield learn


def test_a_killed_run_goes_on(fastai, tmp_path):
    check_resume('fastai_training', tmp_path)


def test_validation_is_in_order_and_complete(learn):
    learn.fit(1)
    for _ in range(2):
        predictions, targets = learn.get_preds()
        assert targets.tolist() == list(range(NUM)) and len(predictions) == NUM
    assert learn.validate()[0] == pytest.approx(torch.nn.functional.cross_entropy(predictions, targets).item(), abs=1e-5)


def test_looking_at_a_batch_takes_none_from_training(fastai, learn):
    "One batch, a summary of the model and the search for a learning rate, which trains for a while."
    from timmdata.integrations.fastai import LoaderCheckpoint
    seen = []
    learn.add_cb(fastai.Callback(after_loss=lambda self: seen.append(self.yb[0].tolist()) if self.training else None))
    first = learn.dls.one_batch()[1].tolist()
    assert learn.dls.one_batch()[1].tolist() == first and learn.dls.device.type == 'cpu'
    learn.summary()
    learn.fit(1)
    assert seen[0] == first and len(seen) == len(learn.dls.train)
    learn.lr_find(num_it=3, show_plot=False)
    seen.clear()
    learn.fit(1, cbs=LoaderCheckpoint())
    assert seen[0] == first, 'with its callback, an epoch of a fit has its number'


def test_shown_images_are_those_of_the_dataset(fastai, dls):
    images, targets = dls.valid.one_batch()
    pixels, names = zip(*dls.valid.decode_batch((images, targets), max_n=4))
    for k, image in enumerate(pixels):
        expected = torch.from_numpy(np.array(dls.valid.dataset[k][0].resize((8, 8)))).permute(2, 0, 1) / 255
        assert torch.allclose(torch.Tensor(image), expected, atol=0.02)
    assert [str(name) for name in names] == [f'class {k}' for k in range(4)] and dls.c == NUM and dls.vocab[2] == 'class 2'
    dls.show_batch(max_n=2)
    mixed = torch.nn.functional.one_hot(targets, NUM) * 0.6 + 0.4 / NUM
    assert [str(name) for _, name in dls.valid.decode_batch((images, mixed), max_n=2)] == ['class 0', 'class 1']


def test_a_network_of_fastais_finds_normalization_and_classes(fastai, dls):
    learn = fastai.vision_learner(dls, fastai.resnet18, pretrained=False, loss_func=fastai.CrossEntropyLossFlat())
    assert learn.model[-1][-1].out_features == NUM
    assert dls.after_batch.fs.map(lambda f: isinstance(f, fastai.Normalize)) == [True]   # where a pretrained one looks for it


def test_what_is_not_offered_is_refused(fastai, learn):
    with pytest.raises(ValueError, match=r'gives batches on cpu, not cuda: make it with create_loader\(device=…\)'): learn.dls.to('cuda')
    with pytest.raises(TypeError, match='copy of itself with shuffle=False'): learn.get_preds(ds_idx=0)
    with pytest.raises(TypeError, match='copy of itself with shuffle=True'): learn.show_results()


def test_what_fastai_asks_for_is_said_whole(learn):
    with pytest.raises(TypeError, match='copy of itself: make that one'): learn.dls.train.new()
    with pytest.raises(TypeError, match='copy of itself with another dataset: make'): learn.dls.valid.new([1])


def test_an_exported_learner_predicts_with_a_loader(fastai, learn, tmp_path):
    "In a program of its own, which has the file alone."
    learn.path = tmp_path
    learn.fit(1)
    expected, _ = learn.get_preds()
    learn.export()
    learn.fit(1)   # the learner is as it was
    run = program(f"""import warnings
from framework_runs import make_loader, make_model
from fastai.vision.all import load_learner
from timmdata.integrations.fastai import LoaderDL
warnings.simplefilter('ignore')
learn = load_learner({str(tmp_path/'export.pkl')!r})
loader = make_loader(is_training=False)
with learn.no_bar(): predictions, _ = learn.get_preds(dl=LoaderDL(loader))
loader.close()
torch.save([predictions, learn.dls.vocab], {str(tmp_path/'found.pt')!r})
""", 'import torch')
    code, _, errors = run.end(120)
    assert code == 0, errors
    found, vocab = torch.load(tmp_path/'found.pt')
    assert torch.allclose(found, expected, atol=1e-6) and vocab == [f'class {k}' for k in range(NUM)]


def test_predict_is_refused_with_the_way_out(learn):
    with pytest.raises(TypeError, match=r'here the loader has them: make .* learn.get_preds\(dl=LoaderDL\(loader\)\)'):
        learn.predict('cat.jpg')


def test_a_wrong_number_is_refused(fastai):
    from timmdata.integrations.fastai import LoaderCheckpoint
    with pytest.raises(ValueError, match='every=0: give a number of batches, 1 or more'): LoaderCheckpoint(0)


def test_schedules_go_on(fastai, tmp_path):
    "The learning rates of a run that was stopped and one that was not, under one cycle."
    from timmdata.integrations.fastai import LoaderCheckpoint, create_dataloaders

    class Stop(fastai.Callback):
        def after_batch(self):
            if self.training and self.train_iter == 13: raise KeyboardInterrupt

    def run(*cbs, every=5):
        loader, rates = make_loader(), []
        record = fastai.Callback(before_step=lambda self: rates.append((self.train_iter, self.opt.hypers[0]['lr'])))
        learn = fastai.Learner(create_dataloaders(loader, loader, path=tmp_path), make_model(), torch.nn.functional.cross_entropy)
        with learn.no_bar(), learn.no_logging():
            try: learn.fit_one_cycle(2, 0.1, cbs=[LoaderCheckpoint(every), record, *cbs])
            finally: loader.close()
        return dict(rates)

    whole = run()
    assert len(whole) == 20 and not list((tmp_path/'models').glob('resume*'))
    with pytest.raises(KeyboardInterrupt): run(Stop())
    resumed = run()
    assert list(resumed) == list(range(10, 20)) and all(whole[k] == pytest.approx(rate) for k, rate in resumed.items())

"A loader in Keras' `fit`, with the recipe of the guide `your_trainer`: epochs, order, channels, and the backup in the middle of an epoch."
import os
from pathlib import Path

import pytest
import torch
from framework_runs import NUM, check_resume, in_a_plain_loop, make_loader
from frameworks import require
from guide_recipes import recipe
from loader_parts import nothing_is_left

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings('ignore:Your input ran out of data')]
nothing_is_left = pytest.fixture(autouse=True)(nothing_is_left)


@pytest.fixture(scope='module')
def keras():
    os.environ['KERAS_BACKEND'] = 'torch'
    keras = require('keras')
    assert keras.config.backend() == 'torch'
    return keras


@pytest.fixture
def loader():
    loader = make_loader()
    yield loader
    loader.close()


def watched():
    from keras_training import make_watched
    seen = []
    return make_watched(lambda targets: seen.append(targets.tolist())), seen


@pytest.mark.full
def test_a_killed_run_goes_on(keras, tmp_path):
    check_resume('keras_training', tmp_path)


def test_a_fit_sees_both_epochs_in_order(keras, loader, tmp_path):
    "Keras reads a batch before it begins; the callback sets each epoch after that."
    model, seen = watched()
    backup = recipe('keras').LoaderBackup(loader, tmp_path/'backup.pt')
    model.fit(recipe('keras').as_keras_data(loader), epochs=2, shuffle=False, verbose=0, callbacks=[backup])
    assert seen == in_a_plain_loop()[0]


def test_evaluation_is_in_order_and_complete(keras):
    as_keras_data = recipe('keras').as_keras_data
    valid = make_loader(is_training=False, num_workers=0)
    model, _ = watched()
    data = as_keras_data(valid)
    images = torch.cat([images for images, _ in valid])
    with torch.no_grad(): expected = model(images.permute(0, 2, 3, 1))
    for _ in range(2): assert torch.allclose(torch.as_tensor(model.predict(data, verbose=0)), expected, atol=1e-5)
    loss = torch.nn.functional.cross_entropy(expected, torch.arange(NUM))
    assert model.evaluate(data, verbose=0) == pytest.approx(loss.item(), abs=1e-4)


def test_channels_are_where_keras_wants_them(keras, loader):
    as_keras_data = recipe('keras').as_keras_data
    expected = next(iter(make_loader(num_workers=0)))[0]
    was = keras.config.image_data_format()
    try:
        for data_format, shape in (('channels_first', (4, 3, 8, 8)), ('channels_last', (4, 8, 8, 3))):
            keras.config.set_image_data_format(data_format)
            images, _ = next(iter(as_keras_data(make_loader(num_workers=0))))
            assert images.shape == shape
            assert torch.equal(images if shape[1] == 3 else images.permute(0, 3, 1, 2), expected)
    finally: keras.config.set_image_data_format(was)


def test_a_run_restored_twice_saves_its_epoch(keras, loader, tmp_path):
    "Keras' own callback would write epoch 0 after a restore in epoch 1."
    LoaderBackup, as_keras_data = recipe('keras').LoaderBackup, recipe('keras').as_keras_data

    def fit(stop):
        class Stop(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if self.model.optimizer.iterations == stop: raise KeyboardInterrupt
        model, seen = watched()
        backup = LoaderBackup(loader, tmp_path/'backup.pt', 2)
        try: model.fit(as_keras_data(loader), epochs=2, shuffle=False, verbose=0, callbacks=[backup, Stop()])
        except KeyboardInterrupt: assert torch.load(tmp_path/'backup.pt', weights_only=False)['epoch'] == 1
        return seen

    expected = in_a_plain_loop()[0]
    assert [fit(13), fit(17), fit(None)] == [expected[:13], expected[12:17], expected[16:]]
    assert not (tmp_path/'backup.pt').exists()


def test_a_kill_in_the_middle_of_a_backup_keeps_the_last_one(keras, loader, tmp_path, monkeypatch):
    "Cut short the file that is being written, and skip everything after it."
    LoaderBackup, as_keras_data = recipe('keras').LoaderBackup, recipe('keras').as_keras_data

    def fit(stop):
        replace = os.replace
        def stop_in_the_middle(source, target):
            if Path(source).name == 'backup.pt.new' and model.optimizer.iterations == stop:
                os.truncate(source, Path(source).stat().st_size // 2)
                raise KeyboardInterrupt
            replace(source, target)
        model, seen = watched()
        monkeypatch.setattr('os.replace', stop_in_the_middle)
        try: model.fit(as_keras_data(loader), epochs=2, shuffle=False, verbose=0, callbacks=[LoaderBackup(loader, tmp_path/'backup.pt', 3)])
        except KeyboardInterrupt: assert stop
        finally: monkeypatch.setattr('os.replace', replace)
        return seen

    expected = in_a_plain_loop()[0]
    assert [fit(3), fit(9), fit(None)] == [expected[:3], expected[:9], expected[6:]]

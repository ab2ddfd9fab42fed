"Keras' `fit` under the contract of `framework_runs`."
import os

os.environ['KERAS_BACKEND'] = 'torch'

import keras
from framework_runs import EPOCHS, NUM, make_loader

from timmdata.integrations.keras import LoaderBackup, as_keras_data


class Watched(keras.Sequential):
    "Writes down what it gets in training."
    see = None

    def train_step(self, data):
        self.see(data[1])
        return super().train_step(data)


def make_watched(see):
    model = Watched([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(NUM)])
    model.see = see
    model.compile(keras.optimizers.SGD(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def train(folder, see, resume, save_every):
    "Two epochs. The backup is found in the folder, whether the run is said to resume or not."
    loader = make_loader()
    assert resume == (folder/'backup').exists()
    backup = LoaderBackup(loader, folder/'backup', save_every)
    make_watched(see).fit(as_keras_data(loader), epochs=EPOCHS, shuffle=False, verbose=0, callbacks=[backup],
                          validation_data=as_keras_data(make_loader(is_training=False)))

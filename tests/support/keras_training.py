"Keras' `fit` under the contract of `framework_runs`, with the recipe of the guide."
import os

os.environ['KERAS_BACKEND'] = 'torch'

import keras
from framework_runs import EPOCHS, NUM, make_loader
from guide_recipes import recipe


class Watched(keras.Sequential):
    "Records what it gets in training."
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
    loader, keras_recipe = make_loader(), recipe('keras')
    assert resume == (folder/'backup.pt').exists()
    backup = keras_recipe.LoaderBackup(loader, folder/'backup.pt', save_every)
    make_watched(see).fit(keras_recipe.as_keras_data(loader), epochs=EPOCHS, shuffle=False, verbose=0, callbacks=[backup],
                          validation_data=keras_recipe.as_keras_data(make_loader(is_training=False)))

"NVIDIA DALI's CPU pipeline reading our shards by the index that it makes of them."
import dali_cpu
from nvidia.dali import fn, pipeline_def
from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy
from packs import packed

NAME, VERSION = 'DALI, CPU, webdataset', dali_cpu.VERSION


def prepare(data_dir, work, workers, batch_size, scratch, options): packed(data_dir, scratch, 'keep')


@pipeline_def
def pipeline(root, work):
    encoded, _ = fn.readers.webdataset(
        paths=sorted(map(str, root.glob('*.tar'))), ext=['jpg', 'cls'], random_shuffle=work != 'eval', initial_fill=1000, name='reader')
    return dali_cpu.transformed(encoded, work)


class Loader:
    "Unpacks DALI's dicts; the targets, rows of digits in .cls files, are read and left out."

    def __init__(self, iterator): self.iterator = iterator

    def __iter__(self):
        for output in self.iterator: yield output[0]['images'], None


def make(data_dir, work, workers, batch_size, scratch, options):
    pipe = pipeline(packed(data_dir, scratch, 'keep'), work, batch_size=batch_size, num_threads=workers, device_id=None,
                    prefetch_queue_depth=2)
    policy = LastBatchPolicy.PARTIAL if work == 'eval' else LastBatchPolicy.DROP
    return Loader(DALIGenericIterator(pipe, ['images'], reader_name='reader', last_batch_policy=policy, auto_reset=True))

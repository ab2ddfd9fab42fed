"Compare converted batches of patches with arithmetic on single images."
import pytest
import torch
import torch.utils.data
from grids import full
from hypothesis import given, settings
from hypothesis import strategies as st
from timm.data.naflex_transforms import patchify_image

from timmdata import NaFlex, as_siglip2, create_loader, unpad_batch, unpatchify
from timmdata.core.constants import IMAGENET_DEFAULT_MEAN as MEAN
from timmdata.core.constants import IMAGENET_DEFAULT_STD as STD

pytestmark = pytest.mark.timeout(120)
GRIDS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=6)


def make_images(grids, patch_size) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(sum(rows * 7 + columns for rows, columns in grids))
    edges = [(rows * patch_size[0], columns * patch_size[1]) for rows, columns in grids]
    return [torch.randint(0, 256, (3, *size), generator=generator, dtype=torch.uint8) for size in edges]


def normalized_patches(image, patch_size, channels_last, flat):
    "Return the patches of one image, by timm."
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    return patchify_image((image.float() / 255 - mean) / std, patch_size, channels_last=channels_last, flatten_patches=flat)[:2]


def padded_batch(images, patch_size, channels_last=True, flat=True):
    "Return a batch with one image per row, as timm's collator makes it."
    pairs = [normalized_patches(image, patch_size, channels_last, flat) for image in images]
    longest = max(len(patches) for patches, _ in pairs) + 2
    batch = dict(patches=torch.full((len(pairs), longest, *pairs[0][0].shape[1:]), 9.),
                 patch_coord=torch.zeros(len(pairs), longest, 2, dtype=torch.int64),
                 patch_valid=torch.zeros(len(pairs), longest, dtype=torch.bool), seq_len=longest)
    for row, (patches, coord) in enumerate(pairs):
        for name, values in dict(patches=patches, patch_coord=coord, patch_valid=torch.tensor(True)).items():
            batch[name][row, :len(patches)] = values
    return batch


def packed_batch(images, patch_size):
    "Return a batch with half of the images in each of two rows."
    pairs = [normalized_patches(image, patch_size, True, True) for image in images]
    half = (len(pairs) + 1) // 2
    rows, longest = [pairs[:half], pairs[half:]], 1 + sum(len(patches) for patches, _ in pairs)
    lengths = torch.tensor([len(patches) for patches, _ in pairs])
    batch = dict(patches=torch.full((2, longest, pairs[0][0].shape[1]), 9.), seq_len=longest,
                 patch_coord=torch.zeros(2, longest, 2, dtype=torch.int64),
                 document_ids=torch.zeros(2, longest, dtype=torch.int64), max_seqlen=int(lengths.max()),
                 cu_seqlens=torch.cat([torch.zeros(1), lengths.cumsum(0)]).int())
    number = 0
    for row, own in enumerate(rows):
        at = 0
        for patches, coord in own:
            number, part = number + 1, (row, slice(at, at + len(patches)))
            for name, values in dict(patches=patches, patch_coord=coord, document_ids=torch.tensor(number)).items():
                batch[name][part] = values
            at += len(patches)
    return batch | dict(patch_valid=batch['document_ids'] > 0)


@given(GRIDS, st.booleans())
@settings(max_examples=30, deadline=None)
def test_padding_is_dropped_and_nothing_else(grids, is_packed):
    images = make_images(grids, (4, 4))
    flat = unpad_batch((packed_batch if is_packed else padded_batch)(images, (4, 4)))
    expected = [normalized_patches(image, (4, 4), True, True) for image in images]
    lengths = [rows * columns for rows, columns in grids]
    assert torch.equal(flat['tokens'], torch.cat([patches for patches, _ in expected]))
    assert torch.equal(flat['coord'], torch.cat([coord for _, coord in expected]))
    assert flat['cu_seqlens'].tolist() == [sum(lengths[:k]) for k in range(len(lengths) + 1)]
    assert flat['cu_seqlens'].dtype == torch.int32 and flat['max_seqlen'] == max(lengths)
    assert flat['document_ids'].tolist() == [number for number, n in enumerate(lengths, 1) for _ in range(n)]


@given(GRIDS, st.sampled_from([(4, 4), (2, 6)]), st.booleans(), st.booleans())
@settings(max_examples=30, deadline=None)
def test_images_come_back(grids, patch_size, channels_last, flat):
    images = make_images(grids, patch_size)
    batch = padded_batch(images, patch_size, channels_last, flat)
    given = patch_size if flat else None   # else the shape says it
    found = unpatchify(batch, given, channels_last=channels_last)
    assert all(map(torch.equal, found, images)) and len(found) == len(images)


@given(GRIDS)
@settings(max_examples=20, deadline=None)
def test_images_come_back_from_shared_rows(grids):
    images = make_images(grids, (4, 4))
    found = unpatchify(packed_batch(images, (4, 4)))
    assert all(map(torch.equal, found, images)) and len(found) == len(images)


@given(GRIDS)
@settings(max_examples=20, deadline=None)
def test_siglip2_gets_patches_mask_and_grids(grids):
    batch = padded_batch(make_images(grids, (4, 4)), (4, 4), flat=False)
    found = as_siglip2(batch)
    assert found['spatial_shapes'].tolist() == [list(grid) for grid in grids]
    assert found['pixel_attention_mask'].sum(1).tolist() == [rows * columns for rows, columns in grids]
    assert found['pixel_attention_mask'].dtype == found['spatial_shapes'].dtype == torch.int64
    assert torch.equal(found['pixel_values'], padded_batch(make_images(grids, (4, 4)), (4, 4))['patches'])


@full
@given(GRIDS)
@settings(max_examples=5, deadline=None)
def test_siglip2_equals_the_image_processor(grids):
    transformers = pytest.importorskip('transformers')
    images = make_images(grids, (4, 4))
    found = as_siglip2(padded_batch(images, (4, 4)))
    processor = transformers.Siglip2ImageProcessor(
        patch_size=4, max_num_patches=found['pixel_values'].shape[1], image_mean=list(MEAN), image_std=list(STD))
    theirs = processor(images, do_resize=False, return_tensors='pt')
    mask = theirs['pixel_attention_mask'].bool()
    assert torch.equal(found['pixel_attention_mask'].bool(), mask)
    assert torch.equal(found['spatial_shapes'], theirs['spatial_shapes'])
    torch.testing.assert_close(found['pixel_values'][mask], theirs['pixel_values'][mask])


class Drawn(torch.utils.data.Dataset):
    "Draw images of several shapes, each of 4 × 4 blocks of one color."
    grids = [(2, 3), (4, 1), (1, 1), (3, 3), (2, 2)]
    def __len__(self): return len(self.grids)
    def __getitem__(self, index):
        from PIL import Image
        return Image.fromarray(make_images([self.grids[index]], (4, 4))[0].permute(1, 2, 0).numpy()), index


@pytest.mark.parametrize('mode', ['native', 'packed'])
@pytest.mark.parametrize('channels_last', [True, False])
def test_batches_of_a_loader(mode, channels_last):
    naflex = NaFlex(4, mode=mode, train_seq_lens=(9,), max_seq_len=9, row_len=14, batch_divisor=1,
                    patchify_channels_last=channels_last)
    loader = create_loader(Drawn(), batch_size=5, naflex=naflex, num_workers=0, device='cpu', backend='pillow')
    count = 0
    for batch, targets in loader:
        for image, index in zip(unpatchify(batch, channels_last=channels_last), targets.tolist(), strict=True):
            assert torch.equal(image, make_images([Drawn.grids[index]], (4, 4))[0])   # of its own size: no resizing
            count += 1
    assert count == 5

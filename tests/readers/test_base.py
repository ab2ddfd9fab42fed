"One way to find a split, for all readers."
import pytest

from timmdata.readers.base import Reader, choose_split, choose_splits, matching_splits, split_group

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize('names, split, found', [
    (['train', 'val'], 'val', 'val'), (['train', 'validation'], 'val', 'validation'), (['Train', 'TEST'], 'testing', 'TEST'),
    (['val', 'validation'], 'validation', 'validation'), (['fold1', 'fold2'], 'fold2', 'fold2'), (['Fold1'], 'fold1', 'Fold1')])
def test_a_split_has_several_names(names, split, found):
    assert choose_split(names, split, 'here') == found and found in matching_splits(names, split)
    assert found.lower() in split_group(split)


@pytest.mark.parametrize('names, split, message', [
    (['val', 'valid'], 'eval', "'eval' could be any of val, valid in here: use its own name"),
    (['train'], 'val', "no split 'val' in here; there is: train. Ask again"), ([], 'val', 'there is: a, b. Ask again')])
def test_no_split_is_taken_for_another(names, split, message):
    with pytest.raises(ValueError, match=message): choose_split(names, split, 'here', 'Ask again', ['a', 'b'])


def test_expressions_keep_what_is_in_brackets():
    splits = ['train', 'validation']
    assert choose_splits(splits, 'train[10%:20%]+val[:5]+train', 'here') == 'train[10%:20%]+validation[:5]+train'
    with pytest.raises(ValueError, match="no split 'test'"): choose_splits(splits, 'train+test[:3]', 'here')


def test_a_reader_needs_three_methods():
    class Nothing(Reader): "No method."
    for use in (len, lambda reader: reader[0], lambda reader: reader.filename(0)):
        with pytest.raises(NotImplementedError): use(Nothing())
    assert not Nothing.is_thread_safe and not Nothing.class_to_idx and Nothing.targets is None

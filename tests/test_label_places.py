"""dev.label_places: the same fields in every way, each with boxes of its own."""

import pytest

from dev.label_places import SIZE, WAYS, draw, main
from training.data import load_examples


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_label_and_value_stand_as_the_way_says(way):
    image, lines = draw(way, 0)
    assert [line["answers"] for line in lines] == [line["answers"] for line in draw(WAYS["beside"], 0)[1]]
    for line in lines:
        (value,), (label,) = line["evidence"], line["context"]
        for left, top, right, bottom in (value, label):
            assert 0 <= left < right <= SIZE
            assert 0 <= top < bottom <= SIZE
            assert len(image.crop((left, top, right, bottom)).getcolors(SIZE**2)) > 1  # ink
        apart = {"beside": label[2] <= value[0], "above": label[3] <= value[1], "below": value[3] <= label[1]}
        assert apart[way.place]


def test_the_folder_is_data_of_the_evaluation(tmp_path):
    main(["--out", str(tmp_path), "--pages", "2"])
    examples = load_examples(str(tmp_path), "held_out")
    assert len(examples) == 2 * 6 * len(WAYS)
    assert {example.family for example in examples} == {*WAYS}
    with pytest.raises(SystemExit):  # it is not empty any more
        main(["--out", str(tmp_path), "--pages", "1"])
    assert len(load_examples(str(tmp_path), "held_out")) == len(examples)

"""The parts of the examples for segmentation, detection and text."""

import detection
import pytest
import segmentation
import text
import torch

from muster.training import join


def test_pictures_and_masks_belong_together_and_are_the_same_again():
    images, masks = segmentation.pictures(4, 32, seed=3)
    again, _ = segmentation.pictures(4, 32, seed=3)
    assert torch.equal(images, again)
    assert images.shape == (4, 3, 32, 32) and masks.shape == (4, 32, 32)
    assert set(masks.unique().tolist()) <= {0, 1, 2, 3}
    assert segmentation.UNet(width=4)(images).shape == (4, 4, 32, 32)


def test_a_perfect_segmentation_has_a_mean_overlap_of_one():
    images, masks = segmentation.pictures(4, 32, seed=1)

    class Knows(torch.nn.Module):
        def forward(self, some: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot(masks[: len(some)], 4).permute(0, 3, 1, 2).float()

    found = segmentation.mean_iou(Knows(), join(), [images, masks])
    assert found["miou"] == found["pixel_accuracy"] == 1.0


def test_objects_are_what_hangs_together():
    mask = torch.zeros(1, 32, 32, dtype=torch.long)
    mask[0, 2:8, 3:9] = 2
    mask[0, 20:30, 20:30] = 2
    mask[0, 12:17, 1:6] = 1
    boxes = detection.boxes_of(mask)[0]
    kept = sorted(boxes[boxes[:, 0] >= 0].tolist())
    assert kept == [[0, 1, 12, 6, 17], [1, 3, 2, 9, 8], [1, 20, 20, 30, 30]]


def test_what_the_targets_say_is_found_again():
    objects = torch.full((1, detection.MOST, 5), -1.0)
    objects[0, 0] = torch.tensor([2.0, 8, 12, 26, 30])
    here, kinds, sides = detection.targets(objects, 8)
    said = torch.cat([20 * here[..., None] - 10, torch.nn.functional.one_hot(kinds, 3) * 9.0, sides], -1)
    best = detection.detections(said)[0, 0]
    assert best[1] == 2 and best[0] > 0.99
    torch.testing.assert_close(best[2:], objects[0, 0, 1:])


def test_average_precision_counts_every_object_once():
    wanted = torch.tensor([[0.0, 0, 10, 10]])
    claims = torch.tensor([[0.9, 0, 0, 0, 10, 10], [0.8, 0, 0, 0, 10, 9], [0.1, 0, 50, 50, 60, 60]])
    matched = detection.matched(claims, wanted)
    assert [right for _, right in matched] == [True, False, False]
    assert detection.average_precision(matched, 1) == 1.0
    assert detection.average_precision(matched, 2) == 0.5
    assert detection.average_precision([(0.9, False), (0.8, True)], 1) == 0.5


def test_the_tokenizer_spells_what_it_has_not_seen_from_pieces():
    tokenizer = text.Tokenizer(["the plot is not great", "the ending is great"] * 3, 60)
    assert len(tokenizer("the")) == 2  # the beginning, and one piece for a word that occurs often
    spelled = tokenizer("treat")
    assert text.UNKNOWN not in spelled and len(spelled) > 2
    assert text.UNKNOWN in tokenizer("jazz")
    assert max(tokenizer("the plot is not great")) < len(tokenizer)


def test_reviews_are_labelled_by_what_most_clauses_say(tmp_path):
    path = tmp_path / "reviews.tsv"
    text.made_up(path, 50, seed=0)
    labels, texts = text.read(path)
    for label, review in zip(labels, texts, strict=True):
        opinion = 0
        for clause in review.rstrip(".").split(", "):
            good = clause.rsplit(" ", 1)[1] in text.GOOD
            opinion += 1 if good != (" not " in clause) else -1
        assert (label == "good") == (opinion > 0)


def test_a_file_without_labels_is_refused(tmp_path):
    path = tmp_path / "plain.txt"
    path.write_text("no tab here\n")
    with pytest.raises(SystemExit, match="no line with a label, a tab and a text"):
        text.read(path)

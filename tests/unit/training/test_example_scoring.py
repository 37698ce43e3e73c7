"""The example's network as it answers, and what its scoring script makes of requests."""

import io
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn.functional import conv2d, relu

from muster.scoring.serve.http import Request, install_stand_ins

FORM = {"content-type": "multipart/form-data; boundary=line"}


def picture(colour: str) -> bytes:
    image = pytest.importorskip("PIL.Image")
    target = io.BytesIO()
    image.new("RGB", (120, 90), colour).save(target, "JPEG")
    return target.getvalue()


def form(*parts: bytes) -> bytes:
    head = b'--line\r\nContent-Disposition: form-data; name="picture"\r\n\r\n'
    return b"".join(head + part + b"\r\n" for part in parts) + b"--line--\r\n"


def test_the_network_without_its_normalisations_is_the_same_function(monkeypatch: pytest.MonkeyPatch) -> None:
    from inference import Fused
    from model import ResNet50

    # On the CPU, in two steps, what a GPU does in one.
    monkeypatch.setattr(
        torch,
        "cudnn_convolution_relu",
        lambda x, weight, bias, stride, padding, dilation, groups: relu(
            conv2d(x, weight, bias, stride, padding, dilation, groups)
        ),
    )
    monkeypatch.setattr(
        torch,
        "cudnn_convolution_add_relu",
        lambda x, weight, other, alpha, bias, *rest: relu(conv2d(x, weight, bias, *rest) + alpha * other),
    )
    torch.manual_seed(0)
    network = ResNet50(10, 8)
    network.train()
    for _ in range(3):  # so that the normalisations have something to say
        network(torch.randn(8, 3, 64, 64))
    network.eval()
    images = torch.randn(2, 3, 64, 64)
    with torch.inference_mode():
        torch.testing.assert_close(Fused(network)(images), network(images), rtol=1e-3, atol=1e-3)


@pytest.fixture
def scoring(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    install_stand_ins()
    import score
    from model import ResNet50

    torch.manual_seed(0)
    torch.save(ResNet50(10, 8).state_dict(), tmp_path / "model.pt")
    monkeypatch.setenv("MUSTER_MODEL_PATH", str(tmp_path / "model.pt"))
    score.init()
    yield score
    score.ahead.shutdown()
    score.reading.shutdown()


def test_a_form_of_several_pictures_gets_a_list(scoring: Any) -> None:
    body = form(picture("red"), b"no picture", picture("blue")[:200], picture("green"))
    answer = scoring.run(Request("POST", "/score", "", FORM, body))
    assert answer.status_code == 200
    assert ["error" in one for one in answer.message] == [False, True, True, False]
    alone = scoring.run(Request("POST", "/score", "", {}, picture("green")))
    assert alone.message["classes"] == answer.message[3]["classes"]


def test_requests_that_come_together_are_answered_apart(scoring: Any) -> None:
    requests = [Request("POST", "/score", "", {}, body) for body in (picture("red"), b"garbage", b"")]
    requests.append(Request("POST", "/score", "", FORM, form()))
    answers = scoring.run(requests)
    assert [answer.status_code for answer in answers] == [200, 400, 400, 400]


def test_many_pictures_are_taken_in_parts(scoring: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring.likeliest, "most", 2)
    found = scoring.classes([picture("red"), picture("blue"), b"x", picture("red"), picture("green")])
    assert ["error" in one for one in found] == [False, False, True, False, False]
    assert found[0] == found[3]

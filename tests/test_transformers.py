"""Outputs of Hugging Face transformers, from real classes with random weights, are refined at the image's size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import locpmap as lp
from locpmap.errors import InputError
from locpmap.refining.reading import QUERIES, adapt, logits_of_queries, read

transformers = pytest.importorskip("transformers")

SIZE = (64, 96)
N_LABELS = 5


def swin() -> Any:
    """Return the configuration of a small backbone."""
    sizes: dict[str, Any] = {"embed_dim": 8, "depths": [1] * 4, "num_heads": [1] * 4, "window_size": 4}
    return transformers.SwinConfig(image_size=64, out_features=[f"stage{n}" for n in (1, 2, 3, 4)], **sizes)


def segformer() -> Any:
    sizes: dict[str, Any] = {"hidden_sizes": [8, 8, 16, 16], "decoder_hidden_size": 16, "depths": [1] * 4}
    return transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig(num_labels=N_LABELS, **sizes))


def dpt() -> Any:
    sizes: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "patch_size": 16}
    sizes |= {"intermediate_size": 16, "neck_hidden_sizes": [8] * 4, "fusion_hidden_size": 8, "image_size": 64}
    sizes |= {"backbone_out_indices": [0, 1, 2, 3], "use_auxiliary_head": False}
    return transformers.DPTForSemanticSegmentation(transformers.DPTConfig(num_labels=N_LABELS, **sizes))


def mask2former() -> Any:
    sizes = dict.fromkeys(("feature_size", "mask_feature_size", "hidden_dim"), 32)
    sizes |= {"encoder_feedforward_dim": 16, "dim_feedforward": 16, "encoder_layers": 1, "decoder_layers": 2}
    sizes |= {"num_attention_heads": 2, "num_queries": 7}
    return transformers.Mask2FormerForUniversalSegmentation(
        transformers.Mask2FormerConfig(backbone_config=swin(), num_labels=N_LABELS, **sizes)
    )


def maskformer() -> Any:
    sizes = dict.fromkeys(("d_model", "decoder_ffn_dim", "encoder_ffn_dim"), 16)
    sizes |= dict.fromkeys(("encoder_layers", "decoder_layers"), 1)
    sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2)
    return transformers.MaskFormerForInstanceSegmentation(
        transformers.MaskFormerConfig(
            backbone_config=swin(),
            decoder_config=transformers.DetrConfig(num_queries=6, **sizes),
            fpn_feature_size=32,
            mask_feature_size=32,
            num_labels=N_LABELS,
        )
    )


def output_of(build: Any, size: tuple[int, int] = SIZE) -> tuple[torch.Tensor, Any]:
    """Return two images and the output of a network with random weights."""
    torch.manual_seed(0)
    network, images = build().eval(), torch.rand(2, 3, *size)
    with torch.no_grad():
        return images, network(images)


@pytest.mark.filterwarnings("default")  # warnings inside transformers are theirs
@pytest.mark.parametrize("build", [segformer, dpt, mask2former, maskformer])
def test_probabilities_have_the_size_of_the_image(build: Any) -> None:
    images, output = output_of(build, (64, 64) if build is dpt else SIZE)  # DPT takes squares
    result = lp.refine(images, output)
    assert result.probability.shape == (2, *images.shape[2:], N_LABELS)
    np.testing.assert_allclose(result.probability.sum(-1), 1, atol=1e-5)
    first = {name: value[:1] for name, value in output.items() if name in ("logits", *QUERIES)}
    assert lp.refine(images[0], first).labels.shape == images.shape[2:]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("build", "processor"), [(mask2former, "Mask2Former"), (maskformer, "MaskFormer")])
def test_most_probable_labels_of_queries_are_those_of_transformers(build: Any, processor: str) -> None:
    _, output = output_of(build)  # random weights predict nearly one label, so that the scores are replaced
    smooth = torch.nn.functional.interpolate(3 * torch.randn(2, 6, 4, 6), (16, 24), mode="bilinear")
    output = type(output)(class_queries_logits=2 * torch.randn(2, 6, 6), masks_queries_logits=smooth)
    post = getattr(transformers, f"{processor}ImageProcessorPil")().post_process_semantic_segmentation
    logits = adapt(output)[0]
    expected = torch.stack(post(output, [(16, 24)] * 2))
    assert (logits.argmax(1) == expected).float().mean() > 0.97  # Mask2Former resizes to 384 × 384 in between
    assert len(expected.unique()) > 2


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_queries_are_mixed_and_normalised(kind: Any) -> None:
    """Compare with the mixture over queries, one pixel and label at a time."""
    rng = np.random.default_rng(0)
    classes, masks = rng.normal(size=(2, 4, 4)), 3 * rng.normal(size=(2, 4, 3, 5))
    found = np.exp(np.asarray(logits_of_queries(kind(classes), kind(masks))))
    for n, k, i, j in np.ndindex(2, 3, 3, 5):
        p = np.exp(classes[n]) / np.exp(classes[n]).sum(1, keepdims=True)  # (Q, K + 1)
        belongs = (1 - p[:, -1]) / (1 + np.exp(-masks[n, :, i, j]))  # of the pixel to a query
        within = p[:, k] / (1 - p[:, -1])  # of the label, given the query
        assert found[n, k, i, j] == pytest.approx((belongs / belongs.sum()) @ within, rel=1e-4)


def test_pixels_in_no_mask_have_finite_scores() -> None:
    classes, masks = np.zeros((1, 2, 4), np.float32), np.full((1, 2, 8, 8), -200.0, np.float32)
    classes[0, :, 1] = 3.0
    given = read(np.zeros((16, 16)), {"class_queries_logits": classes, "masks_queries_logits": masks})
    np.testing.assert_allclose(np.exp(given.scores).sum(-1), 1, rtol=1e-5)
    assert (given.scores.argmax(-1) == 1).all()
    classes[..., -1] = 300.0  # no query has an object
    given = read(np.zeros((16, 16)), {"class_queries_logits": classes, "masks_queries_logits": masks})
    assert np.isfinite(given.scores).all()


@pytest.mark.parametrize(
    ("classes", "masks"), [((2, 4), (2, 8, 8)), ((1, 2, 4), (1, 3, 8, 8)), ((1, 2, 1), (1, 2, 8, 8))]
)
def test_queries_of_other_shapes_are_refused(classes: tuple[int, ...], masks: tuple[int, ...]) -> None:
    output = {"class_queries_logits": np.zeros(classes), "masks_queries_logits": np.zeros(masks)}
    with pytest.raises(InputError, match=r"expected \(N, Q, K \+ 1\) and \(N, Q, h, w\)") as caught:
        lp.refine(np.zeros((16, 16)), output)
    assert "\n" not in str(caught.value)


def test_other_outputs_are_refused() -> None:
    with pytest.raises(InputError, match=r"keys \['pred_boxes'\], expected 'logits' or 'out'"):
        lp.refine(np.zeros((16, 16)), {"pred_boxes": np.zeros((1, 3, 4))})

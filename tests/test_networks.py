"""The network of the paper, networks with a CRF head, their files and their training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.errors import InputError
from locpmap.formats.model_file import read_model, write_model

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional
nn = pytest.importorskip("locpmap.nn")
training = pytest.importorskip("locpmap.nn.training")
intensities_of_ends = pytest.importorskip("locpmap.nn.network").intensities_of_ends

WIDTHS = (3, 5)


def noisy_images(n: int = 4, size: int = 6, seed: int = 0) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(n, size, size, generator=generator) > 0.5).long()
    return (labels + 0.5 * torch.randn(labels.shape, generator=generator))[:, None], labels


def small_network(head: Any = None, **options: bool) -> Any:
    torch.manual_seed(0)
    return nn.CRFNetwork(nn.FCN(widths=WIDTHS, **options), head)


def heads() -> dict[str, Any]:
    torch.manual_seed(1)
    predicted = nn.CRFHead(2, feature_channels=5, steps=((0, 1), (1, 0), (0, 3)), objective="pseudolikelihood")
    torch.nn.init.normal_(predicted.predict.weight)
    tables = torch.randn(2, 3, 2, 2)
    return {
        "predicted": predicted,
        "linear": nn.CRFHead(2, "table", features=3, learn=False, weights=tables, objective="pseudolikelihood"),
        "shared": nn.CRFHead(2, weights=0.7, objective="pseudolikelihood"),
    }


def test_the_default_network_is_that_of_the_paper() -> None:
    fcn = nn.FCN()
    sizes = [(layer.in_channels, layer.out_channels, layer.kernel_size[0]) for layer in fcn.modules()
             if isinstance(layer, torch.nn.Conv2d)]  # fmt: skip
    assert sizes == [(1, 64, 3), (64, 126, 3), (126, 256, 3), (256, 512, 3), (512, 2, 1)]
    assert not any(isinstance(layer, torch.nn.BatchNorm2d | torch.nn.MaxPool2d) for layer in fcn.modules())


def test_the_receptive_field_of_four_layers_is_nine_pixels_wide() -> None:
    torch.manual_seed(0)
    image = torch.randn(1, 1, 13, 13, requires_grad=True)
    nn.FCN(widths=(4, 4, 4, 4))(image)[0, 0, 6, 6].backward()
    assert image.grad is not None
    seen = image.grad[0, 0] != 0
    assert seen[2:11, 2:11].float().mean() > 0.9
    seen[2:11, 2:11] = False
    assert not seen.any()


def test_without_a_head_the_loss_is_the_cross_entropy() -> None:
    x, y = noisy_images()
    net = small_network()
    torch.testing.assert_close(net(x, y), F.cross_entropy(net.backbone(x), y))
    with pytest.raises(InputError, match="no head"):
        net.potentials(x.numpy())


@pytest.mark.parametrize("kind", ["predicted", "linear", "shared"])
def test_the_loss_is_the_pseudolikelihood_of_the_potentials(kind: str) -> None:
    x, y = noisy_images()
    net = small_network(heads()[kind])
    pot = net.potentials(x[:, 0].numpy())
    scores = torch.tensor(np.asarray(pot.local_scores(y.numpy())))
    wanted = F.cross_entropy(scores.flatten(0, 2).float(), y.flatten())
    torch.testing.assert_close(net(x, y).detach(), wanted)


def test_edge_features_are_a_constant_and_the_intensities_of_both_ends() -> None:
    x, _ = noisy_images(1, 3)
    right, down = intensities_of_ends(x, ((0, 1), (1, 0)))
    assert right.shape == (1, 3, 2, 3)
    assert down.shape == (1, 2, 3, 3)
    torch.testing.assert_close(right[0, 2, 1], torch.stack([torch.ones(()), x[0, 0, 2, 1], x[0, 0, 2, 2]]))
    torch.testing.assert_close(down[0, 1, 2], torch.stack([torch.ones(()), x[0, 0, 1, 2], x[0, 0, 2, 2]]))


def test_potentials_do_not_depend_on_the_chunk_size(monkeypatch: pytest.MonkeyPatch) -> None:
    x, _ = noisy_images(7)
    net = small_network(heads()["predicted"])
    whole = net.potentials(x.numpy())
    monkeypatch.setattr("locpmap.nn.network.CHUNK", 2)
    parts = net.potentials(x.numpy())
    np.testing.assert_allclose(whole.unary, parts.unary, atol=1e-6)
    labels = np.zeros((7, 6, 6), int)
    np.testing.assert_allclose(whole.score(labels), parts.score(labels), atol=1e-4)


# files


@pytest.mark.parametrize("kind", [None, "predicted", "linear", "shared"])
def test_a_saved_network_gives_the_same_outputs(tmp_path: Path, kind: str | None) -> None:
    x, y = noisy_images()
    net = small_network(None if kind is None else heads()[kind], normalise=True)
    nn.train(net, lambda generator: (x, y), nn.Recipe(2, 1e-2))  # changes the running means of batch normalisation
    net.save(tmp_path / "net.safetensors")
    again = nn.CRFNetwork.load(tmp_path / "net.safetensors")
    np.testing.assert_array_equal(net.logits(x.numpy()), again.logits(x.numpy()))
    if kind is not None:
        labels = y.numpy()
        np.testing.assert_array_equal(
            net.potentials(x.numpy()).score(labels), again.potentials(x.numpy()).score(labels)
        )


def test_half_precision_files_are_smaller_and_nearly_exact(tmp_path: Path) -> None:
    x, _ = noisy_images()
    net = nn.CRFNetwork(nn.FCN(widths=(16, 32)))
    net.save(tmp_path / "whole.safetensors")
    net.save(tmp_path / "half.safetensors", half=True)
    sizes = [(tmp_path / f"{name}.safetensors").stat().st_size for name in ("whole", "half")]
    assert sizes[1] < 0.6 * sizes[0]
    again = nn.CRFNetwork.load(tmp_path / "half.safetensors").logits(x.numpy())
    np.testing.assert_allclose(again, net.logits(x.numpy()), atol=0.02)
    assert (again != net.logits(x.numpy())).any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "crf"}, "expected a network"),
        ({"backbone": {"widths": [3]}}, "other names or shapes"),
        ({"backbone": {"widths": [100_000, 100_000]}}, "other names or shapes"),  # 360 GB, never allocated
        ({"backbone": {"widths": [1] * 101}}, "at most 100"),
        ({"backbone": {"widths": [3, 5], "depth": 3}}, "does not hold the network"),
        ({"head": {"n_labels": 2}}, "does not hold the network"),
    ],
)
def test_files_without_a_valid_network_are_refused(tmp_path: Path, change: dict, words: str) -> None:
    path = tmp_path / "net.safetensors"
    small_network().save(path)
    arrays, header = read_model(path)
    write_model(path, arrays, header | change)
    with pytest.raises(InputError, match=words):
        nn.CRFNetwork.load(path)


def test_the_file_of_a_crf_is_refused(tmp_path: Path) -> None:
    x, y = noisy_images()
    crf = lp.CRF(2)
    crf.fit(x[:, 0].numpy(), y.numpy())
    crf.save(tmp_path / "crf.safetensors")
    with pytest.raises(InputError, match="expected a network"):
        nn.CRFNetwork.load(tmp_path / "crf.safetensors")


@pytest.mark.parametrize(
    "head",
    [nn.CRFHead(2, feature_channels=4), nn.CRFHead(2, features=2), nn.CRFHead(3)],
    ids=["channels", "features", "labels"],
)
def test_heads_that_do_not_match_the_backbone_are_refused(head: Any) -> None:
    with pytest.raises(InputError, match="head has"):
        small_network(head)


@pytest.mark.parametrize("shape", [(3,), (2, 2, 5, 5), (0, 5, 5)], ids=str)
def test_images_of_wrong_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="images has shape"):
        small_network().logits(np.zeros(shape))


# training


def trained(
    steps: int = 12, seed: int = 0, optimiser: str = "adamw", checkpoint: Path | None = None, stop: int | None = None
) -> tuple[Any, Any]:
    head = nn.CRFHead(2, feature_channels=5, objective=nn.ConsistentLoss(2, seed=5))
    net = small_network(head, normalise=True)

    def draw(generator: Any) -> tuple[Any, Any]:
        x, y = noisy_images()
        return x + torch.randn(x.shape, generator=generator), y

    def progress(done: int, total: int) -> None:
        if done == stop:
            raise KeyboardInterrupt

    recipe = nn.Recipe(steps, 1e-2, optimiser=optimiser)
    try:
        return net, nn.train(net, draw, recipe, seed=seed, checkpoint=checkpoint, progress=progress)
    except KeyboardInterrupt:
        return net, None


@pytest.mark.parametrize("optimiser", ["adamw", pytest.param("sgd", marks=pytest.mark.slow)])
def test_a_resumed_training_equals_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimiser: str
) -> None:
    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    whole, result = trained(optimiser=optimiser)
    state = tmp_path / "state.safetensors"
    assert trained(optimiser=optimiser, checkpoint=state, stop=8)[1] is None
    assert read_model(state)[1]["step"] == 7  # the eighth step was not saved
    resumed, again = trained(optimiser=optimiser, checkpoint=state)
    assert result is not None
    assert again is not None
    assert again.losses == result.losses
    for (name, one), other in zip(whole.state_dict().items(), resumed.state_dict().values(), strict=True):
        assert torch.equal(one, other), name


def test_losses_depend_on_the_seed_and_decrease() -> None:
    first, second = trained(40), trained(40, seed=1)
    assert first[1] is not None
    assert second[1] is not None
    assert first[1].losses != second[1].losses
    assert first[1].losses[-1] < 0.8 * first[1].losses[0]


@pytest.mark.parametrize("change", [{"steps": 13}, {"seed": 1}, {"optimiser": "sgd"}], ids=str)
def test_the_state_of_another_training_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict
) -> None:
    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    state = tmp_path / "state.safetensors"
    trained(checkpoint=state, stop=5)
    with pytest.raises(InputError, match="another training"):
        trained(checkpoint=state, **change)


def test_the_learning_rate_warms_up_and_decays() -> None:
    recipe = nn.Recipe(1000, 0.3, warm_up=0.1)
    rates = np.array([recipe.rate(step) for step in range(1000)])
    assert rates.argmax() in (99, 100)
    assert rates.max() == pytest.approx(0.3, rel=0.01)
    assert (np.diff(rates[:99]) > 0).all()
    assert (np.diff(rates[101:]) < 0).all()
    assert rates[-1] < 1e-5


def test_a_diverging_training_raises_an_error() -> None:
    x, y = noisy_images()
    with pytest.raises(training.DivergedError, match="by step 51: use a smaller learning_rate"):
        nn.train(small_network(), lambda generator: (x * 1e20, y), nn.Recipe(200, 1e20, optimiser="sgd"))


def test_a_step_is_proportional_to_the_rate_and_decays_weights() -> None:
    x, y = noisy_images()

    def weights_after(**options: Any) -> Any:
        net = small_network()
        nn.train(net, lambda generator: (x, y), nn.Recipe(1, optimiser="sgd", **options))
        return net.backbone.classifier.weight.detach()

    start = small_network().backbone.classifier.weight.detach()
    one, two, decayed = (
        weights_after(learning_rate=0.1, weight_decay=0.0) - start,
        weights_after(learning_rate=0.2, weight_decay=0.0) - start,
        weights_after(learning_rate=0.1, weight_decay=0.5) - start,
    )
    torch.testing.assert_close(two, 2 * one)
    rate = nn.Recipe(1, 0.1).rate(0)
    assert rate < 0.1  # the rate of this step, not the largest one
    torch.testing.assert_close(decayed, one - rate * 0.5 * start)


def test_in_evaluation_mode_a_network_decodes() -> None:
    x, _ = noisy_images()
    net = small_network(heads()["predicted"], normalise=True).train(False)
    decoded = net(x)
    wanted = lp.infer(net.potentials(x.numpy()), "locpmap", probability="conditional", seed=0)
    np.testing.assert_allclose(decoded.probability.numpy(), wanted.probability, atol=1e-5)
    plain = small_network().train(False)
    torch.testing.assert_close(plain(x), plain.backbone(x))
    with pytest.raises(InputError, match="labels is None"):
        small_network()(x)


def test_logits_use_evaluation_mode_and_restore_training_mode() -> None:
    """In training mode, batch normalisation would make logits depend on other images and update running means."""
    x, _ = noisy_images()
    net = small_network(normalise=True).train()
    alone, together = net.logits(x[:1].numpy()), net.logits(x.numpy())
    np.testing.assert_allclose(alone, together[:1], atol=1e-6)
    assert net.training


def test_fixed_pairwise_weights_are_not_parameters_after_loading(tmp_path: Path) -> None:
    small_network(heads()["linear"]).save(tmp_path / "net.safetensors")
    again = nn.CRFNetwork.load(tmp_path / "net.safetensors")
    assert "head.weights" not in dict(again.named_parameters())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda arrays, header: (arrays, header | {"step": 99}), "step 99"),
        (lambda arrays, header: (arrays, header | {"step": None}), "step None"),
        (lambda arrays, header: ({k: v for k, v in arrays.items() if k != "losses"}, header), "optimiser's state"),
        (lambda arrays, header: ({k: v for k, v in arrays.items() if "optimiser/0" not in k}, header), "optimiser's"),
        (lambda arrays, header: ({k: v for k, v in arrays.items() if "classifier" not in k}, header), "network"),
    ],
)
def test_states_with_inconsistent_content_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any, words: str
) -> None:
    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    state = tmp_path / "state.safetensors"
    trained(checkpoint=state, stop=5)
    write_model(state, *change(*read_model(state)))
    with pytest.raises(InputError, match=words):
        trained(checkpoint=state)


@pytest.mark.parametrize(
    ("option", "value"),
    [("optimiser", "adam"), ("n_steps", 0), ("batch_size", 0), ("learning_rate", float("nan")), ("warm_up", 2)],
)
def test_invalid_recipes_are_refused(option: str, value: object) -> None:
    with pytest.raises(InputError, match=option):
        nn.Recipe(**{"n_steps": 5, "learning_rate": 0.1, option: value})
